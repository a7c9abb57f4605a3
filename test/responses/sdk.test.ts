// The official `openai` SDK on /v1/responses, with a scripted provider of each format.

import { zodTextFormat } from "openai/helpers/zod";
import type {
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseOutputItem,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  type GatewayWithProvider,
  openai,
  providerFormats,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { responsesEvents, sseEvent } from "../support/provider-answers.ts";

const base = { model: "sonnet", input: "What is the weather in Oslo?" };
const sunny = {
  text: ["It is ", "sunny. \u2028😀"],
  usage: { input: 20, output: 6, cacheRead: 4, thinking: 2 },
};
const call = { id: "call_1", name: "weather", input: ['{"city":', '"Oslo"}'] };
const weather = {
  type: "function" as const,
  name: "weather",
  description: "Tells the weather of a city.",
  strict: true,
  parameters: { type: "object", properties: { city: { type: "string" } } },
};
const crm = {
  type: "namespace" as const,
  name: "crm",
  description: "About customers.",
  tools: [
    { type: "function" as const, name: "find", description: "Finds one." },
    { type: "function" as const, name: "note" },
  ],
};
const patch = {
  type: "custom" as const,
  name: "apply_patch",
  description: "Changes files.",
  format: { type: "grammar" as const, syntax: "lark" as const, definition: "start: /.+/" },
};

async function readAll(stream: AsyncIterable<ResponseStreamEvent>): Promise<ResponseStreamEvent[]> {
  const events: ResponseStreamEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** Checks that each item and part is opened before it is filled, and closed once. */
function expectOrder(events: readonly ResponseStreamEvent[]): void {
  expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, at) => at));
  const open = new Set<string>();
  const openAt = (key: string) => expect(open.has(key), key).toBe(true);
  for (const event of events) {
    if (event.type === "response.output_item.added") {
      expect(open.size).toBe(0);
      open.add(`${event.output_index}`);
    } else if (event.type === "response.output_item.done") {
      openAt(`${event.output_index}`);
      open.delete(`${event.output_index}`);
      expect(open.size).toBe(0);
    } else if (event.type === "response.content_part.added") {
      openAt(`${event.output_index}`);
      open.add(`${event.output_index}/${event.content_index}`);
    } else if (event.type === "response.content_part.done") {
      openAt(`${event.output_index}/${event.content_index}`);
      open.delete(`${event.output_index}/${event.content_index}`);
    } else if (event.type === "response.output_text.delta") {
      openAt(`${event.output_index}/${event.content_index}`);
    } else if ("output_index" in event) openAt(`${event.output_index}`);
  }
  expect(open.size).toBe(0);
}

for (const format of providerFormats) {
  describe(`with a ${format} provider`, () => {
    let stage: GatewayWithProvider;
    beforeAll(async () => {
      stage = await startGatewayWithProvider(format);
    });
    afterAll(() => stage.stop());

    const sent = () => JSON.stringify(stage.provider.requests.at(-1)?.body);

    test("creates a plain response, which says that nothing is stored", async () => {
      stage.provider.play(stage.reply(sunny));
      const { data, response } = await openai(stage)
        .responses.create({ ...base, instructions: "Be brief.", store: true, metadata: { a: "b" } })
        .withResponse();
      expect(data).toMatchObject({
        object: "response",
        status: "completed",
        store: false,
        error: null,
        incomplete_details: null,
        instructions: "Be brief.",
        metadata: { a: "b" },
        output_text: "It is sunny. \u2028😀",
        usage: {
          input_tokens: 24,
          input_tokens_details: { cached_tokens: 4, cache_write_tokens: 0 },
          output_tokens: 6,
          output_tokens_details: { reasoning_tokens: 2 },
          total_tokens: 30,
        },
      });
      expect(data.id).toMatch(/^resp_/);
      expect(Number(response.headers.get("x-gateway-cost-credits"))).toBeGreaterThan(0);
      expect(sent()).toContain("Be brief.");
    });

    test("creates a stream of ordered events, which ends with the usage and the charge", async () => {
      stage.provider.play(stage.reply({ ...sunny, tool: call }));
      const events = await readAll(
        await openai(stage).responses.create({ ...base, tools: [weather], stream: true }),
      );
      expectOrder(events);
      expect(events.slice(0, 2).map(({ type }) => type)).toEqual([
        "response.created",
        "response.in_progress",
      ]);
      const last = events.at(-1);
      expect(last).toMatchObject({
        type: "response.completed",
        gateway: { cost_credits: expect.stringMatching(/^0\.\d+$/) },
        response: {
          status: "completed",
          usage: { input_tokens: 24, output_tokens: 6, total_tokens: 30 },
          output: [
            { type: "message", content: [{ type: "output_text", text: "It is sunny. \u2028😀" }] },
            { type: "function_call", call_id: "call_1", arguments: '{"city":"Oslo"}' },
          ],
        },
      });
    });

    test("builds the same response from its stream", async () => {
      stage.provider.play(stage.reply({ ...sunny, tool: call }));
      const stream = openai(stage).responses.stream({ ...base, tools: [weather] });
      const response = await stream.finalResponse();
      expect(response.output_text).toBe("It is sunny. \u2028😀");
      expect(response.output).toHaveLength(2);
    });

    test("parses a structured answer", async () => {
      stage.provider.play(stage.reply({ text: ['{"city":', '"Oslo"}'] }));
      const schema = z.object({ city: z.string() });
      const parsed = await openai(stage).responses.parse({
        ...base,
        text: { format: zodTextFormat(schema, "place") },
      });
      expect(parsed.output_parsed).toEqual({ city: "Oslo" });
      expect(sent()).toContain('"json_schema"');
    });

    test("runs a tool, and sends the call and its result back", async () => {
      stage.provider.play(stage.reply({ tool: call }), stage.reply(sunny));
      const client = openai(stage);
      const first = await client.responses.create({ ...base, tools: [weather] });
      const [item] = first.output;
      expect(item).toMatchObject({ type: "function_call", name: "weather", call_id: "call_1" });
      const input: ResponseInputItem[] = [
        { role: "user", content: base.input },
        ...inputOf(first.output),
        { type: "function_call_output", call_id: "call_1", output: "22 degrees" },
      ];
      const second = await client.responses.create({ ...base, input, tools: [weather] });
      expect(second.output_text).toContain("sunny");
      expect(sent()).toContain("22 degrees");
      expect(sent()).toContain("call_1");
    });

    test("gives a custom tool its input as plain text, plain and streamed", async () => {
      // A provider of this format knows such tools itself.
      const isCustom = format === "responses";
      const input = isCustom ? ["*** Be", 'gin\n"x"'] : ['{"input":"*** Be', 'gin\\n\\"x\\""}'];
      const tool = { ...call, name: "apply_patch", input, isCustom };
      stage.provider.always(stage.reply({ tool }));
      const client = openai(stage);
      const plain = await client.responses.create({ ...base, tools: [patch] });
      const wanted = { type: "custom_tool_call", name: "apply_patch", input: '*** Begin\n"x"' };
      expect(plain.output[0]).toMatchObject(wanted);
      expect(sent()).toContain("start: /.+/");
      const events = await readAll(
        await client.responses.create({ ...base, tools: [patch], stream: true }),
      );
      expectOrder(events);
      expect(events.at(-1)).toMatchObject({ response: { output: [wanted] } });
      const history: ResponseInputItem[] = [
        { role: "user", content: base.input },
        { type: "custom_tool_call", call_id: "call_1", name: "apply_patch", input: "a patch" },
        { type: "custom_tool_call_output", call_id: "call_1", output: "done" },
      ];
      await client.responses.create({ ...base, input: history, tools: [patch] });
      expect(sent()).toContain("a patch");
    });

    test("gives a call of a tool in a namespace back as the client named it", async () => {
      const isFlat = format !== "responses";
      const called = { ...call, name: isFlat ? "crm__find" : "find" };
      const whole = { type: "function_call", name: "find", namespace: "crm", call_id: "call_1" };
      stage.provider.always((request) => {
        const script = stage.reply({ tool: called })(request);
        // A provider of this format names the namespace itself.
        const named = (text: string) =>
          isFlat ? text : text.replaceAll('"name":"find"', '"name":"find","namespace":"crm"');
        const writes = (script.writes ?? []).map((one) => named(String(one)));
        return { ...script, writes };
      });
      const client = openai(stage);
      const input: ResponseInputItem[] = [
        { role: "user", content: base.input },
        { ...whole, type: "function_call", arguments: "{}", call_id: "call_0" },
        { type: "function_call_output", call_id: "call_0", output: "nobody" },
      ];
      const wanted = { ...base, input, tools: [crm, weather] };
      const plain = await client.responses.create(wanted);
      expect(plain.output).toMatchObject([whole]);
      const events = await readAll(await client.responses.create({ ...wanted, stream: true }));
      expectOrder(events);
      expect(events.at(-1)).toMatchObject({ response: { output: [whole] } });
      const added = events.find(({ type }) => type === "response.output_item.added");
      expect(added).toMatchObject({ item: { name: "find", namespace: "crm" } });
      const { tools } = stage.provider.requests.at(-1)?.body ?? {};
      expect(tools).toMatchObject(
        isFlat
          ? [
              format === "native" ? { name: "crm__find" } : { function: { name: "crm__find" } },
              format === "native" ? { name: "crm__note" } : { function: { name: "crm__note" } },
              {},
            ]
          : [{ type: "namespace", name: "crm", tools: [{ name: "find" }, { name: "note" }] }, {}],
      );
      expect(sent().split("About customers.")).toHaveLength(2);
      expect(sent()).toContain(isFlat ? '"crm__find"' : '"namespace":"crm"');
    });

    test("reports an answer that was cut off as incomplete", async () => {
      stage.provider.always(stage.reply({ text: ["It"], stopReason: "max_tokens" }));
      const answer = await openai(stage).responses.create({ ...base, max_output_tokens: 20 });
      expect(answer).toMatchObject({
        status: "incomplete",
        incomplete_details: { reason: "max_output_tokens" },
      });
      const events = await readAll(
        await openai(stage).responses.create({ ...base, max_output_tokens: 20, stream: true }),
      );
      expect(events.at(-1)).toMatchObject({
        type: "response.incomplete",
        response: { output: [{ status: "incomplete" }] },
      });
    });

    test("shows the summary of the thinking to a client that asks for it", async () => {
      const thinking = { pieces: ["I need ", "the weather."] };
      stage.provider.always(stage.reply({ ...sunny, thinking }));
      const reasoning = { effort: "high", summary: "auto" } as const;
      const events = await readAll(
        await openai(stage).responses.create({ ...base, reasoning, stream: true }),
      );
      expectOrder(events);
      expect(events.at(-1)).toMatchObject({
        response: {
          output: [
            { type: "reasoning", summary: [{ text: "I need the weather." }] },
            { type: "message" },
          ],
        },
      });
      // A provider of this format knows itself what its client asked for.
      const given = format === "responses" ? { ...sunny } : { ...sunny, thinking };
      stage.provider.always(stage.reply(given));
      const without = await openai(stage).responses.create(base);
      expect(JSON.stringify(without.output)).not.toContain("the weather");
      expect(stage.provider.requests.at(-1)?.body).not.toHaveProperty("reasoning");
      expect(without.output[0]).not.toHaveProperty("encrypted_content");
    });
  });
}

function inputOf(output: readonly ResponseOutputItem[]): ResponseInputItem[] {
  return output.flatMap((item) =>
    item.type === "message" || item.type === "function_call" || item.type === "reasoning"
      ? [item]
      : [],
  );
}

const thoughtful = {
  ...base,
  tools: [weather],
  reasoning: { effort: "medium" },
  include: ["reasoning.encrypted_content"],
} satisfies ResponseCreateParamsNonStreaming;

describe("a provider of the same format", () => {
  let stage: GatewayWithProvider;
  beforeAll(async () => {
    stage = await startGatewayWithProvider("responses");
  });
  afterAll(() => stage.stop());

  const thinking = { pieces: ["I need ", "the weather."], signature: "gAAAAencrypted" };
  const item = {
    id: "rs_1",
    type: "reasoning",
    summary: [{ type: "summary_text", text: "I need the weather." }],
    encrypted_content: thinking.signature,
  };
  const lastBody = () => stage.provider.requests.at(-1)?.body ?? {};

  test("gets its encrypted reasoning back through a tool loop; the client has it sealed", async () => {
    stage.provider.play(stage.reply({ thinking, tool: call }), stage.reply(sunny));
    const first = await openai(stage).responses.create(thoughtful);
    expect(JSON.stringify(first)).not.toContain(thinking.signature);
    expect(lastBody()).toMatchObject({
      store: false,
      include: ["reasoning.encrypted_content"],
      reasoning: { effort: "medium" },
    });
    const input: ResponseInputItem[] = [
      { role: "user", content: base.input },
      ...inputOf(first.output),
      { type: "function_call_output", call_id: "call_1", output: "22 degrees" },
    ];
    const second = await openai(stage).responses.create({ ...thoughtful, input });
    expect(second.output_text).toContain("sunny");
    expect(lastBody().input).toEqual([
      { role: "user", content: base.input },
      item,
      first.output[1],
      { type: "function_call_output", call_id: "call_1", output: "22 degrees" },
    ]);
  });

  test("gets it back from native and chat clients, too", async () => {
    stage.provider.always(stage.reply({ thinking, tool: call }));
    const native = { model: "sonnet", max_tokens: 5_000, thinking: { type: "adaptive" } };
    const question = { role: "user", content: "Hello" };
    const answer = await (await stage.post({ ...native, messages: [question] })).json();
    const result = { type: "tool_result", tool_use_id: "call_1", content: "22" };
    const turns = [question, { role: "assistant", content: Object(answer).content }];
    await stage.post({ ...native, messages: [...turns, { role: "user", content: [result] }] });
    expect(lastBody().input).toContainEqual(item);
    expect(lastBody().reasoning).toMatchObject({ summary: "auto" });

    const chat = { model: "sonnet", reasoning_effort: "low" };
    const completion = await (await stage.postChat({ ...chat, messages: [question] })).json();
    const messages = [
      question,
      Object(completion).choices[0].message,
      { role: "tool", tool_call_id: "call_1", content: "22" },
    ];
    await stage.postChat({ ...chat, messages });
    expect(lastBody().input).toContainEqual(item);
  });

  test("that fails before its first item is tried again, and is charged after it", async () => {
    const headers = { "content-type": "text/event-stream" };
    const [created = "", progress = "", ...rest] = responsesEvents(sunny);
    const error = { code: "server_error", message: "Oh." };
    const usage = { input_tokens: 7, output_tokens: 30 };
    const failed = sseEvent("response.failed", { response: { status: "failed", error, usage } });
    stage.provider.play({ headers, writes: [created, progress, failed] }, stage.reply(sunny));
    const before = stage.provider.requests.length;
    const answer = await openai(stage).responses.stream(base).finalResponse();
    expect(answer.output_text).toContain("sunny");
    expect(stage.provider.requests.length - before).toBe(2);

    const begun = [created, progress, ...rest.slice(0, 4)];
    stage.provider.play({ headers, writes: [...begun, failed] });
    const { data, response } = await openai(stage)
      .responses.create({ ...base, stream: true })
      .withResponse();
    const events = await readAll(data);
    expect(events.at(-1)).toMatchObject({
      type: "response.failed",
      response: { status: "failed", error: { code: "upstream_error" } },
    });
    const { accountId, admin } = stage.gateway;
    const requestId = response.headers.get("x-request-id") ?? "";
    // A failed answer is charged just after its end.
    await expect
      .poll(() => admin.core.billing.getReceipt({ requestId, accountId }, admin.call))
      .toMatchObject({ receipt: { usage: { input: 7, output: 30 } } });
  });

  test("is the only one to get it: other providers could not read it", async () => {
    const other = await startGatewayWithProvider("native");
    try {
      other.provider.always(other.reply(sunny));
      const signature = "responses:gAAAAencrypted";
      const messages = [
        { role: "user", content: "Hello" },
        { role: "assistant", content: [{ type: "thinking", thinking: "hm", signature }] },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm", signature },
            { type: "text", text: "Hi" },
          ],
        },
        { role: "user", content: "Again" },
      ];
      await other.post({ model: "sonnet", max_tokens: 100, messages });
      expect(other.provider.requests.at(-1)?.body.messages).toEqual([
        messages[0],
        { role: "assistant", content: [{ type: "text", text: "Hi" }] },
        messages[3],
      ]);
    } finally {
      await other.stop();
    }
  });
});

describe("reasoning through a tool loop", () => {
  let stage: GatewayWithProvider;
  beforeAll(async () => {
    stage = await startGatewayWithProvider("native");
  });
  afterAll(() => stage.stop());

  const wanted = thoughtful;
  const thinking = { pieces: ["I need ", "the weather."], signature: "c2lnbmVkLWJ5LXByb3ZpZGVy" };

  async function firstStep(): Promise<ResponseInputItem[]> {
    stage.provider.play(stage.reply({ thinking, tool: call }));
    const first = await openai(stage).responses.create(wanted);
    return [
      { role: "user", content: base.input },
      ...inputOf(first.output),
      { type: "function_call_output", call_id: "call_1", output: "22 degrees" },
    ];
  }

  test("returns the provider's signed thinking, unreadable to the client", async () => {
    const input = await firstStep();
    const [, reasoning] = input;
    expect(JSON.stringify(reasoning)).not.toContain("weather");
    expect(JSON.stringify(reasoning)).not.toContain(thinking.signature);
    stage.provider.play(stage.reply(sunny));
    await openai(stage).responses.create({ ...wanted, input });
    const messages = stage.provider.requests.at(-1)?.body.messages;
    expect(messages).toMatchObject([
      { role: "user" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "I need the weather.", signature: thinking.signature },
          { type: "tool_use", id: "call_1", input: { city: "Oslo" } },
        ],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1" }] },
    ]);
  });

  test("opens it under an alias and under the id of the same model", async () => {
    const input = await firstStep();
    stage.provider.play(stage.reply(sunny));
    const model = String(Object(await openai(stage).models.retrieve("sonnet")).alias_for);
    expect(model).toBe("model-sonnet-4.6");
    await openai(stage).responses.create({ ...wanted, model, input });
    expect(JSON.stringify(stage.provider.requests.at(-1)?.body)).toContain(thinking.signature);
  });

  test("leaves it out where it was changed or made up", async () => {
    const input = await firstStep();
    const sealed = String(Object(input[1]).encrypted_content);
    const flipped = `${sealed.slice(0, 40)}${sealed[40] === "A" ? "B" : "A"}${sealed.slice(41)}`;
    for (const changed of [flipped, "bm8=", "gw1.", `A${sealed}`, sealed.slice(0, 30)]) {
      const items = input.map((item, at) =>
        at === 1 ? Object.assign({}, item, { encrypted_content: changed }) : item,
      );
      stage.provider.play(stage.reply(sunny));
      const answer = await openai(stage).responses.create({ ...wanted, input: items });
      expect(answer.output_text).toContain("sunny");
      expect(stage.provider.requests.at(-1)?.body.messages).toMatchObject([
        { role: "user" },
        { role: "assistant", content: [{ type: "tool_use", id: "call_1" }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1" }] },
      ]);
    }
  });

  test("drops a reasoning item without content, which no provider takes back", async () => {
    stage.provider.play(stage.reply(sunny));
    await openai(stage).responses.create({
      ...wanted,
      input: [
        { role: "user", content: "Hello" },
        { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "hm" }] },
        { role: "assistant", content: "Hi" },
        { role: "user", content: "Again" },
      ],
    });
    expect(JSON.stringify(stage.provider.requests.at(-1)?.body)).not.toContain("hm");
  });
});
