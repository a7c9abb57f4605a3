// The real Codex against a gateway with a scripted native provider: nobody edits what it sends.

import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { isObject } from "../../src/formats/json.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { nativeStream } from "../support/provider-answers.ts";

const run = promisify(execFile);

/** Of the table in docs/customers/responses.md. */
const version = "0.171.0";
/** Names that Codex knows itself. Each has tools of its own. */
const known = ["gpt-5.5", "gpt-5.6-sol", "gpt-6.2-sol"];

let provider: FakeProvider;
let gateway: TestGateway;
let folder: string;
/** Why Codex cannot run here. */
let missing: string | undefined;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-codex-"));
  missing = await install();
  provider = await startFakeProvider();
  const aliases = known.map((name) => `${name}: model-sonnet-4.6, `).join("");
  const catalog = catalogFor({ real: { kind: "anthropic", url: provider.url } });
  gateway = await startTestGateway({
    catalog: readCatalogFile(catalog.replace("aliases: { ", `aliases: { ${aliases}`)),
  });
  await mkdir(join(folder, "home"));
  await mkdir(join(folder, "work"));
  await writeFile(join(folder, "server.mjs"), mcpServer);
  await writeFile(
    join(folder, "home/config.toml"),
    `model = "sonnet"
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = "${gateway.address}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"

[mcp_servers.desk]
command = ${JSON.stringify(process.execPath)}
args = [${JSON.stringify(join(folder, "server.mjs"))}]
`,
  );
}, 300_000);
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
  await rm(folder, { recursive: true, force: true });
});

beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});

/** Installs Codex into the folder of this test. The reason where the registry has none for it. */
async function install(): Promise<string | undefined> {
  const flags = ["--no-audit", "--no-fund", "--fetch-retries=0"];
  try {
    await run("npm", ["install", ...flags, "--prefix", folder, `@openai/codex@${version}`]);
    return undefined;
  } catch (error) {
    const { stderr = "" } = Object(error);
    if (/E404|ENOTFOUND|ECONN|EAI_AGAIN|ETIMEDOUT|network/.test(stderr))
      return `the npm registry has no @openai/codex@${version} for this machine`;
    throw error;
  }
}

/** A server of one tool, by lines of JSON-RPC. */
const mcpServer = `
import { createInterface } from "node:readline";
const tool = { name: "ring", description: "Rings the bell.", inputSchema: { type: "object", properties: {} } };
const results = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "desk", version: "1" },
  }),
  "tools/list": () => ({ tools: [tool] }),
  "tools/call": () => ({ content: [{ type: "text", text: "ding-dong" }] }),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params = {} } = JSON.parse(line);
  const result = results[method]?.(params);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result: result ?? {} }));
}
`;

/** Runs \`codex exec\` without questions. Returns what it prints of the answer. */
async function codex(...more: readonly string[]): Promise<string> {
  const { PATH = "", TMPDIR } = process.env;
  const env = {
    ...{ PATH, HOME: folder, CODEX_HOME: join(folder, "home"), GATEWAY_KEY: gateway.v1 },
    ...(TMPDIR !== undefined && { TMPDIR }),
  };
  const flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
  const child = run(join(folder, "node_modules/.bin/codex"), ["exec", ...flags, ...more], {
    cwd: join(folder, "work"),
    env,
  });
  child.child.stdin?.end();
  return (await child).stdout;
}

const toolsOf = ({ body }: { body: JsonObject }): string[] =>
  (Array.isArray(body.tools) ? body.tools : []).filter(isObject).map(({ name }) => String(name));

/** The bodies that the provider got since then. */
function sentSince(count: number) {
  return provider.requests.slice(count);
}

/** A call of a tool, and then an answer. */
function playCall(name: string, input: JsonObject): void {
  const tool = { id: `toolu_${name}`, name, input: [JSON.stringify(input)] };
  provider.play(nativeStream({ tool }), nativeStream({ text: ["All ", "done."] }));
}

const lastMessage = () => JSON.stringify(Object(provider.requests.at(-1)?.body.messages).at(-1));

test.each(["sonnet", ...known])("says hello as %s", async (model) => {
  provider.play(nativeStream({ text: ["Good ", "day."] }));
  const before = provider.requests.length;
  expect(await codex("-m", model, "hello")).toContain("Good day.");
  const [request, ...others] = sentSince(before);
  expect(others).toEqual([]);
  expect(JSON.stringify(request?.body)).not.toContain("web_search");
  expect(request && toolsOf(request).length).toBeGreaterThan(3);
});

test("runs a shell command, and sends its output", async () => {
  playCall("exec_command", { cmd: "echo sum-$((40 + 2))" });
  expect(await codex("what is the sum?")).toContain("All done.");
  expect(lastMessage()).toContain("sum-42");
});

test("applies a patch, whose text is a plain input", async () => {
  const input = "*** Begin Patch\n*** Add File: made.txt\n+made by a patch\n*** End Patch\n";
  playCall("apply_patch", { input });
  expect(await codex("-m", "gpt-5.5", "make a file")).toContain("All done.");
  expect(await readFile(join(folder, "work/made.txt"), "utf8")).toBe("made by a patch\n");
});

test("runs code that calls its other tools, with a model that knows no others", async () => {
  const input = 'text(await tools.exec_command({ cmd: "echo sum-$((40 + 3))" }));';
  playCall("functions__exec", { input });
  expect(await codex("-m", "gpt-6.2-sol", "what is the sum?")).toContain("All done.");
  expect(lastMessage()).toContain("sum-43");
});

test("calls a tool of an MCP server", async () => {
  const before = provider.requests.length;
  playCall("mcp__desk__ring", {});
  expect(await codex("ring the bell")).toContain("All done.");
  const [request] = sentSince(before);
  expect(request && toolsOf(request)).toContain("mcp__desk__ring");
  expect(lastMessage()).toContain("ding-dong");
});

test("goes on with a session, with another model", async () => {
  const thinking = { pieces: ["I think."], signature: "c2lnbmVk" };
  provider.play(nativeStream({ thinking, text: ["The word is kiwi."] }));
  await codex("-m", "gpt-5.5", "remember a word");
  provider.play(nativeStream({ text: ["It was kiwi."] }));
  const resumed = ["resume", "--last", "-m", "opus", "which word?"];
  expect(await codex(...resumed)).toContain("It was kiwi.");
  const sent = JSON.stringify(provider.requests.at(-1)?.body);
  expect(sent).toContain("The word is kiwi.");
  expect(provider.requests.at(-1)?.body).toMatchObject({ model: "provider-model" });
});
