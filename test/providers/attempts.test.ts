// The calls of one request to providers, without a network: each provider follows a script.

import { getEventListeners } from "node:events";
import { create } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, test } from "vitest";
import { type Event, EventSchema } from "../../gen/gateway/inference/v1/event_pb.ts";
import { attemptOutcomeName } from "../../src/base/attempt-outcomes.ts";
import { ApiError } from "../../src/base/errors.ts";
import { Stopwatch } from "../../src/base/stopwatch.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { Metrics } from "../../src/metrics/registry.ts";
import { type AnswerParts, callProviders } from "../../src/providers/attempts.ts";
import { failed, timedOut } from "../../src/providers/failures.ts";
import { ModelHealth } from "../../src/providers/health.ts";
import type {
  AnswerReader,
  CallReader,
  Delivery,
  ProviderCall,
  ProviderFailure,
  ProviderRequest,
} from "../../src/providers/provider.ts";
import { ProviderMetrics } from "../../src/providers/provider-metrics.ts";
import {
  createConnection,
  type ProviderConnection,
  type ProviderRoute,
} from "../../src/providers/routing.ts";
import { Span, type SpanData } from "../../src/tracing/span.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";
import { recordLog } from "../support/log.ts";
import { providerRequestFor, requestOf } from "../support/providers.ts";

const ping = create(EventSchema, { kind: { case: "ping", value: {} } });
const start = create(EventSchema, { kind: { case: "messageStart", value: {} } });
const delivered: Delivery = { outcome: "delivered", status: 200 };
const busy: ProviderFailure = { ...failed(529), isOverload: true };
const refusal: ProviderFailure = {
  ...{ outcome: "refused", status: 400, retry: "nowhere" },
  error: new ApiError("upstream_refused"),
};

/** One call, as its script sees it. */
type Call = { readonly to: CallReader; readonly stopped: Promise<ApiError> };
type Script = (call: Call) => Promise<ApiError | undefined>;

/** Ends the call as `end` says, without an event. */
const fails =
  (end: ProviderFailure): Script =>
  async ({ to }) => {
    to.ended(end);
    to.released();
    return end.error;
  };
/** Answers with these reads. */
const answers =
  (...reads: Event[][]): Script =>
  async ({ to }) => {
    to.accepted();
    for (const events of reads) await to.write(events);
    to.ended(delivered);
    to.released();
    return undefined;
  };
/** Runs until it is stopped. */
const hangs: Script = async ({ to, stopped }) => {
  const error = await stopped;
  to.ended({ outcome: "aborted", status: 0, error, isOurs: true, retry: "nowhere" });
  to.released();
  return error;
};

/** What a model learns of its calls. */
class WatchedHealth extends ModelHealth {
  readonly seen: unknown[] = [];
  override answer(...call: Parameters<ModelHealth["answer"]>): void {
    this.seen.push("answer");
    super.answer(...call);
  }
  override fail(...call: Parameters<ModelHealth["fail"]>): void {
    const [{ accountId, isQuota, isDayQuota, retryAfterMs }, { status, reason }] = call;
    this.seen.push({ accountId, isQuota, isDayQuota, retryAfterMs, status, reason });
    super.fail(...call);
  }
  override spendRetry(): void {
    this.seen.push("retry");
    super.spendRetry();
  }
}

class CountedStopwatch extends Stopwatch {
  readonly seen: string[] = [];
  override start(): void {
    this.seen.push("start");
    super.start();
  }
  override stop(): void {
    this.seen.push("stop");
    super.stop();
  }
}

let clock: ManualClock;
let log: ReturnType<typeof recordLog>;
let metrics: Metrics;
let shortages: unknown[];
let parts: AnswerParts;
beforeEach(() => {
  clock = new ManualClock();
  log = recordLog();
  metrics = new Metrics();
  shortages = [];
  parts = {
    ...{ clock, log: log.log, random: () => 0.5 },
    metrics: new ProviderMetrics(metrics),
    reportShortage: (error) => shortages.push(error),
  };
});

/** A provider of one route, and what was asked of it. */
type Scripted = {
  readonly route: ProviderRoute;
  readonly connection: ProviderConnection;
  readonly health: WatchedHealth;
  readonly calls: ProviderCall[];
};

const cost = "{ input: 1, output: 2, when: [{ speed: fast, multiply: 2 }] }";

/** A provider that follows these scripts, the last one from then on. */
function provider(
  name: string,
  scripts: readonly Script[],
  { url = "https://models.example.com", more = "", isPlain = false } = {},
): Scripted {
  const text = catalogFor(
    { [name]: { kind: "anthropic", url, more: `total_ms: 1000${more}` } },
    `[[{ provider: ${name}, model: its-model, cost: ${cost} }]]`,
  );
  const file = readCatalogFile(text);
  const settings = file.providers[name];
  const [[[target] = []] = []] = file.models.map(({ routes }) => routes);
  if (!settings || !target) throw new Error("no such provider");
  const calls: ProviderCall[] = [];
  const health = new WatchedHealth(clock, () => 0);
  const connection = {
    ...createConnection(
      name,
      settings,
      {
        generate(call, to) {
          const script = scripts[Math.min(calls.length, scripts.length - 1)];
          calls.push(call);
          const { promise: stopped, resolve: stop } = Promise.withResolvers<ApiError>();
          if (!script) throw new Error("no script");
          return { isPlain, run: () => script({ to, stopped }), stop };
        },
        countTokens: async () => undefined,
        close: async () => undefined,
        destroy: async () => undefined,
      },
      clock,
    ),
    newHealth: () => health,
  };
  return { route: { target, connection }, connection, health, calls };
}

/** Asks these providers in this order, and records what the reader hears. */
function ask(
  providers: readonly Scripted[],
  more: Partial<ProviderRequest> & Partial<Pick<AnswerReader, "mayRepeat" | "write">> = {},
) {
  const { mayRepeat = async () => true, write, ...request } = more;
  const heard: unknown[] = [];
  const run = callProviders(
    parts,
    { ...providerRequestFor(requestOf("Hi")), ...request },
    {
      takesRuns: true,
      accepted: (isAccepted) => heard.push(isAccepted ? "accepted" : "not accepted"),
      mayRepeat() {
        heard.push("may repeat?");
        return mayRepeat();
      },
      begin: ({ provider: by, isPlain, span }) =>
        heard.push(`begun by ${by}${isPlain ? " at once" : ""}${span ? " in a span" : ""}`),
      write(events) {
        heard.push(events.map(({ kind }) => kind.case).join(" "));
        return write?.(events);
      },
    },
    () => providers.map(({ route }) => route),
  );
  const attempts = () =>
    run
      .attempts()
      .map(({ provider: by, outcome, status }) => `${by} ${attemptOutcomeName(outcome)} ${status}`);
  return { run, heard, attempts };
}

/** Lets all pauses pass, and returns how the request ended. */
async function end({ run }: Pick<ReturnType<typeof ask>, "run">): Promise<string | undefined> {
  await clock.advance(20_000);
  return (await run.ended)?.reason;
}

const counted = () =>
  [...(metrics.samples().get("gateway_provider_attempts_total") ?? [])].map(
    ([labels, value]) => `${labels.join(" ")} ${value}`,
  );

describe("repeats", () => {
  test("three calls at most, each after the reader allows it, and each spends a retry", async () => {
    const one = provider("one", [fails(failed(500))]);
    const asked = ask([one]);
    expect(await end(asked)).toBe("upstream_error");
    expect(asked.attempts()).toEqual(Array(3).fill("one failed 500"));
    expect(asked.heard).toEqual([
      ...["not accepted", "may repeat?", "not accepted", "may repeat?", "not accepted"],
    ]);
    expect(one.health.seen.filter((seen) => seen === "retry")).toHaveLength(2);
    expect(one.connection.concurrency.active).toBe(0);
    expect(counted()).toEqual(["one model-opus-4.6 failed 3"]);
  });

  test("other providers come first and at once, and the retry is spent where the call goes", async () => {
    const [one, other] = [provider("one", [fails(busy)]), provider("other", [answers([start])])];
    const asked = ask([one, other]);
    await runPendingTasks();
    expect(await asked.run.ended).toBeUndefined();
    expect(asked.attempts()).toEqual(["one failed 529", "other delivered 200"]);
    expect([one, other].map(({ health }) => health.seen.includes("retry"))).toEqual([false, true]);
    expect(clock.pending).toBe(0);
  });

  test("pauses double, and are longer where the provider has too much to do", async () => {
    for (const [failure, atMs] of [
      [failed(500), [37.5, 75]],
      [busy, [750, 1_500]],
      [{ ...busy, retryAfterMs: 400 }, [400, 400]],
      [{ ...busy, retryAfterMs: 2_000 }, [2_000, 2_000]],
    ] as const) {
      const one = provider("one", [fails(failure)], { more: "0" });
      void ask([one]);
      await runPendingTasks();
      for (const [index, ms] of atMs.entries()) {
        await clock.advance(ms - 0.001);
        expect(one.calls).toHaveLength(index + 1);
        await clock.advance(0.001);
        expect(one.calls).toHaveLength(index + 2);
      }
    }
  });

  test("a longer wait than two seconds is left to the client", async () => {
    const one = provider("one", [fails({ ...busy, retryAfterMs: 2_001 })]);
    const asked = ask([one]);
    expect(await end(asked)).toBe("upstream_error");
    expect(one.calls).toHaveLength(1);
  });

  test("none where the failure is of the request, or the client repeats it itself", async () => {
    const cases = [
      [refusal, {}, "upstream_refused"],
      [{ ...failed(500), retry: "nowhere" }, {}, "upstream_error"],
      [failed(500), { repeat: 1 }, "upstream_error"],
      [failed(500), { client: AbortSignal.abort() }, "upstream_error"],
    ] as const;
    for (const [failure, more, reason] of cases) {
      const [one, other] = [provider("one", [fails(failure)]), provider("other", [hangs])];
      const asked = ask([one, other], more);
      expect(await end(asked)).toBe(reason);
      expect([one.calls.length, other.calls.length]).toEqual([1, 0]);
      expect(asked.heard).not.toContain("may repeat?");
    }
    // A request that is sent for the first time says 0, or nothing.
    const one = provider("one", [fails(failed(500)), answers([start])]);
    expect(await end(ask([one], { repeat: 0 }))).toBeUndefined();
  });

  test("a provider that refused our credential is not asked again, another one is", async () => {
    const refusing = fails({ ...failed(401), retry: "elsewhere" });
    const only = provider("only", [refusing]);
    const alone = ask([only]);
    expect(await end(alone)).toBe("upstream_error");
    expect([alone.attempts(), alone.heard]).toEqual([["only failed 401"], ["not accepted"]]);
    for (const scripts of [
      [refusing, fails(failed(500))],
      [fails(failed(500)), refusing],
    ]) {
      const [one, other] = scripts.map((script, index) => provider(`p${index}`, [script]));
      if (!one || !other) throw new Error("two");
      const asked = ask([one, other]);
      expect(await end(asked)).toBe("upstream_error");
      const again = scripts[0] === refusing ? "p1" : "p0";
      expect(asked.attempts().at(-1)).toBe(`${again} failed 500`);
      expect(asked.attempts()).toHaveLength(3);
    }
  });

  test("none once the reader says no, at another provider and at the same", async () => {
    const mayRepeat = async () => false;
    const [one, other] = [provider("one", [fails(failed(500))]), provider("other", [hangs])];
    for (const providers of [[one, other], [one]]) {
      const asked = ask(providers, { mayRepeat });
      expect(await end(asked)).toBe("upstream_error");
      expect(asked.attempts()).toEqual(["one failed 500"]);
    }
    expect([other.calls.length, clock.pending]).toEqual([0, 0]);
  });

  test("none at a provider that has no retries left", async () => {
    const [one, other] = [provider("one", [fails(failed(500))]), provider("other", [hangs])];
    for (let retry = 0; retry < 11; retry++)
      for (const { health } of [one, other]) health.spendRetry();
    const both = ask([one, other]);
    expect(await end(both)).toBe("upstream_error");
    // Each request earns more than one.
    const next = ask([one]);
    expect(await end(next)).toBe("upstream_error");
    expect([both.attempts().length, next.attempts().length]).toEqual([1, 2]);
    expect(other.calls).toHaveLength(0);
  });

  test("end with the client or the request during a pause, and leave nothing behind", async () => {
    for (const who of ["client", "signal"] as const) {
      const [client, signal] = [new AbortController(), new AbortController()];
      const one = provider("one", [fails(failed(500))]);
      const asked = ask([one], { client: client.signal, signal: signal.signal });
      await runPendingTasks();
      expect([one.calls.length, clock.pending]).toEqual([1, 1]);
      ({ client, signal })[who].abort();
      expect((await asked.run.ended)?.reason).toBe("upstream_error");
      expect([one.calls.length, clock.pending]).toEqual([1, 0]);
      for (const of of [client, signal])
        expect(getEventListeners(of.signal, "abort")).toHaveLength(0);
    }
    const [client, signal] = [new AbortController(), new AbortController()];
    const one = provider("one", [fails(failed(500)), answers([start])]);
    const asked = ask([one], { client: client.signal, signal: signal.signal });
    expect(await end(asked)).toBeUndefined();
    for (const of of [client, signal])
      expect(getEventListeners(of.signal, "abort")).toHaveLength(0);
  });

  test("none for a client that left while the reader was asked", async () => {
    for (const who of ["client", "signal"] as const) {
      const [client, signal] = [new AbortController(), new AbortController()];
      const one = provider("one", [fails(failed(500))]);
      const mayRepeat = async () => {
        ({ client, signal })[who].abort();
        return true;
      };
      const asked = ask([one], { client: client.signal, signal: signal.signal, mayRepeat });
      expect((await asked.run.ended)?.reason).toBe("upstream_error");
      expect([one.calls.length, clock.pending]).toEqual([1, 0]);
    }
  });

  test("where no provider has a place, the failure of the last call is the answer", async () => {
    const full = provider("full", [hangs], { more: ", concurrency: 1, queue: 0" });
    full.connection.concurrency.tryAcquire();
    const one = provider("one", [fails(failed(500))]);
    const asked = ask([one, full]);
    expect(await end(asked)).toBe("upstream_error");
    expect([asked.attempts(), full.health.seen]).toEqual([["one failed 500"], []]);
  });

  test("and `cancelled` where the request was cancelled meanwhile", async () => {
    const full = provider("full", [hangs], { more: ", concurrency: 1, queue: 1" });
    full.connection.concurrency.tryAcquire();
    const one = provider("one", [fails(failed(500))]);
    const [signal, waits] = [new AbortController(), new CountedStopwatch()];
    const asked = ask([one, full], { signal: signal.signal, waits });
    await runPendingTasks();
    expect(full.connection.concurrency.waiting).toBe(1);
    // The first call, and the wait for a place.
    expect(waits.seen).toEqual(["start", "stop", "start"]);
    signal.abort();
    expect((await asked.run.ended)?.reason).toBe("cancelled");
    expect(waits.seen).toEqual(["start", "stop", "start", "stop"]);
  });

  test("a call without an end, or with an empty answer, may be repeated anywhere", async () => {
    const error = new ApiError("upstream_error");
    const silent: Script = async ({ to }) => {
      to.released();
      return error;
    };
    const empty: Script = async ({ to }) => {
      to.ended(delivered);
      to.released();
      return error;
    };
    for (const script of [silent, empty]) {
      const one = provider("one", [script, answers([start])]);
      const asked = ask([one]);
      expect(await end(asked)).toBeUndefined();
      expect(one.calls).toHaveLength(2);
      expect(asked.heard).not.toContain("not accepted");
    }
  });

  test("the routes are looked up before each attempt", async () => {
    const [one, other] = [provider("one", [fails(failed(500))]), provider("other", [hangs])];
    let looks = 0;
    const providers = [one, other];
    const run = callProviders(
      parts,
      providerRequestFor(requestOf("Hi")),
      {
        ...{ takesRuns: false, accepted: () => undefined, begin: () => undefined },
        ...{ mayRepeat: async () => true, write: () => undefined },
      },
      () => {
        looks += 1;
        return (looks === 1 ? providers : [one]).map(({ route }) => route);
      },
    );
    expect(await end({ run })).toBe("upstream_error");
    expect([looks, one.calls.length, other.calls.length]).toEqual([4, 3, 0]);
  });
});

describe("one call", () => {
  test("ends after the time that is left of the request's", async () => {
    const late: Script = async (call) => {
      await new Promise<void>((resolve) => clock.after(900, resolve));
      return fails(failed(500))(call);
    };
    const one = provider("one", [late, hangs]);
    clock.skip(10_000);
    const asked = ask([one]);
    await clock.advance(900);
    await clock.advance(37.5);
    expect(one.calls).toHaveLength(2);
    await clock.advance(62.4);
    expect(asked.attempts()).toEqual(["one failed 500"]);
    await clock.advance(0.1);
    expect((await asked.run.ended)?.reason).toBe("timeout");
    expect(clock.pending).toBe(0);
  });

  test("is stopped with its request, also when that ends while it is made", async () => {
    const signal = new AbortController();
    const one = provider("one", [hangs]);
    const asked = ask([one], { signal: signal.signal });
    await runPendingTasks();
    signal.abort();
    expect((await asked.run.ended)?.reason).toBe("cancelled");
    expect([asked.attempts(), asked.heard]).toEqual([["one aborted 0"], []]);
    expect(one.health.seen).toEqual([]);
    const other = new AbortController();
    const second = provider("second", [hangs]);
    const { generate } = second.connection.provider;
    second.connection.provider.generate = (...call) => {
      other.abort();
      return generate(...call);
    };
    const asking = ask([second], { signal: other.signal });
    expect((await asking.run.ended)?.reason).toBe("cancelled");
    for (const of of [signal, other]) expect(getEventListeners(of.signal, "abort")).toHaveLength(0);
  });

  test("that its provider cannot express is refused, is nobody's failure, and frees its place", async () => {
    const one = provider("one", [hangs]);
    one.connection.provider.generate = () => {
      throw new ApiError("invalid_request", { message: "no such thing" });
    };
    const other = provider("other", [hangs]);
    const asked = ask([one, other]);
    expect((await asked.run.ended)?.message).toBe("no such thing");
    expect(asked.attempts()).toEqual(["one refused 0"]);
    expect([asked.heard, one.health.seen, log.lines()]).toEqual([[], [], []]);
    expect([one.connection.concurrency.active, other.calls.length]).toEqual([0, 0]);
    expect([counted(), clock.pending]).toEqual([["one model-opus-4.6 refused 1"], 0]);
  });

  test("that rejects is a failure without a repeat, unless it had ended", async () => {
    const cause = new Error("a fault of ours");
    const rejects: Script = async () => {
      throw cause;
    };
    const one = provider("one", [rejects]);
    const asked = ask([one]);
    const error = await asked.run.ended;
    expect([error?.reason, error?.cause]).toEqual(["upstream_error", cause]);
    expect([asked.attempts(), one.connection.concurrency.active]).toEqual([["one failed 0"], 0]);
    const late = provider("late", [
      async ({ to }) => {
        to.ended(timedOut(504));
        throw cause;
      },
      answers([start]),
    ]);
    const again = ask([late]);
    expect(await end(again)).toBeUndefined();
    expect(again.attempts()).toEqual(["late timeout 504", "late delivered 200"]);
  });

  test("gives its place back once, however often it is released", async () => {
    const twice: Script = async ({ to }) => {
      to.ended(delivered);
      to.released();
      to.released();
      return undefined;
    };
    const one = provider("one", [twice]);
    one.connection.concurrency.tryAcquire();
    await ask([one]).run.ended;
    expect(one.connection.concurrency.active).toBe(1);
  });

  test("drops pings before the first event, and hands on the rest as it comes", async () => {
    const wait = Promise.resolve();
    const returned: unknown[] = [];
    const script: Script = async ({ to }) => {
      expect(to.takesRuns).toBe(true);
      to.accepted();
      returned.push(to.write([ping, ping]));
      await clock.advance(1_234.5);
      returned.push(to.write([ping, start, ping]), to.write([ping]));
      to.ended(delivered);
      to.released();
      return undefined;
    };
    const one = provider("one", [script], { more: "00", isPlain: true });
    const asked = ask([one], { write: () => wait });
    expect(await asked.run.ended).toBeUndefined();
    expect(asked.heard).toEqual(["accepted", "begun by one at once", "messageStart ping", "ping"]);
    expect(returned).toEqual([undefined, wait, wait]);
    expect(one.health.seen).toEqual(["answer"]);
    const [attempt] = asked.run.attempts();
    expect(attempt?.firstEventAfter).toMatchObject({ seconds: 1n, nanos: 234_500_000 });
  });

  test("whose first read is written whole, begins as a stream", async () => {
    const reads: unknown[] = [];
    const whole = [start, ping];
    const one = provider("one", [answers(whole)]);
    const asked = ask([one], {
      write(events) {
        reads.push(events);
        return undefined;
      },
    });
    expect(await asked.run.ended).toBeUndefined();
    expect([asked.heard[1], reads[0] === whole]).toEqual(["begun by one", true]);
  });

  test("counts as answered once, also where its provider ends before it is read", async () => {
    const early: Script = async ({ to }) => {
      to.ended(delivered);
      to.write([start]);
      to.released();
      return undefined;
    };
    const one = provider("one", [early]);
    const asked = ask([one]);
    expect(await asked.run.ended).toBeUndefined();
    expect([one.health.seen, asked.attempts()]).toEqual([["answer"], ["one delivered 200"]]);
  });

  test("hears of a refusal, and is repeated unless the client left", async () => {
    for (const client of [new AbortController().signal, AbortSignal.abort()]) {
      const answersOf: boolean[] = [];
      const one = provider("one", [
        async ({ to }) => {
          to.accepted();
          answersOf.push(to.refused());
          return answers([start])({ to, stopped: new Promise(() => {}) });
        },
      ]);
      const asked = ask([one], { client });
      void (await asked.run.ended);
      expect(answersOf).toEqual([!client.aborted]);
      expect(asked.heard.slice(0, 3)).toEqual(["accepted", "not accepted", "accepted"]);
    }
  });

  test("is unknown to the receipt until it has begun or ended", async () => {
    const open = Promise.withResolvers<void>();
    const one = provider("one", [
      async (call) => {
        await open.promise;
        call.to.write([start]);
        await call.stopped;
        call.to.ended({ ...failed(0), error: new ApiError("upstream_error") });
        return new ApiError("upstream_error");
      },
    ]);
    const signal = new AbortController();
    const waits = new CountedStopwatch();
    const asked = ask([one], { signal: signal.signal, waits });
    await runPendingTasks();
    expect([asked.attempts(), waits.seen]).toEqual([[], ["start"]]);
    open.resolve();
    await runPendingTasks();
    expect([asked.attempts(), waits.seen]).toEqual([["one delivered 200"], ["start"]]);
    signal.abort();
    await asked.run.ended;
    // No status was received before the first event of this one.
    expect([asked.attempts(), waits.seen]).toEqual([["one broke 200"], ["start", "stop"]]);
    expect(asked.heard).not.toContain("not accepted");
    // It began, so that the model counts as answered alone.
    expect([one.health.seen, counted()]).toEqual([["answer"], ["one model-opus-4.6 broke 1"]]);
    expect(log.lines()).toMatchObject([{ code: "provider_call_failed", outcome: "broke" }]);
  });

  test("keeps its outcome after its first event, but for a failure", async () => {
    for (const [failure, outcome] of [
      [timedOut(200), "timeout"],
      [failed(200), "broke"],
      [{ ...refusal, status: 200 }, "refused"],
    ] as const) {
      const one = provider("one", [
        async ({ to }) => {
          to.write([start]);
          to.ended(failure);
          to.released();
          return failure.error;
        },
      ]);
      const asked = ask([one]);
      expect(await end(asked)).toBe(failure.error.reason);
      expect(asked.attempts()).toEqual([`one ${outcome} 200`]);
      expect([one.health.seen, one.calls.length]).toEqual([["answer"], 1]);
    }
  });

  test("names its model at the provider, the version of its cost and the time to its first event", async () => {
    const one = provider("one", [fails(failed(500)), answers([start])]);
    const asked = ask([one]);
    expect(await end(asked)).toBeUndefined();
    const [usual, fast] = (one.route.target.paid?.cases ?? []).map(
      ({ versions: [version] }) => version?.costVersion,
    );
    expect(usual).not.toBe(fast);
    const both = { provider: "one", model: "its-model", costVersion: usual };
    expect(asked.run.attempts()).toMatchObject([
      { ...both, firstEventAfter: undefined },
      { ...both, firstEventAfter: { seconds: 0n, nanos: 0 } },
    ]);
    const dearer = { costVersion: fast };
    expect(asked.run.attempts({ speed: "fast" })).toMatchObject([dearer, dearer]);
    expect(counted()).toEqual(["one model-opus-4.6 failed 1", "one model-opus-4.6 delivered 1"]);
  });

  test("measures its whole time", async () => {
    const one = provider("one", [
      async (call) => {
        await new Promise<void>((resolve) => clock.after(250, resolve));
        return answers([start])(call);
      },
    ]);
    clock.skip(10_000);
    const asked = ask([one]);
    expect(await end(asked)).toBeUndefined();
    const [duration] = metrics.samples().get("gateway_provider_duration_seconds") ?? [];
    expect(duration?.[1]).toMatchObject({ sum: 0.25 });
  });

  test("needs neither metrics nor a reader of shortages", async () => {
    parts = { clock, log: log.log, random: () => 0.5 };
    const short = new ApiError("gateway_unavailable", {
      cause: Object.assign(new Error("none left"), { code: "EMFILE" }),
    });
    const one = provider("one", [fails({ ...refusal, error: short, isOurs: true })]);
    expect(await end(ask([one]))).toBe("gateway_unavailable");
  });
});

describe("of a failed call", () => {
  const seenOf = async (failure: ProviderFailure) => {
    const one = provider("one", [fails({ ...failure, retry: "nowhere" })]);
    const asked = ask([one]);
    await end(asked);
    return { ...asked, health: one.health.seen };
  };
  const nothing = { isQuota: false, isDayQuota: false, retryAfterMs: undefined };

  test("its provider learns whose it was, and whether a quota was used up", async () => {
    const cases: [ProviderFailure, object][] = [
      [failed(500), { accountId: "acc_1", status: 500, reason: "failed" }],
      [timedOut(0), { accountId: "acc_1", status: 0, reason: "timeout" }],
      [
        { ...failed(500), scope: "provider" },
        { accountId: undefined, status: 500 },
      ],
      [failed(401, { alarm: "no credential" }), { accountId: undefined, reason: "no credential" }],
      [{ ...failed(500), reason: "its words", alarm: "no" }, { reason: "its words" }],
      [failed(429), { isQuota: true }],
      [{ ...failed(429), isQuota: false }, { isQuota: false }],
      [{ ...failed(500), isQuota: true }, { isQuota: true }],
      [
        { ...failed(429), isDayQuota: true },
        { isQuota: true, isDayQuota: true },
      ],
      [{ ...failed(500), retryAfterMs: 12 }, { retryAfterMs: 12 }],
    ];
    for (const [failure, expected] of cases) {
      const { health, heard } = await seenOf(failure);
      expect(health).toEqual([expect.objectContaining({ ...nothing, ...expected })]);
      expect(heard).toEqual(["not accepted"]);
    }
  });

  test("nobody learns where the request alone was at fault", async () => {
    const { health } = await seenOf({ ...failed(500), scope: "request" });
    expect([health, log.lines().length]).toEqual([[], 1]);
  });

  test("a refusal is an answer, and no line of the log", async () => {
    const { health, heard } = await seenOf(refusal);
    expect([health, log.lines(), heard]).toEqual([["answer"], [], ["not accepted"]]);
  });

  test("a call that we ended is reported to nobody, but for what this machine lacks", async () => {
    const cause = Object.assign(new Error("none left"), { code: "EMFILE" });
    for (const [error, found] of [
      [new ApiError("timeout"), []],
      [new ApiError("gateway_unavailable", { cause }), [cause]],
    ] as const) {
      const { health, heard } = await seenOf({ ...timedOut(0), error, isOurs: true });
      expect([health, heard, log.lines(), shortages]).toEqual([[], [], [], found]);
    }
  });

  test("an alarm is an error of the log, another failure a warning with its cause", async () => {
    await seenOf(failed(401, { alarm: "refuses our credential" }));
    await seenOf(failed(0, { cause: new Error("reset") }));
    const both = { provider: "one", model: "its-model", outcome: "failed" };
    expect(log.lines()).toMatchObject([
      {
        ...both,
        ...{ level: 50, code: "provider_alarm", status: 401, reason: "refuses our credential" },
        msg: "refuses our credential",
      },
      {
        ...both,
        ...{ level: 40, code: "provider_call_failed", status: 0, reason: "failed" },
        err: { message: "reset" },
      },
    ]);
  });

  test("the one that makes its provider unusable is logged, once", async () => {
    const one = provider("one", [fails({ ...failed(500), retry: "nowhere" })]);
    for (let call = 1; call <= 5; call++) {
      await ask([one]).run.ended;
      const codes = log.lines().filter(({ code }) => code === "provider_unusable");
      expect(codes).toHaveLength(call < 3 ? 0 : 1);
    }
    const line = log.lines().find(({ code }) => code === "provider_unusable");
    expect(line).toMatchObject({ level: 50, provider: "one", status: 500 });
  });

  test("the one that asks to wait is logged with the time, once", async () => {
    const wait = { ...failed(429), retryAfterMs: 60_000, retry: "nowhere" } as const;
    const one = provider("one", [fails(wait)]);
    for (let call = 0; call < 2; call++) {
      await ask([one]).run.ended;
      const lines = log.lines().filter(({ code }) => code === "provider_paused");
      expect(lines).toMatchObject([{ level: 40, provider: "one", pauseMs: 60_000 }]);
      await clock.advance(1_000);
    }
    const usual = provider("usual", [fails({ ...failed(500), retry: "nowhere" })]);
    await ask([usual]).run.ended;
    expect(log.lines().filter(({ code }) => code === "provider_paused")).toHaveLength(1);
  });
});

describe("the span of a call", () => {
  const spans: SpanData[] = [];
  beforeEach(() => {
    spans.length = 0;
  });
  const trace = {
    span: (name: string, kind: SpanData["kind"] = "internal") =>
      new Span(
        {
          ...{ name, kind, traceId: "a".repeat(32), spanId: "b".repeat(16), parentId: "" },
          ...{ state: "", startMs: 0, endMs: 0, attributes: {}, error: undefined },
        },
        (data) => spans.push(data),
      ),
    end: () => undefined,
  };
  const usual = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "one",
    "gen_ai.request.model": "model-opus-4.6",
    "gen_ai.response.model": "its-model",
    "gen_ai.request.max_tokens": 1000,
  };

  test("names the provider, the models, the number of the call and its result", async () => {
    const one = provider("one", [fails(failed(0)), answers([start])]);
    const asked = ask([one], { trace });
    expect(await end(asked)).toBeUndefined();
    const server = { "server.address": "models.example.com", "server.port": 443 };
    expect(spans).toMatchObject([
      { name: "chat model-opus-4.6", kind: "client", error: "upstream_error" },
      { name: "chat model-opus-4.6", kind: "client", error: undefined },
    ]);
    expect(spans.map(({ attributes }) => attributes)).toEqual([
      { ...usual, ...server, "gateway.attempt": 1, "error.type": "upstream_error" },
      { ...usual, ...server, "gateway.attempt": 2, "http.response.status_code": 200 },
    ]);
    expect(asked.heard).toContain("begun by one in a span");
  });

  test("has the port of the address", async () => {
    for (const [url, port] of [
      ["http://models.example.com", 80],
      ["https://models.example.com:8443", 8443],
    ] as const) {
      await end(ask([provider("one", [answers([start])], { url })], { trace }));
      expect(spans.at(-1)?.attributes["server.port"]).toBe(port);
    }
  });

  test("has no address where the provider is simulated", async () => {
    const one = provider("one", [answers([start])]);
    const [settings] = Object.values(readCatalogFile(catalogFor({ one: "simulated" })).providers);
    if (!settings) throw new Error("no settings");
    const route = { ...one.route, connection: { ...one.connection, settings } };
    await end(ask([{ ...one, route }], { trace }));
    const [{ attributes } = {}] = spans;
    expect(attributes).toEqual({
      ...{ ...usual, "gateway.attempt": 1, "http.response.status_code": 200 },
    });
  });

  test("is named to the providers alone that are configured so", async () => {
    for (const [more, headers] of [
      [", trace_headers: true", { traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01` }],
      ["", undefined],
    ] as const) {
      const one = provider("one", [answers([start])], { more });
      await end(ask([one], { trace }));
      await end(ask([one]));
      expect(one.calls.map(({ traceHeaders }) => traceHeaders)).toEqual([headers, undefined]);
    }
  });
});
