// A newcomer's way in a clean clone: the install of README as it is printed, without what only
// developers need, then the samples of README and of the quick start, and one with an SDK, which
// its own command installs. Only addresses are put in place of those that are printed.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { readSamples, readSection, root } from "../docs/documents.ts";
import { contentKey } from "../support/content-key.ts";

const run = promisify(execFile);
const installMs = 500_000;

let home: string;
let clone: string;
let address = "";
let gateway: ReturnType<typeof launch> | undefined;

/** Without the programs of the packages of this folder. */
const env = {
  ...{
    PATH: process.env.PATH?.split(":")
      .filter((one) => !one.startsWith(root))
      .join(":"),
  },
  ...{ HOME: process.env.HOME, TMPDIR: process.env.TMPDIR },
  ...(process.env.npm_config_registry && {
    npm_config_registry: process.env.npm_config_registry,
  }),
};

const shellOf = (path: string) =>
  readSamples(path).flatMap(({ language, text }) => (language === "sh" ? [text] : []));

/** The first sample of README: an install, then a start. */
const [install = "", start = ""] = (shellOf("README.md")[0] ?? "").trim().split(/\n| && /);

function launch() {
  const ports = { PORT: "0", GRPC_PORT: "0", CONTENT_KEY: contentKey };
  const child = spawn("bash", ["-c", `exec ${start}`], {
    cwd: clone,
    env: { ...env, ...ports },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  return { child, ended: once(child, "close"), output: () => output };
}

/** Runs commands as they are printed. Resolves with what they print; throws where one fails. */
async function runShell(text: string, cwd = clone, timeout = 120_000): Promise<string> {
  const script = `set -euo pipefail\n${text.replaceAll("http://127.0.0.1:8080", address)}`;
  const { stdout } = await run("bash", ["-c", script], { cwd, env, timeout });
  return stdout;
}

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "gateway-clone-"));
  clone = join(home, "clone");
  await run("git", ["clone", "--quiet", root, clone]);
  await runShell(install, clone, installMs);
  gateway = launch();
  address = await vi.waitFor(
    () => {
      const [, url] = /The model gateway runs at (\S+)/.exec(gateway?.output() ?? "") ?? [];
      if (url === undefined) throw new Error(gateway?.output());
      return url;
    },
    { timeout: 100_000, interval: 200 },
  );
}, installMs + 200_000);
afterAll(async () => {
  gateway?.child.kill("SIGTERM");
  await gateway?.ended;
  await rm(home, { recursive: true, force: true });
});

test("the install is the one without development, and brings nothing of it", () => {
  expect([install, start]).toEqual(["npm ci --omit=dev", "npm start"]);
  expect(existsSync(join(clone, "node_modules/vitest"))).toBe(false);
  expect(existsSync(join(clone, "node_modules/fastify"))).toBe(true);
});

test("README.md: the first paid requests, the receipt and the credits", async () => {
  const samples = shellOf("README.md").slice(1);
  const output = await runShell(
    samples.filter((text) => /\bcurl\b|GATEWAY_KEY/.test(text)).join("\n"),
  );
  expect(output).toContain("HTTP/1.1 200 OK");
  expect(output).toContain("event: message_stop");
  expect(output).toContain('"outcome":"COMPLETED"');
  expect(output).toContain('"object":"credits"');
  expect(output).not.toContain('"error"');
});

const quickStart = "docs/customers/quick-start.md";

test.skipIf(!existsSync(join(root, quickStart)))(
  "the quick start: three lines and a key",
  async () => {
    const output = await runShell(shellOf(quickStart).join("\n"));
    expect(output).toContain('"object":"chat.completion"');
    expect(output).toContain('"outcome":"COMPLETED"');
    expect(output).not.toContain('"error"');
  },
);

test(
  "docs/tools.md: an SDK, after the install that is printed with it",
  async () => {
    const section = readSection("docs/tools.md", "### TypeScript: openai");
    const sample = (pattern: RegExp) => pattern.exec(section)?.[1] ?? expect.unreachable(section);
    const folder = join(home, "sdk");
    await mkdir(folder);
    await writeFile(
      join(folder, "try.mjs"),
      sample(/```js\n([\s\S]*?)```/).replaceAll("http://127.0.0.1:8080", address),
    );
    const [installSdk = "", callIt = ""] = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].map(
      ([, text = ""]) => text,
    );
    const key = `export GATEWAY_KEY=$(node -p 'require("${clone}/data/first-keys.json").v1')`;
    const output = await runShell([key, installSdk, callIt].join("\n"), folder, installMs);
    expect(output).toContain("Hello");
  },
  installMs,
);

test("the documents are there as pages", async () => {
  const index = await fetch(`${address}/docs`);
  expect([index.status, await index.text()]).toEqual([200, expect.stringContaining("/docs/tools")]);
  expect((await fetch(`${address}/docs/tools`)).status).toBe(200);
  expect(await (await fetch(`${address}/docs?q=rotate`)).text()).toContain("<mark>");
});
