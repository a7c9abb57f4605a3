// Tests the pure admission against a simple model: lists of holds and charges, summed again each
// time.

import fc from "fast-check";
import { expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  type Admitted,
  admit,
  type Hold,
  type HoldRequest,
  type Ledger,
  payerOf,
  type RunningBudget,
} from "../../src/billing/admission.ts";
import { least } from "../../src/billing/hold-size.ts";
import { beside, within } from "../support/arbitraries.ts";
import { heldFor, holdRequest, microEach, price } from "../support/ledger.ts";

const at = new Date("2026-03-31T23:59:59Z");
const month = "2026-03-01";

type LedgerPool = NonNullable<ReturnType<Ledger["pools"]["get"]>>;
type KeyRow = NonNullable<ReturnType<Ledger["keys"]["get"]>>;
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
      Object.keys(model.keys).map((keyId) => [
        keyId,
        { status: "active", allowedModels: [], manager: null },
      ]),
    ),
    budgets: new Map(
      Object.entries(model.keys).flatMap(([keyId, { cap }]) =>
        cap === null
          ? []
          : [[`acc/v1/${keyId}`, capped(cap, spentBy(model, keyId), heldBy(model, keyId))]],
      ),
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
    growing: new Map(
      [...model.running].map(([id, { amountMicro: amount }]) => [
        `acc/${id}`,
        { amount, manager: null },
      ]),
    ),
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
      output: fc.oneof(fc.constantFrom(0, 100, 300), fc.nat(300)),
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

/** What one, two or three holds of 100 or 300 tokens need, one more, one less, or anything. */
const sums = [1n, 2n, 3n].flatMap((count) => [count * heldFor(100), count * heldFor(300)]);
const funds = (max: bigint) => fc.oneof(beside(0n, ...sums), within(0n, max));
const anyCap = fc.option(funds(60_000n));

test("any requests, in any order and any batches, never hold or spend more than there is, and none is charged twice", () => {
  fc.assert(
    fc.property(
      funds(80_000n),
      fc.record({ key_a: anyCap, key_b: anyCap }),
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
      if (model.keys[keyId]?.cap !== null)
        expect(heldOfBudget(ledger, `acc/v1/${keyId}`)).toBe(heldBy(model, keyId));
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
      const cost = BigInt(one.output) * microEach.output;
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
    left: { ofPool: undefined, ofKey: undefined, ofManager: undefined },
    manager: undefined,
    month,
    admittedAt: at,
  };
}

function expectRejected(outcome: Admitted, reason: string): void {
  expect(outcome).toMatchObject({ kind: "rejected", error: { reason } });
}

const payer = { accountId: "acc", family: "v1" as const, keyId: "key_a", secretId: "sec_a" };
const active = { posted: heldFor(4), held: 0n, inDebt: false, accountStatus: "active" } as const;
const open: KeyRow = { status: "active", allowedModels: [], manager: null };

/** A budget with a limit of this month. */
function capped(cap: bigint, spent: bigint, held: bigint): RunningBudget {
  const window = { name: "month", limit: cap, spent, resetsAt: new Date("2026-04-01Z") } as const;
  const limit = { of: "key", window, left: cap - spent, held } as const;
  return { of: "key", running: 0, requestsAtOnce: null, limits: [limit] };
}

/** What running requests hold of the month of a budget. */
function heldOfBudget({ budgets }: Ledger, name: string): bigint | undefined {
  return budgets.get(name)?.limits[0]?.held;
}

type CappedKey = Partial<KeyRow> & { cap?: bigint; spent?: bigint; held?: bigint };

/** The rows of a batch with one key, which may have a monthly cap, and its pool. */
function rowsOf(
  pool: Partial<LedgerPool> = {},
  { cap, spent = 0n, held = 0n, ...key }: CappedKey = {},
  more: Partial<Ledger> = {},
): Ledger {
  return {
    at,
    month,
    nodeId: "node_of_test",
    pools: new Map([["acc/v1", { ...active, ...pool }]]),
    keys: new Map([["key_a", { ...open, ...key }]]),
    budgets: new Map(cap === undefined ? [] : [["acc/v1/key_a", capped(cap, spent, held)]]),
    deadSecrets: new Map(),
    usedRequests: new Map(),
    growing: new Map(),
    ...more,
  };
}

/** The admission of a request that needs `heldFor(4)` at least. */
function placing(more: Partial<HoldRequest> & { output?: number } = {}): HoldRequest {
  const { output = 4, ...others } = more;
  const asked = holdRequest(payer, output, { requestId: "req_00000001", minOutput: 4 });
  return { ...asked, kind: "place", owner: "process", nonce: "nonce-one", ...others };
}

const needed = heldFor(4);
const pool = { name: "pool_microcredits", family: Family.V1 };
const cap = {
  name: "monthly_cap_microcredits",
  resetsAt: { seconds: BigInt(Date.UTC(2026, 3, 1) / 1000) },
};
test.for<[string, Ledger, string, Record<string, unknown>]>([
  [
    "of an unknown key",
    rowsOf({}, {}, { keys: new Map() }),
    "not_found",
    { message: "No such key." },
  ],
  ["of an unknown pool", rowsOf({}, {}, { pools: new Map() }), "not_found", {}],
  ["of a suspended account", rowsOf({ accountStatus: "suspended" }), "account_suspended", {}],
  ["of a closed account", rowsOf({ accountStatus: "closed" }), "revoked_key", {}],
  ["of a paused key", rowsOf({}, { status: "paused" }), "key_paused", {}],
  ["of an expired key", rowsOf({}, { status: "expired" }), "key_expired", {}],
  ["of a revoked key", rowsOf({}, { status: "revoked" }), "revoked_key", {}],
  [
    "with a revoked secret",
    rowsOf({}, {}, { deadSecrets: new Map([["sec_a", true]]) }),
    "revoked_key",
    {},
  ],
  [
    "with an expired secret",
    rowsOf({}, {}, { deadSecrets: new Map([["sec_a", false]]) }),
    "invalid_key",
    {},
  ],
  [
    "for a model that the key may not use",
    rowsOf({}, { allowedModels: ["other"] }),
    "model_not_allowed",
    { allowed: ["other"], field: "model" },
  ],
  [
    "in debt",
    rowsOf({ inDebt: true, held: 1n }),
    "credits_exhausted",
    {
      message: "The v1 pool of this account is in debt. Add credits to continue.",
      limit: { ...pool, limit: needed - 1n, remaining: needed - 1n, exhausted: true },
    },
  ],
  [
    "with one micro-credit too little",
    rowsOf({ posted: needed - 1n }),
    "credits_exhausted",
    {
      message:
        "The v1 pool of this account has 0.001239 credits free, and this request needs 0.00124 " +
        "set aside. Add credits to continue.",
      limit: { ...pool, limit: needed - 1n, remaining: needed - 1n },
    },
  ],
  [
    "with one micro-credit, all of it held",
    rowsOf({ posted: 1n, held: 2n }),
    "credits_exhausted",
    { limit: { ...pool, limit: 0n, remaining: 0n } },
  ],
  [
    "without credits",
    rowsOf({ posted: 0n }),
    "credits_exhausted",
    { limit: { ...pool, limit: 0n, remaining: 0n, exhausted: true } },
  ],
  [
    "with a cap that has one micro-credit too little left",
    rowsOf({}, { cap: needed + 6n, spent: 7n, held: 2n }),
    "monthly_cap_reached",
    {
      message:
        "The monthly credit cap of this key is reached: 0.001237 credits of it are left, and this " +
        "request needs 0.00124 set aside. It resets at 2026-04-01T00:00:00.000Z.",
      limit: { ...cap, limit: needed + 6n, used: 9n, remaining: needed - 3n },
    },
  ],
  [
    "with a cap that is spent",
    rowsOf({}, { cap: 7n, spent: 7n, held: 2n }),
    "monthly_cap_reached",
    { limit: { ...cap, limit: 7n, used: 9n, remaining: 0n, exhausted: true } },
  ],
])("a request %s is rejected", ([, ledger, reason, facts]) => {
  const { usedRequests, pools, budgets } = structuredClone(ledger);
  const outcome = admit(ledger, placing());
  expectRejected(outcome, reason);
  const { message, limit, allowed, field } = Object(outcome).error.facts;
  expect({ message, limit, allowed, field }).toMatchObject(facts);
  expect(limit).toEqual(facts.limit);
  expect(ledger).toMatchObject({ usedRequests, pools, budgets });
});

test("a request waits where other requests hold what it needs, of the pool or of the cap", () => {
  for (const ledger of [
    rowsOf({ held: 1n }),
    rowsOf({}, { cap: needed, held: 1n }),
    rowsOf({}, { cap: needed + 7n, spent: 7n, held: 1n }),
  ])
    expect(admit(ledger, placing())).toMatchObject({
      kind: "short",
      error: { reason: "credits_held", facts: { retryAfterMs: 2_000 } },
      freeMicro: needed - 1n,
    });
});

test("an admission holds exactly what is free, and says what it leaves", () => {
  const ledger = rowsOf(
    { posted: needed + 3n, held: 3n },
    { cap: needed + 9n, spent: 4n, held: 5n, allowedModels: ["other", "model-test"] },
    { deadSecrets: new Map([["sec_b", true]]) },
  );
  expect(admit(ledger, placing())).toMatchObject({
    kind: "held",
    addedMicro: needed,
    hold: { freeMicro: 0n, left: { ofPool: undefined, ofKey: 0n }, admittedAt: at, month },
  });
  const heldOfKey = heldOfBudget(ledger, "acc/v1/key_a");
  const running = ledger.budgets.get("acc/v1/key_a")?.running;
  expect([ledger.pools.get("acc/v1")?.held, heldOfKey, running]).toEqual([
    needed + 3n,
    needed + 5n,
    1,
  ]);
  expect(admit(rowsOf({ posted: needed + 1n }), placing())).toMatchObject({
    hold: { freeMicro: 1n, left: { ofPool: undefined, ofKey: undefined, ofManager: undefined } },
  });
  expect(admit(rowsOf({}, { cap: needed + 2n }), placing())).toMatchObject({
    hold: { freeMicro: 0n, left: { ofPool: undefined, ofKey: 2n } },
  });
  // The secret of an internal service is not known.
  const { secretId: _, ...service } = payer;
  const dead = { deadSecrets: new Map([["sec_a", true]]) };
  expect(admit(rowsOf({}, {}, dead), placing({ payer: service })).kind).toBe("held");
});

test("a reduced grant is refined where the request may, and granted where it may not", () => {
  const asked = { output: 9 };
  expect(admit(rowsOf(), placing({ ...asked, mayRefine: true }))).toEqual({
    kind: "reduced",
    freeMicro: needed,
  });
  for (const one of [asked, { ...asked, mayRefine: false }])
    expect(admit(rowsOf(), placing(one))).toMatchObject({
      kind: "held",
      hold: { grantedOutput: 4 },
    });
  // Other requests hold the rest: it will be free again.
  const held = rowsOf({ posted: heldFor(9), held: heldFor(9) - needed });
  expect(admit(held, placing({ ...asked, mayRefine: true })).kind).toBe("held");
});

test("only the same request of the same process repeats its admission, and gets the first hold", () => {
  const used = {
    nodeId: "node_of_test" as string | null,
    nonce: "nonce-one",
    keyId: "key_a",
    model: "model-test",
    price: { ...price, priceVersion: "price_before" },
    amount: needed,
    grantedOutput: 4,
    admittedAt: new Date("2026-02-28T23:59:59Z"),
    month: "2026-02-01",
  };
  const again = (more: Partial<typeof used>, request: Partial<HoldRequest> = {}) => {
    const ledger = rowsOf(
      { posted: 0n },
      { status: "revoked" },
      { usedRequests: new Map([["acc/req_00000001", { ...used, ...more }]]) },
    );
    return admit(ledger, placing(request));
  };
  const { admittedAt, price: before } = used;
  const hold = { price: before, amountMicro: needed, grantedOutput: 4, admittedAt };
  const outcome = { kind: "held", addedMicro: undefined };
  expect(again({})).toMatchObject({
    ...outcome,
    hold: {
      ...hold,
      month: "2026-02-01",
      freeMicro: 0n,
      left: { ofPool: undefined, ofKey: undefined, ofManager: undefined },
    },
  });
  expect(again({ nodeId: null }, { owner: "caller" })).toMatchObject(outcome);
  for (const other of [
    { nodeId: "node_other" },
    { nodeId: null },
    { nonce: "nonce-two" },
    { keyId: "key_b" },
    { model: "another" },
    { amount: needed + 1n },
    { amount: needed - 1n },
    { grantedOutput: 5 },
  ])
    expectRejected(again(other), "request_id_used");
  expectRejected(again({}, { owner: "caller" }), "request_id_used");

  // In the same batch too.
  const ledger = rowsOf({ posted: 2n * needed });
  expect(admit(ledger, placing())).toMatchObject({ addedMicro: needed });
  const { price: now } = placing();
  expect(admit(ledger, placing())).toMatchObject({ ...outcome, hold: { price: now, month } });
  expectRejected(admit(ledger, placing({ nonce: "nonce-two" })), "request_id_used");
  const called = rowsOf({ posted: 2n * needed });
  for (const addedMicro of [needed, undefined])
    expect(admit(called, placing({ owner: "caller" }))).toMatchObject({ addedMicro });
});

test("a payer is that of the request, or of the hold that grows", () => {
  const other = { ...payer, keyId: "key_b" };
  expect(payerOf(placing())).toEqual(payer);
  const hold = { ...unheld("req_00000001"), payer: other };
  expect(payerOf({ kind: "grow", hold, amountMicro: 1n })).toEqual(other);
});

test("a hold grows as far as the pool has free credits, whatever the cap", () => {
  const hold = { ...unheld("req_growing1"), amountMicro: 10n };
  const growTo = (amountMicro: bigint, free: bigint, more: Partial<Ledger> = {}) => {
    const ledger = rowsOf(
      { posted: free + 30n, held: 30n },
      { cap: 35n, held: 30n },
      { growing: new Map([["acc/req_growing1", { amount: 10n, manager: null }]]), ...more },
    );
    const outcome = admit(ledger, { kind: "grow", hold, amountMicro });
    const heldOfPool = ledger.pools.get("acc/v1")?.held;
    return { outcome, ledger, held: [heldOfPool, heldOfBudget(ledger, "acc/v1/key_a")] };
  };
  for (const [amount, free, added] of [
    [31n, 20n, 20n],
    [30n, 20n, 20n],
    [29n, 20n, 19n],
    [11n, 20n, 1n],
    [10n, 20n, 0n],
    [9n, 20n, 0n],
    [30n, 1n, 1n],
    [30n, 0n, 0n],
    [30n, -1n, 0n],
  ] as const) {
    const { outcome, ledger, held } = growTo(amount, free);
    expect(outcome).toMatchObject({
      kind: "held",
      addedMicro: added === 0n ? undefined : added,
      hold: { amountMicro: 10n + added },
    });
    expect(held).toEqual([30n + added, 30n + added]);
    expect(ledger.growing.get("acc/req_growing1")?.amount).toBe(10n + added);
  }
  for (const gone of [{ growing: new Map() }, { pools: new Map() }] satisfies Partial<Ledger>[]) {
    const { outcome } = growTo(30n, 20n, gone);
    expectRejected(outcome, "gateway_unavailable");
    expect(Object(outcome).error.message).toMatch(/hold .* no longer exists/);
  }
  const closed = new Map([["acc/v1", { ...active, accountStatus: "closed" as const }]]);
  expectRejected(growTo(30n, 20n, { pools: closed }).outcome, "revoked_key");
});
