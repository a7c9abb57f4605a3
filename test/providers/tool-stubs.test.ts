// The request that a provider receives for a conversation that used tools, if it defines none.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import * as native from "../../src/formats/native/native.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { chatStream, nativeStream } from "../support/provider-answers.ts";
import { openProviders, readAll, textOf } from "../support/providers.ts";

let provider: FakeProvider;
let providers: ManagedProviders;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  await providers.close();
  await provider.stop();
});

const usedTools = ["read_file", "run", "read_file"];

function nativeRequest(members: JsonObject = {}): GenerateRequest {
  const calls = usedTools.map((name, index) => ({
    type: "tool_use",
    id: `toolu_${index}`,
    name,
    input: { index },
  }));
  const results = usedTools.map((_, index) => ({
    type: "tool_result",
    tool_use_id: `toolu_${index}`,
    content: "done",
  }));
  const messages = [
    { role: "user", content: "Go" },
    { role: "assistant", content: calls },
    { role: "user", content: [...results, { type: "text", text: "Sum up." }] },
  ];
  const body = { model: "opus", max_tokens: 1000, stream: true, messages, ...members };
  return {
    ...native.decodeRequest(body, { version: "2023-06-01", beta: "" }),
    model: "model-opus-4.6",
  };
}

function chatRequest(members: JsonObject = {}): GenerateRequest {
  const calls = usedTools.map((name, index) => ({
    id: `call_${index}`,
    type: "function",
    function: { name, arguments: "{}" },
  }));
  const results = usedTools.map((_, index) => ({
    role: "tool",
    tool_call_id: `call_${index}`,
    content: "done",
  }));
  const messages = [
    { role: "user", content: "Go" },
    { role: "assistant", content: null, tool_calls: calls },
    ...results,
    { role: "user", content: "Sum up." },
  ];
  const body = { model: "opus", max_tokens: 1000, stream: true, messages, ...members };
  return { ...chat.decodeRequest(body), model: "model-opus-4.6" };
}

const empty = { type: "object", properties: {} };
const formats = {
  anthropic: {
    answer: nativeStream,
    stubs: {
      tools: ["read_file", "run"].map((name) => ({ name, input_schema: empty })),
      tool_choice: { type: "none" },
    },
    defined: [{ name: "other", input_schema: empty }],
  },
  openai: {
    answer: chatStream,
    stubs: {
      tools: ["read_file", "run"].map((name) => ({
        type: "function",
        function: { name, parameters: empty },
      })),
      tool_choice: "none",
    },
    defined: [{ type: "function", function: { name: "other", parameters: empty } }],
  },
};
const clients = {
  native: { request: nativeRequest, defined: { name: "other", input_schema: empty } },
  chat: {
    request: chatRequest,
    defined: { type: "function", function: { name: "other", parameters: empty } },
  },
};

async function sentFor(
  kind: "anthropic" | "openai",
  request: GenerateRequest,
  more?: string,
): Promise<JsonObject> {
  providers = openProviders(
    catalogFor({ real: { kind, url: provider.url, ...(more && { more }) } }),
  );
  provider.always(formats[kind].answer({ text: ["Hello"] }));
  const { events, apiError } = await readAll(providers, request);
  expect([apiError, textOf(events)]).toEqual([undefined, "Hello"]);
  return provider.requests.at(-1)?.body ?? {};
}

for (const kind of ["anthropic", "openai"] as const) {
  for (const format of ["native", "chat"] as const) {
    const { request, defined } = clients[format];
    describe(`a ${format} conversation that used tools, sent to a provider of kind ${kind}`, () => {
      test("defines each tool, without allowing calls, if the provider is configured so", async () => {
        const sent = await sentFor(kind, request(), "tool_stubs: true");
        expect(sent).toMatchObject(formats[kind].stubs);
        const { tools: _tools, tool_choice: _choice, ...others } = sent;
        await providers.close();
        expect(others).toEqual(await sentFor(kind, request()));
      });

      test("is sent as it is by default", async () => {
        const sent = await sentFor(kind, request());
        expect([sent.tools, sent.tool_choice]).toEqual([undefined, undefined]);
      });

      test("keeps the tools that its request defines, and adds no others", async () => {
        const sent = await sentFor(kind, request({ tools: [defined] }), "tool_stubs: true");
        expect([sent.tools, sent.tool_choice]).toEqual([formats[kind].defined, undefined]);
      });

      test("defines them also for an empty list of tools", async () => {
        expect(await sentFor(kind, request({ tools: [] }), "tool_stubs: true")).toMatchObject(
          formats[kind].stubs,
        );
      });
    });
  }

  test(`a conversation without tool calls is sent to a provider of kind ${kind} as it is`, async () => {
    const messages = [{ role: "user", content: "Hi" }];
    const sent = await sentFor(kind, nativeRequest({ messages }), "tool_stubs: true");
    expect([sent.tools, sent.tool_choice]).toEqual([undefined, undefined]);
  });
}

test("a native provider receives them in a request to count too", async () => {
  providers = openProviders(
    catalogFor({ real: { kind: "anthropic", url: provider.url, more: "tool_stubs: true" } }),
  );
  provider.always({
    headers: { "content-type": "application/json" },
    writes: ['{"input_tokens":7}'],
  });
  const count = await providers.countTokens({
    request: nativeRequest(),
    affinity: () => "a",
    accountId: "acc_1",
    signal: new AbortController().signal,
  });
  expect(count).toEqual({ inputTokens: 7 });
  expect(provider.requests[0]?.body).toMatchObject(formats.anthropic.stubs);
});
