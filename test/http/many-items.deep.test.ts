// Bodies with very many JSON items: few bytes, but slow to parse, which delays all other requests.

import { expect, test } from "vitest";
import { jsonItemsMax } from "../../src/formats/json.ts";
import {
  chatBody,
  nativeBody,
  postChat,
  postNative,
  startHttpServer,
} from "../support/http-server.ts";

const list = (count: number, item: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => item(index)).join(",");
const userMessage = '{"role":"user","content":"x"}';
const shapes: [string, string][] = [
  ["members of an unknown object", `"extra":{${list(1_000_000, (index) => `"k${index}":1`)}}`],
  ["members of the body", list(1_000_000, (index) => `"k${index}":1`)],
  ["members of one name", `"extra":{${list(1_000_000, () => '"k":1')}}`],
  [
    "elements in nested lists",
    `"extra":${"[".repeat(100)}${list(1_000_000, () => "1")}${"]".repeat(100)}`,
  ],
  ["empty lists", `"extra":[${list(1_000_000, () => "[]")}]`],
  ["members of metadata", `"metadata":{${list(1_000_000, (index) => `"k${index}":"v"`)}}`],
  ["messages", `"messages":[${list(1_000_000, () => userMessage)}]`],
  [
    "blocks",
    `"messages":[{"role":"user","content":[${list(800_000, () => '{"type":"text","text":"x"}')}]}]`,
  ],
  ["tools", `"tools":[${list(1_000_000, (index) => `{"name":"t${index}"}`)}]`],
];

for (const [name, members] of shapes) {
  test(`a body with too many ${name} is rejected before it is parsed, in the caller's format`, async () => {
    const { url, script } = await startHttpServer();
    const message = `The request has more than ${jsonItemsMax} members and elements in its objects and lists.`;
    const native = await postNative(url, `${JSON.stringify(nativeBody).slice(0, -1)},${members}}`);
    expect([native.status, await native.json()]).toMatchObject([
      413,
      { type: "error", error: { type: "request_too_large", message } },
    ]);
    // A listener of its own: the key would wait here for the work that it made there.
    const other = await startHttpServer();
    const chat = await postChat(other.url, `${JSON.stringify(chatBody).slice(0, -1)},${members}}`);
    expect([chat.status, await chat.json()]).toMatchObject([
      413,
      { error: { code: "request_too_large", message } },
    ]);
    for (const { calls } of [script, other.script]) expect(calls).not.toContain("generate");
  });
}

test("the most messages that a client can send, and long text, are accepted in both formats", async () => {
  const { url } = await startHttpServer();
  const messages = Array(20_000).fill({ role: "user", content: "x" });
  expect((await postNative(url, { ...nativeBody, messages })).status).toBe(200);
  expect((await postChat(url, { ...chatBody, messages })).status).toBe(200);
  const long = { messages: [{ role: "user", content: '[{"a":1},'.repeat(1_000_000) }] };
  expect((await postNative(url, { ...nativeBody, ...long })).status).toBe(200);
  expect((await postChat(url, { ...chatBody, ...long })).status).toBe(200);
});

const part = { type: "text", text: "x" };
const parts = (count: number) => Array.from({ length: count }, () => part);
const user = (content: unknown) => ({ role: "user", content });
const tool = (name: string) => ({ name, input_schema: { type: "object" } });
const chatTool = (name: string) => ({ type: "function", function: { name } });
const named = <T>(count: number, make: (name: string) => T) =>
  Array.from({ length: count }, (_, index) => make(`t${index}`));
const counted: { name: string; limit: string; native?: object; chat?: object }[] = [
  {
    name: "20,001 messages",
    limit: "20000 messages and parts",
    native: { messages: Array(20_001).fill(user("x")) },
    chat: { messages: Array(20_001).fill(user("x")) },
  },
  {
    name: "a message of 20,000 parts",
    limit: "20000 messages and parts",
    native: { messages: [user(parts(20_000))] },
    chat: { messages: [user(parts(20_000))] },
  },
  {
    name: "an instruction of 20,000 parts",
    limit: "20000 messages and parts",
    native: { system: parts(20_000) },
    chat: { messages: [{ role: "system", content: parts(20_000) }, user("x")] },
  },
  {
    name: "a tool result of 19,999 parts",
    limit: "20000 messages and parts",
    native: {
      messages: [user([{ type: "tool_result", tool_use_id: "a", content: parts(19_999) }])],
    },
  },
  {
    name: "10,000 tool calls beside 10,000 messages",
    limit: "20000 messages and parts",
    chat: {
      messages: [
        ...Array(10_000).fill(user("x")),
        {
          role: "assistant",
          tool_calls: named(10_000, (id) => ({
            id,
            type: "function",
            function: { name: "f", arguments: "{}" },
          })),
        },
      ],
    },
  },
  {
    name: "513 tools",
    limit: "512 tools",
    native: { tools: named(513, tool) },
    chat: { tools: named(513, chatTool) },
  },
];
for (const { name, limit, native, chat } of counted) {
  test(`a request with ${name} is answered with 413 in the caller's format`, async () => {
    const { url, script } = await startHttpServer();
    const message = `The request has more than ${limit}.`;
    if (native) {
      const answer = await postNative(url, { ...nativeBody, ...native });
      const error = { type: "request_too_large", message };
      expect([answer.status, await answer.json()]).toMatchObject([413, { type: "error", error }]);
    }
    if (chat) {
      const answer = await postChat(url, { ...chatBody, ...chat });
      const error = { code: "request_too_large", message };
      expect([answer.status, await answer.json()]).toMatchObject([413, { error }]);
    }
    expect(script.calls).not.toContain("generate");
  });
}

test("a request with 512 tools is accepted in both formats", async () => {
  const { url } = await startHttpServer();
  expect((await postNative(url, { ...nativeBody, tools: named(512, tool) })).status).toBe(200);
  expect((await postChat(url, { ...chatBody, tools: named(512, chatTool) })).status).toBe(200);
});

test("the JSON arguments of tool calls count together", async () => {
  const { url } = await startHttpServer();
  const body = (items: number) => ({
    ...chatBody,
    messages: [
      ...chatBody.messages,
      ...Array.from({ length: 4 }, (_, call) => ({
        role: "assistant",
        content: null,
        tool_calls: [
          {
            id: `c${call}`,
            type: "function",
            function: { name: "t", arguments: `{"a":[${list(items, () => "1")}]}` },
          },
        ],
      })),
      ...chatBody.messages,
    ],
  });
  expect((await postChat(url, body(jsonItemsMax / 4 - 10))).status).toBe(200);
  expect((await postChat(url, body(jsonItemsMax / 4))).status).toBe(413);
});

test("turns with more blocks than a function call can have arguments are merged", async () => {
  const { url } = await startHttpServer();
  const turn = { role: "user", content: Array(9_990).fill({ type: "text", text: "x" }) };
  const system = { role: "system", content: turn.content };
  expect((await postChat(url, { ...chatBody, messages: [turn, turn] })).status).toBe(200);
  expect((await postChat(url, { ...chatBody, messages: [system, turn] })).status).toBe(200);
});
