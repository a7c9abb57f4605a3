// The package: `npm pack` makes a file from which `npx` starts a gateway in an empty folder.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { parsedAtOnceMax } from "../../src/http/parse-body.ts";
import { contentKey } from "../support/content-key.ts";

const root = join(import.meta.dirname, "../..");
let home: string;
let packed: string;
let child: ReturnType<typeof launch>;
let address: string;
let keys: { v1: string; ownerLink: string };

/** Runs the command of the package in an empty folder, with no program of the repository. */
function launch(...args: readonly string[]) {
  const { PATH = "", npm_config_registry } = process.env;
  const path = PATH.split(":").filter((folder) => !folder.startsWith(root));
  const started = spawn("npx", ["--yes", "--package", packed, "model-gateway", ...args], {
    cwd: join(home, "empty"),
    env: {
      ...{
        PATH: path.join(":"),
        HOME: home,
        WORKERS: "2",
        PORT: "0",
        GRPC_PORT: "0",
        CONTENT_KEY: contentKey,
      },
      ...(npm_config_registry && { npm_config_registry }),
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [started.stdout, started.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  const ended = once(started, "close").then(([code]: unknown[]) => ({ code, output }));
  return { process: started, ended, output: () => output };
}

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "gateway-package-"));
  await mkdir(join(home, "empty"));
  const file = execFileSync("npm", ["pack", "--silent", "--pack-destination", home], {
    cwd: root,
    encoding: "utf8",
  });
  packed = join(home, file.trim().split("\n").at(-1) ?? "");
  child = launch();
  address = await vi.waitFor(
    () => {
      const [, url] = /The model gateway runs at (\S+)/.exec(child.output()) ?? [];
      if (url === undefined) throw new Error(child.output());
      return url;
    },
    { timeout: 500_000, interval: 200 },
  );
  keys = JSON.parse(await readFile(join(home, "empty/data/first-keys.json"), "utf8"));
}, 600_000);
afterAll(async () => {
  child.process.kill("SIGTERM");
  await child.ended;
  await rm(home, { recursive: true, force: true });
});

test("a gateway of the package answers requests that are paid, small and large", async () => {
  const messages = [{ role: "user", content: "hello" }];
  const body = JSON.stringify({ model: "model-haiku-4.5", max_tokens: 20, messages });
  // The large one is parsed in a thread, which has a file of its own.
  for (const padding of [0, parsedAtOnceMax]) {
    const answer = await fetch(`${address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": keys.v1,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: body + " ".repeat(padding),
    });
    expect([answer.status, Object(await answer.json()).type]).toEqual([200, "message"]);
  }
});

test("its page is the one that was built, and its health is in order", async () => {
  const page = await (await fetch(`${address}/console/`)).text();
  const [, script = ""] = /src="(\/console\/assets\/[^"]+)"/.exec(page) ?? [];
  expect((await fetch(`${address}${script}`)).status).toBe(200);
  expect((await fetch(`${address}/health`)).status).toBe(200);
});

test("its documents are pages, with their search and their pictures", async () => {
  const index = await (await fetch(`${address}/docs`)).text();
  expect(index).toContain('<link rel="stylesheet" href="/console/assets/docs-');
  expect((await fetch(`${address}/docs/tools`)).status).toBe(200);
  expect(await (await fetch(`${address}/docs?q=rotate`)).text()).toContain("<mark>");
  expect((await fetch(`${address}/docs/pictures/console-light.png`)).status).toBe(200);
});

test("its commands are those of a clone", async () => {
  const help = await launch("--help").ended;
  expect(help.code).toBe(0);
  const { scripts } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const listed = [...help.output.matchAll(/^ {2}(\S+)$/gm)].map(([, name]) => name);
  expect(listed).toContain("verify-ledger");
  for (const name of listed) expect(scripts).toHaveProperty([name ?? ""]);
  expect(await launch("check-config").ended).toMatchObject({
    code: 0,
    output: expect.stringContaining("model-haiku-4.5"),
  });
  expect((await launch("generate").ended).code).toBe(2);
});

test("the end of npx is the end of its gateway and database", async () => {
  const running = join(home, "empty/data/postgres/postmaster.pid");
  expect(existsSync(running)).toBe(true);
  child.process.kill("SIGTERM");
  expect((await child.ended).output).not.toContain("Warning");
  await vi.waitFor(() => expect(existsSync(running)).toBe(false), { timeout: 30_000 });
});
