import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { AttemptOutcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { LeftOutReason } from "../../gen/gateway/common/v1/left_out_pb.ts";
import {
  type Block,
  BlockSchema,
  CacheControlSchema,
  Format,
  Role,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { PromptCache, type Segment } from "../../src/providers/simulated/prompt.ts";
import { cutText, fillText, splitTokens, tokensOf } from "../../src/providers/simulated/tokens.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";
import {
  attemptsFor,
  endOf,
  firstUsageOf,
  kindsOf,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  startAnswer,
  textOf,
} from "../support/providers.ts";

const catalog = catalogFor({ simulated: "simulated" });
let providers: ManagedProviders = openProviders(catalog);
afterEach(() => {
  providers = openProviders(catalog);
});

const weather = {
  name: "get_weather",
  inputSchema: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer", minimum: 2 } },
    required: ["city", "days"],
  },
};

/** The blocks of the answer, each as its kind and the content of its start and deltas. */
function blocksOf(
  events: readonly Event[],
): { kind: string; content: string; start: Block["kind"] | undefined }[] {
  const blocks: { kind: string; content: string; start: Block["kind"] | undefined }[] = [];
  for (const { kind } of events) {
    if (kind.case === "blockStart") {
      const start = kind.value.block?.kind;
      blocks.push({
        kind: start?.case === "other" ? String(start.value.type) : (start?.case ?? ""),
        content: "",
        start,
      });
    }
    const last = blocks.at(-1);
    if (kind.case === "blockDelta" && last && typeof kind.value.kind.value === "string")
      last.content += kind.value.kind.value;
  }
  return blocks;
}

const text = (value: string) =>
  create(BlockSchema, { kind: { case: "text", value: { text: value } } });
const mark = (ttl: string) => create(CacheControlSchema, { ttl });

describe("an answer", () => {
  test("depends only on the conversation, and follows the order of events", async () => {
    const [one, two, other] = [
      await readAll(providers, "Hello"),
      await readAll(providers, "Hello"),
      await readAll(providers, "Bye"),
    ];
    expect(textOf(one.events)).toContain("You said: Hello");
    expect(textOf(two.events)).toBe(textOf(one.events));
    expect(textOf(other.events)).not.toBe(textOf(one.events));
    const kinds = kindsOf(one.events).filter((kind) => kind !== "blockDelta");
    expect(kinds).toEqual([
      "messageStart",
      "blockStart",
      "blockStop",
      "messageDelta",
      "messageStop",
    ]);
    expect(endOf(one.events)).toMatchObject({ stopReason: "end_turn" });
  });

  test("is given to the last instruction if the user says nothing", async () => {
    const [message] = requestOf("Hello").messages;
    const messages = message ? [{ ...message, role: Role.SYSTEM }] : [];
    const { events } = await readAll(providers, requestOf("", { messages }));
    expect(textOf(events)).toContain("You said: Hello");
  });

  test("counts four bytes as a token, in both directions", async () => {
    const { events } = await readAll(providers, "ä".repeat(10));
    expect(firstUsageOf(events)).toMatchObject({ inputTokens: 5, outputTokens: 0 });
    expect(endOf(events)?.usage).toMatchObject({
      inputTokens: 5,
      outputTokens: Math.ceil(Buffer.byteLength(textOf(events)) / 4),
    });
  });

  test("says what its model has no place for", async () => {
    const request = requestOf("Hello", {
      origin: { format: Format.CHAT },
      extensions: { seed: 7 },
    });
    const { events } = await readAll(providers, request);
    const [start] = events.map(({ kind }) => kind);
    expect(start?.case === "messageStart" && start.value.leftOut).toMatchObject([
      { where: "seed", what: "seed", why: LeftOutReason.MEMBER, count: 1 },
    ]);
  });

  test("ends at max_tokens, with this stop reason", async () => {
    const { events } = await readAll(providers, requestOf("Hello", { maxTokens: 3 }));
    expect(textOf(events)).toBe("This is the ".slice(0, 12));
    expect(endOf(events)).toMatchObject({ stopReason: "max_tokens", usage: { outputTokens: 3 } });
  });

  test("with max_tokens 0 has no block and no output", async () => {
    const { events } = await readAll(providers, requestOf("Hello", { maxTokens: 0 }));
    expect(kindsOf(events)).toEqual(["messageStart", "messageDelta", "messageStop"]);
    expect(endOf(events)).toMatchObject({ stopReason: "max_tokens", usage: { outputTokens: 0 } });
  });

  test("ends before the first stop sequence", async () => {
    const { events } = await readAll(
      providers,
      requestOf("Hello", { stopSequences: ["said", "simulated", ""] }),
    );
    expect(textOf(events)).toBe("This is the ");
    expect(endOf(events)).toMatchObject({
      stopReason: "stop_sequence",
      stopSequence: "simulated",
      usage: { outputTokens: 3 },
    });
  });

  test("is JSON of the schema for structured output", async () => {
    const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
    const format = { type: "json_schema", schema };
    const { events } = await readAll(providers, requestOf("Hello", { outputConfig: { format } }));
    expect(JSON.parse(textOf(events))).toEqual({ ok: true });
  });
});

describe("tools", () => {
  test("a tool that the last user text names is called with arguments of its schema", async () => {
    const { events } = await readAll(
      providers,
      requestOf("Please get_weather.", { tools: [weather, { name: "get" }] }),
    );
    const [said, call, more] = blocksOf(events);
    expect(said?.kind).toBe("text");
    expect(call).toMatchObject({
      kind: "toolUse",
      start: { value: { name: "get_weather", input: {} } },
    });
    expect(JSON.parse(call?.content ?? "")).toEqual({ city: "city", days: 2 });
    expect(more).toBeUndefined();
    expect(endOf(events)?.stopReason).toBe("tool_use");
  });

  test("several named tools are called together, or only one where parallel calls are off", async () => {
    const tools = [weather, { name: "get_time" }];
    const together = await readAll(providers, requestOf("get_time and get_weather", { tools }));
    expect(blocksOf(together.events).map(({ kind }) => kind)).toEqual([
      "text",
      "toolUse",
      "toolUse",
    ]);
    const toolChoice = { type: "auto", disableParallelToolUse: true };
    const alone = await readAll(
      providers,
      requestOf("get_time and get_weather", { tools, toolChoice }),
    );
    expect(blocksOf(alone.events).map(({ kind }) => kind)).toEqual(["text", "toolUse"]);
  });

  const choices = [
    { choice: { type: "none" }, called: [] },
    { choice: { type: "any" }, called: ["get_weather"] },
    { choice: { type: "tool", name: "get_time" }, called: ["get_time"] },
    { choice: { type: "auto" }, called: [] },
  ];
  for (const { choice, called } of choices) {
    test(`tool_choice ${choice.type} calls ${called.join() || "nothing"} when the user names no tool`, async () => {
      const tools = [weather, { name: "get_time" }];
      const { events } = await readAll(
        providers,
        requestOf("Hello", { tools, toolChoice: choice }),
      );
      const names = blocksOf(events).flatMap(({ start }) =>
        start?.case === "toolUse" ? [start.value.name] : [],
      );
      expect(names).toEqual(called);
    });
  }

  test("a tool result is answered with text", async () => {
    const messages = [
      { role: Role.USER, content: [text("get_weather")] },
      {
        role: Role.ASSISTANT,
        content: [
          create(BlockSchema, {
            kind: { case: "toolUse", value: { id: "t1", name: "get_weather" } },
          }),
        ],
      },
      {
        role: Role.USER,
        content: [
          create(BlockSchema, {
            kind: { case: "toolResult", value: { toolUseId: "t1", content: [text("12 degrees")] } },
          }),
        ],
      },
    ];
    const { events } = await readAll(providers, requestOf("", { messages, tools: [weather] }));
    expect(textOf(events)).toBe("get_weather answered: 12 degrees");
    expect(endOf(events)?.stopReason).toBe("end_turn");
  });

  test("reminders that clients add in tags are ignored", async () => {
    const content = [
      text("Hello"),
      text("<system-reminder>You have get_weather</system-reminder>"),
    ];
    const { events } = await readAll(
      providers,
      requestOf("", { messages: [{ role: Role.USER, content }], tools: [weather] }),
    );
    expect(blocksOf(events).map(({ kind }) => kind)).toEqual(["text"]);
    expect(textOf(events)).toContain("You said: Hello");
  });
});

describe("thinking", () => {
  test("comes first, with a signature, and is part of the output", async () => {
    const { events } = await readAll(
      providers,
      requestOf("Hello", { thinking: { type: "adaptive" } }),
    );
    const [thought, said] = blocksOf(events);
    expect(thought?.kind).toBe("thinking");
    const last = events
      .filter(({ kind }) => kind.case === "blockDelta" && kind.value.index === 0)
      .at(-1)?.kind;
    expect(last?.case === "blockDelta" && last.value.kind.case).toBe("signature");
    const usage = endOf(events)?.usage;
    expect(usage?.thinkingTokens).toBeGreaterThan(0);
    expect(usage?.outputTokens).toBe(
      (usage?.thinkingTokens ?? 0) + Math.ceil(Buffer.byteLength(said?.content ?? "") / 4),
    );
  });

  test("that is omitted is still signed and counted", async () => {
    const thinking = { type: "enabled", budgetTokens: 1024, extensions: { display: "omitted" } };
    const shown = await readAll(
      providers,
      requestOf("Hello", { thinking: { type: "enabled", budgetTokens: 1024 } }),
    );
    const hidden = await readAll(providers, requestOf("Hello", { thinking }));
    const deltas = hidden.events.flatMap(({ kind }) =>
      kind.case === "blockDelta" && kind.value.index === 0 ? [kind.value.kind.case] : [],
    );
    expect(deltas).toEqual(["signature"]);
    expect(endOf(hidden.events)?.usage?.thinkingTokens).toBe(
      endOf(shown.events)?.usage?.thinkingTokens,
    );
  });

  test("is absent when disabled", async () => {
    const { events } = await readAll(
      providers,
      requestOf("Hello", { thinking: { type: "disabled" } }),
    );
    expect(blocksOf(events).map(({ kind }) => kind)).toEqual(["text"]);
    expect(endOf(events)?.usage?.thinkingTokens).toBeUndefined();
  });
});

describe("the prompt cache", () => {
  const marked = (ttl?: string) =>
    requestOf("", {
      system: {
        content: [
          create(BlockSchema, {
            kind: { case: "text", value: { text: "s".repeat(400) } },
            cacheControl: ttl ? { ttl } : {},
          }),
        ],
      },
      messages: [{ role: Role.USER, content: [text("q".repeat(40))] }],
    });

  test("a marked prefix is written the first time and read the next", async () => {
    const [first, second] = [
      await readAll(providers, marked()),
      await readAll(providers, marked()),
    ];
    expect(endOf(first.events)?.usage).toMatchObject({
      inputTokens: 10,
      cacheCreationInputTokens: 100,
      cacheReadInputTokens: 0,
      cacheCreation: { ephemeral5mInputTokens: 100, ephemeral1hInputTokens: 0 },
    });
    expect(endOf(second.events)?.usage).toMatchObject({
      inputTokens: 10,
      cacheCreationInputTokens: 0,
      cacheReadInputTokens: 100,
    });
  });

  test("expires after five minutes or an hour", async () => {
    const clock = new ManualClock();
    providers = openProviders(catalog, { clock });
    const read = async (ttl?: string) =>
      endOf((await readAll(providers, marked(ttl))).events)?.usage?.cacheReadInputTokens;
    expect(await read()).toBe(0);
    await clock.advance(299_999);
    expect(await read()).toBe(100);
    await clock.advance(300_000);
    expect(await read("1h")).toBe(0);
    await clock.advance(3_599_999);
    expect(await read()).toBe(100);
  });

  test("the whole request is a prefix when the request itself is marked", async () => {
    const { events } = await readAll(
      providers,
      requestOf("Hello you", { cacheControl: { ttl: "1h" } }),
    );
    expect(endOf(events)?.usage).toMatchObject({
      inputTokens: 0,
      cacheCreationInputTokens: 3,
      cacheCreation: { ephemeral5mInputTokens: 0, ephemeral1hInputTokens: 3 },
    });
  });

  test("counts no token in two categories, for any marks", () => {
    const segment = fc.record({
      content: fc.string(),
      bytes: fc.nat(1000),
      ttl: fc.constantFrom(undefined, "5m", "1h"),
    });
    fc.assert(
      fc.property(fc.array(fc.array(segment, { maxLength: 8 }), { maxLength: 6 }), (prompts) => {
        const cache = new PromptCache();
        for (const prompt of prompts) {
          const segments = prompt.map(
            ({ ttl, ...rest }): Segment => (ttl ? { ...rest, cacheControl: mark(ttl) } : rest),
          );
          const { input, read, write5m, write1h } = cache.count("m", segments, 0);
          const total = tokensOf(segments.reduce((sum, { bytes }) => sum + bytes, 0));
          expect(input + read + write5m + write1h).toBe(total);
          expect(Math.min(input, read, write5m, write1h)).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });
});

describe("directives in the last user text", () => {
  test("tokens sets the length of the text exactly, and the directive is not repeated", async () => {
    const { events } = await readAll(providers, "Say [[simulate tokens=50]] something");
    expect(Buffer.byteLength(textOf(events))).toBe(200);
    expect(endOf(events)?.usage?.outputTokens).toBe(50);
    expect(textOf(events)).not.toContain("simulate tokens");
  });

  test("error answers with that status before the first event", async () => {
    for (const [status, reason] of [
      [400, "upstream_refused"],
      [401, "upstream_error"],
      [429, "overloaded"],
      [500, "upstream_error"],
      [529, "overloaded"],
    ] as const) {
      providers = openProviders(catalog);
      const { events, apiError, ask } = await readAll(providers, `[[simulate error=${status}]]`);
      expect([events, apiError?.reason, ask.accepted]).toEqual([[], reason, 0]);
    }
  });

  test("context_length_exceeded rejects the prompt as too long", async () => {
    const { events, apiError, ask } = await readAll(
      providers,
      "[[simulate context_length_exceeded=true]]",
    );
    expect([events, apiError?.reason, ask.accepted]).toEqual([[], "context_length_exceeded", 0]);
    expect(apiError?.message).toMatch(/^prompt is too long: \d+ tokens > \d+ maximum$/);
  });

  test("drop_after breaks the answer off after that number of events", async () => {
    const { events, apiError } = await readAll(providers, "[[simulate drop_after=4]]");
    expect(events).toHaveLength(4);
    expect(apiError?.reason).toBe("upstream_error");
  });

  test("fail_after sends an error event after that number of events", async () => {
    const { events, apiError } = await readAll(providers, "[[simulate fail_after=4]]");
    expect(events).toHaveLength(4);
    expect(apiError?.reason).toBe("overloaded");
  });

  test("no_usage reports no usage, and stop_reason sets the stop reason", async () => {
    const { events } = await readAll(providers, "[[simulate no_usage=true stop_reason=refusal]]");
    expect([firstUsageOf(events), endOf(events)?.usage]).toEqual([undefined, undefined]);
    expect(endOf(events)).toMatchObject({
      stopReason: "refusal",
      deltaExtensions: { stop_details: { type: "refusal" } },
    });
  });

  test("a wrong one is an error with a message", async () => {
    for (const wrong of [
      "color=red",
      "tokens=many",
      "tokens=99999999",
      "error=200",
      "drop_after=-1",
    ]) {
      const { apiError } = await readAll(providers, `[[simulate ${wrong}]]`);
      expect([wrong, apiError?.reason]).toEqual([wrong, "invalid_request"]);
    }
  });

  test("are ordinary text when disabled", async () => {
    providers = openProviders(
      catalog.replace("kind: simulated,", "kind: simulated, directives: false,"),
    );
    const { events, apiError } = await readAll(providers, "[[simulate error=500]]");
    expect(apiError).toBeUndefined();
    expect(textOf(events)).toContain("[[simulate error=500]]");
  });

  test("blocks sets the kinds of blocks, in that order", async () => {
    const { events } = await readAll(providers, "[[simulate blocks=tool_use,thinking,text,text]]");
    expect(blocksOf(events).map(({ kind }) => kind)).toEqual([
      ...["toolUse", "thinking", "text", "text"],
    ]);
    const indices = events.flatMap(({ kind }) =>
      kind.case === "blockStart" ? [kind.value.index] : [],
    );
    expect(indices).toEqual(indices.map((_, index) => index));
  });

  test("blocks of a kind that it does not write are refused", async () => {
    const { apiError } = await readAll(providers, "[[simulate blocks=text,web_search]]");
    expect(apiError?.message).toBe("simulate: blocks are some of text, thinking, tool_use");
  });
});

describe("pauses", () => {
  test("are longer before the first token, and without them all events are sent at once", async () => {
    const clock = new ManualClock();
    providers = openProviders(defaultCatalog(), { clock });
    const reads: string[] = [];
    const ask = providerRequestFor(requestOf("[[simulate tokens=3]]"));
    const done = (async () => {
      for await (const events of await startAnswer(providers, ask))
        reads.push(`${clock.now()} ${kindsOf(events).join(" ")}`);
    })();
    await clock.advance(1000);
    await done;
    expect(reads).toEqual([
      "50 messageStart blockStart",
      "55 blockDelta",
      "60 blockDelta",
      "65 blockDelta blockStop messageDelta messageStop",
    ]);
    expect((await readAll(openProviders(catalog), "Hello")).reads).toHaveLength(1);
    expect(clock.pending).toBe(0);
  });

  test("are set per request by first_token_ms and token_ms", async () => {
    const clock = new ManualClock();
    providers = openProviders(catalog, { clock });
    const done = readAll(providers, "[[simulate tokens=2 first_token_ms=100 token_ms=10]]");
    await clock.advance(119);
    expect(await Promise.race([done, runPendingTasks()])).toBeUndefined();
    await clock.advance(1);
    expect((await done).events).not.toEqual([]);
  });

  test("end at once on abort, and so does the answer", async () => {
    const clock = new ManualClock();
    providers = openProviders(defaultCatalog(), { clock });
    const ask = providerRequestFor(requestOf("Hello"));
    const done = readAll(providers, ask);
    await clock.advance(57);
    ask.abort.abort();
    const { apiError, events } = await done;
    expect([apiError?.reason, kindsOf(events)]).toEqual([
      "cancelled",
      ["messageStart", "blockStart", "blockDelta"],
    ]);
    expect([clock.pending, attemptsFor(ask).map(({ outcome }) => outcome)]).toEqual([
      0,
      [AttemptOutcome.ABORTED],
    ]);
  });
});

describe("the context window", () => {
  const haiku = (tokens: number, maxTokens: number) =>
    requestOf("x".repeat(4 * tokens), { model: "model-haiku-4.5", maxTokens });

  test("takes a prompt that fills it together with the requested output", async () => {
    const { apiError } = await readAll(providers, haiku(199_000, 1_000));
    expect(apiError).toBeUndefined();
  });

  test("rejects a longer prompt, in the words that clients act on", async () => {
    const { apiError, ask } = await readAll(providers, haiku(200_001, 1_000));
    expect(apiError).toMatchObject({
      reason: "context_length_exceeded",
      message: "prompt is too long: 200001 tokens > 200000 maximum",
    });
    expect(ask.accepted).toBe(0);
  });

  test("rejects more output than the prompt leaves room for", async () => {
    const { apiError } = await readAll(providers, haiku(199_000, 1_001));
    expect(apiError?.reason).toBe("upstream_refused");
    expect(JSON.stringify(apiError?.facts.providerAnswer)).toContain(
      "exceed context limit: 199000 + 1001 > 200000",
    );
  });

  test("is that of the file in use after a reload", async () => {
    providers.reload(
      readCatalogFile(catalog.replace("context_tokens: 1000000", "context_tokens: 2000")),
    );
    const { apiError } = await readAll(providers, requestOf("x".repeat(8_004)));
    expect(apiError?.message).toBe("prompt is too long: 2001 tokens > 2000 maximum");
  });
});

describe("counting", () => {
  test("returns the input that an answer reports", async () => {
    const request = requestOf("Hello", {
      tools: [weather],
      system: { content: [text("Be kind.")] },
    });
    const { events } = await readAll(providers, request);
    expect((await providers.countTokens(providerRequestFor(request)))?.inputTokens).toBe(
      firstUsageOf(events)?.inputTokens,
    );
  });
});

describe("tokens of a text", () => {
  test("cutting, filling and splitting never break a character", () => {
    // The replacement of a broken character may not be in the text from the start.
    const text = fc.string({ unit: "grapheme" }).filter((value) => !value.includes("\uFFFD"));
    fc.assert(
      fc.property(text, fc.nat(200), (value, tokens) => {
        const filled = fillText(value, tokens);
        const cut = cutText(value, tokens);
        expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(tokens);
        expect(value.startsWith(cut)).toBe(true);
        expect(Buffer.byteLength(filled)).toBe(tokens * 4);
        expect([...splitTokens(value)].join("")).toBe(value);
        expect(filled).not.toContain("\uFFFD");
      }),
    );
  });
});
