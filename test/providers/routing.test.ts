import { createServer } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Clock } from "../../src/base/clock.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring, runPendingTasks } from "../support/clock.ts";
import { type FakeProvider, Gate, type Script, startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeEvents, nativeStream, sseEvent } from "../support/provider-answers.ts";
import {
  attemptsFor,
  attemptsOf,
  kindsOf,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  textOf,
} from "../support/providers.ts";

let first: FakeProvider;
let second: FakeProvider;
let providers: ManagedProviders;
beforeEach(async () => {
  [first, second] = [await startFakeProvider(), await startFakeProvider()];
  first.always(nativeStream({ text: ["from the first"] }));
  second.always(nativeStream({ text: ["from the second"] }));
});
afterEach(async () => {
  await Promise.all([first.stop(), second.stop()]);
  await providers.close();
});

/** Two native providers, tried in this order unless `routes` states another. */
function openBoth(
  more: {
    clock?: Clock;
    random?: () => number;
    routes?: string;
    settings?: string;
    firstUrl?: string;
  } = {},
): void {
  const { clock, random, routes, settings, firstUrl = first.url } = more;
  const catalog = catalogFor(
    {
      first: { kind: "anthropic", url: firstUrl, ...(settings && { more: settings }) },
      second: { kind: "anthropic", url: second.url, ...(settings && { more: settings }) },
    },
    routes,
  );
  providers = openProviders(catalog, { ...(clock && { clock }), ...(random && { random }) });
}

function openFirst(settings?: string, clock?: Clock, random?: () => number): void {
  const catalog = catalogFor({
    first: { kind: "anthropic", url: first.url, ...(settings && { more: settings }) },
  });
  providers = openProviders(catalog, { ...(clock && { clock }), ...(random && { random }) });
}

/** A port without a listener. */
async function closedUrl(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return `http://127.0.0.1:${address.port}`;
}

describe("failover", () => {
  const overloadedEvent = sseEvent("error", {
    error: { type: "overloaded_error", message: "Overloaded" },
  });
  const cases: { name: string; script: Script; attempt: string }[] = [
    {
      name: "status 401",
      script: errorAnswer(401, "authentication_error", "no"),
      attempt: "failed 401",
    },
    { name: "status 402", script: errorAnswer(402, "billing_error", "pay"), attempt: "failed 402" },
    {
      name: "status 400 of an unpaid account",
      script: errorAnswer(
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API.",
      ),
      attempt: "failed 400",
    },
    {
      name: "an unknown model",
      script: errorAnswer(404, "not_found_error", "model: provider-model"),
      attempt: "failed 404",
    },
    { name: "status 500", script: errorAnswer(500, "api_error", "oops"), attempt: "failed 500" },
    {
      name: "status 429",
      script: errorAnswer(429, "rate_limit_error", "slow down"),
      attempt: "failed 429",
    },
    {
      name: "status 529",
      script: errorAnswer(529, "overloaded_error", "busy"),
      attempt: "failed 529",
    },
    {
      name: "a reset before the headers",
      script: { end: "reset", writes: [] },
      attempt: "failed 200",
    },
    {
      name: "headers and pings, then a reset",
      script: nativeStream({}, { writes: [sseEvent("ping"), ": hello\n\n"], end: "reset" }),
      attempt: "failed 200",
    },
    {
      name: "an error event as the first event",
      script: nativeStream({}, { writes: [overloadedEvent] }),
      attempt: "failed 200",
    },
    {
      name: "a stream without any event",
      script: nativeStream({}, { writes: [] }),
      attempt: "failed 200",
    },
    {
      name: "an HTML page with status 200",
      script: { headers: { "content-type": "text/html" }, writes: ["<html>"] },
      attempt: "failed 200",
    },
  ];
  for (const { name, script, attempt } of cases) {
    test(`after ${name} the next provider answers, and both attempts are recorded`, async () => {
      openBoth();
      first.always(script);
      const outcome = await readAll(providers, "Hi");
      expect([outcome.apiError, textOf(outcome.events)]).toEqual([undefined, "from the second"]);
      expect(attemptsOf(outcome)).toEqual([`first ${attempt}`, "second delivered 200"]);
    });
  }

  test("after a refused connection the next provider answers", async () => {
    openBoth({ firstUrl: await closedUrl() });
    const outcome = await readAll(providers, "Hi");
    expect(textOf(outcome.events)).toBe("from the second");
    expect(attemptsOf(outcome)).toEqual(["first failed 0", "second delivered 200"]);
  });

  test("after a timeout of the headers the next provider answers", async () => {
    openBoth({ settings: "first_byte_ms: 50" });
    const gate = new Gate();
    first.always({ before: gate });
    const outcome = await readAll(providers, "Hi");
    expect(attemptsOf(outcome)).toEqual(["first timeout 0", "second delivered 200"]);
    gate.open();
  });

  for (const [status, type] of [
    [400, "invalid_request_error"],
    [413, "request_too_large"],
  ] as const) {
    test(`status ${status} is not tried at another provider`, async () => {
      openBoth();
      first.always(errorAnswer(status, type, "no"));
      const outcome = await readAll(providers, "Hi");
      expect(outcome.apiError).toBeDefined();
      expect([attemptsFor(outcome.ask).length, second.requests.length]).toEqual([1, 0]);
    });
  }

  test("ends with the first event: a later failure is reported, not retried", async () => {
    openBoth();
    first.always(
      nativeStream(
        { text: ["a"] },
        { writes: nativeEvents({ text: ["a"] }).slice(0, 1), end: "reset" },
      ),
    );
    const outcome = await readAll(providers, "Hi");
    expect([outcome.apiError?.reason, kindsOf(outcome.events)]).toEqual([
      "upstream_error",
      ["messageStart"],
    ]);
    expect([attemptsOf(outcome), second.requests.length]).toEqual([["first broke 200"], 0]);
  });

  test("calls three times at most: other providers first, then the same after a pause", async () => {
    const clock = new ManualClock();
    openBoth({ clock });
    first.always(errorAnswer(500, "api_error", "oops"));
    second.always(errorAnswer(503, "api_error", "oops"));
    const outcome = await passDuring(() => clock.endPause(2_000), readAll(providers, "Hi"));
    expect(attemptsOf(outcome)).toEqual([
      "first failed 500",
      "second failed 503",
      "first failed 500",
    ]);
    expect(outcome.apiError?.reason).toBe("upstream_error");
  });

  test("repeats a call at the only provider, unless that rejects our account", async () => {
    const clock = new ManualClock();
    openFirst("", clock);
    const ask = () => passDuring(() => clock.endPause(1_000), readAll(providers, "Hi"));
    first.play(errorAnswer(401, "authentication_error", "no"));
    expect(attemptsOf(await ask())).toEqual(["first failed 401"]);
    for (const status of [500, 529]) {
      first.play(errorAnswer(status, "overloaded_error", "busy"));
      expect(attemptsOf(await ask())).toEqual([`first failed ${status}`, "first delivered 200"]);
    }
  });

  test("waits for a short retry-after, and gives a long one to the client", async () => {
    const clock = new ManualClock();
    openFirst("", clock);
    const busy = (seconds: string) =>
      errorAnswer(529, "overloaded_error", "busy", { headers: { "retry-after": seconds } });
    first.play(busy("1"));
    const asking = readAll(providers, "Hi");
    const { events } = await passDuring(() => clock.endPause(1_500), asking);
    expect(textOf(events)).toBe("from the first");
    expect(clock.now()).toBeGreaterThanOrEqual(1_000);
    first.play(busy("3"));
    const outcome = await readAll(providers, "Hi");
    expect([attemptsOf(outcome), outcome.apiError]).toMatchObject([
      ["first failed 529"],
      { reason: "overloaded", facts: { retryAfterMs: 3_000 } },
    ]);
  });

  test("makes one call of a request that the client repeats itself", async () => {
    openBoth();
    first.always(errorAnswer(500, "api_error", "oops"));
    const ask = { ...providerRequestFor(requestOf("Hi")), repeat: 1 };
    expect(attemptsOf(await readAll(providers, ask))).toEqual(["first failed 500"]);
  });

  test("ends with the client that waits for a repeat", async () => {
    const clock = new ManualClock();
    openFirst("", clock);
    first.always(errorAnswer(500, "api_error", "oops"));
    const client = new AbortController();
    const ask = { ...providerRequestFor(requestOf("Hi")), client: client.signal };
    const asking = readAll(providers, ask);
    await vi.waitFor(() => expect([first.requests.length, clock.pending]).toEqual([1, 1]));
    client.abort();
    expect(attemptsOf(await asking)).toHaveLength(1);
    expect([first.requests.length, clock.pending]).toEqual([1, 0]);
  });

  test("reports acceptance by each provider, and one answer", async () => {
    openBoth();
    first.always(errorAnswer(500, "api_error", "oops"));
    const { ask, events } = await readAll(providers, "Hi");
    expect([ask.accepted, ask.rejected]).toEqual([2, 1]);
    expect(kindsOf(events).filter((kind) => kind === "messageStart")).toHaveLength(1);
  });
});

describe("a failing provider", () => {
  /** Calls of an account, one after the other, and how the last one went. */
  async function callAs(accountId: string, times = 1): Promise<string[]> {
    let attempts: string[] = [];
    for (let call = 0; call < times; call++) {
      const ask = providerRequestFor(requestOf("Hi"), "a", accountId);
      attempts = attemptsOf(await readAll(providers, ask));
    }
    return attempts;
  }

  test("that has failed for long gets a part of the calls, and all of them once it is back", async () => {
    const clock = new ManualClock();
    openBoth({ clock, random: () => 0.5 });
    first.always(errorAnswer(401, "authentication_error", "no"));
    await callAs("acc_1", 21);
    expect(await callAs("acc_2")).toEqual(["second delivered 200"]);
    await clock.advance(1_000);
    first.always(nativeStream());
    expect(await callAs("acc_2", 2)).toEqual(["first delivered 200"]);
    expect(await callAs("acc_3", 5)).toEqual(["first delivered 200"]);
  });

  test("is kept from the account whose requests it fails, and serves the others", async () => {
    const clock = new ManualClock();
    openBoth({ clock, random: () => 0.5 });
    await callAs("acc_2", 3);
    first.always({ end: "reset", writes: [] });
    await callAs("acc_1", 40);
    first.always(nativeStream());
    expect(await callAs("acc_1")).toEqual(["second delivered 200"]);
    expect(await callAs("acc_2")).toEqual(["first delivered 200"]);
  });

  test("that answers half as well as another one comes last, but for one call a second", async () => {
    const clock = new ManualClock();
    const routes = "[[{ provider: first, model: m }, { provider: second, model: m }]]";
    openBoth({ clock, routes });
    const homes = new Map<string, string>();
    for (let index = 0; index < 12; index++) {
      const ask = providerRequestFor(requestOf("Hi"), `key ${index}`);
      homes.set(`key ${index}`, attemptsOf(await readAll(providers, ask)).join());
    }
    const [home = ""] = [...homes].find(([, one]) => one.startsWith("first")) ?? [];
    const ask = async () =>
      attemptsOf(await readAll(providers, providerRequestFor(requestOf("Hi"), home)));
    first.always(errorAnswer(401, "authentication_error", "no"));
    for (let call = 0; call < 12; call++) await ask();
    expect(await ask()).toEqual(["second delivered 200"]);
    await clock.advance(1_000);
    expect(await ask()).toEqual(["first failed 401", "second delivered 200"]);
    expect(await ask()).toEqual(["second delivered 200"]);
  });

  const unreadable: { name: string; script: Script }[] = [
    {
      name: "a stream",
      script: { ...nativeStream(), writes: ["event: message_start\ndata: {\n\n"] },
    },
    {
      name: "a plain answer",
      script: { headers: { "content-type": "application/json" }, writes: ['{"content":'] },
    },
  ];
  for (const { name, script } of unreadable) {
    test(`loses no share by ${name} whose content cannot be read`, async () => {
      const clock = new ManualClock();
      openFirst("", clock);
      first.always(script);
      const calling = Promise.all(["acc_1", "acc_2"].map((account) => callAs(account, 10)));
      await passDuring(() => clock.endPause(), calling);
      first.always(nativeStream());
      expect(await callAs("acc_1")).toEqual(["first delivered 200"]);
      expect(providers.usableModels().every(([, isUsable]) => isUsable)).toBe(true);
    });
  }

  const slowDown = (seconds: string) =>
    errorAnswer(429, "rate_limit_error", "slow down", { headers: { "retry-after": seconds } });

  test("that named a time with a 429 gets a tenth of the calls until then", async () => {
    const clock = new ManualClock();
    openBoth({ clock, random: () => 0.5 });
    first.play(slowDown("30"));
    expect(await callAs("acc_1")).toEqual(["first failed 429", "second delivered 200"]);
    expect(await callAs("acc_2")).toEqual(["second delivered 200"]);
    await clock.advance(30_000);
    expect(await callAs("acc_2")).toEqual(["first delivered 200"]);
  });

  test("that is the only one makes the model overloaded until its retry time, and the gateway not usable", async () => {
    const clock = new ManualClock();
    openFirst("", clock, () => 0.5);
    expect(providers.isUsable()).toBe(true);
    first.play(slowDown("30"));
    expect((await readAll(providers, "Hi")).apiError).toMatchObject({
      reason: "overloaded",
      facts: { retryAfterMs: 30_000 },
    });
    await clock.advance(900);
    const again = await readAll(providers, "Hi");
    expect(again.apiError).toMatchObject({ reason: "overloaded", facts: { retryAfterMs: 29_100 } });
    expect([attemptsFor(again.ask), first.requests.length, providers.isUsable()]).toEqual([
      [],
      1,
      false,
    ]);
    await clock.advance(30_000);
    expect(providers.isUsable()).toBe(true);
  });

  test("still serves its other models", async () => {
    const catalog = catalogFor({ first: { kind: "anthropic", url: first.url } });
    const named = catalog.replace(/(id: model-haiku.*)provider-model/, "$1haiku-there");
    providers = openProviders(named, { clock: new ManualClock(), random: () => 0.5 });
    const askOf = (model: string) => requestOf("Hi", { model });
    const gate = new Gate();
    for (let call = 0; call < 6; call++) first.play({ ...slowDown("30"), before: gate });
    const limited = Array.from({ length: 6 }, () => readAll(providers, askOf("model-opus-4.6")));
    await first.received(6);
    gate.open();
    for (const { apiError } of await Promise.all(limited))
      expect(apiError?.reason).toBe("overloaded");
    expect(attemptsOf(await readAll(providers, askOf("model-haiku-4.5")))).toEqual([
      "first delivered 200",
    ]);
    expect(attemptsOf(await readAll(providers, askOf("model-opus-4.6")))).toEqual([]);
    expect(providers.isUsable()).toBe(true);
  });

  test("loses no share by wrong or cancelled requests", async () => {
    openFirst();
    first.always(errorAnswer(400, "invalid_request_error", "wrong"));
    for (let call = 0; call < 10; call++) await readAll(providers, "Hi");
    const gate = new Gate();
    first.always({ ...nativeStream(), before: gate });
    for (let call = 0; call < 10; call++) {
      const ask = providerRequestFor(requestOf("Hi"));
      const done = readAll(providers, ask);
      await first.received();
      ask.abort.abort();
      expect((await done).apiError?.reason).toBe("cancelled");
    }
    expect(providers.isUsable()).toBe(true);
    gate.open();
  });
});

describe("a full provider", () => {
  test("leaves calls to the next provider, and they wait when all are full", async () => {
    openBoth({ settings: "concurrency: 1, queue: 1" });
    const gate = new Gate();
    const held = { ...nativeStream({ text: ["held"] }), before: gate };
    first.play(held);
    second.play(held);
    const running = [readAll(providers, "1"), readAll(providers, "2")];
    await Promise.all([first.received(1), second.received(1)]);
    const waiting = readAll(providers, "3");
    await runPendingTasks();
    expect((await readAll(providers, "4")).apiError?.reason).toBe("overloaded");
    expect(first.requests.length + second.requests.length).toBe(2);
    gate.open();
    await Promise.all(running);
    expect(textOf((await waiting).events)).toBe("from the first");
  });

  test("is free of a call that was cancelled while it waited", async () => {
    openFirst("concurrency: 1");
    const gate = new Gate();
    first.play({ ...nativeStream(), before: gate });
    const running = readAll(providers, "1");
    await gate.reached;
    const ask = providerRequestFor(requestOf("2"));
    const waiting = readAll(providers, ask);
    await runPendingTasks();
    ask.abort.abort();
    expect((await waiting).apiError?.reason).toBe("cancelled");
    gate.open();
    await running;
    expect(attemptsOf(await readAll(providers, "3"))).toEqual(["first delivered 200"]);
    expect(first.requests).toHaveLength(2);
  });
});

describe("a conversation", () => {
  test("stays with its provider while that is healthy, even if others fail", async () => {
    const routes = "[[{ provider: first, model: m }, { provider: second, model: m }]]";
    openBoth({ routes });
    const providerOf = async (affinity: string) =>
      attemptsFor((await readAll(providers, providerRequestFor(requestOf("Hi"), affinity))).ask).at(
        -1,
      )?.provider;
    const affinities = Array.from({ length: 12 }, (_, index) => `key ${index}`);
    const homes = await Promise.all(affinities.map(providerOf));
    expect(new Set(homes)).toEqual(new Set(["first", "second"]));
    expect(await Promise.all(affinities.map(providerOf))).toEqual(homes);

    first.always(errorAnswer(500, "api_error", "oops"));
    for (const affinity of affinities) expect(await providerOf(affinity)).toBe("second");
  });
});

describe("a new configuration", () => {
  const catalogOf = (provider: FakeProvider, name: string) =>
    readCatalogFile(catalogFor({ [name]: { kind: "anthropic", url: provider.url } }));

  test("serves the next request, and active ones keep their provider", async () => {
    openFirst();
    const gate = new Gate();
    first.play({
      ...nativeStream(),
      writes: [
        ...nativeEvents({ text: ["old"] }).slice(0, 3),
        gate,
        ...nativeEvents({ text: ["old"] }).slice(3),
      ],
    });
    const running = readAll(providers, "1");
    await gate.reached;
    providers.reload(catalogOf(second, "second"));
    expect(textOf((await readAll(providers, "2")).events)).toBe("from the second");
    gate.open();
    const outcome = await running;
    expect([outcome.apiError, textOf(outcome.events), attemptsOf(outcome)]).toEqual([
      undefined,
      "old",
      ["first delivered 200"],
    ]);
  });

  test("drops neither a call that waits for a removed provider, nor the second attempt after its failure", async () => {
    openFirst("concurrency: 1");
    const gates = [new Gate(), new Gate()] as const;
    first.play(
      { ...nativeStream({ text: ["1"] }), before: gates[0] },
      { ...nativeStream({ text: ["2"] }), before: gates[1] },
    );
    const running = [readAll(providers, "1"), readAll(providers, "2")];
    await gates[0].reached;
    providers.reload(catalogOf(second, "second"));
    gates[0].open();
    await gates[1].reached;
    gates[1].open();
    expect((await Promise.all(running)).map(({ events }) => textOf(events))).toEqual(["1", "2"]);

    const gate = new Gate();
    second.play({ ...errorAnswer(500, "api_error", "oops"), before: gate });
    const failing = readAll(providers, "3");
    await gate.reached;
    providers.reload(catalogOf(first, "first"));
    gate.open();
    expect(attemptsOf(await failing)).toEqual(["second failed 500", "first delivered 200"]);
  });

  test("keeps the connections and the pause of an unchanged provider", async () => {
    openFirst("", new ManualClock());
    first.play(
      errorAnswer(429, "rate_limit_error", "slow down", { headers: { "retry-after": "30" } }),
    );
    await readAll(providers, "1");
    providers.reload(
      readCatalogFile(catalogFor({ first: { kind: "anthropic", url: first.url, more: "" } })),
    );
    expect(providers.isUsable()).toBe(false);
    providers.reload(
      readCatalogFile(
        catalogFor({ first: { kind: "anthropic", url: first.url, more: "idle_ms: 1000" } }),
      ),
    );
    expect(providers.isUsable()).toBe(true);
  });

  test("without a required credential changes nothing", async () => {
    openFirst();
    const wrong = readCatalogFile(
      catalogFor({
        second: { kind: "anthropic", url: second.url, more: "credential_env: NOT_THERE" },
      }),
    );
    expect(() => providers.reload(wrong)).toThrow(
      "providers.second.credential_env: the environment variable NOT_THERE holds no credential",
    );
    expect(textOf((await readAll(providers, "2")).events)).toBe("from the first");
  });
});
