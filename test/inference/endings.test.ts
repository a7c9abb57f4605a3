// However an answer ends, its hold becomes a charge, its provider is stopped, and no hold, listener
// or active request remains.

import { getEventListeners } from "node:events";
import { setImmediate } from "node:timers/promises";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { ManualClock } from "../support/clock.ts";
import { events, freshInference, silence, type TestInference } from "../support/inference.ts";
import { type RefusedInserts, refuseInserts } from "../support/refused-inserts.ts";

const input = 140n;
const output = 700n;
const usage = { inputTokens: 11 };

let gateway: TestInference;
let payer: Payer;
/** Of the requests. The ledger has that of this machine. */
const clock = new ManualClock();
beforeAll(async () => {
  gateway = await freshInference({ clock });
  payer = await gateway.payer(1_000_000_000_000n);
});
afterEach(async () => {
  // The settlement may take longer than the answer.
  await vi.waitFor(async () =>
    expect(await gateway.run("select request_id from holds")).toEqual([]),
  );
  expect(await gateway.store.verifyLedger()).toEqual([]);
  // This would wait for an active request.
  await gateway.inference.cancelAll("draining");
});
afterAll(() => gateway.close());

/** `beforeEnd`: what the last read waits for. */
function play(beforeEnd: Promise<void> = Promise.resolve()) {
  const seen = { called: 0, signal: undefined as AbortSignal | undefined };
  gateway.plays(async function* (request) {
    seen.called++;
    seen.signal = request.signal;
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    yield [events.text("12345678"), events.close(), events.delta({ outputTokens: 9 })];
    await beforeEnd;
    yield [events.stop()];
  });
  return seen;
}

function requestIdOf({ kind }: GenerateResponse): string {
  return kind.case === "admission" ? kind.value.requestId : "";
}

async function readSome(stream: AsyncIterable<GenerateResponse>, messages: number) {
  const iterator = stream[Symbol.asyncIterator]();
  const first = await iterator.next();
  for (let read = 1; read < messages; read++) await iterator.next();
  // The provider fills the queue of its reader.
  await setImmediate();
  return { iterator, requestId: first.done ? "" : requestIdOf(first.value) };
}

const partial = 11n * input + 2n * output;
const whole = 11n * input + 9n * output;
// One read more than its reader took is on its way.
const stops: { read: number; outcome: Outcome; amount: bigint }[] = [
  { read: 1, outcome: Outcome.CLIENT_LEFT, amount: partial },
  // The text before the end in the second read, and the figures behind it.
  { read: 2, outcome: Outcome.CLIENT_LEFT, amount: whole },
  { read: 3, outcome: Outcome.COMPLETED, amount: whole },
  { read: 5, outcome: Outcome.COMPLETED, amount: whole },
];
for (const { read, outcome, amount } of stops) {
  test(`a reader that leaves after message ${read} is charged, and no listener remains`, async () => {
    const seen = play();
    const hangUp = new AbortController();
    const { iterator, requestId } = await readSome(gateway.generate(payer, {}, hangUp), read);
    await iterator.return?.();
    expect(await gateway.charged(requestId)).toMatchObject({
      outcome,
      chargedMicrocredits: amount,
    });
    expect(getEventListeners(hangUp.signal, "abort")).toEqual([]);
    expect(seen.called).toBe(1);
    if (outcome !== Outcome.COMPLETED && seen.signal) expect(seen.signal.aborted).toBe(true);
  });
}

test("a request that is never read holds nothing", async () => {
  const seen = play();
  const iterator = gateway.generate(payer)[Symbol.asyncIterator]();
  await iterator.return?.();
  expect(seen.called).toBe(0);
});

test("a client that leaves during its admission is charged nothing, and no provider is called", async () => {
  const seen = play();
  const hangUp = new AbortController();
  const answer = gateway.collect(gateway.generate(payer, {}, hangUp));
  hangUp.abort();
  const { admission, failure, shown } = await answer;
  expect(failure).toMatchObject({ reason: "cancelled" });
  expect(shown).toEqual([]);
  expect(seen.called).toBe(0);
  if (admission) {
    expect(await gateway.charged(admission.requestId)).toMatchObject({
      outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE,
      chargedMicrocredits: 0n,
      basis: Basis.NONE,
    });
  }
  expect(getEventListeners(hangUp.signal, "abort")).toEqual([]);
});

test("a client that leaves while it waits for held credits stops waiting", async () => {
  const poor = await gateway.payer(200_000n);
  play();
  const first = await readSome(gateway.generate(poor), 1);
  const hangUp = new AbortController();
  const waiting = gateway.collect(gateway.generate(poor, { maxTokens: 200 }, hangUp));
  hangUp.abort();
  expect((await waiting).failure).toMatchObject({ reason: "credits_held" });
  await first.iterator.return?.();
});

test("a drain charges a reader that has stopped reading at once, and its next read fails", async () => {
  const seen = play();
  const { iterator, requestId } = await readSome(gateway.generate(payer), 2);
  await gateway.inference.cancelAll("draining");
  expect(seen.signal?.aborted).toBe(true);
  expect(await gateway.charged(requestId)).toMatchObject({
    outcome: Outcome.TIME_LIMIT,
    chargedMicrocredits: whole,
  });
  // What is on its way is charged, so it is shown.
  expect((await iterator.next()).value?.kind.case).toBe("events");
  await expect(iterator.next()).rejects.toMatchObject({ reason: "gateway_unavailable" });
});

test("a revocation charges a reader that has stopped reading at once, and its next read fails", async () => {
  const other = await gateway.payer(1_000_000_000n);
  play();
  const { iterator, requestId } = await readSome(gateway.generate(other), 2);
  gateway.revoke(other.keyId);
  expect(await gateway.charged(requestId)).toMatchObject({
    outcome: Outcome.REVOKED,
    chargedMicrocredits: whole,
  });
  expect((await iterator.next()).value?.kind.case).toBe("events");
  await expect(iterator.next()).rejects.toMatchObject({ reason: "revoked_key" });
});

test("an answer that is cancelled while its end waits for the charge stays complete", async () => {
  play();
  const { iterator, requestId } = await readSome(gateway.generate(payer), 3);
  const end = iterator.next();
  // The provider's last event has started the settlement.
  await vi.waitFor(async () => expect(await gateway.store.findCharges(requestId)).toHaveLength(1));
  await gateway.inference.cancelAll("declared dead");
  expect(await gateway.charged(requestId)).toMatchObject({
    outcome: Outcome.COMPLETED,
    chargedMicrocredits: whole,
  });
  expect((await end).value?.kind.case).toBe("events");
  await iterator.return?.();
});

test("an answer whose hold was reaped ends with an error, never as complete", async () => {
  const other = await gateway.payer(1_000_000_000n);
  play();
  const { iterator, requestId } = await readSome(gateway.generate(other), 2);
  await gateway.run(
    "update holds set deadline = now() - interval '1 second' where request_id = $1",
    [requestId],
  );
  await gateway.node.poll(gateway.holds);
  await iterator.next();
  await expect(iterator.next()).rejects.toMatchObject({ reason: "gateway_unavailable" });
  expect(await gateway.charged(requestId)).toMatchObject({ outcome: Outcome.REAPED });
});

/** Stops every admission in its commit until `resume` is called. */
async function stopAdmissions() {
  const blocker = new Client({ connectionString: gateway.url });
  await blocker.connect();
  await blocker.query(`
    create or replace function wait_at_commit() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock(1); return null; end $$;
    create constraint trigger holds_wait after insert on holds deferrable initially deferred
      for each row execute function wait_at_commit();
    select pg_advisory_lock(1)`);
  const waiting =
    "select pid from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
  return {
    async stopped() {
      while ((await blocker.query(waiting)).rows.length === 0);
    },
    async resume() {
      await blocker.query("select pg_advisory_unlock(1)");
      await blocker.query("drop trigger holds_wait on holds");
      await blocker.end();
    },
  };
}

test("a key revoked during the admission ends the admitted request", async () => {
  const other = await gateway.payer(1_000_000_000n);
  const admissions = await stopAdmissions();
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    yield await silence(request);
  });
  const answer = gateway.collect(gateway.generate(other));
  await admissions.stopped();
  gateway.revoke(other.keyId);
  await admissions.resume();
  expect((await answer).failure).toMatchObject({ reason: "revoked_key" });
});

test("a drain during an admission does not wait for a client that stopped reading", async () => {
  const admissions = await stopAdmissions();
  const provider = play();
  const iterator = gateway.generate(payer)[Symbol.asyncIterator]();
  const first = iterator.next();
  await admissions.stopped();
  const drained = gateway.inference.cancelAll("draining");
  await admissions.resume();
  const { value } = await first;
  await drained;
  expect(await gateway.charged(requestIdOf(value))).toMatchObject({
    outcome: Outcome.TIME_LIMIT,
    chargedMicrocredits: 0n,
  });
  await expect(iterator.next()).rejects.toMatchObject({ reason: "gateway_unavailable" });
  expect(provider.called).toBe(0);
});

describe("an answer whose charge is not durable within a minute ends with an error", () => {
  /** Reads to the end while no charge can be written. `whenFailed` runs before that is over. */
  async function endWithoutLedger(
    streamed: boolean,
    whenFailed: (requestId: string, refused: RefusedInserts) => Promise<void>,
  ) {
    const ended = Promise.withResolvers<void>();
    play(ended.promise);
    const origin = { format: Format.NATIVE, streamed };
    const { iterator, requestId } = await readSome(gateway.generate(payer, { origin }), 3);
    const refused = await refuseInserts(gateway.url, "charges");
    const idle = clock.pending;
    const failed = expect(iterator.next()).rejects.toMatchObject({ reason: "billing_unavailable" });
    ended.resolve();
    await vi.waitFor(() => expect(clock.pending).toBe(idle + 1));
    await clock.advance(60_000);
    await failed;
    await whenFailed(requestId, refused);
    await refused.stop();
    return gateway.charged(requestId);
  }

  test("and a stream is charged when the ledger is reachable again: all but its end was delivered", async () => {
    const charge = await endWithoutLedger(true, async (requestId) => {
      expect(await gateway.store.findCharges(requestId)).toEqual([]);
    });
    expect(charge).toMatchObject({ outcome: Outcome.COMPLETED, chargedMicrocredits: whole });
  });

  test("and a plain answer costs nothing: it was not delivered", async () => {
    const charge = await endWithoutLedger(false, async (_, refused) => {
      // A settlement that was sent before the wait ended may still be written.
      const before = await refused.count();
      await vi.waitFor(async () => expect(await refused.count()).toBeGreaterThan(before + 1));
    });
    expect(charge).toMatchObject({ outcome: Outcome.GATEWAY_FAILED, chargedMicrocredits: 0n });
  });
});
