import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Format, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import * as native from "../../src/formats/native/native.ts";
import { attachedOf, sealPack } from "../../src/formats/packs.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { estimatedTokensOf, maxTokensOf, measurePrompt } from "../../src/inference/prompt-size.ts";
import { type RequestMembers, requestOf, userMessage } from "../support/requests.ts";
import { readableSealing } from "../support/sealing.ts";

const window = 200_000;
const bytesOf = (more: RequestMembers) => measurePrompt(requestOf(more)).textBytes;

test("every text of a request counts by its bytes", () => {
  const before = bytesOf({});
  const text = "漢".repeat(1_000);
  const block = { kind: { case: "text" as const, value: { text } } };
  const carriers: RequestMembers[] = [
    { system: { content: [block] } },
    { messages: [userMessage("Hello"), userMessage(text)] },
    { tools: [{ name: "t", description: text }] },
    { tools: [{ name: "t", inputSchema: { properties: { a: { description: text } } } }] },
    { outputConfig: { format: { schema: { description: text } } } },
    { extensions: { anything: [{ at: text }] } },
    ...[
      { case: "toolUse" as const, value: { id: "i", name: "n", input: { a: [text] } } },
      { case: "toolResult" as const, value: { toolUseId: "i", content: [block] } },
      { case: "thinking" as const, value: { thinking: text, signature: "" } },
      { case: "thinking" as const, value: { thinking: "", signature: text } },
      { case: "redactedThinking" as const, value: { data: text } },
      {
        case: "document" as const,
        value: { source: { kind: { case: "text" as const, value: { data: text } } } },
      },
      { case: "other" as const, value: { type: "x", inner: { deep: text } } },
    ].map((kind) => ({
      messages: [userMessage("Hello"), { role: Role.USER, content: [{ kind }] }],
    })),
  ];
  for (const carrier of carriers) expect(bytesOf(carrier) - before).toBeGreaterThanOrEqual(3_000);
});

test("an image counts by a constant, however many bytes it has", () => {
  const source = {
    kind: {
      case: "base64" as const,
      value: { mediaType: "image/png", data: "A".repeat(4_000_000) },
    },
  };
  const picture = { kind: { case: "image" as const, value: { source } } };
  const size = measurePrompt(
    requestOf({ messages: [{ role: Role.USER, content: [picture, picture] }] }),
  );
  expect(size).toMatchObject({ images: 2, unbounded: false });
  expect(size.textBytes).toBeLessThan(100);
  expect(maxTokensOf(size, window)).toBeLessThan(10_000);
});

test("an image that a model made counts by that constant, too", () => {
  const data = "A".repeat(400_000);
  const url = `data:image/png;base64,${data}`;
  const messages = [
    { role: "user", content: "Draw." },
    { role: "assistant", content: "Here.", images: [{ type: "image_url", image_url: { url } }] },
  ];
  const input = [
    { role: "user", content: "Draw." },
    { type: "image_generation_call", id: "ig_1", status: "completed", result: data },
  ];
  for (const request of [
    chat.decodeRequest({ model: "m", messages }),
    responses.decodeRequest({ model: "m", input }),
  ]) {
    const size = measurePrompt(request);
    expect(size).toMatchObject({ images: 1, unbounded: false });
    expect(size.textBytes).toBeLessThan(1_000);
  }
});

test("a pack counts by what is in it, not by its sealed bytes", () => {
  const hidden = "x".repeat(3_000);
  const members = { encrypted_content: hidden };
  const writer = { format: Format.RESPONSES, dialect: "openai", model: "m" };
  const pack = sealPack({ block: attachedOf(writer, { members }) }, readableSealing) ?? "";
  expect(pack.length).toBeGreaterThan(4_000);
  const hello = { role: "user", content: "Hello" };
  const thinking = { type: "thinking", thinking: "", signature: pack };
  const details = [{ type: "reasoning.encrypted", data: pack }];
  const turns = {
    native: { role: "assistant", content: [thinking, { type: "text", text: "Hi" }] },
    chat: { role: "assistant", content: "Hi", reasoning_details: details },
    responses: { type: "reasoning", summary: [], encrypted_content: pack },
  };
  for (const request of [
    native.decodeRequest(
      { model: "m", max_tokens: 9, messages: [hello, turns.native, hello] },
      { version: "2023-06-01", beta: "" },
      readableSealing,
    ),
    chat.decodeRequest({ model: "m", messages: [hello, turns.chat] }, readableSealing),
    responses.decodeRequest({ model: "m", input: [hello, turns.responses] }, readableSealing),
  ]) {
    const { textBytes } = measurePrompt(request);
    expect(textBytes).toBeGreaterThanOrEqual(3_000);
    expect(textBytes).toBeLessThan(3_500);
  }
});

test("a document of unknown size may fill the model's context window", () => {
  for (const kind of [
    { case: "base64" as const, value: { mediaType: "application/pdf", data: "JVBERi0=" } },
    { case: "url" as const, value: "https://example.com/a.pdf" },
  ]) {
    const document = { kind: { case: "document" as const, value: { source: { kind } } } };
    const size = measurePrompt(requestOf({ messages: [{ role: Role.USER, content: [document] }] }));
    expect(maxTokensOf(size, window)).toBe(window);
  }
});

const documents: {
  name: string;
  kind: { case: "base64"; value: object } | { case: "url"; value: string };
  tokens: number;
}[] = [
  { name: "a small PDF", kind: { case: "base64", value: { data: "JVBERi0=" } }, tokens: 1_600 },
  {
    name: "a PDF of 2 MB",
    kind: { case: "base64", value: { data: "A".repeat(2_800_000) } },
    tokens: 21 * 1_600,
  },
  {
    name: "a PDF of 20 MB",
    kind: { case: "base64", value: { data: "A".repeat(28_000_000) } },
    tokens: 30 * 1_600,
  },
  { name: "a URL", kind: { case: "url", value: "https://example.com/a.pdf" }, tokens: 1_600 },
];
for (const { name, kind, tokens } of documents) {
  test(`${name} is estimated at ${tokens} tokens, less than a third of the context window`, () => {
    const document = { kind: { case: "document" as const, value: { source: { kind } } } };
    const about = estimatedTokensOf(
      measurePrompt(requestOf({ messages: [{ role: Role.USER, content: [document] }] })),
    );
    expect(
      about - estimatedTokensOf(measurePrompt(requestOf({ messages: [{ role: Role.USER }] }))),
    ).toBe(tokens);
    expect(about).toBeLessThan(window / 3);
  });
}

test("every prompt has at least one token and at most the context window", () => {
  fc.assert(
    fc.property(
      fc.nat(10_000_000),
      fc.nat(50),
      fc.nat(50),
      fc.boolean(),
      (textBytes, images, pages, unbounded) => {
        const size = {
          textBytes,
          images,
          pages,
          unbounded,
          mostExpensiveInput: InputCategory.PLAIN,
          writesLiveLong: false,
        };
        expect(maxTokensOf(size, window)).toBeLessThanOrEqual(window);
        expect(maxTokensOf(size, window)).toBeGreaterThan(0);
        expect(estimatedTokensOf(size)).toBeGreaterThan(0);
      },
    ),
  );
});

const marks: { name: string; more: RequestMembers; mostExpensiveInput: InputCategory }[] = [
  { name: "nothing", more: {}, mostExpensiveInput: InputCategory.PLAIN },
  { name: "a mark", more: { cacheControl: {} }, mostExpensiveInput: InputCategory.CACHE_WRITE_5M },
  {
    name: "a mark for five minutes",
    more: { cacheControl: { ttl: "5m" } },
    mostExpensiveInput: InputCategory.CACHE_WRITE_5M,
  },
  {
    name: "a mark for an hour",
    more: { cacheControl: { ttl: "1h" } },
    mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
  },
  {
    name: "marks of both lifetimes",
    more: { cacheControl: { ttl: "1h" }, tools: [{ name: "t", cacheControl: { ttl: "5m" } }] },
    mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
  },
  {
    name: "a mark of a tool, an hour after five minutes",
    more: { cacheControl: {}, tools: [{ name: "t", cacheControl: { ttl: "1h" } }] },
    mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
  },
  {
    name: "a mark inside a block of another kind",
    more: {
      messages: [
        {
          role: Role.USER,
          content: [
            { kind: { case: "other", value: { type: "x", cache_control: { ttl: "1h" } } } },
          ],
        },
      ],
    },
    mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
  },
];
for (const { name, more, mostExpensiveInput } of marks) {
  test(`with ${name}, the most expensive input is ${Object.keys(InputCategory)[mostExpensiveInput]}`, () => {
    expect(measurePrompt(requestOf(more)).mostExpensiveInput).toBe(mostExpensiveInput);
  });
}

test("a mark deep in a decoded conversation is found", () => {
  const body = {
    model: "haiku",
    max_tokens: 1,
    messages: [
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "t",
            content: [{ type: "text", text: "a", cache_control: { type: "ephemeral", ttl: "1h" } }],
          },
        ],
      },
    ],
  };
  const request = native.decodeRequest(body, { version: "", beta: "" });
  expect(measurePrompt(request).mostExpensiveInput).toBe(InputCategory.CACHE_WRITE_1H);
});

test("tools that an item brings count once, as those of the request do", () => {
  const tools = [{ type: "function", name: "f", description: "d".repeat(4_000) }];
  const item = { type: "additional_tools", role: "developer", tools };
  const hello = { role: "user", content: "Hello" };
  const sizeOf = (body: JsonObject) =>
    measurePrompt(responses.decodeRequest({ model: "m", ...body })).textBytes;
  const plain = sizeOf({ input: [hello], tools });
  const brought = sizeOf({ input: [item, hello] });
  expect(brought).toBeGreaterThanOrEqual(4_000);
  expect(Math.abs(brought - plain)).toBeLessThan(200);
});
