// Tools of the Responses format beyond functions: the official `openai` SDK folds the streams of
// their calls, with a provider that knows them as functions, and one that runs searches itself.

import type { JsonObject } from "@bufbuild/protobuf";
import type { ChatCompletionCreateParamsStreaming } from "openai/resources/chat/completions";
import type { ResponseCreateParamsStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import {
  type GatewayWithProvider,
  openai,
  providerFormats,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { responsesEvents, sseEvent } from "../support/provider-answers.ts";

const base = { model: "sonnet", input: "Hello", stream: true } as const;
/** Custom tools of chat completions and flat ones, which the SDK's types do not have. */
const asSdk = (body: JsonObject): ResponseCreateParamsStreaming => Object(body);

const calls: [tool: JsonObject, given: JsonObject, item: JsonObject][] = [
  [
    { type: "tool_search", execution: "client", description: "Finds.", parameters: {} },
    { query: "bell" },
    { type: "tool_search_call", execution: "client", arguments: { query: "bell" } },
  ],
  [
    { type: "local_shell" },
    { command: ["ls", "-l"] },
    { type: "local_shell_call", action: { type: "exec", command: ["ls", "-l"], env: {} } },
  ],
  [
    { type: "shell", environment: { type: "local" } },
    { commands: ["ls"], timeout_ms: 1_000 },
    { type: "shell_call", action: { commands: ["ls"], timeout_ms: 1_000 } },
  ],
  [
    { type: "apply_patch" },
    { type: "create_file", path: "a.txt", diff: "+a\n" },
    {
      type: "apply_patch_call",
      operation: { type: "create_file", path: "a.txt", diff: "+a\n" },
    },
  ],
];

describe.each(["native", "chat"] as const)("with a %s provider", (format) => {
  let stage: GatewayWithProvider;
  beforeAll(async () => {
    stage = await startGatewayWithProvider(format);
  });
  afterAll(() => stage.stop());
  const sent = () => JSON.stringify(stage.provider.requests.at(-1)?.body);

  test.each(calls)("a call of %o has the form of its type", async (tool, given, item) => {
    const name = String(tool.type);
    const text = JSON.stringify(given);
    const input = [text.slice(0, 9), text.slice(9)];
    stage.provider.always(stage.reply({ text: ["I do."], tool: { id: "call_1", name, input } }));
    const body = asSdk({ ...base, tools: [tool] });
    const response = await openai(stage).responses.stream(body).finalResponse();
    const wanted = { ...item, call_id: "call_1", status: "completed" };
    expect(response.output).toMatchObject([{ type: "message" }, wanted]);
    const plain = await openai(stage).responses.create({ ...body, stream: false });
    expect(plain.output[1]).toMatchObject(wanted);
    expect(sent()).toContain(`"name":"${name}"`);
  });

  test("a call without what its type needs is a plain one", async () => {
    const tool = { id: "call_1", name: "local_shell", input: ['{"cmd":"ls"}'] };
    stage.provider.always(stage.reply({ tool }));
    const body = asSdk({ ...base, tools: [{ type: "local_shell" }] });
    const { output } = await openai(stage).responses.stream(body).finalResponse();
    const plain = { type: "function_call", name: "local_shell", arguments: '{"cmd":"ls"}' };
    expect(output).toMatchObject([plain]);
  });

  test("a tool of the vendor's own is left out, and the answer says so", async () => {
    stage.provider.always(stage.reply({ text: ["Hi"] }));
    const body = { ...base, tools: [{ type: "web_search" as const }] };
    const { data, response } = await openai(stage)
      .responses.create({ ...body, stream: true })
      .withResponse();
    for await (const event of data)
      if (event.type === "response.completed")
        expect(event).toMatchObject({ gateway: { left_out: [{ what: "web_search" }] } });
    const header = "tools[0]=web_search;hosted";
    expect(response.headers.get("x-gateway-left-out")).toBe(header);
    expect(sent()).not.toContain("web_search");
    const plain = openai(stage).responses.create({ ...body, stream: false });
    const { response: whole } = await plain.withResponse();
    expect(whole.headers.get("x-gateway-left-out")).toBe(header);
  });

  test("a chat body has flat and custom tools, too, and its messages come before an input", async () => {
    const tool = { id: "call_1", name: "patch", input: ['{"input":"a"}'] };
    stage.provider.always(stage.reply({ tool }));
    const messages = [
      { role: "user", content: "Hello" },
      {
        role: "assistant",
        tool_calls: [{ id: "call_0", type: "custom", custom: { name: "patch", input: "b" } }],
      },
      { role: "tool", tool_call_id: "call_0", content: "done" },
    ];
    const tools = [
      { type: "custom", name: "patch" },
      { type: "function", name: "flat" },
    ];
    const response = await stage.postChat({ model: "sonnet", messages, tools, input: "unread" });
    expect(await response.json()).toMatchObject({
      choices: [{ message: { tool_calls: [{ custom: { name: "patch", input: "a" } }] } }],
    });
    expect(response.headers.get("x-gateway-left-out")).toContain("input=input;member");
    expect(sent()).toContain('"flat"');
    expect(sent()).not.toContain("unread");
  });
});

describe.each(providerFormats)("with a %s provider, on the chat path", (format) => {
  let stage: GatewayWithProvider;
  beforeAll(async () => {
    stage = await startGatewayWithProvider(format);
  });
  afterAll(() => stage.stop());

  test("a body of this format on the chat path is answered as a chat", async () => {
    // A provider of this format knows such tools itself.
    const isCustom = format === "responses";
    const given = isCustom ? ["*** Be", "gin\n"] : ['{"input":"*** Be', 'gin\\n"}'];
    const tool = { id: "call_1", name: "patch", input: given, isCustom };
    stage.provider.always(stage.reply({ text: ["I do."], tool }));
    const body = {
      ...{ model: "sonnet", input: [{ role: "user", content: "Hello" }], max_tokens: 99 },
      tools: [
        { type: "custom", name: "patch", format: { type: "text" } },
        { type: "function", name: "flat", parameters: {} },
        { type: "function", function: { name: "nested" } },
      ],
    };
    const custom = { name: "patch", input: "*** Begin\n" };
    const completions = openai(stage).chat.completions;
    const plain = await completions.create(Object(body));
    expect(plain.choices).toMatchObject([
      {
        finish_reason: "tool_calls",
        message: { content: "I do.", tool_calls: [{ id: "call_1", type: "custom", custom }] },
      },
    ]);
    const limit = isCustom ? "max_output_tokens" : "max_tokens";
    expect(stage.provider.requests.at(-1)?.body).toMatchObject({ [limit]: 99 });
    const streamed: ChatCompletionCreateParamsStreaming = { ...Object(body), stream: true };
    const stream = await completions.create(streamed);
    const deltas: JsonObject[] = [];
    for await (const { choices } of stream)
      for (const { delta } of choices) deltas.push(...(Object(delta).tool_calls ?? []));
    expect(deltas).toEqual([
      { index: 0, id: "call_1", type: "custom", custom: { name: "patch", input: "" } },
      { index: 0, custom: { input: "*** Begin\n" } },
    ]);
  });
});

describe("web searches of a provider of this format", () => {
  let provider: FakeProvider;
  let gateway: TestGateway;
  beforeAll(async () => {
    provider = await startFakeProvider();
    const real = { kind: "openai", url: provider.url, more: "api: responses" } as const;
    const catalog = readCatalogFile(catalogFor({ real }, undefined, { searches: "10.00" }));
    gateway = await startTestGateway({ catalog });
  });
  afterAll(async () => {
    await gateway.stop();
    await provider.stop();
  });

  const search = { type: "web_search_call", status: "completed", action: { type: "search" } };
  const opened = { ...search, action: { type: "open_page", url: "https://example.org" } };

  /** An answer after two searches and a page. `usage`: what the response says of them. */
  function play(usage: JsonObject | undefined, end: "good" | "reset" = "good"): void {
    const items = [search, opened, search].map((item, index) => ({ id: `ws_${index}`, ...item }));
    const [created = "", progress = "", ...rest] = responsesEvents({
      text: ["It is sunny."],
      usage: { input: 20, output: 6 },
    });
    const searches = items.flatMap((item, at) => {
      const output_index = 10 + at;
      return [
        sseEvent("response.output_item.added", { output_index, item }),
        sseEvent("response.output_item.done", { output_index, item }),
      ];
    });
    const more = usage ? `"tool_usage":${JSON.stringify(usage)},` : "";
    const last = (rest.at(-1) ?? "").replace('"response":{', `"response":{${more}`);
    const writes = [created, progress, ...searches, ...rest.slice(0, -1)];
    const headers = { "content-type": "text/event-stream" };
    provider.play({ headers, end, writes: end === "good" ? [...writes, last] : writes });
  }

  async function ask(members: JsonObject = {}): Promise<{ text: string; receipt: Receipt }> {
    const answer = await fetch(`${gateway.address}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${gateway.v1}` },
      body: JSON.stringify({ ...base, tools: [{ type: "web_search" }], ...members }),
    });
    const text = await answer.text();
    const requestId = answer.headers.get("x-request-id") ?? "";
    const { core, call } = gateway.admin;
    for (;;) {
      const request = { requestId, accountId: gateway.accountId };
      const { receipt } = await core.billing.getReceipt(request, call);
      if (receipt?.settledAt) return { text, receipt };
    }
  }

  const price = 2_000_000n;

  test("are bounded, held and charged as the response reports them", async () => {
    play({ web_search: { num_requests: 2 } });
    const { text, receipt } = await ask();
    expect(provider.requests.at(-1)?.body).toMatchObject({
      tools: [{ type: "web_search" }],
      max_tool_calls: 8,
    });
    expect(text).toContain('"open_page"');
    expect(receipt.usage).toMatchObject({ input: 20, output: 6, webSearches: 2 });
    expect(receipt.chargedMicrocredits).toBe(20n * 420n + 6n * 2_100n + 2n * price);
    expect(receipt.holdMicrocredits).toBeGreaterThan(8n * price);
  });

  test("are counted by their items where the response does not report them", async () => {
    play(undefined);
    expect((await ask()).receipt.usage).toMatchObject({ webSearches: 2 });
  });

  test("are charged as seen where the provider breaks off", async () => {
    play(undefined, "reset");
    expect((await ask()).receipt.usage).toMatchObject({ webSearches: 2 });
  });

  test("are no more than the request allows, also in what is shown", async () => {
    play({ web_search: { num_requests: 5_000 } });
    const { text, receipt } = await ask({ max_tool_calls: 3 });
    expect(receipt.usage).toMatchObject({ webSearches: 3 });
    expect(text).toContain('"num_requests":3');
  });

  test("are refused with a bound of nothing, before any call", async () => {
    const before = provider.requests.length;
    const answer = await fetch(`${gateway.address}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${gateway.v1}` },
      body: JSON.stringify({ ...base, tools: [{ type: "web_search" }], max_tool_calls: 0 }),
    });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param: "max_tool_calls" } });
    expect(provider.requests).toHaveLength(before);
  });
});
