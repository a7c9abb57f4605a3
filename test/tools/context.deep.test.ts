// A full context: the real Claude Code and Codex compact their conversation at each wording that
// they know, whichever provider it comes from.

import { readFile } from "node:fs/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type GatewayWithProvider,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import {
  claudeEnv,
  configureCodex,
  installTools,
  runTool,
  startClaude,
  type Tools,
} from "../support/tools.ts";

let tools: Tools;
let setup: GatewayWithProvider;
beforeAll(async () => {
  tools = await installTools(["claude", "codex"]);
  setup = await startGatewayWithProvider("native");
  setup.provider.always(setup.reply({ text: ["All is well."] }));
  // The tools are large to unpack.
}, 300_000);
afterAll(async () => {
  await setup.stop();
  await tools.remove();
});

/** The provider answers its next request with this error. */
function fail(message: string): void {
  const error = { type: "invalid_request_error", message };
  const headers = { "content-type": "application/json" };
  setup.provider.play({
    status: 400,
    headers,
    writes: [JSON.stringify({ type: "error", error })],
  });
}

/** The sentences in Claude Code's program after which it compacts, in its order. */
const knownToClaude = [
  "prompt is too long",
  "input is too long for requested model",
  "maximum context length",
  "context_length_exceeded",
  "exceeds the context window",
  "contextwindowexceedederror",
  "longer than the maximum model length",
  "longer than the model's context length",
  "exceeds the available context size",
  "exceeds the maximum number of tokens allowed",
  "exceeded model token limit",
  "input token length too long",
  "input tokens exceed the configured limit",
  "maximum context limit",
  "maximum prompt length",
  "prompt exceeds max length",
  "tokens in request more than max tokens allowed",
  "range of input length should be",
  "context window exceeds limit",
  "but model only supports up to",
  "reduce the length of the messages",
  "`inputs` tokens + `max_new_tokens` must be",
  "context exceeds your deployment",
];
/** Sentences as whole messages, numbers included. */
const wholeMessages = ["Input is too long.", "prompt is too long: 300000 tokens > 200000 maximum"];
const outputMessage =
  "input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000, decrease input length or `max_tokens` and try again";

test("Claude Code compacts at each sentence that its program knows", async () => {
  const program = await readFile(tools.command("claude"));
  expect(knownToClaude.filter((sentence) => !program.includes(sentence))).toEqual([]);

  const session = startClaude(
    tools.command("claude"),
    await tools.newHome(),
    claudeEnv(setup.gateway, setup.gateway.v1),
  );
  await session.turn("Begin.");
  const others: string[] = [];
  for (const message of [...knownToClaude, ...wholeMessages]) {
    fail(message);
    const events = await session.turn("Go on.");
    const isCompacted = events.some(({ subtype }) => subtype === "compact_boundary");
    if (!isCompacted || events.at(-1)?.is_error !== false) others.push(message);
  }
  expect(others).toEqual([]);

  // Of a request that is too long with its output alone, it asks for less.
  fail(outputMessage);
  const before = setup.provider.requests.length;
  const events = await session.turn("Go on.");
  expect(events.at(-1)).toMatchObject({ subtype: "success", is_error: false });
  const limits = setup.provider.requests.slice(before).map(({ body }) => body.max_tokens);
  expect(limits).toEqual([limits[0], 19_000]);
  await session.end();
});

for (const [kind, message] of [
  ["a prompt", "Range of input length should be [1, 9]"],
  ["a prompt with its output", outputMessage],
] as const) {
  test(`Codex compacts before the turn that follows on ${kind} that is too long`, async () => {
    const home = await tools.newHome();
    await configureCodex(home, setup.gateway);
    const ask = (...args: string[]) =>
      runTool(tools.command("codex"), ["exec", "--skip-git-repo-check", "--json", ...args], {
        home,
        env: { GATEWAY_KEY: setup.gateway.v1 },
      });
    await ask("Begin.");
    fail(message);
    const full = await ask("resume", "--last", "Go on.");
    expect(full.events.at(-1)).toMatchObject({
      type: "turn.failed",
      error: { message: expect.stringContaining("ran out of room in the model's context window") },
    });
    const before = setup.provider.requests.length;
    const next = await ask("resume", "--last", "And now?");
    expect(next.events.at(-1)).toMatchObject({ type: "turn.completed" });
    // One request for a summary, and one that begins with it.
    const requests = setup.provider.requests.slice(before);
    expect(requests.map(({ body }) => lastText(body))).toEqual([
      expect.stringContaining("summary"),
      "And now?",
    ]);
  });
}

/** The last text of the last message. */
function lastText({ messages }: JsonObject = {}): string {
  const last: unknown = Array.isArray(messages) ? Object(messages.at(-1)).content : undefined;
  const text: unknown = Array.isArray(last) ? Object(last.at(-1)).text : last;
  return typeof text === "string" ? text : "";
}
