// Installs the tools of the list and runs what the documents print of them, against a gateway
// behind a proxy with a path of its own. `TRIED=write` writes their versions and the date.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text as readText } from "node:stream/consumers";
import { promisify, stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { blocksOf, type Place, type Tool, tools } from "../../src/console/web/tools.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { findProgram } from "../support/programs.ts";

const run = promisify(execFile);

const installMs = 600_000;
/** The first run of a program in Rust or Go compiles its libraries. */
const runMs = 600_000;
/** Words of installers whose registry does not answer. */
const unreachable =
  /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|Could not resolve|no such host|Temporary failure|timed out/i;
const noRegistry = "its registry cannot be reached";
const proxyPath = "/company/ai";
const triedFile = join(import.meta.dirname, "../../src/console/web/tools-tried.json");
const programs = join(import.meta.dirname, "programs");

/** A run of a shell, whether it failed or not. */
type Run = Shown & { readonly requests: number };

/** `printed`: on the standard output alone. `output`: on both. */
type Shown = { readonly printed: string; readonly output: string; readonly code: number };

/**
 * What a run found: the checks that passed, the printed answer, and the requests that a refused key
 * and pool cost.
 */
type Facts = { passed: string[]; prints: string; wrongKey: number; noCredits: number };
type Tried = Omit<Facts, "passed"> & { version: string; on: string; passed: string };

/** Registers a test for each tool of a group. */
export function tryTools(group: Tool["group"]): void {
  let gateway: TestGateway;
  let proxy: Awaited<ReturnType<typeof startProxy>>;
  /** Of an account without credits. */
  let emptyAccount: string;
  const tried: Record<string, Tried> = {};

  beforeAll(async () => {
    gateway = await startTestGateway();
    proxy = await startProxy(gateway.address);
    const { core, call } = gateway.admin;
    const { account } = await core.billing.createAccount({ settings: { name: "empty" } }, call);
    emptyAccount = account?.accountId ?? "";
  });
  afterAll(async () => {
    if (process.env.TRIED === "write") await writeTried(tried);
    await proxy.close();
    await gateway.stop();
  });

  async function createKey(accountId: string, name: string) {
    const { core, call } = gateway.admin;
    const { key, secret } = await core.keys.createKey(
      { accountId, family: Family.V1, settings: { name } },
      call,
    );
    return { keyId: key?.keyId ?? "", secret };
  }

  async function countCharges(keyId: string): Promise<number> {
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    return (await core.billing.listCharges({ accountId, filter: { keyId } }, call)).charges.length;
  }

  // `TOOLS=curl,codex` tries these alone.
  const only = process.env.TOOLS?.split(",");
  const here = tools.filter(
    ({ id, untried, ...tool }) =>
      tool.group === group && untried === undefined && (only?.includes(id) ?? true),
  );
  for (const tool of here)
    describe.skipIf(missingFor(tool).length > 0)(tool.title, () => {
      let folder: Folder;
      /** False: the registry cannot be reached from here. */
      let isReachable = true;
      const facts: Facts = { passed: [], prints: "", wrongKey: 0, noCredits: 0 };
      let paid: { keyId: string; secret: string };
      const place = (key: string): Place => ({
        origin: `${proxy.address}${proxyPath}`,
        grpc: gateway.grpcAddress,
        key,
      });
      const runSample = async (key: string, plain = tool.plain): Promise<Run> => {
        const before = proxy.requests();
        const { install: _, ...installed } = tool;
        const blocks = blocksOf({ ...installed, plain }, place(key));
        const result = await folder.runBlocks(blocks, runMs);
        return { ...result, requests: proxy.requests() - before };
      };

      beforeAll(async () => {
        folder = await makeFolder(tool);
        paid = await createKey(gateway.accountId, tool.id);
        const { install } = tool;
        const text = install?.replaceAll("{origin}", place("").origin);
        if (text === undefined) return;
        const { code, output } = await folder.runBlocks([{ text }], installMs);
        isReachable = code === 0 || !unreachable.test(output);
        if (isReachable) expect(`${code} ${code === 0 ? "" : output}`).toBe("0 ");
      }, installMs);
      afterAll(async () => {
        const version = isReachable ? await folder.version() : "";
        const on = new Date().toISOString().slice(0, 10);
        const passed = facts.passed.join(", ");
        if (passed.startsWith("hello")) tried[tool.id] = { version, on, ...facts, passed };
        await folder.remove();
      });

      test("answers as printed, and is charged", { timeout: runMs }, async (context) => {
        context.skip(!isReachable, noRegistry);
        const { output, printed, code } = await runSample(paid.secret);
        expect(`${code} ${output}`).toMatch(/^0 [\s\S]*(simulated provider|receipt|text=)/i);
        await vi.waitFor(async () => expect(await countCharges(paid.keyId)).toBeGreaterThan(0));
        facts.prints = answerIn(printed);
        facts.passed.push("hello");
      });

      test.runIf(tool.stream)("streams as printed", { timeout: runMs }, async (context) => {
        context.skip(!isReachable, noRegistry);
        const { output, code } = await runSample(paid.secret, tool.stream);
        expect(`${code} ${output}`).toMatch(/^0 [\s\S]*(simulated provider|message_stop|"result")/);
        facts.passed.push("stream");
      });

      const program = programOf(tool);
      test.runIf(program)(
        "runs tools, and reads structured answers if it can",
        { timeout: runMs },
        async (context) => {
          context.skip(!isReachable, noRegistry);
          if (program === undefined) throw new Error("there is no program");
          await folder.copy(program);
          const { output, code } = await runSample(paid.secret, { run: program.command });
          expect(`${code} ${output}`).toMatch(/^0 [\s\S]*answered: [\s\S]*sunny in /);
          facts.passed.push("tool loop");
          const { path } = program;
          if (!(await readFile(path, "utf8")).includes("parsed:")) return;
          expect(output).toMatch(/parsed: \S/);
          facts.passed.push("structured answer");
        },
      );

      test("says in words that a key is wrong", { timeout: runMs }, async (context) => {
        context.skip(!isReachable, noRegistry);
        const { output, requests } = await runSample(`sk-gw2-1${"x".repeat(49)}`);
        expect(output).toMatch(/Incorrect API key|invalid_key/);
        facts.wrongKey = requests;
        facts.passed.push("wrong key");
      });

      test("says in words that there are no credits", { timeout: runMs }, async (context) => {
        context.skip(!isReachable, noRegistry);
        const { secret } = await createKey(emptyAccount, tool.id);
        const { output, requests } = await runSample(secret);
        expect(output).toMatch(/0 credits free/);
        facts.noCredits = requests;
        facts.passed.push("no credits");
      });
    });
}

/** The programs that a tool needs and this machine lacks. */
function missingFor({ needs = [], install = "" }: Tool): string[] {
  const [, installer] = /^(pip|go|cargo|npm) /.exec(install) ?? [];
  const programs = [...needs, ...(installer ? [installer === "pip" ? "python3" : installer] : [])];
  return programs.filter((name) => findProgram(name) === undefined);
}

const printedMax = 200;

/** What a tool printed from its answer on, or the beginning, in one line. */
function answerIn(printed: string): string {
  const line = stripVTControlCharacters(printed).trim().replace(/\s+/g, " ");
  const from = Math.max(0, line.indexOf("This is the simulated provider"));
  return line.length - from <= printedMax
    ? line.slice(from)
    : `${line.slice(from, from + printedMax)} …`;
}

type Folder = {
  runBlocks(blocks: readonly { path?: string; text: string }[], timeoutMs: number): Promise<Shown>;
  copy(program: Program): Promise<void>;
  /** Of the installed tool. */
  version(): Promise<string>;
  remove(): Promise<void>;
};

/** An empty folder with a home, in which nothing is installed but what the machine has. */
async function makeFolder(tool: Tool): Promise<Folder> {
  const folder = await mkdtemp(join(tmpdir(), `gateway-tool-${tool.id}-`));
  const home = join(folder, "home");
  await mkdir(home);
  const isPython = tool.install?.startsWith("pip ") ?? false;
  if (isPython) await run("python3", ["-m", "venv", join(folder, "venv")]);
  const { PATH = "" } = process.env;
  const own = homedir();
  const env: NodeJS.ProcessEnv = {
    ...machineEnv(),
    PATH: `${folder}/venv/bin:${folder}/global/bin:${PATH}`,
    HOME: home,
    TERM: "dumb",
    npm_config_prefix: join(folder, "global"),
    npm_config_cache: join(own, ".npm"),
    npm_config_update_notifier: "false",
    PIP_CACHE_DIR: join(own, ".cache/pip"),
    GOPATH: join(folder, "go"),
    GOMODCACHE: join(own, "go/pkg/mod"),
    GOCACHE: join(own, ".cache/go-build"),
    CARGO_HOME: join(own, ".cargo"),
    RUSTUP_HOME: join(own, ".rustup"),
    NO_COLOR: "1",
  };
  /** Ends with all that it has started when the time is over. */
  const shell = async (text: string, timeoutMs: number) => {
    const child = spawn("bash", ["-c", `set -eo pipefail\n${text}`], {
      ...{ cwd: folder, env, detached: true },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const timer = setTimeout(() => process.kill(-(child.pid ?? 0), "SIGKILL"), timeoutMs);
    const parts = Promise.all([child.stdout, child.stderr].map((stream) => readText(stream)));
    const [code] = await once(child, "exit");
    clearTimeout(timer);
    const [printed = "", errors = ""] = await parts;
    return { printed, output: printed + errors, code: typeof code === "number" ? code : 1 };
  };
  return {
    async runBlocks(blocks, timeoutMs) {
      let last: Shown = { printed: "", output: "", code: 0 };
      for (const { path, text } of blocks) {
        if (path === undefined) {
          last = await shell(text, timeoutMs);
          continue;
        }
        const file = path.startsWith("~/") ? join(home, path.slice(2)) : join(folder, path);
        await mkdir(dirname(file), { recursive: true });
        await writeFile(file, text);
      }
      return last;
    },
    copy: ({ path, to }) => cp(path, join(folder, to), { recursive: true }),
    async version() {
      const { output } = await shell(versionCommand(tool), runMs);
      return /\d+\.\d+(\.\d+)?/.exec(output)?.[0] ?? "";
    },
    remove: () => rm(folder, { recursive: true, force: true, maxRetries: 3 }),
  };
}

/** Variables of this machine by which installers reach their registries. */
function machineEnv(): NodeJS.ProcessEnv {
  const passed = /^(npm_config_registry|PIP_|GOPROXY|GOFLAGS|GONO|GOSUM|CARGO_|SSL_|NODE_EXTRA)/i;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => passed.test(name)));
}

/** A shell command that prints the version of an installed tool. */
function versionCommand({ id, install = "" }: Tool): string {
  if (install.startsWith("pip ")) {
    const [, name = ""] = /pip install "?([\w-]+)/.exec(install) ?? [];
    return `python -c "import importlib.metadata as m; print(m.version('${name}'))"`;
  }
  if (install.includes("npm install")) {
    const [, name] = /npm install (?:-g )?(\S+)/.exec(install) ?? [];
    const root = install.includes("install -g") ? "global/lib/node_modules" : "node_modules";
    return `node -p 'require("./${root}/${name}/package.json").version'`;
  }
  // The packages of Debian, which its sample names.
  if (id === "grpc-java") return "dpkg-query -W libgrpc-java";
  if (id === "grpc-go") return "go list -m -f '{{.Version}}' google.golang.org/grpc";
  const [, module] = /go get (\S+)/.exec(install) ?? [];
  if (module !== undefined) return `go list -m -f '{{.Version}}' ${module}`;
  if (id === "java-openai") return "mvn dependency:list | grep openai-java:jar";
  if (id === "grpcurl") return 'go version -m "$(go env GOPATH)/bin/grpcurl" | grep "mod"';
  if (id === "rust-genai") return "grep -A1 '^name = \"genai\"' Cargo.lock";
  return `${id} --version`;
}

/** A program of `programs/`: its path, its name in the folder of the tool, and its command. */
type Program = { readonly path: string; readonly to: string; readonly command: string };

/**
 * Programs by the ends of their names. One that is named as its library would be read in place of
 * it; in Go a folder is a program.
 */
const languages: Readonly<Record<string, { to: string; command: string }>> = {
  py: { to: "check.py", command: "python check.py" },
  mjs: { to: "check.mjs", command: "node check.mjs" },
  sh: { to: "check.sh", command: ". ./check.sh" },
  go: { to: "check/main.go", command: "go run ./check" },
  rs: { to: "examples/check.rs", command: 'cargo run --quiet --example check -- "{origin}/v1/"' },
  java: {
    to: "src/main/java/Check.java",
    command: "mvn -q compile exec:java -Dexec.mainClass=Check",
  },
};

/** The program with a tool loop, and a structured answer if a tool has it. Absent: none. */
function programOf({ id }: Tool): Program | undefined {
  for (const [end, language] of Object.entries(languages)) {
    const path = join(programs, `${id}.${end}`);
    if (existsSync(path)) return { path, ...language };
  }
  return undefined;
}

/** Forwards what is below `proxyPath`, as a proxy of a company does. */
async function startProxy(address: string) {
  let requests = 0;
  const server = createServer((incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { method = "GET", headers, url = "" } = incoming;
    if (!url.startsWith(`${proxyPath}/`)) return void outgoing.writeHead(404).end();
    if (method === "POST") requests += 1;
    const target = `${address}${url.slice(proxyPath.length)}`;
    const forwarded = request(target, { method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    forwarded.on("error", () => outgoing.destroy());
    outgoing.on("close", () => forwarded.destroy());
    incoming.pipe(forwarded);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    address: `http://127.0.0.1:${port}`,
    requests: () => requests,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function writeTried(fresh: Record<string, Tried>): Promise<void> {
  const before = JSON.parse(await readFile(triedFile, "utf8"));
  const all = { ...before, ...fresh };
  const sorted = tools.flatMap(({ id }) => (all[id] ? [[id, all[id]]] : []));
  await writeFile(triedFile, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
}
