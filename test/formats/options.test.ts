// Schemas and options of a request as providers of each format get them, a row each: as they came
// where the provider has the client's own format, in its own words or left out elsewhere.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import type { DialectName } from "../../src/config/catalog.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { Fit } from "../../src/formats/fit.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";

type Format = "native" | "chat" | "responses";

const bodies: Record<Format, JsonObject> = {
  native: { model: "m", max_tokens: 9_000, messages: [{ role: "user", content: "Go." }] },
  chat: { model: "m", messages: [{ role: "user", content: "Go." }] },
  responses: { model: "m", input: "Go." },
};

/** What a provider gets of a client's members, and what is said to be left out. */
function send(
  from: Format,
  members: JsonObject,
  to: Format,
  dialect: DialectName = "generic",
): { body: JsonObject; leftOut: string[] } {
  const given: JsonObject = { ...bodies[from], ...members };
  const headers = { version: "2023-06-01", beta: "" };
  const request =
    from === "native"
      ? native.decodeRequest(given, headers)
      : from === "chat"
        ? chat.decodeRequest(given)
        : responses.decodeRequest(given);
  const fit = new Fit();
  const target = { model: "own", stream: false, dialect };
  const body = { native, chat, responses }[to].encodeRequest(request, target, fit);
  return { body, leftOut: fit.leftOut.map(({ what }) => what) };
}

const textFormat = { format: { type: "json_object" } };
const kept: JsonObject[] = [
  ...["none", "minimal", "low", "medium", "high", "xhigh", "max"].map((effort) => ({
    reasoning_effort: effort,
  })),
  { seed: 7, logprobs: true, top_logprobs: 2, logit_bias: { "5": 1 } },
  { presence_penalty: 1, frequency_penalty: -1, user: "u", stop: ["a", "b"] },
  {
    prediction: { type: "content", content: "x" },
    verbosity: "low",
    modalities: ["text", "image"],
  },
  { response_format: { type: "json_object" }, top_k: 5 },
];
const image = { type: "image_url", image_url: { url: "https://a.b/c.png", detail: "low" } };

describe("for a provider of the client's own format", () => {
  test("options of a chat client go out as they came", () => {
    for (const members of kept) {
      const { body, leftOut } = send("chat", members, "chat");
      expect([body, leftOut]).toEqual([expect.objectContaining(members), []]);
    }
    const messages = [{ role: "user", content: [image] }];
    expect(send("chat", { messages }, "chat").body.messages).toEqual(messages);
  });

  test("options of a Responses client do", () => {
    const members = {
      reasoning: { effort: "xhigh" },
      text: { ...textFormat, verbosity: "high" },
      top_logprobs: 2,
      user: "u",
    };
    expect(send("responses", members, "responses")).toEqual({
      body: expect.objectContaining(members),
      leftOut: [],
    });
  });

  test("a schema does, but for the members that some providers need", () => {
    const schema = { type: "object", properties: { a: { minimum: 3, "x-y": 1 } }, not: {} };
    const tool = (parameters: JsonValue) => ({
      type: "function",
      function: { name: "f", parameters },
    });
    const tools = [tool(schema), tool({}), { type: "function", function: { name: "g" } }];
    const empty = { type: "object", properties: {} };
    const { body, leftOut } = send("chat", { tools }, "chat");
    expect(body.tools).toEqual([
      tool(schema),
      tool(empty),
      { type: "function", function: { name: "g", parameters: empty } },
    ]);
    const response_format = {
      type: "json_schema",
      json_schema: { name: "n", description: "d", strict: false, schema },
    };
    expect(send("chat", { response_format }, "chat").body.response_format).toEqual(response_format);
    expect(leftOut).toEqual([]);
  });
});

type Row = {
  name: string;
  from: Format;
  members: JsonObject;
  to: Format;
  dialect?: DialectName;
  /** Members that the provider gets; undefined ones it must not get. */
  gets: Record<string, unknown>;
  leftOut?: string[];
};

const schema = { type: "object", properties: { a: { type: "string", minLength: 2 } } };
const chatForm = (more: JsonObject) => ({
  response_format: { type: "json_schema", json_schema: { name: "n", schema, ...more } },
});
const strictSchema = { ...schema, required: ["a"], additionalProperties: false };
const chatTool = (parameters: JsonValue, more: JsonObject = {}) => ({
  tools: [{ type: "function", function: { name: "f", parameters, ...more } }],
});
const nativeTool = (input_schema: JsonObject) => ({ tools: [{ name: "f", input_schema }] });
const alternatives = {
  type: "object",
  anyOf: [
    { properties: { a: {} }, required: ["a", "c"] },
    { properties: { b: {} }, required: ["c"] },
  ],
};

const rows: Row[] = [
  {
    name: "verbosity becomes that of the text",
    ...{ from: "chat", to: "responses", members: { verbosity: "low" } },
    gets: { text: { verbosity: "low" } },
  },
  {
    name: "verbosity of the text becomes a member",
    ...{ from: "responses", to: "chat", members: { text: { verbosity: "high" } } },
    gets: { verbosity: "high" },
  },
  {
    name: "a native model has no verbosity",
    ...{ from: "responses", to: "native", members: { text: { verbosity: "high" } } },
    gets: { text: undefined, verbosity: undefined },
    leftOut: ["verbosity"],
  },
  {
    name: "modalities of text alone ask for nothing",
    ...{ from: "chat", to: "native", members: { modalities: ["text"] } },
    gets: { modalities: undefined },
  },
  {
    name: "modalities with images have no place elsewhere",
    ...{ from: "chat", to: "responses", members: { modalities: ["text", "image"] } },
    gets: { modalities: undefined },
    leftOut: ["modalities"],
  },
  {
    name: "sampling that a native model has not is left out",
    ...{ from: "chat", to: "native", members: { seed: 1, logit_bias: {}, presence_penalty: 1 } },
    gets: { seed: undefined },
    leftOut: ["seed", "logit_bias", "presence_penalty"],
  },
  {
    name: "top_k reaches servers of open models",
    ...{ from: "native", to: "chat", members: { top_k: 4 } },
    gets: { top_k: 4 },
  },
  {
    name: "top_k does not reach OpenAI",
    ...{ from: "native", to: "chat", dialect: "openai", members: { top_k: 4 } },
    gets: { top_k: undefined },
    leftOut: ["top_k"],
  },
  {
    name: "top_k does not reach a Responses provider",
    ...{ from: "chat", to: "responses", members: { top_k: 4 } },
    gets: { top_k: undefined },
    leftOut: ["top_k"],
  },
  {
    name: "native members without a counterpart are left out",
    ...{ from: "native", to: "chat", members: { context_management: { edits: [] } } },
    gets: { context_management: undefined },
    leftOut: ["context_management"],
  },
  {
    name: "minimal is low elsewhere",
    ...{ from: "responses", to: "chat", members: { reasoning: { effort: "minimal" } } },
    gets: { reasoning_effort: "low" },
  },
  {
    name: "the highest effort is the highest that every chat provider knows",
    ...{ from: "responses", to: "chat", members: { reasoning: { effort: "max" } } },
    gets: { reasoning_effort: "high" },
  },
  {
    name: "DeepSeek has a higher one",
    ...{ from: "responses", to: "chat", dialect: "deepseek" },
    members: { reasoning: { effort: "xhigh" } },
    gets: { reasoning_effort: "max" },
  },
  {
    name: "DeepSeek has no medium effort, also of a chat client",
    ...{ from: "chat", to: "chat", dialect: "deepseek", members: { reasoning_effort: "medium" } },
    gets: { reasoning_effort: "high" },
  },
  {
    name: "DeepSeek's thinking is turned off by a member of its own",
    ...{ from: "chat", to: "chat", dialect: "deepseek", members: { reasoning_effort: "none" } },
    gets: { thinking: { type: "disabled" }, reasoning_effort: undefined },
  },
  {
    name: "DeepSeek's thinking is off where a native client has turned it off",
    ...{ from: "native", to: "chat", dialect: "deepseek" },
    members: { thinking: { type: "disabled" } },
    gets: { thinking: { type: "disabled" }, reasoning_effort: undefined },
  },
  {
    name: "a JSON object as an answer becomes a sentence",
    ...{ from: "chat", to: "native", members: { response_format: { type: "json_object" } } },
    gets: { system: "Answer with one JSON object and nothing else." },
  },
  {
    name: "a JSON object as an answer keeps its name in the other format",
    ...{ from: "responses", to: "chat", members: { text: textFormat } },
    gets: { response_format: { type: "json_object" } },
  },
  {
    name: "strict: false stays so, with name and description",
    ...{ from: "chat", to: "responses", members: chatForm({ strict: false, description: "d" }) },
    gets: {
      text: { format: { type: "json_schema", name: "n", description: "d", schema, strict: false } },
    },
  },
  {
    name: "strict: true is absent where OpenAI would refuse the schema",
    ...{ from: "chat", to: "responses", members: chatForm({ strict: true }) },
    gets: { text: { format: { type: "json_schema", name: "n", schema } } },
    leftOut: ["strict"],
  },
  {
    name: "a keyword that a native model does not know becomes words",
    ...{ from: "chat", to: "native", members: chatForm({}) },
    gets: {
      output_config: {
        format: {
          type: "json_schema",
          schema: {
            type: "object",
            properties: { a: { type: "string", description: "(minLength: 2)" } },
            additionalProperties: false,
          },
        },
      },
    },
    leftOut: ["minLength"],
  },
  {
    name: "a strict tool stays strict where a native model can take it so",
    ...{ from: "chat", to: "native" },
    members: chatTool(
      { type: "object", properties: { a: { type: "string" } }, additionalProperties: false },
      { strict: true },
    ),
    gets: { tools: [expect.objectContaining({ strict: true })] },
  },
  {
    name: "a tool without a schema has an empty one at every other provider",
    ...{ from: "native", to: "responses", members: nativeTool({ type: "object" }) },
    gets: { tools: [expect.objectContaining({ parameters: { type: "object", properties: {} } })] },
  },
  {
    name: "alternatives at the top of a tool are merged for a native model",
    ...{ from: "chat", to: "native", members: chatTool(alternatives) },
    gets: {
      tools: [
        {
          name: "f",
          input_schema: {
            type: "object",
            properties: { a: {}, b: {} },
            required: ["c"],
            description: expect.stringMatching(/^Any of: .*"a".* \| .*"b"/),
          },
        },
      ],
    },
  },
  {
    name: "references are resolved for Gemini",
    ...{ from: "native", to: "chat", dialect: "gemini" },
    members: nativeTool({
      type: "object",
      properties: { a: { $ref: "#/$defs/b" } },
      $defs: { b: { type: "string" } },
    }),
    gets: {
      tools: [
        {
          type: "function",
          function: {
            name: "f",
            parameters: { type: "object", properties: { a: { type: "string" } } },
          },
        },
      ],
    },
  },
  {
    name: "a recursive reference stays for Gemini",
    ...{ from: "native", to: "chat", dialect: "gemini" },
    members: nativeTool({ type: "object", properties: { a: { $ref: "#" } } }),
    gets: {
      tools: [
        {
          type: "function",
          function: { name: "f", parameters: { type: "object", properties: { a: { $ref: "#" } } } },
        },
      ],
    },
  },
  {
    name: "a strict schema stays strict",
    ...{ from: "responses", to: "chat" },
    members: {
      text: { format: { type: "json_schema", name: "n", schema: strictSchema, strict: true } },
    },
    gets: {
      response_format: {
        type: "json_schema",
        json_schema: { name: "n", schema: strictSchema, strict: true },
      },
    },
  },
  {
    name: "the own size of an image is a high detail in the other format",
    ...{ from: "responses", to: "chat" },
    members: {
      input: [
        {
          role: "user",
          content: [{ type: "input_image", image_url: "https://a.b/c.png", detail: "original" }],
        },
      ],
    },
    gets: {
      messages: [
        {
          role: "user",
          content: [{ ...image, image_url: { ...image.image_url, detail: "high" } }],
        },
      ],
    },
  },
  {
    name: "the detail of an image stays among OpenAI's formats",
    ...{
      from: "chat",
      to: "responses",
      members: { messages: [{ role: "user", content: [image] }] },
    },
    gets: {
      input: [
        expect.objectContaining({
          content: [{ type: "input_image", image_url: "https://a.b/c.png", detail: "low" }],
        }),
      ],
    },
  },
];

describe("for a provider of another format", () => {
  test.for(rows)("$name ($from to $to)", ({ from, members, to, dialect, gets, leftOut = [] }) => {
    const sent = send(from, members, to, dialect);
    for (const [name, value] of Object.entries(gets)) expect(sent.body[name]).toEqual(value);
    expect(sent.leftOut).toEqual(leftOut);
  });

  test("what the question is about is refused with its path", () => {
    const audio = { type: "input_audio", input_audio: { data: "AA==", format: "wav" } };
    const heard = { messages: [{ role: "user", content: [audio] }] };
    for (const to of ["native", "responses"] as const)
      expect(() => send("chat", heard, to)).toThrow(/^messages\[0\]\.content\[0\]/);
    const source = { type: "url", url: "https://a.b/c.pdf" };
    const read = { messages: [{ role: "user", content: [{ type: "document", source }] }] };
    expect(() => send("native", read, "chat")).toThrow(/^messages.*document/);
  });

  test("the result of a search for tools has their names in words", () => {
    const messages = [
      { role: "user", content: "Go." },
      { role: "assistant", content: [{ type: "tool_use", id: "t", name: "s", input: {} }] },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "t",
            content: [{ type: "tool_reference", tool_name: "read_file" }],
          },
        ],
      },
    ];
    const { body } = send("native", { messages }, "chat");
    expect(JSON.stringify(body.messages)).toContain("read_file");
  });
});
