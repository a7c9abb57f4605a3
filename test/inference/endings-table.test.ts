// The table "Endings and charges": the documents say what the code has, and every ending is run, as
// a plain answer and as a stream. `ending-charges.test.ts` runs those of providers in all formats.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  AttemptOutcome,
  Outcome,
  OutcomeSchema,
  type Receipt,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { progress } from "../../src/formats/events.ts";
import { type EndingName, endings } from "../../src/inference/endings.ts";
import type { ProviderRequest } from "../../src/providers/providers.ts";
import { readSection } from "../docs/documents.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { events, freshInference, type TestInference } from "../support/inference.ts";
import { startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeStream } from "../support/provider-answers.ts";
import { openProviders } from "../support/providers.ts";
import { refuseInserts } from "../support/refused-inserts.ts";
import type { RequestMembers } from "../support/requests.ts";

let gateway: TestInference;
let payer: Payer;
/** Of the requests. The ledger has that of this machine. */
const clock = new ManualClock();
const limitMs = 30 * 60_000;
beforeAll(async () => {
  gateway = await freshInference({ clock });
  payer = await gateway.payer(1_000_000_000_000n);
});
afterAll(async () => {
  expect(await gateway.store.verifyLedger()).toEqual([]);
  await gateway.close();
});

const input = 140n;
const output = 700n;
// Each answer has 11 tokens of input and 9 of output. After 2 of these, most of them stop.
const usage = { inputTokens: 11 };
const begun = [events.start(usage), events.open(), events.text("12345678")];
const closing = [events.close(), events.delta({ outputTokens: 9 }), events.stop()];
const complete = [...begun, ...closing];

/** What each share of the table is, for such an answer. */
const amounts = {
  nothing: 0n,
  input: 11n * input,
  begun: 11n * input + 2n * output,
  final: 11n * input + 9n * output,
};
type Amount = keyof typeof amounts;

/** A provider that sends nothing more until it is stopped. */
const silence = ({ signal }: ProviderRequest) =>
  new Promise<never>((_, reject) => {
    const abort = () => reject(new DOMException("aborted", "AbortError"));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  });

/** The steps of a provider: events, a failure, or an act of the outside world. */
type Step = readonly Event[] | Error | "accept" | "fail" | "silence" | (() => unknown);

type Settings = {
  on?: TestInference;
  by?: Payer;
  request?: RequestMembers;
  hangUp?: AbortController;
};

/** Runs one request, and returns its charge. */
async function chargeOf(steps: readonly Step[], settings: Settings = {}): Promise<Receipt> {
  const { on = gateway, by = payer, request, hangUp } = settings;
  on.plays(async function* (ask) {
    for (const step of steps) {
      if (step === "accept") ask.onAccepted(true);
      else if (step === "fail") ask.onAccepted(false);
      else if (step === "silence") await silence(ask);
      else if (step instanceof Error) throw step;
      else if (typeof step === "function") await step();
      else yield [...step];
    }
  });
  const collecting = on.collect(on.generate(by, request, hangUp));
  // Without waiting for what a provider says to nobody.
  const { admission } = await passDuring(() => clock.endPause(10_000), collecting);
  return on.charged(admission?.requestId ?? "");
}

const leave = Symbol("the client leaves");
const revoke = Symbol("its key is revoked");

/** Runs one request to this end. */
async function end(steps: readonly (Step | symbol)[], stream: boolean): Promise<Receipt> {
  const hangUp = new AbortController();
  const by = await gateway.payer(1_000_000_000n);
  const played = steps.map((step): Step => {
    if (step === leave) return () => hangUp.abort();
    if (step === revoke) return () => gateway.revoke(by.keyId);
    if (typeof step === "symbol") throw new Error("no such step");
    return step;
  });
  return chargeOf(played, { by, hangUp, request: formOf(stream) });
}

/** The charge of an answer that ends while no charge can be written, until its minute is over. */
async function endWithoutLedger(stream: boolean): Promise<Receipt> {
  const refused = await refuseInserts(gateway.url, "charges");
  gateway.plays(async function* () {
    yield complete;
  });
  const idle = clock.pending;
  const collecting = gateway.collect(gateway.generate(payer, formOf(stream)));
  // The limit of the request, and that of the wait for its charge.
  await vi.waitFor(() => expect(clock.pending).toBe(idle + 2));
  await clock.advance(60_000);
  const { admission, failure } = await collecting;
  expect(failure).toMatchObject({ reason: "billing_unavailable" });
  // The batch that was on its way, and one that was written after it.
  const before = await refused.count();
  await vi.waitFor(async () => expect(await refused.count()).toBeGreaterThan(before + 1));
  await refused.stop();
  return gateway.charged(admission?.requestId ?? "");
}

/** The charge of an answer whose first provider fails. */
async function failedOver(): Promise<Receipt> {
  const [first, second] = await Promise.all([startFakeProvider(), startFakeProvider()]);
  first.always(errorAnswer(500, "api_error", "broken"));
  second.always(nativeStream({ text: ["12345678"], usage: { input: 11, output: 9 } }));
  const providers = openProviders(
    catalogFor({
      first: { kind: "anthropic", url: first.url },
      second: { kind: "anthropic", url: second.url },
    }),
  );
  const routed = await freshInference({ providers });
  const by = await routed.payer(1_000_000_000n);
  const { receipt } = await routed.collect(routed.generate(by));
  await routed.close();
  await providers.close();
  await Promise.all([first.stop(), second.stop()]);
  if (!receipt) throw new Error("no receipt");
  expect(receipt.attempts.map(({ outcome }) => outcome)).toEqual([
    AttemptOutcome.FAILED,
    AttemptOutcome.DELIVERED,
  ]);
  return receipt;
}

/** A process that died. `read`: messages that its client got before. */
async function reaped(stream: boolean, read: number): Promise<Receipt> {
  const stored = Promise.withResolvers<void>();
  gateway.plays(async function* (ask) {
    ask.onAccepted(true);
    yield [events.start(usage)];
    if (read > 1) yield begun.slice(1);
    await stored.promise;
    yield [events.text("more, which was not stored")];
    yield await silence(ask);
  });
  const hangUp = new AbortController();
  const iterator = gateway.generate(payer, formOf(stream), hangUp)[Symbol.asyncIterator]();
  const { value } = await iterator.next();
  const requestId = value?.kind.case === "admission" ? value.kind.value.requestId : "";
  for (let count = 0; count < read; count++) await iterator.next();
  await gateway.holds.checkpoint();
  stored.resolve();
  await iterator.next();
  await gateway.run(
    "update holds set deadline = now() - interval '1 second' where request_id = $1",
    [requestId],
  );
  await gateway.node.poll(gateway.holds);
  const charge = await gateway.charged(requestId);
  hangUp.abort();
  await iterator.return?.();
  return charge;
}

const stopReason = progress({ stopReason: "end_turn" });

/** What a client of the native format asks for. */
const formOf = (streamed: boolean) => ({ origin: { format: Format.NATIVE, streamed } });

/** A row of the table: its name, its outcome, and what each kind of answer costs in it. */
type Row = {
  readonly ending: EndingName | "killed" | undefined;
  /** Undefined: the ledger was away, which decides the outcome by the kind of answer. */
  readonly outcome?: Outcome;
  readonly plain?: [() => Promise<Receipt>, Amount];
  readonly unseen?: [() => Promise<Receipt>, Amount];
  readonly seen?: [() => Promise<Receipt>, Amount];
};

type Steps = readonly (Step | symbol)[];
const plain = (steps: Steps, amount: Amount): [() => Promise<Receipt>, Amount] => [
  () => end(steps, false),
  amount,
];
const streamed = (steps: Steps, amount: Amount): [() => Promise<Receipt>, Amount] => [
  () => end(steps, true),
  amount,
];
const late = () => void clock.advance(limitMs);
const drain = () => void gateway.inference.cancelAll("draining");
const die = () => void gateway.inference.cancelAll("declared dead");
const started = ["accept", [events.start(usage)]] as const;
const during = ["accept", begun] as const;
const refused = new ApiError("upstream_refused");
const broken = new ApiError("upstream_error");

/** By the names that the documents have for them. */
const rows: Readonly<Record<string, Row>> = {
  complete: {
    ending: "complete",
    plain: plain(["accept", complete], "final"),
    unseen: streamed(["accept", [...begun.slice(0, 1), ...closing]], "final"),
    seen: streamed(["accept", complete], "final"),
  },
  "complete, but the ledger was away for a minute": {
    ending: "undelivered",
    plain: [() => endWithoutLedger(false), "nothing"],
    seen: [() => endWithoutLedger(true), "final"],
  },
  "the provider refused, was overloaded or failed before content": {
    ending: "providerFailed",
    plain: plain([...started, refused], "nothing"),
    unseen: streamed([...started, new ApiError("overloaded")], "nothing"),
  },
  "the provider broke off after content": {
    ending: "providerBroke",
    plain: plain([...during, broken], "nothing"),
    seen: streamed([...during, broken], "begun"),
  },
  "the provider was silent for too long after content": {
    ending: "providerLate",
    plain: plain([...during, new ApiError("timeout")], "nothing"),
    seen: streamed([...during, new ApiError("timeout")], "begun"),
  },
  "the time limit or the drain limit was reached": {
    ending: "timeLimit",
    plain: plain([...during, drain, "silence"], "nothing"),
    unseen: streamed([...started, late, "silence"], "nothing"),
    seen: streamed([...during, drain, "silence"], "begun"),
  },
  "the gateway failed": {
    ending: "gatewayFailed",
    plain: plain([...during, new TypeError("a bug")], "nothing"),
    unseen: streamed([...started, new TypeError("a bug")], "nothing"),
    seen: streamed([...during, new TypeError("a bug")], "begun"),
  },
  "the gateway lost the ledger and was declared dead": {
    ending: "declaredDead",
    plain: plain([...during, die, "silence"], "nothing"),
    unseen: streamed([...started, die, "silence"], "nothing"),
    seen: streamed([...during, die, "silence"], "begun"),
  },
  "the gateway was killed": {
    ending: "killed",
    outcome: Outcome.REAPED,
    plain: [() => reaped(false, 2), "nothing"],
    unseen: [() => reaped(true, 1), "nothing"],
    seen: [() => reaped(true, 2), "begun"],
  },
  "the client left before a provider had the request": {
    ending: "leftBeforeAcceptance",
    plain: plain([leave, "silence"], "nothing"),
    unseen: streamed(["accept", leave, "fail", refused], "nothing"),
  },
  "the client left before content": {
    ending: "leftBeforeContent",
    plain: plain(["accept", leave, complete], "input"),
    unseen: streamed(["accept", leave, complete], "input"),
  },
  "the client left later": {
    ending: "left",
    plain: plain([...during, leave, "silence"], "begun"),
    unseen: streamed([...started, [stopReason], leave, closing], "final"),
    seen: streamed([...during, leave, closing], "begun"),
  },
  "the key was revoked before a provider had the request": {
    ending: "revokedBeforeAcceptance",
    plain: plain([revoke, "silence"], "nothing"),
    unseen: streamed([revoke, "silence"], "nothing"),
  },
  "the key was revoked before content": {
    ending: "revokedBeforeContent",
    plain: plain([...started, revoke, "silence"], "input"),
    unseen: streamed([...started, revoke, "silence"], "input"),
  },
  "the key was revoked later": {
    ending: "revoked",
    plain: plain([...during, revoke, "silence"], "begun"),
    seen: streamed([...during, revoke, "silence"], "begun"),
  },
};

function nameOf(outcome: Outcome | undefined): string | undefined {
  return outcome === undefined ? undefined : OutcomeSchema.value[outcome]?.localName;
}

const section = "Endings and charges";
const customers = readSection("docs/customers/credits.md", `## ${section}`);
const table = [...customers.matchAll(/^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$/gm)].slice(
  1,
);

test("both documents have the same table and the same rules", () => {
  const from = (text: string) => text.slice(text.indexOf("| Ending |"));
  const ours = from(readSection("src/billing/README.md", `## ${section}`));
  const shared = ours.slice(0, ours.indexOf("`src/inference/endings.ts`")).trim();
  expect(shared.length).toBeGreaterThan(2_000);
  expect(from(customers).startsWith(shared)).toBe(true);
});

test("the table in the documents is the table in the code", () => {
  expect(table.map(([, name]) => name)).toEqual(Object.keys(rows));
  const named = Object.values(rows).map(({ ending }) => ending);
  expect(Object.keys(endings).filter((name) => !named.some((one) => one === name))).toEqual([]);
  for (const [, name = "", plain = "", unseen = "", seen = "", outcome = ""] of table) {
    const { ending } = rows[name] ?? {};
    if (ending === undefined || ending === "killed" || ending === "undelivered") continue;
    const row = endings[ending];
    expect(outcome).toBe(`\`${nameOf(row.outcome)}\``);
    expect(plain).toBe(row.plain);
    if (unseen !== "–") expect(unseen).toBe(row.unseen);
    if (seen !== "–") expect(seen).toBe(row.seen);
  }
});

test("every outcome but those of old charges is in the table", () => {
  const recorded = table.map(([, , , , , outcome]) => outcome).join();
  const names = OutcomeSchema.values.map(({ localName }) => localName);
  expect(names.filter((name) => !recorded.includes(`\`${name}\``))).toEqual([
    "UNSPECIFIED",
    "RUNNING",
    "INPUT_ABOVE_HOLD",
  ]);
});

describe("the outcome and the charge are those of the table", () => {
  for (const [name, row] of Object.entries(rows)) {
    for (const kind of ["plain", "unseen", "seen"] as const) {
      const [run, amount] = row[kind] ?? [];
      if (!run || !amount) continue;
      test(`${name}: ${kind}`, { timeout: 30_000 }, async () => {
        const receipt = await run();
        expect(receipt.chargedMicrocredits).toBe(amounts[amount]);
        const { ending } = row;
        const isLate = ending === "undelivered" && kind !== "plain";
        const outcome =
          ending === undefined || ending === "killed"
            ? row.outcome
            : endings[isLate ? "complete" : ending].outcome;
        expect(nameOf(receipt.outcome)).toBe(nameOf(outcome));
      });
    }
  }
});

test("over all endings, posted and charges are the transfers, and no hold is exceeded", async () => {
  const [sums] = await gateway.run<Record<string, bigint>>(`
    select (select sum(amount)::bigint from transfers) as transfers,
      (select sum(posted)::bigint from pools) as posted,
      (select sum(held)::bigint from pools) as held,
      (select sum(amount)::bigint from charges where account_id <> '') as charges,
      (select count(*) from charges where amount > hold) as above_hold,
      (select count(*) from charges where output + thinking > granted_output) as above_grant,
      (select count(distinct outcome) from charges where account_id <> '') as outcomes`);
  const { posted = 0n, charges = 0n, transfers } = sums ?? {};
  expect(posted + charges).toBe(transfers);
  expect(sums).toMatchObject({ held: 0n, above_hold: 0n, above_grant: 0n });
  // All but those of old charges, of what still runs, and none.
  expect(sums?.outcomes).toBe(BigInt(OutcomeSchema.values.length - 3));
});

test("a request that is rejected before admission has no hold and no charge", async () => {
  const poor = await gateway.payer(1n);
  const { admission, failure } = await gateway.collect(gateway.generate(poor));
  expect([admission, failure]).toMatchObject([undefined, { reason: "credits_exhausted" }]);
  const rows = await gateway.run(
    "select request_id from holds where key_id = $1 union select request_id from charges where key_id = $1",
    [poor.keyId],
  );
  expect(rows).toEqual([]);
});

test("an answer without a usage report costs what was counted", async () => {
  const unreported = [events.start(), ...begun.slice(1), events.delta(), events.stop()];
  const receipt = await end(["accept", unreported], true);
  // "Hello, model" and its framing are 20 bytes.
  expect(receipt.chargedMicrocredits).toBe(5n * input + 2n * output);
});

test("a provider past its grant is stopped, and the answer costs the grant", async () => {
  const receipt = await end(["accept", begun, [events.text("x".repeat(5_000))], "silence"], true);
  expect(receipt.outcome).toBe(Outcome.COMPLETED);
  expect(receipt.chargedMicrocredits).toBe(11n * input + 100n * output);
});

test("an answer whose first provider fails costs what the second one reports", async () => {
  expect((await failedOver()).chargedMicrocredits).toBe(amounts.final);
});

test("a request that nobody answers within ten seconds of a hang-up costs its input", async () => {
  const receipt = await end(["accept", leave, "silence"], true);
  expect(receipt.outcome).toBe(Outcome.CLIENT_LEFT_BEFORE_CONTENT);
  expect(receipt.chargedMicrocredits).toBe(5n * input);
});

test("a hold that cannot grow, because there is no ledger, limits the charge", async () => {
  const resize = vi
    .spyOn(gateway.holds, "resize")
    .mockRejectedValue(new ApiError("billing_unavailable"));
  const above = [events.close(), events.delta({ inputTokens: 900_000, outputTokens: 9 })];
  const receipt = await end(["accept", begun, [...above, events.stop()]], true);
  expect(resize).toHaveBeenCalled();
  resize.mockRestore();
  expect(receipt.chargedMicrocredits).toBe(receipt.holdMicrocredits);
});
