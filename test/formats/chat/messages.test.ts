// Chat messages, adapted to the rules of the native format.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ContentForm, Role } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { decodeRequest } from "../../../src/formats/chat/chat.ts";
import { fitRequest } from "../../../src/formats/native/native.ts";
import { bodyWith, errorOf } from "../../support/samples/chat-bodies.ts";

const user = (content: JsonValue): JsonObject => ({ role: "user", content });
const assistant = (members: JsonObject): JsonObject => ({
  role: "assistant",
  content: null,
  ...members,
});
const call = (id: string, name: string, given: JsonValue): JsonObject => ({
  id,
  type: "function",
  function: { name, arguments: given },
});

/** The request as providers of the native format take it. */
const fitted = (messages: JsonValue[]) => fitRequest(decodeRequest(bodyWith({ messages })));

/** Turns as `[role, ...blocks]`, each block in a short form, without reasoning of this format. */
function turnsOf(messages: JsonValue[]) {
  return fitted(messages).messages.map((message) => [
    message.role === Role.USER ? "USER" : message.role === Role.ASSISTANT ? "ASSISTANT" : "OTHER",
    ...message.content
      .filter(({ attached }) => !attached)
      .map(({ kind }) => {
        switch (kind.case) {
          case "text":
            return kind.value.text;
          case "toolUse":
            return { call: kind.value.id, name: kind.value.name, input: kind.value.input };
          case "toolResult":
            return {
              result: kind.value.toolUseId,
              content: kind.value.content.map((block) => block.kind.value),
            };
          case "thinking":
            return { thinking: kind.value.thinking, signature: kind.value.signature };
          case "image":
          case "document":
            return { [kind.case]: kind.value.source?.kind.value };
          default:
            return { kind: kind.case };
        }
      }),
  ]);
}

function systemOf(messages: JsonValue[]) {
  return fitted(messages).system;
}

const text = (value: string) => expect.objectContaining({ text: value });
const data = (mediaType: string, value: string) =>
  expect.objectContaining({ mediaType, data: value });

test("system and developer texts become one instruction, joined by line feeds in their order", () => {
  const messages = [
    { role: "system", content: "One." },
    user("Hi"),
    {
      role: "developer",
      content: [
        { type: "text", text: "Two." },
        { type: "text", text: "Three." },
      ],
      name: "ignored",
    },
    { role: "system", content: " " },
    assistant({ content: "Hello" }),
    user("Go"),
  ];
  expect(systemOf(messages)).toMatchObject({
    form: ContentForm.TEXT,
    content: [{ kind: { value: { text: "One.\nTwo.\nThree." } } }],
  });
  expect(turnsOf(messages)).toEqual([
    ["USER", "Hi"],
    ["ASSISTANT", "Hello"],
    ["USER", "Go"],
  ]);
});

test("an instruction with a cache mark stays a list of blocks", () => {
  const marked = { type: "text", text: "One.", cache_control: { type: "ephemeral" } };
  const system = systemOf([
    { role: "system", content: [marked] },
    { role: "system", content: "Two." },
    user("Hi"),
  ]);
  expect(system).toMatchObject({
    form: ContentForm.UNSPECIFIED,
    content: [
      { kind: { value: { text: "One." } }, cacheControl: {} },
      { kind: { value: { text: "Two." } } },
    ],
  });
});

test("a conversation without instructions has none", () => {
  expect(systemOf([{ role: "system", content: "" }, user("Hi")])).toBeUndefined();
});

const mapped: { name: string; messages: JsonValue[]; turns: unknown[] }[] = [
  { name: "a string of the user becomes text", messages: [user("Hi")], turns: [["USER", "Hi"]] },
  {
    name: "user parts keep their order",
    messages: [
      user([
        { type: "text", text: "a" },
        { type: "image_url", image_url: { url: "https://x/y.png", detail: "low" } },
        { type: "text", text: "b" },
      ]),
    ],
    turns: [["USER", "a", { image: "https://x/y.png" }, "b"]],
  },
  {
    name: "a blank user message is omitted beside another",
    messages: [user("Hi"), user(" \n")],
    turns: [["USER", "Hi"]],
  },
  {
    name: "a blank user message is omitted beside a tool result",
    messages: [
      assistant({ tool_calls: [call("a", "f", "{}")] }),
      { role: "tool", tool_call_id: "a", content: "1" },
      user(""),
    ],
    turns: [
      ["ASSISTANT", { call: "a", name: "f", input: {} }],
      ["USER", { result: "a", content: [text("1")] }],
    ],
  },
  {
    name: "blank parts are omitted",
    messages: [
      user([
        { type: "text", text: "" },
        { type: "text", text: "a" },
      ]),
    ],
    turns: [["USER", "a"]],
  },
  {
    name: "an image as a data URL becomes inline data",
    messages: [user([{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }])],
    turns: [["USER", { image: data("image/png", "AAAA") }]],
  },
  {
    name: "image/jpg becomes image/jpeg, and the scheme may be in capitals",
    messages: [user([{ type: "image_url", image_url: { url: "DATA:image/JPG;base64,/9j=" } }])],
    turns: [["USER", { image: data("image/jpeg", "/9j=") }]],
  },
  {
    name: "an image URL may be a string instead of an object",
    messages: [user([{ type: "image_url", image_url: "http://x/y.webp" }])],
    turns: [["USER", { image: "http://x/y.webp" }]],
  },
  {
    name: "a PDF as a data URL becomes a document",
    messages: [
      user([
        {
          type: "file",
          file: { filename: "r.pdf", file_data: "data:application/pdf;base64,JVBE" },
        },
      ]),
    ],
    turns: [["USER", { document: data("application/pdf", "JVBE") }]],
  },
  {
    name: "bare base64 is a PDF if the filename ends in .pdf",
    messages: [user([{ type: "file", file: { filename: "R.PDF", file_data: "JVBE" } }])],
    turns: [["USER", { document: data("application/pdf", "JVBE") }]],
  },
  {
    name: "a refusal of the assistant is text",
    messages: [
      user("Hi"),
      assistant({
        content: [
          { type: "refusal", refusal: "no" },
          { type: "text", text: "a" },
        ],
      }),
      user("b"),
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", "no", "a"],
      ["USER", "b"],
    ],
  },
  {
    name: "an empty assistant message is omitted, and its neighbours become one turn",
    messages: [user("a"), assistant({}), user("b")],
    turns: [["USER", "a", "b"]],
  },
  {
    name: "tool calls follow the text",
    messages: [
      user("Hi"),
      assistant({ content: "I look.", tool_calls: [call("call_1", "f", '{"b":1,"a":2}')] }),
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", "I look.", { call: "call_1", name: "f", input: { b: 1, a: 2 } }],
    ],
  },
  {
    name: "two calls, their results and the user's text become two turns, results first",
    messages: [
      user("Hi"),
      assistant({ tool_calls: [call("a", "f", "{}"), call("b", "g", "{}")] }),
      { role: "tool", tool_call_id: "a", content: "1" },
      user("and now?"),
      { role: "tool", tool_call_id: "b", content: [{ type: "text", text: "2" }] },
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", { call: "a", name: "f", input: {} }, { call: "b", name: "g", input: {} }],
      [
        "USER",
        { result: "a", content: [text("1")] },
        { result: "b", content: [text("2")] },
        "and now?",
      ],
    ],
  },
  {
    name: "calls and results get the same form of an id, from which it can be read again",
    messages: [
      user("Hi"),
      assistant({ tool_calls: [call("functions.f:0", "f", "{}")] }),
      { role: "tool", tool_call_id: "functions.f:0", content: "1" },
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", { call: "id64_ZnVuY3Rpb25zLmY6MA", name: "f", input: {} }],
      ["USER", { result: "id64_ZnVuY3Rpb25zLmY6MA", content: [text("1")] }],
    ],
  },
  {
    name: "an empty result has no content",
    messages: [
      user("Hi"),
      assistant({ tool_calls: [call("a", "f", "{}")] }),
      { role: "tool", tool_call_id: "a", content: "" },
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", { call: "a", name: "f", input: {} }],
      ["USER", { result: "a", content: [] }],
    ],
  },
  {
    name: "a blank result has no content",
    messages: [
      user("Hi"),
      assistant({ tool_calls: [call("a", "f", "{}"), call("b", "f", "{}")] }),
      { role: "tool", tool_call_id: "a", content: "\n" },
      { role: "tool", tool_call_id: "b", content: [{ type: "text", text: " " }] },
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", { call: "a", name: "f", input: {} }, { call: "b", name: "f", input: {} }],
      ["USER", { result: "a", content: [] }, { result: "b", content: [] }],
    ],
  },
  {
    name: "a legacy call and its result get the same new id",
    messages: [
      user("Hi"),
      assistant({ function_call: { name: "f", arguments: '{"a":1}' } }),
      { role: "function", name: "f", content: "1" },
      assistant({ function_call: { name: "f", arguments: "{}" } }),
      { role: "function", name: "f", content: "2" },
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", { call: "call_fn_0", name: "f", input: { a: 1 } }],
      ["USER", { result: "call_fn_0", content: [text("1")] }],
      ["ASSISTANT", { call: "call_fn_1", name: "f", input: {} }],
      ["USER", { result: "call_fn_1", content: [text("2")] }],
    ],
  },
  {
    name: "reasoning without a signature is omitted",
    messages: [
      user("Hi"),
      assistant({
        content: "a",
        reasoning_content: "hm",
        reasoning: "hm",
        reasoning_details: [{ type: "reasoning.text", text: "hm" }],
      }),
      user("b"),
    ],
    turns: [
      ["USER", "Hi"],
      ["ASSISTANT", "a"],
      ["USER", "b"],
    ],
  },
  {
    name: "signed reasoning becomes a thinking block before the text, even if it is empty",
    messages: [
      user("Hi"),
      assistant({
        content: "a",
        reasoning_details: [
          { type: "reasoning.text", text: "hm", signature: "c2ln" },
          { type: "reasoning.encrypted", data: "x" },
          { type: "reasoning.text", text: "", signature: "c2ln2" },
        ],
      }),
      user("b"),
    ],
    turns: [
      ["USER", "Hi"],
      [
        "ASSISTANT",
        { thinking: "hm", signature: "c2ln" },
        { thinking: "", signature: "c2ln2" },
        "a",
      ],
      ["USER", "b"],
    ],
  },
  {
    name: "blocks in the native form are accepted",
    messages: [
      user([{ type: "image", source: { type: "base64", media_type: "image/gif", data: "R0" } }]),
      assistant({
        content: [
          { type: "thinking", thinking: "hm", signature: "c2ln" },
          { type: "text", text: "a" },
          { type: "tool_use", id: "toolu_1", name: "f", input: { a: 1 } },
        ],
      }),
      user([
        { type: "text", text: "b" },
        { type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: "1" }] },
      ]),
    ],
    turns: [
      ["USER", { image: data("image/gif", "R0") }],
      [
        "ASSISTANT",
        { thinking: "hm", signature: "c2ln" },
        "a",
        { call: "toolu_1", name: "f", input: { a: 1 } },
      ],
      ["USER", { result: "toolu_1", content: [text("1")] }, "b"],
    ],
  },
  {
    name: "neighbours of one role become one turn",
    messages: [
      user("a"),
      user("b"),
      assistant({ content: "c" }),
      assistant({ content: "d" }),
      user("e"),
    ],
    turns: [
      ["USER", "a", "b"],
      ["ASSISTANT", "c", "d"],
      ["USER", "e"],
    ],
  },
  {
    name: "a final assistant turn loses its trailing blanks",
    messages: [user("a"), assistant({ content: " {  \n" })],
    turns: [
      ["USER", "a"],
      ["ASSISTANT", " {"],
    ],
  },
  {
    name: "no turn is invented before a leading assistant message",
    messages: [assistant({ content: "Welcome" }), user("Hi")],
    turns: [
      ["ASSISTANT", "Welcome"],
      ["USER", "Hi"],
    ],
  },
  {
    name: "no missing tool result is invented",
    messages: [user("a"), assistant({ tool_calls: [call("a", "f", "{}")] }), user("never mind")],
    turns: [
      ["USER", "a"],
      ["ASSISTANT", { call: "a", name: "f", input: {} }],
      ["USER", "never mind"],
    ],
  },
];
for (const { name, messages, turns } of mapped) {
  test(name, () => {
    expect(turnsOf(messages)).toEqual(turns);
  });
}

const argumentTexts: { name: string; given: JsonValue; input: JsonObject }[] = [
  { name: "empty arguments become an empty object", given: "", input: {} },
  { name: "null arguments become an empty object", given: null, input: {} },
  { name: "arguments may be an object", given: { a: 1 }, input: { a: 1 } },
  { name: "the word null is no arguments", given: " null ", input: {} },
  { name: "cut-off arguments are wrapped as _raw", given: '{"a":', input: { _raw: '{"a":' } },
  { name: "arguments that are a list are wrapped as _raw", given: "[1]", input: { _raw: "[1]" } },
  {
    name: "arguments with a lone surrogate are wrapped as _raw",
    given: '{"a":"\\ud800"}',
    input: { _raw: '{"a":"\\ud800"}' },
  },
  {
    name: "arguments that are nested too deeply are wrapped as _raw",
    given: `${'{"a":'.repeat(300)}1${"}".repeat(300)}`,
    input: { _raw: `${'{"a":'.repeat(300)}1${"}".repeat(300)}` },
  },
];
for (const { name, given, input } of argumentTexts) {
  test(name, () => {
    expect(turnsOf([user("Hi"), assistant({ tool_calls: [call("a", "f", given)] })])[1]).toEqual([
      "ASSISTANT",
      { call: "a", name: "f", input },
    ]);
  });
}

test("of a conversation of instructions, the last one that is not blank is its message", () => {
  const system = (content: string) => ({ role: "system", content });
  const { messages, system: instruction } = fitted([
    ...[system("a"), { role: "developer", content: "b" }],
    ...[system("c"), system(" ")],
  ]);
  expect(messages).toMatchObject([
    {
      role: Role.SYSTEM,
      form: ContentForm.TEXT,
      content: [{ kind: { case: "text", value: { text: "c" } } }],
    },
  ]);
  expect(instruction?.content).toMatchObject([{ kind: { value: { text: "a\nb" } } }]);
});

test("a single text has the string form unless it has a cache mark", () => {
  const forms = (content: JsonValue) => fitted([user(content)]).messages[0]?.form;
  expect(forms("a")).toBe(ContentForm.TEXT);
  expect(forms([{ type: "text", text: "a", cache_control: { type: "ephemeral" } }])).toBe(
    ContentForm.UNSPECIFIED,
  );
  expect(
    forms([
      { type: "text", text: "a" },
      { type: "text", text: "b" },
    ]),
  ).toBe(ContentForm.UNSPECIFIED);
});

const refused: { name: string; messages: JsonValue[]; field: string }[] = [
  {
    name: "an unknown role",
    messages: [user("a"), { role: "critic", content: "b" }],
    field: "messages[1].role",
  },
  { name: "a missing role", messages: [{ content: "b" }], field: "messages[0].role" },
  {
    name: "absent user content",
    messages: [{ role: "user" }],
    field: "messages[0].content",
  },
  { name: "content that is a number", messages: [user(4)], field: "messages[0].content" },
  {
    name: "a part that is not an object",
    messages: [user(["a"])],
    field: "messages[0].content[0]",
  },
  {
    name: "a part without a type",
    messages: [user([{ video_url: {} }])],
    field: "messages[0].content[0].type",
  },
  {
    name: "text that is a number",
    messages: [user([{ type: "text", text: 4 }])],
    field: "messages[0].content[0].text",
  },
  {
    name: "blank user content alone",
    messages: [{ role: "system", content: "a" }, user("  ")],
    field: "messages[1].content",
  },
  {
    name: "only blank instructions",
    messages: [{ role: "system", content: " " }],
    field: "messages",
  },
  {
    name: "an image in an instruction",
    messages: [
      { role: "system", content: [{ type: "image_url", image_url: "https://x" }] },
      user("a"),
    ],
    field: "messages[0].content",
  },
  {
    name: "an image with an ftp URL",
    messages: [
      user([
        { type: "text", text: "a" },
        { type: "image_url", image_url: { url: "ftp://x/y.png" } },
      ]),
    ],
    field: "messages[0].content[1].image_url.url",
  },
  {
    name: "an SVG image",
    messages: [user([{ type: "image_url", image_url: { url: "data:image/svg+xml;base64,AAAA" } }])],
    field: "messages[0].content[0].image_url.url",
  },
  {
    name: "an image as a data URL without base64",
    messages: [user([{ type: "image_url", image_url: { url: "data:image/png,AAAA" } }])],
    field: "messages[0].content[0].image_url.url",
  },
  {
    name: "an image as a data URL without data",
    messages: [user([{ type: "image_url", image_url: { url: "data:image/png;base64," } }])],
    field: "messages[0].content[0].image_url.url",
  },
  {
    name: "a stored file",
    messages: [user([{ type: "file", file: { file_id: "file-1" } }])],
    field: "messages[0].content[0].file.file_id",
  },
  {
    name: "a file that is not a PDF",
    messages: [user([{ type: "file", file: { filename: "a.docx", file_data: "UEsD" } }])],
    field: "messages[0].content[0].file.file_data",
  },
  {
    name: "a file as a data URL of another type",
    messages: [
      user([
        { type: "file", file: { filename: "a.pdf", file_data: "data:text/plain;base64,AAAA" } },
      ]),
    ],
    field: "messages[0].content[0].file.file_data",
  },
  {
    name: "a stored native source",
    messages: [user([{ type: "image", source: { type: "file", file_id: "f" } }])],
    field: "messages[0].content[0].source.type",
  },
  {
    name: "a custom tool call without a name",
    messages: [user("a"), assistant({ tool_calls: [{ id: "a", type: "custom", custom: {} }] })],
    field: "messages[1].tool_calls[0].custom.name",
  },
  {
    name: "a tool call without an id",
    messages: [
      user("a"),
      assistant({ tool_calls: [{ type: "function", function: { name: "f" } }] }),
    ],
    field: "messages[1].tool_calls[0].id",
  },
  {
    name: "a tool call without a name",
    messages: [user("a"), assistant({ tool_calls: [{ id: "a", function: {} }] })],
    field: "messages[1].tool_calls[0].function.name",
  },
  {
    name: "a tool result without an id",
    messages: [user("a"), { role: "tool", content: "1" }],
    field: "messages[1].tool_call_id",
  },
  {
    name: "a function result without a call",
    messages: [user("a"), { role: "function", name: "f", content: "1" }],
    field: "messages[1].role",
  },
];
for (const { name, messages, field } of refused) {
  test(`${name} is rejected with its path`, () => {
    expect(errorOf(bodyWith({ messages })).facts.field).toBe(field);
  });
}

test.each([
  [
    "an unknown part",
    [user([{ type: "video_url", video_url: {} }])],
    "messages[0].content[0].type",
  ],
  [
    "audio beside a text",
    [
      user("a"),
      user([
        { type: "text", text: "b" },
        { type: "input_audio", input_audio: {} },
      ]),
    ],
    "messages[1].content[1].type",
  ],
  [
    "an unknown part of a result",
    [
      user("a"),
      assistant({ tool_calls: [call("a", "f", "{}")] }),
      { role: "tool", tool_call_id: "a", content: [{ type: "video_url" }] },
    ],
    "messages[2].content[0].type",
  ],
])("%s reaches providers of this format only, and its path says so", (_, messages, field) => {
  expect(() => fitted(messages)).toThrow(`${field}: the provider of this model does not accept`);
});
