// Tests the pure admission against a simple model: lists of holds and charges, summed again each
// time.

import fc from "fast-check";
import { expect, test } from "vitest";
import {
  type Admitted,
  admit,
  type Hold,
  type HoldRequest,
  type Ledger,
} from "../../src/billing/admission.ts";
import { least } from "../../src/billing/hold-size.ts";
import { heldFor, holdRequest, price } from "../support/ledger.ts";

const at = new Date("2026-03-31T23:59:59Z");
const month = "2026-03-01";

type KeyOfModel = { cap: bigint | null };
type Model = {
  /** What the holds of each key have grown by. */
  readonly grown: Map<string, bigint>;
  posted: bigint;
  readonly keys: Record<string, KeyOfModel>;
  readonly running: Map<string, Hold & { nonce: string }>;
  readonly ended: Map<string, { keyId: string; amountMicro: bigint }>;
};

const sum = (amounts: Iterable<bigint>) => [...amounts].reduce((total, one) => total + one, 0n);
const heldBy = ({ running }: Model, keyId?: string) =>
  sum(
    [...running.values()]
      .filter(({ payer }) => keyId === undefined || payer.keyId === keyId)
      .map((one) => one.amountMicro),
  );
const spentBy = (model: Model, keyId?: string) =>
  sum(
    [...model.ended.values()]
      .filter((one) => keyId === undefined || one.keyId === keyId)
      .map((one) => one.amountMicro),
  );

/** The rows that a batch would lock. */
function lockRows(model: Model): Ledger {
  return {
    at,
    month,
    nodeId: "node_of_test",
    pools: new Map([
      [
        "acc/v1",
        {
          posted: model.posted - spentBy(model),
          held: heldBy(model),
          inDebt: false,
          accountStatus: "active",
        },
      ],
    ]),
    keys: new Map(
      Object.entries(model.keys).map(([keyId, { cap }]) => [
        keyId,
        {
          status: "active",
          allowedModels: [],
          cap,
          spent: spentBy(model, keyId),
          held: heldBy(model, keyId),
        },
      ]),
    ),
    deadSecrets: new Map(),
    usedRequests: new Map([
      ...[...model.running].map(
        ([id, hold]) =>
          [
            `acc/${id}`,
            { ...usedRow(hold), amount: hold.amountMicro, grantedOutput: hold.grantedOutput },
          ] as const,
      ),
      ...[...model.ended].map(
        ([id, { keyId }]) =>
          [`acc/${id}`, { ...usedRow(), keyId, amount: 0n, grantedOutput: 0 }] as const,
      ),
    ]),
    amounts: new Map([...model.running].map(([id, { amountMicro }]) => [`acc/${id}`, amountMicro])),
    pastMonths: new Map(),
  };
}

function usedRow(hold?: Hold & { nonce: string }) {
  const node = hold ? { nodeId: "node_of_test", nonce: hold.nonce } : { nodeId: "", nonce: "" };
  return {
    ...node,
    price,
    admittedAt: at,
    month,
    keyId: hold?.payer.keyId ?? "",
    model: "model-test",
  };
}

const requests = ["req_00000001", "req_00000002", "req_00000003", "req_00000004", "req_00000005"];
const request = fc.constantFrom(...requests);
const command = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("place" as const),
      request,
      key: fc.constantFrom("key_a", "key_b"),
      output: fc.nat(300),
      nonce: fc.constantFrom("nonce-one", "nonce-two"),
    }),
  },
  fc.record({ do: fc.constant("settle" as const), request, output: fc.nat(600) }),
  fc.record({
    do: fc.constant("grow" as const),
    request,
    micro: fc.bigInt({ min: 0n, max: 40_000n }),
  }),
  fc.record({
    do: fc.constant("shrink" as const),
    request,
    micro: fc.bigInt({ min: 0n, max: 40_000n }),
  }),
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

const cap = fc.option(fc.bigInt({ min: 0n, max: 60_000n }));

test("any requests, in any order and any batches, never hold or spend more than there is, and none is charged twice", () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 80_000n }),
      fc.record({ key_a: cap, key_b: cap }),
      fc.array(fc.array(command, { minLength: 1, maxLength: 6 }), { maxLength: 8 }),
      (posted, caps, batches) => {
        const model: Model = {
          posted,
          keys: { key_a: { cap: caps.key_a }, key_b: { cap: caps.key_b } },
          running: new Map(),
          ended: new Map(),
          grown: new Map(),
        };
        for (const batch of batches) {
          runAdmissions(model, batch);
          endRequests(model, batch);
        }
      },
    ),
    { numRuns: 300 },
  );
});

function runAdmissions(model: Model, batch: readonly Command[]): void {
  const ledger = lockRows(model);
  // A request has its hold before it can grow it.
  const placed = new Set<string>();
  const grown = new Set<string>();
  for (const one of batch) {
    if (one.do === "place" && !grown.has(one.request)) {
      placed.add(one.request);
      checkPlaced(model, ledger, one);
    } else if (one.do === "grow" && !placed.has(one.request)) {
      grown.add(one.request);
      checkGrown(model, ledger, one);
    }
    // The rows that admission updated must equal the sums of the model.
    expect(ledger.pools.get("acc/v1")?.held).toBe(heldBy(model));
    for (const keyId of Object.keys(model.keys))
      expect(ledger.keys.get(keyId)?.held).toBe(heldBy(model, keyId));
  }
  expect(heldBy(model) <= model.posted - spentBy(model)).toBe(true);
  for (const [keyId, { cap }] of Object.entries(model.keys)) {
    // A cap bounds who starts, not how far a hold grows.
    const least = heldBy(model, keyId) + spentBy(model, keyId) - (model.grown.get(keyId) ?? 0n);
    if (cap !== null) expect(least <= cap).toBe(true);
  }
}

function checkPlaced(model: Model, ledger: Ledger, one: Extract<Command, { do: "place" }>): void {
  const payer = { accountId: "acc", family: "v1" as const, keyId: one.key };
  const asked = holdRequest(payer, one.output, { requestId: one.request });
  const request: HoldRequest = { ...asked, kind: "place", owner: "process", nonce: one.nonce };
  const running = model.running.get(one.request);
  const outcome = admit(ledger, request);
  if (running) {
    const isRepeat =
      running.nonce === one.nonce &&
      running.payer.keyId === one.key &&
      running.amountMicro === heldFor(one.output);
    if (isRepeat)
      expect(outcome).toMatchObject({
        kind: "held",
        addedMicro: undefined,
        hold: { amountMicro: running.amountMicro },
      });
    else expectRejected(outcome, "request_id_used");
    return;
  }
  if (model.ended.has(one.request)) {
    expectRejected(outcome, "request_id_used");
    return;
  }
  const needed = heldFor(one.output);
  const { cap } = model.keys[one.key] ?? { cap: null };
  const posted = model.posted - spentBy(model);
  const spent = spentBy(model, one.key);
  const fits =
    needed <= posted - heldBy(model) &&
    (cap === null || needed <= cap - spent - heldBy(model, one.key));
  if (fits) {
    expect(outcome).toMatchObject({
      kind: "held",
      addedMicro: needed,
      hold: { grantedOutput: one.output, month },
    });
    if (outcome.kind === "held")
      model.running.set(one.request, { ...outcome.hold, nonce: one.nonce });
  } else if (posted < needed) expectRejected(outcome, "credits_exhausted");
  else if (cap !== null && cap - spent < needed) expectRejected(outcome, "monthly_cap_reached");
  else expect(outcome).toMatchObject({ kind: "short", error: { reason: "credits_held" } });
}

function checkGrown(model: Model, ledger: Ledger, one: Extract<Command, { do: "grow" }>): void {
  const running = model.running.get(one.request);
  const hold = running ?? unheld(one.request);
  const outcome = admit(ledger, { kind: "grow", hold, amountMicro: one.micro });
  if (!running) {
    expectRejected(outcome, "gateway_unavailable");
    return;
  }
  const wanted = one.micro - running.amountMicro;
  const free = model.posted - spentBy(model) - heldBy(model);
  const added = least(wanted, free);
  if (added <= 0n) {
    expect(outcome).toMatchObject({ kind: "held", addedMicro: undefined });
    return;
  }
  const amountMicro = running.amountMicro + added;
  expect(outcome).toMatchObject({ kind: "held", addedMicro: added, hold: { amountMicro } });
  model.running.set(one.request, { ...running, amountMicro });
  const { keyId } = running.payer;
  model.grown.set(keyId, (model.grown.get(keyId) ?? 0n) + added);
}

/**
 * Settles requests between two batches of admissions, as `settlement.test.ts` shows that
 * settlement does.
 */
function endRequests(model: Model, batch: readonly Command[]): void {
  for (const one of batch) {
    const running = model.running.get(one.request);
    if (!running) continue;
    if (one.do === "shrink" && one.micro < running.amountMicro) {
      model.running.set(one.request, { ...running, amountMicro: one.micro });
    } else if (one.do === "settle") {
      const cost = BigInt(one.output) * price.output;
      model.running.delete(one.request);
      model.ended.set(one.request, {
        keyId: running.payer.keyId,
        amountMicro: cost < running.amountMicro ? cost : running.amountMicro,
      });
    }
  }
}

function unheld(requestId: string): Hold {
  const payer = { accountId: "acc", family: "v1" as const, keyId: "key_a" };
  return {
    ...holdRequest(payer, 1, { requestId }),
    grantedOutput: 1,
    amountMicro: 0n,
    freeMicro: 0n,
    monthFreeMicro: undefined,
    month,
    admittedAt: at,
  };
}

function expectRejected(outcome: Admitted, reason: string): void {
  expect(outcome).toMatchObject({ kind: "rejected", error: { reason } });
}

test("a hold grows as far as the pool has free credits, whatever the cap", () => {
  const payer = { accountId: "acc", family: "v1" as const, keyId: "key_a" };
  const ledgerOf = (posted: bigint, cap: bigint | null): Ledger => ({
    at: new Date("2026-11-22T00:00:00Z"),
    month,
    nodeId: "node_1",
    pools: new Map([
      ["acc/v1", { posted, held: 3_000_000n, inDebt: false, accountStatus: "active" }],
    ]),
    keys: new Map([
      ["key_a", { status: "active", allowedModels: [], cap, spent: 0n, held: 3_000_000n }],
    ]),
    deadSecrets: new Map(),
    usedRequests: new Map(),
    amounts: new Map([["acc/req_growing1", 1_000_000n]]),
    pastMonths: new Map(),
  });
  const hold = {
    ...holdRequest(payer, 1, { requestId: "req_growing1" }),
    grantedOutput: 1,
    amountMicro: 1_000_000n,
    freeMicro: 0n,
    monthFreeMicro: undefined,
    month,
    admittedAt: new Date("2026-11-22T00:00:00Z"),
  };
  const growTo = (ledger: Ledger) => admit(ledger, { kind: "grow", hold, amountMicro: 9_000_000n });
  const posted = 5_000_000n;
  for (const cap of [null, 3_500_000n])
    expect(growTo(ledgerOf(posted, cap))).toMatchObject({
      kind: "held",
      addedMicro: 2_000_000n,
      hold: { amountMicro: 3_000_000n },
    });
  expect(growTo(ledgerOf(3_000_000n, null))).toMatchObject({
    kind: "held",
    addedMicro: undefined,
    hold: { amountMicro: 1_000_000n },
  });
});
