// Requests of the real Codex, as recorded with their long texts cut, and what providers of the
// three formats get of them. `test/responses/codex.deep.test.ts` runs Codex itself.

import { readdirSync, readFileSync } from "node:fs";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { leftOutReasonName } from "../../../src/base/left-out.ts";
import * as chat from "../../../src/formats/chat/chat.ts";
import { Fit } from "../../../src/formats/fit.ts";
import { isObject } from "../../../src/formats/json.ts";
import * as native from "../../../src/formats/native/native.ts";
import * as responses from "../../../src/formats/responses/responses.ts";
import { errorOf } from "../../support/requests.ts";

const folder = new URL("./fixtures/", import.meta.url);
const target = { model: "provider-model", stream: true };
type Recorded = {
  readonly client: string;
  readonly body: JsonObject;
  /** The names of its tools for other models. */
  readonly tools: readonly string[];
  /** Its tools and items that the vendor runs. */
  readonly hosted: readonly string[];
};
const recorded = readdirSync(folder).map(
  (file): Recorded => JSON.parse(readFileSync(new URL(file, folder), "utf8")),
);

function sentTo(format: typeof native | typeof chat, body: JsonValue) {
  const fit = new Fit();
  const sent: JsonObject = format.encodeRequest(responses.decodeRequest(body), target, fit);
  const left = fit.leftOut.map(
    ({ where, what, why }) => `${where}=${what};${leftOutReasonName(why)}`,
  );
  return { sent, left };
}

const objects = (value: JsonValue | undefined) =>
  (Array.isArray(value) ? value : []).filter(isObject);
const namesOf = (tools: JsonValue | undefined) =>
  objects(tools).map((tool) => String(isObject(tool.function) ? tool.function.name : tool.name));

describe.each(recorded)("$client", ({ body, tools, hosted }) => {
  test("reaches native and chat providers with its tools, and says what is left out", () => {
    const ofNative = sentTo(native, body);
    const ofChat = sentTo(chat, body);
    expect(namesOf(ofChat.sent.tools)).toEqual(namesOf(ofNative.sent.tools));
    expect(new Set(namesOf(ofNative.sent.tools)).size).toBe(namesOf(ofNative.sent.tools).length);
    for (const tool of objects(ofNative.sent.tools)) {
      expect(Object.keys(tool).sort()).toEqual(["description", "input_schema", "name"]);
      expect(tool.name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
    }
    expect(JSON.stringify([ofNative.sent, ofChat.sent])).not.toMatch(/web_search|client_metadata/);
    expect(namesOf(ofNative.sent.tools)).toEqual(tools);
    const cacheKey = "prompt_cache_key=prompt_cache_key;member";
    const left = [...hosted.map((one) => `${one};hosted`), cacheKey];
    // Verbosity has a place in the chat format.
    const isWordy = isObject(body.text) && body.text.verbosity !== undefined;
    const leftOfNative = [...left, ...(isWordy ? ["text=verbosity;member"] : [])];
    expect(ofChat.left.sort()).toEqual(left.sort());
    expect(ofNative.left.sort()).toEqual(leftOfNative.sort());
  });

  test("has each result right after its call", () => {
    const { sent } = sentTo(native, body);
    const messages = objects(sent.messages);
    const idsOf = (message: JsonObject | undefined, type: string, member: string) =>
      objects(message?.content).flatMap((block) => (block.type === type ? [block[member]] : []));
    const calls = messages.map((message) => idsOf(message, "tool_use", "id"));
    const results = messages.slice(1).map((next) => idsOf(next, "tool_result", "tool_use_id"));
    expect([...results, []]).toEqual(calls);
  });

  test("reaches a provider of its own format as it came", () => {
    const sent = responses.encodeRequest(responses.decodeRequest(body), target);
    const { model, stream, input, ...members } = body;
    const ofOthers = objects(input).filter(({ type }) => type !== "reasoning");
    expect(JSON.parse(JSON.stringify(sent))).toEqual({
      ...members,
      ...target,
      input: ofOthers,
      store: false,
      include: ["reasoning.encrypted_content"],
    });
  });
});

const hello = { type: "message", role: "user", content: "Hello" };
const bodyWith = (members: JsonObject): JsonObject => ({ model: "m", input: [hello], ...members });

/** Items of tools that the client runs, with what a function of their name gets and answers. */
const ownItems: [
  item: JsonObject,
  output: JsonObject,
  name: string,
  input: JsonObject,
  as: string,
][] = [
  [
    { type: "tool_search_call", execution: "client", arguments: { query: "bell" } },
    {
      type: "tool_search_output",
      tools: [{ type: "function", name: "ring", description: "Rings." }],
    },
    "tool_search",
    { query: "bell" },
    "ring: Rings.",
  ],
  [
    { type: "local_shell_call", action: { type: "exec", command: ["ls"], env: {} } },
    { type: "local_shell_call_output", output: "a.ts" },
    "local_shell",
    { command: ["ls"], env: {} },
    "a.ts",
  ],
  [
    { type: "shell_call", action: { commands: ["ls"] }, environment: { type: "local" } },
    { type: "shell_call_output", output: [{ stdout: "a.ts", stderr: "" }] },
    "shell",
    { commands: ["ls"] },
    '[{"stdout":"a.ts","stderr":""}]',
  ],
  [
    { type: "apply_patch_call", operation: { type: "delete_file", path: "a.ts" } },
    { type: "apply_patch_call_output", status: "failed", output: "No such file." },
    "apply_patch",
    { type: "delete_file", path: "a.ts" },
    "failed\nNo such file.",
  ],
];

test.each(ownItems)("%o is a call of a function", (item, output, name, input, as) => {
  for (const ids of [{ call_id: "call_1" }, {}]) {
    const history = [hello, { ...item, ...ids }, { ...output, ...ids }];
    const messages = objects(sentTo(native, bodyWith({ input: history })).sent.messages);
    const id = ids.call_id ?? expect.any(String);
    expect(messages.slice(1)).toMatchObject([
      { role: "assistant", content: [{ type: "tool_use", id, name, input }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: as }] },
    ]);
    const sent = responses.encodeRequest(
      responses.decodeRequest(bodyWith({ input: history })),
      target,
    );
    expect(sent.input).toEqual(history);
  }
});

test("an output of no call is a text", () => {
  const input = [hello, { type: "function_call_output", name: "f", output: "late" }];
  expect(sentTo(native, bodyWith({ input })).sent.messages).toEqual([
    {
      role: "user",
      content: [
        { type: "text", text: "Hello" },
        { type: "text", text: "late" },
      ],
    },
  ]);
});

test("items of the vendor's own tools and of tomorrow end no session", () => {
  const items = [
    { type: "web_search_call", id: "ws_1", status: "completed" },
    { type: "mcp_list_tools", server_label: "m", tools: [] },
    { type: "compaction", encrypted_content: "gAAAA" },
    { type: "item_of_tomorrow" },
  ];
  const { sent, left } = sentTo(chat, bodyWith({ input: [hello, ...items] }));
  expect(objects(sent.messages)).toHaveLength(1);
  expect(left).toEqual([
    "input[1]=web_search_call;hosted",
    "input[2]=mcp_list_tools;hosted",
    "input[3]=compaction;unsupported",
    "input[4]=item_of_tomorrow;unsupported",
  ]);
});

test("a part of an output that has no counterpart is left out", () => {
  const output = [
    { type: "input_text", text: "see" },
    { type: "input_audio", input_audio: {} },
    { type: "encrypted_content", encrypted_content: "x" },
  ];
  const call = { type: "function_call", call_id: "c", name: "f", arguments: "{}" };
  const input = [hello, call, { type: "function_call_output", call_id: "c", output }];
  const { sent, left } = sentTo(native, bodyWith({ input }));
  expect(objects(sent.messages).at(-1)?.content).toMatchObject([
    { type: "tool_result", content: [{ type: "text", text: "see" }] },
  ]);
  expect(left).toEqual([
    "input[2].output[1]=input_audio;unsupported",
    "input[2].output[2]=encrypted_content;unsupported",
  ]);
});

test("an update of the configuration sets the effort, the last one wins", () => {
  const update = (effort: string) => ({ type: "configuration_update", reasoning: { effort } });
  const input = [hello, update("low"), { ...hello, content: "Go on." }, update("high")];
  const body = bodyWith({ input, reasoning: { effort: "medium" } });
  expect(responses.decodeRequest(body).origin?.reasoningEffort).toBe("high");
  expect(sentTo(chat, body).sent.reasoning_effort).toBe("high");
});

test("a message of another agent is a text with its name", () => {
  const content = [{ type: "input_text", text: "I am done." }];
  const input = [hello, { type: "agent_message", author: "/root/a", recipient: "/root", content }];
  const { sent } = sentTo(native, bodyWith({ input }));
  expect(JSON.stringify(sent.messages)).toContain("Message from /root/a:\\nI am done.");
});

test("only a provider of this format compacts, and the error says what to do", () => {
  const body = bodyWith({ input: [hello, { type: "compaction_trigger" }] });
  const error = errorOf(() => sentTo(native, body));
  expect(error).toMatchObject({ reason: "feature_not_offered", facts: { field: "input[1].type" } });
  expect(error?.message).toContain("another name than OpenAI");
  const sent = responses.encodeRequest(responses.decodeRequest(body), target);
  expect(objects(sent.input).at(-1)).toEqual({ type: "compaction_trigger" });
});

test("a demand for a tool that is left out names it", () => {
  const demanding = (tool_choice: JsonValue) =>
    errorOf(() => sentTo(native, bodyWith({ tools: [{ type: "web_search" }], tool_choice })));
  for (const choice of ["required", { type: "web_search" }])
    expect(demanding(choice)).toMatchObject({
      reason: "feature_not_offered",
      message: expect.stringContaining("demands web_search"),
    });
  expect(demanding("auto")).toBeUndefined();
  expect(demanding({ type: "file_search" })?.reason).toBe("invalid_request");
});
