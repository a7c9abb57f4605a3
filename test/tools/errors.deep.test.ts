// Errors that a person must act on, in the real tools: each stops soon, and prints the sentence.
// `docs/customers/errors.md` has the table.

import { once } from "node:events";
import { createServer, request as forward, type Server } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  type GatewayWithProvider,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import {
  claudeEnv,
  configureCodex,
  installTools,
  runTool,
  type Tool,
  type Tools,
} from "../support/tools.ts";

let tools: Tools;
let setup: GatewayWithProvider;
let proxy: Server;
let address = "";
/** Requests for answers since the last tool began. */
let requests = 0;
const keys: Record<string, string> = {};

beforeAll(async () => {
  tools = await installTools(["claude", "codex"]);
  setup = await startGatewayWithProvider("native");
  setup.provider.always(setup.reply({ text: ["All is well."] }));
  proxy = createServer((request, response) => {
    if (request.method === "POST") requests++;
    const { method, headers } = request;
    const onward = forward(setup.gateway.address + request.url, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    request.pipe(onward);
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const bound = proxy.address();
  address = `http://127.0.0.1:${typeof bound === "object" ? bound?.port : 0}`;

  const { core, call } = setup.gateway.admin;
  keys.wrong = `sk-gw2-1${"x".repeat(49)}`;
  const paused = await setup.keyWith({});
  await core.keys.pauseKey({ keyId: paused.keyId }, call);
  keys.paused = paused.secret;
  keys.otherModel = (await setup.keyWith({ allowedModels: ["haiku"] })).secret;
  const { account } = await core.billing.createAccount(
    { settings: { name: "without credits" } },
    call,
  );
  const accountId = account?.accountId ?? "";
  const poor = await core.keys.createKey(
    { accountId, family: Family.V1, settings: { name: "k" } },
    call,
  );
  keys.noCredits = poor.secret;
  const capped = await core.keys.createKey(
    {
      accountId: setup.gateway.accountId,
      family: Family.V1,
      settings: { name: "c", monthlyCapMicrocredits: 0n },
    },
    call,
  );
  keys.cap = capped.secret;
}, 300_000);
afterAll(async () => {
  proxy.close();
  await setup.stop();
  await tools.remove();
});

const sentences = {
  wrong: "Incorrect API key provided",
  paused: "This API key is paused",
  otherModel: "this key may not use model-sonnet-4.6",
  noCredits: "has 0 credits free",
  cap: "The monthly credit cap of this key is reached",
} as const;
type Case = keyof typeof sentences;

/** What a tool prints when it is asked with a key. */
async function ask(tool: Tool, key: string): Promise<string> {
  const home = await tools.newHome();
  const gateway = { ...setup.gateway, address };
  const command = tools.command(tool);
  if (tool === "claude") {
    const args = ["-p", "Hello.", "--model", "sonnet"];
    return (await runTool(command, args, { home, env: claudeEnv(gateway, key) })).output;
  }
  await configureCodex(home, gateway);
  const args = ["exec", "--skip-git-repo-check", "Hello."];
  return (await runTool(command, args, { home, env: { GATEWAY_KEY: key } })).output;
}

/** The requests of each tool: Codex repeats statuses, which are all that a wrong key can get. */
const repeats: Record<Tool, Record<Case, number>> = {
  claude: { wrong: 1, paused: 1, otherModel: 1, noCredits: 1, cap: 1 },
  codex: { wrong: 6, paused: 6, otherModel: 1, noCredits: 1, cap: 1 },
};

for (const tool of ["claude", "codex"] as const)
  for (const name of ["wrong", "paused", "otherModel", "noCredits", "cap"] as const)
    test(`${tool} prints the sentence of ${name}, after ${repeats[tool][name]} requests`, async () => {
      requests = 0;
      const output = await ask(tool, keys[name] ?? "");
      expect(output).toContain(sentences[name]);
      expect(output).not.toContain('{"error"');
      expect(requests).toBe(repeats[tool][name]);
    });
