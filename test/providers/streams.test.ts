import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { AttemptOutcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring, runPendingTasks } from "../support/clock.ts";
import { type FakeProvider, Gate, type Script, startFakeProvider } from "../support/provider.ts";
import {
  type AnswerContent,
  chatChunks,
  chatStream,
  nativeEvents,
  nativeStream,
  sseEvent,
} from "../support/provider-answers.ts";
import {
  attemptsFor,
  attemptsOf,
  kindsOf,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  startAnswer,
  textOf,
} from "../support/providers.ts";

let provider: FakeProvider;
let providers: ManagedProviders;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  await provider.stop();
  await providers.close();
});

const formats = [
  { kind: "anthropic", stream: nativeStream, wire: nativeEvents },
  { kind: "openai", stream: chatStream, wire: chatChunks },
] as const;

type Format = (typeof formats)[number];

function open({ kind }: Pick<Format, "kind">, more?: string, clock?: ManualClock): void {
  providers = openProviders(
    catalogFor({ real: { kind, url: provider.url, ...(more && { more }) } }),
    clock && { clock },
  );
}

const content: AnswerContent = {
  thinking: { pieces: ["Hm", "m…"] },
  text: ["Grüße ", "🙂 ", "dir"],
  tool: { name: "get_weather", input: ['{"city":"Å', 'lesund"}'] },
  usage: { input: 20, output: 9, thinking: 4 },
};
const request = () => requestOf("Hi", { tools: [{ name: "get_weather" }] });

test("usage that the decoder holds back is reported when the connection is reset", async () => {
  open({ kind: "anthropic" });
  const delta = sseEvent("message_delta", {
    delta: { stop_reason: null },
    usage: { output_tokens: 700 },
  });
  const [start = ""] = nativeEvents(content);
  const text = nativeEvents({ text: ["Hello"] }).slice(1, 4);
  provider.play(nativeStream({}, { writes: [start, ...text, delta], end: "reset" }));
  const { events, apiError } = await readAll(providers, request());
  expect(apiError?.reason).toBe("upstream_error");
  expect(events.at(-1)?.kind).toMatchObject({
    case: "messageDelta",
    value: { usage: { outputTokens: 700 } },
  });
});

test("a large request is sent whole, with its length", async () => {
  open({ kind: "anthropic" });
  provider.always(nativeStream(content));
  const text = "Grüße ".repeat(50_000);
  const { apiError } = await readAll(providers, requestOf(text));
  expect(apiError).toBeUndefined();
  const [received] = provider.requests;
  expect(received?.bodyText).toContain(text);
  expect(received?.headers["transfer-encoding"]).toBeUndefined();
  expect(received?.headers["content-length"]).toBe(
    String(Buffer.byteLength(received?.bodyText ?? "")),
  );
});

for (const format of formats) {
  describe(`a stream of a provider of kind ${format.kind}`, () => {
    test("gives the same events for any split of its bytes", async () => {
      open(format);
      provider.play(format.stream(content));
      const whole = await readAll(providers, request());
      expect(whole.apiError).toBeUndefined();
      for (const splitBytes of [1, 2, 3, 7, 64, 1000]) {
        provider.play(format.stream(content, { splitBytes }));
        const split = await readAll(providers, request());
        expect([split.apiError, textOf(split.events), kindsOf(split.events)]).toEqual([
          undefined,
          "Grüße 🙂 dir",
          kindsOf(whole.events),
        ]);
      }
    });

    test("may use CRLF, comments and a byte order mark", async () => {
      open(format);
      const writes = [
        "\uFEFF: welcome\r\n\r\n",
        ...format.wire(content).map((event) => event.replaceAll("\n", "\r\n")),
      ];
      provider.play(format.stream({}, { writes }));
      const { apiError, events } = await readAll(providers, request());
      expect([apiError, textOf(events)]).toEqual([undefined, "Grüße 🙂 dir"]);
    });

    test("that is reset after event k ends in upstream_error after the k events, for every k, and releases everything", async () => {
      const wire = format.wire(content);
      // After the last chunk with content the answer is complete.
      const complete = format.kind === "openai" ? wire.length - 1 : wire.length;
      for (let k = 0; k <= wire.length; k++) {
        open(format);
        provider.always(format.stream({}, { writes: wire.slice(0, k), end: "reset" }));
        const outcome = await readAll(providers, request());
        expect([k, outcome.apiError?.reason]).toEqual([
          k,
          k >= complete ? undefined : "upstream_error",
        ]);
        const last = attemptsFor(outcome.ask).at(-1)?.outcome;
        expect([k, last]).toEqual([
          k,
          k >= complete
            ? AttemptOutcome.DELIVERED
            : outcome.events.length > 0
              ? AttemptOutcome.BROKE
              : AttemptOutcome.FAILED,
        ]);
        expect(kindsOf(outcome.events).includes("messageStop")).toBe(k >= complete);
        await providers.close();
      }
      for (const received of provider.requests) await received.over;
      await runPendingTasks();
      expect(await provider.connections()).toBe(0);
    });

    test("that ends after half an event ends in upstream_error", async () => {
      open(format);
      const [head = "", next = ""] = format.wire(content);
      provider.always(format.stream({}, { writes: [head, next.slice(0, 20)] }));
      const outcome = await readAll(providers, request());
      expect([outcome.apiError?.reason, kindsOf(outcome.events)]).toEqual([
        "upstream_error",
        ["messageStart"],
      ]);
    });

    test("with invalid UTF-8 continues, or ends in upstream_error", async () => {
      open(format);
      const wire = format.wire(content);
      provider.always(
        format.stream(
          {},
          {
            writes: [
              wire[0] ?? "",
              new Uint8Array([0xff, 0xfe, 0xc3, 0x28, 10, 10]),
              ...wire.slice(1),
            ],
          },
        ),
      );
      const { apiError } = await readAll(providers, request());
      expect([undefined, "upstream_error"]).toContain(apiError?.reason);
    });

    test("with an event beyond 10 MB ends in upstream_error", async () => {
      open(format);
      const [head = ""] = format.wire(content);
      provider.always(
        format.stream(
          {},
          { writes: [head, "data: ", ...Array(11).fill("x".repeat(1024 * 1024))], end: "hang" },
        ),
      );
      const outcome = await readAll(providers, request());
      expect([outcome.apiError?.reason, attemptsOf(outcome)]).toEqual([
        "upstream_error",
        ["real broke 200"],
      ]);
      expect(await provider.requests[0]?.over).toEqual({ by: "client" });
    });

    test("with an error body under status 200 fails, and overload is `overloaded`", async () => {
      open(format);
      const answer = (type: string): Script => ({
        headers: { "content-type": "application/json" },
        writes: [JSON.stringify({ type: "error", error: { type, message: "oops" } })],
      });
      for (const [type, apiError] of [
        ["api_error", "upstream_error"],
        ["overloaded_error", "overloaded"],
      ] as const) {
        provider.always(answer(type));
        const outcome = await readAll(providers, request());
        expect([outcome.apiError?.reason, outcome.events]).toEqual([apiError, []]);
      }
    });

    test("is delivered as it arrives", async () => {
      open(format);
      const gate = new Gate();
      const wire = format.wire({ text: ["a", "b"] });
      const after = wire.findIndex((event) => event.includes('"a"')) + 1;
      provider.always(
        format.stream({}, { writes: [...wire.slice(0, after), gate, ...wire.slice(after)] }),
      );
      let text = "";
      for await (const events of await startAnswer(providers, providerRequestFor(request()))) {
        text += textOf(events);
        if (text === "a") gate.open();
      }
      expect(text).toBe("ab");
    });

    test("is closed at once when its signal is aborted", async () => {
      open(format);
      provider.always(format.stream({}, { writes: format.wire(content).slice(0, 4), end: "hang" }));
      const ask = providerRequestFor(request());
      const answer = (await startAnswer(providers, ask))[Symbol.asyncIterator]();
      await answer.next();
      const waiting = (async () => {
        while (!(await answer.next()).done);
      })();
      ask.abort.abort();
      await expect(waiting).rejects.toMatchObject({ reason: "cancelled" });
      expect(await provider.requests[0]?.over).toEqual({ by: "client" });
      expect(attemptsFor(ask)).toMatchObject([{ outcome: AttemptOutcome.ABORTED, status: 200 }]);
    });

    test("whose reader has left is closed by its signal", async () => {
      open(format);
      provider.always(format.stream({}, { writes: format.wire(content).slice(0, 4), end: "hang" }));
      const ask = providerRequestFor(request());
      for await (const _ of await startAnswer(providers, ask)) break;
      ask.abort.abort();
      expect(await provider.requests[0]?.over).toEqual({ by: "client" });
      expect(attemptsFor(ask).map(({ outcome }) => outcome)).toEqual([AttemptOutcome.ABORTED]);
    });

    test("of a busy reader stays in the socket: less than a megabyte is read ahead", async () => {
      const sockets: Socket[] = [];
      const remember = (message: unknown) => {
        if (isConnected(message)) sockets.push(message.socket);
      };
      subscribe("undici:client:connected", remember);
      open(format);
      const pieces = Array(4000).fill("x".repeat(10_000));
      provider.always(format.stream({}, { writes: format.wire({ text: pieces }) }));
      const ask = providerRequestFor(request());
      const answer = (await startAnswer(providers, ask))[Symbol.asyncIterator]();
      let bytesRead = 0;
      const read = async () => {
        const { value } = await answer.next();
        bytesRead += Buffer.byteLength(textOf(value ?? []));
      };
      await read();
      unsubscribe("undici:client:connected", remember);
      const taken = () => sockets[0]?.bytesRead ?? 0;
      expect(await stableValueOf(taken)).toBeLessThan(bytesRead + 1024 * 1024);
      // The provider is blocked too, far from its end, until the reader continues.
      const [received] = provider.requests;
      const written = await stableValueOf(() => received?.bytesTaken() ?? 0);
      expect(written).toBeLessThan(pieces.length * 5_000);
      while (bytesRead < written) await read();
      expect(await stableValueOf(() => received?.bytesTaken() ?? 0)).toBeGreaterThan(written);
      ask.abort.abort();
      expect(await received?.over).toEqual({ by: "client" });
    });
  });
}

function isConnected(message: unknown): message is { socket: Socket } {
  return (
    typeof message === "object" &&
    message !== null &&
    "socket" in message &&
    message.socket instanceof Socket
  );
}

/** The number once it no longer changes. */
async function stableValueOf(read: () => number): Promise<number> {
  let before = -1;
  for (let value = read(); value !== before; value = read()) {
    before = value;
    for (let turn = 0; turn < 200; turn++) await runPendingTasks();
  }
  return before;
}

describe("time limits", () => {
  const anthropic = { kind: "anthropic" } as const;

  test("a provider without headers is a timeout", async () => {
    open(anthropic, "first_byte_ms: 30");
    const gate = new Gate();
    provider.always({ before: gate });
    const outcome = await readAll(providers, "Hi");
    expect([outcome.apiError?.reason, attemptsOf(outcome)]).toEqual([
      "timeout",
      ["real timeout 0", "real timeout 0", "real timeout 0"],
    ]);
    gate.open();
  });

  test("a provider that stops sending during its answer is a timeout, after the received events", async () => {
    open(anthropic, "idle_ms: 30");
    provider.always(
      nativeStream({}, { writes: nativeEvents({ text: ["a"] }).slice(0, 3), end: "hang" }),
    );
    const outcome = await readAll(providers, "Hi");
    expect([outcome.apiError?.reason, textOf(outcome.events), attemptsOf(outcome)]).toEqual([
      "timeout",
      "a",
      ["real timeout 200"],
    ]);
    expect(await provider.requests[0]?.over).toEqual({ by: "client" });
  });

  test("a slow provider is ended by the total time, after the received events", async () => {
    const clock = new ManualClock();
    open(anthropic, "total_ms: 60000", clock);
    const gates = [new Gate(), new Gate(), new Gate()] as const;
    const [start = "", block = "", delta = ""] = nativeEvents({ text: ["a", "b"] });
    provider.always(
      nativeStream(
        {},
        {
          writes: [start + block, gates[0], delta, gates[1], sseEvent("ping"), gates[2]],
          end: "hang",
        },
      ),
    );
    const done = readAll(providers, "Hi");
    for (const gate of gates) {
      await gate.reached;
      await clock.advance(19_999);
      gate.open();
    }
    await clock.advance(3);
    const outcome = await done;
    expect([outcome.apiError?.reason, textOf(outcome.events), attemptsOf(outcome)]).toEqual([
      "timeout",
      "a",
      ["real timeout 200"],
    ]);
    expect(await provider.requests[0]?.over).toEqual({ by: "client" });
    // The provider was within its own limits, so this is no failure of its.
    expect([clock.pending, providers.isUsable()]).toEqual([0, true]);
  });

  test("the total time includes the second attempt", async () => {
    const clock = new ManualClock();
    open(anthropic, "total_ms: 60000", clock);
    const gates = [new Gate(), new Gate()] as const;
    provider.play({ status: 500, before: gates[0] }, { before: gates[1] });
    const done = readAll(providers, "Hi");
    await gates[0].reached;
    await clock.advance(50_000);
    gates[0].open();
    await passDuring(() => clock.endPause(), gates[1].reached);
    await clock.advance(10_000);
    const outcome = await done;
    expect([outcome.apiError?.reason, attemptsOf(outcome)]).toEqual([
      "timeout",
      ["real failed 500", "real timeout 0"],
    ]);
    gates[1].open();
  });
});

describe("a connection that its provider keeps open after the end", () => {
  test("ends its answer at once, and gives its place to others within a second", async () => {
    const clock = new ManualClock();
    open({ kind: "anthropic" }, "concurrency: 4, queue: 0", clock);
    provider.always(nativeStream({ text: ["a"] }, { end: "hang" }));
    const four = await Promise.all([1, 2, 3, 4].map(() => readAll(providers, "Hi")));
    expect(four.map(({ events }) => textOf(events))).toEqual(["a", "a", "a", "a"]);
    expect((await readAll(providers, "Hi")).apiError?.reason).toBe("overloaded");
    await clock.advance(1_000);
    await vi.waitFor(async () => expect(textOf((await readAll(providers, "Hi")).events)).toBe("a"));
    expect(await provider.requests[0]?.over).toEqual({ by: "client" });
    await clock.advance(1_000);
    expect(clock.pending).toBe(0);
  });

  test("is kept for the next call if its body ends in time", async () => {
    const clock = new ManualClock();
    open({ kind: "anthropic" }, "concurrency: 1, queue: 0", clock);
    const gate = new Gate();
    provider.always(nativeStream({}, { writes: [...nativeEvents({ text: ["a"] }), gate] }));
    expect(textOf((await readAll(providers, "Hi")).events)).toBe("a");
    expect((await readAll(providers, "Hi")).apiError?.reason).toBe("overloaded");
    gate.open();
    await vi.waitFor(async () => expect(textOf((await readAll(providers, "Hi")).events)).toBe("a"));
    expect(clock.pending).toBe(0);
    expect(await provider.connections()).toBe(1);
  });
});

describe("a cancellation", () => {
  test("before the provider answers closes the call, which is not accepted if nothing was sent", async () => {
    open({ kind: "anthropic" });
    const ask = providerRequestFor(requestOf("Hi"));
    ask.abort.abort();
    const outcome = await readAll(providers, ask);
    expect([
      outcome.apiError?.reason,
      ask.accepted,
      attemptsFor(ask),
      provider.requests.length,
    ]).toEqual(["cancelled", 0, [], 0]);
  });

  test("after the request was sent leaves it accepted", async () => {
    open({ kind: "anthropic" });
    const gate = new Gate();
    provider.always({ before: gate });
    const ask = providerRequestFor(requestOf("Hi"));
    const done = readAll(providers, ask);
    const received = await provider.received(1);
    expect(ask.accepted).toBe(1);
    ask.abort.abort();
    expect([(await done).apiError?.reason, (await received.over).by]).toEqual([
      "cancelled",
      "client",
    ]);
    gate.open();
  });

  test("of many answers leaves no connection, timer or active call", async () => {
    const clock = new ManualClock();
    open({ kind: "anthropic" }, "concurrency: 8", clock);
    provider.always(nativeStream({}, { writes: nativeEvents().slice(0, 1), end: "hang" }));
    for (let round = 0; round < 5; round++) {
      const asks = Array.from({ length: 8 }, () => providerRequestFor(requestOf("Hi")));
      const done = asks.map((ask) => readAll(providers, ask));
      await provider.received((round + 1) * 8);
      for (const ask of asks) ask.abort.abort();
      await Promise.all(done);
    }
    for (const received of provider.requests) await received.over;
    expect([await provider.connections(), clock.pending]).toEqual([0, 0]);
  });
});
