// Budgets on a database against a simple model: lists of charges, summed again each time, and
// windows by their definition. The time of the database moves by hand, over midnights and months.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/billing.ts";
import { type BudgetLimits, readBudget, unlimited } from "../../src/base/budgets.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type {
  AdmissionRequest,
  Admitted,
  Hold,
  HoldRequest,
  Payer,
} from "../../src/billing/admission.ts";
import { BatchConnection } from "../../src/billing/batch-queue.ts";
import { resetTotal, setLimits } from "../../src/billing/budgets.ts";
import { least } from "../../src/billing/hold-size.ts";
import { admissionBatch, settlementBatch } from "../../src/billing/ledger-batches.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import {
  endingWith,
  freshLedger,
  heldFor,
  holdRequest,
  microEach,
  price,
} from "../support/ledger.ts";

const dayMs = 86_400_000;
let ledger: Awaited<ReturnType<typeof freshLedger>>;
let postgres: Postgres;
let connection: BatchConnection;
beforeAll(async () => {
  ledger = await freshLedger();
  await ledger.run(`do $$ begin
    create schema clock;
    create table clock.times (at timestamptz not null);
    insert into clock.times values (now());
    create function clock.now() returns timestamptz language sql stable as
      'select at from clock.times';
    execute format('alter database %I set search_path = public, clock, pg_catalog',
      current_database());
  end $$`);
  for (const month of ["2027-12", "2028-01", "2028-02", "2028-03", "2028-04"])
    await ledger.run(
      `create table charges_${month.replace("-", "_")} partition of charges
       for values from ('${month}-01') to ('${month}-01'::date + interval '1 month')`,
    );
  await ledger.store.registerPrice("model-test", price);
  postgres = connectPostgres(ledger.url);
  connection = new BatchConnection(postgres);
});
afterAll(async () => {
  await connection.close();
  await postgres.close();
  await ledger.close();
});

const windows = ["day", "week", "month", "total"] as const;
type WindowName = (typeof windows)[number];

/** When the window of a time began. */
function startOf(window: WindowName, at: number): number {
  const date = new Date(at);
  if (window === "total") return Number.NEGATIVE_INFINITY;
  if (window === "month") return Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
  const day = Math.floor(at / dayMs) * dayMs;
  // A week begins on Monday: Sunday is its last day.
  return window === "day" ? day : day - ((date.getUTCDay() || 7) - 1) * dayMs;
}

/** What counts for one payer. `at`: a charge counts in the window in which it is settled. */
class PayerModel {
  limits: BudgetLimits = unlimited;
  latest = 0;
  charges: { micro: bigint; at: number; isBeforeReset?: boolean }[] = [];
  /** Of a manager: what his keys had spent in the windows of his first limit. */
  opening = { at: 0, day: 0n, week: 0n, month: 0n };

  note(at: number): void {
    this.latest = Math.max(this.latest, at);
  }

  /** After a clock that went back, the later window stands. */
  spent(window: WindowName, at: number): bigint {
    const from = startOf(window, Math.max(this.latest, at));
    const opening = window === "total" || this.opening.at < from ? 0n : this.opening[window];
    return this.charges
      .filter((one) => one.at >= from && !(window === "total" && one.isBeforeReset))
      .reduce((sum, { micro }) => sum + micro, opening);
  }
}

const payerNames = ["key a", "key b", "ana", "bob", "pool"] as const;
type PayerName = (typeof payerNames)[number];
type Running = { key: "key a" | "key b"; manager: "ana" | "bob" | null; hold: Hold };

class Model {
  at = Date.UTC(2028, 1, 27, 12);
  posted: bigint;
  readonly payers = new Map(payerNames.map((name) => [name, new PayerModel()]));
  readonly managers: Record<"key a" | "key b", "ana" | "bob"> = { "key a": "ana", "key b": "ana" };
  running: Running[] = [];
  /** By hour of admission, as the usage has them. */
  readonly admitted: { key: string; micro: bigint; at: number }[] = [];

  constructor(posted: bigint) {
    this.posted = posted;
  }

  of(name: PayerName): PayerModel {
    const payer = this.payers.get(name);
    if (!payer) throw new Error(name);
    return payer;
  }

  counting({ key, manager }: Pick<Running, "key" | "manager">): PayerName[] {
    return manager === null ? [key, "pool"] : [key, manager, "pool"];
  }

  runningOf(name: PayerName): Running[] {
    return this.running.filter((one) => this.counting(one).includes(name));
  }

  heldBy(name: PayerName): bigint {
    return this.runningOf(name).reduce((sum, { hold }) => sum + hold.amountMicro, 0n);
  }

  /** A key's or manager's row without a limit only adds up what is charged. */
  knowsRunning(name: PayerName): boolean {
    return name === "pool" || isLimited(this.of(name));
  }

  managerOf(key: Running["key"]): Running["manager"] {
    const manager = this.managers[key];
    return isLimited(this.of(manager)) ? manager : null;
  }

  /** Why a new request is not admitted. Undefined: it is. */
  refusal(key: Running["key"], needed: bigint): string | undefined {
    const counted = this.counting({ key, manager: this.managerOf(key) });
    if (this.posted < needed) return "credits_exhausted";
    let isHeld = this.posted - this.heldBy("pool") < needed;
    let tightest: { left: bigint; reason: string } | undefined;
    for (const name of counted)
      for (const window of windows) {
        const limit = this.of(name).limits[window];
        if (limit === null) continue;
        const left = limit - this.of(name).spent(window, this.at);
        const isCap = name === key && window === "month";
        const reason = isCap ? "monthly_cap_reached" : "budget_reached";
        if (!tightest || left < tightest.left) tightest = { left, reason };
        isHeld ||= left - this.heldBy(name) < needed;
      }
    if (tightest && tightest.left < needed) return tightest.reason;
    for (const name of counted) {
      const { requestsAtOnce: most } = this.of(name).limits;
      if (most !== null && this.runningOf(name).length >= most) return "too_many_running";
    }
    return isHeld ? "credits_held" : undefined;
  }
}

function isLimited({ limits }: PayerModel): boolean {
  return Object.values(limits).some((limit) => limit !== null);
}

const need = heldFor(10);
const anyMicro = fc.oneof(
  fc.constant(null),
  fc.bigInt({ min: 0n, max: 8n }).map((times) => times * need),
  fc.bigInt({ min: 0n, max: 8n * need }),
);
const anyLimits = fc.record({
  ...{ day: anyMicro, week: anyMicro, month: anyMicro, total: anyMicro },
  requestsAtOnce: fc.option(fc.nat(3)),
});
const anyKey = fc.constantFrom("key a", "key b");
const anyPayer = fc.constantFrom(...payerNames);
const command = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("admit" as const),
      batch: fc.array(
        fc.oneof(
          { weight: 3, arbitrary: fc.record({ key: anyKey, output: fc.constantFrom(1, 10, 30) }) },
          fc.record({ which: fc.nat(), input: fc.constantFrom(90, 150, 400) }),
        ),
        { minLength: 1, maxLength: 4 },
      ),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("end" as const),
      batch: fc.array(fc.record({ which: fc.nat(), output: fc.nat(12), shrinks: fc.boolean() }), {
        minLength: 1,
        maxLength: 3,
      }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("pass" as const),
      by: fc.constantFrom("minute", "midnight", "monday", "month", "back", "just before midnight"),
    }),
  },
  fc.record({ do: fc.constant("set" as const), payer: anyPayer, limits: anyLimits }),
  fc.record({ do: fc.constant("set" as const), payer: anyPayer, limits: fc.constant(unlimited) }),
  fc.record({ do: fc.constant("reset" as const), payer: anyPayer }),
  fc.record({
    do: fc.constant("hand over" as const),
    key: anyKey,
    to: fc.constantFrom("ana", "bob"),
  }),
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

test("any requests, limits, resets and hand-overs, at any time, are decided and counted as the model does", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.bigInt({ min: 0n, max: 30n * need }),
      fc.array(command, { minLength: 10, maxLength: 40 }),
      async (posted, commands) => {
        const first = await ledger.payer(posted);
        const { accountId } = first;
        const keys = { "key a": first, "key b": await ledger.payer(0n, { accountId }) };
        const world = new World(new Model(posted), keys);
        await ledger.run("update keys set managed_by = 'person:ana' where account_id = $1", [
          accountId,
        ]);
        await world.moveTo(world.model.at);
        for (const one of commands) {
          await world.run(one);
          await world.compare();
        }
        for (const { hold } of world.model.running) await world.settle(hold, 1);
        expect(await ledger.store.verifyLedger()).toEqual([]);
      },
    ),
    { numRuns: 12 },
  );
});

/** A model, and the account that it stands for. */
class World {
  readonly model: Model;
  readonly #keys: Readonly<Record<Running["key"], Payer>>;

  constructor(model: Model, keys: Readonly<Record<Running["key"], Payer>>) {
    this.model = model;
    this.#keys = keys;
  }

  async run(command: Command): Promise<void> {
    const { model } = this;
    if (command.do === "admit") return this.#admit(command.batch);
    if (command.do === "end") return this.#end(command.batch);
    if (command.do === "pass") return this.moveTo(timeAfter(model.at, command.by));
    if (command.do === "hand over") {
      model.managers[command.key] = command.to;
      await ledger.run("update keys set managed_by = $2 where key_id = $1", [
        ...[this.#keys[command.key].keyId, `person:${command.to}`],
      ]);
      return;
    }
    const id = this.#idOf(command.payer);
    const payer = model.of(command.payer);
    if (command.do === "reset") {
      await postgres.transaction((tx) => resetTotal(tx, id));
      for (const one of payer.charges) one.isBeforeReset = true;
      return;
    }
    await postgres.transaction((tx) => setLimits(tx, id, command.limits));
    const isManager = command.payer === "ana" || command.payer === "bob";
    if (isManager && !isLimited(payer)) this.#start(command.payer === "ana" ? "ana" : "bob");
    if (!command.payer.startsWith("key") && payer.limits.total === null)
      if (command.limits.total !== null) for (const one of payer.charges) one.isBeforeReset = true;
    payer.limits = command.limits;
  }

  /** The first limit of a manager counts what the keys that he manages now were charged for. */
  #start(name: "ana" | "bob"): void {
    const { model } = this;
    const payer = model.of(name);
    payer.note(model.at);
    const isOwn = (key: string) => model.managers[key === "key a" ? "key a" : "key b"] === name;
    const since = (window: WindowName) =>
      model.admitted
        .filter(({ key, at }) => isOwn(key) && at >= startOf(window, model.at))
        .reduce((sum, { micro }) => sum + micro, 0n);
    const [day, week, month] = [since("day"), since("week"), since("month")];
    payer.charges = [];
    payer.opening = { at: Math.max(payer.latest, model.at), day, week, month };
    model.running = model.running.map((one) =>
      one.manager === null && isOwn(one.key) ? { ...one, manager: name } : one,
    );
  }

  async #admit(batch: Extract<Command, { do: "admit" }>["batch"]): Promise<void> {
    const { model } = this;
    const grown = new Set<string>();
    const requests = batch.flatMap((one): AdmissionRequest[] => {
      if ("key" in one) {
        const asked = holdRequest(this.#keys[one.key], one.output);
        const nonce = newRequestId();
        return [{ ...asked, kind: "place", owner: "process", nonce } satisfies HoldRequest];
      }
      const running = model.running[one.which % Math.max(1, model.running.length)];
      if (!running || grown.has(running.hold.requestId)) return [];
      grown.add(running.hold.requestId);
      const amountMicro = BigInt(one.input) * microEach.input + 600n;
      return [{ kind: "grow" as const, hold: running.hold, amountMicro }];
    });
    const admitted = await connection.run(() =>
      admissionBatch(requests, ledger.node.id(), () => {}),
    );
    requests.forEach((request, index) => {
      const outcome = admitted[index];
      if (request.kind === "place") this.#checkPlaced(request, outcome);
      else this.#checkGrown(request, outcome);
    });
  }

  #checkPlaced(request: HoldRequest, outcome: Admitted | undefined): void {
    const { model } = this;
    const key = request.payer.keyId === this.#keys["key a"].keyId ? "key a" : "key b";
    const needed = heldFor(request.bounds.maxOutput);
    const refusal = model.refusal(key, needed);
    if (refusal !== undefined) {
      expect(outcome).toMatchObject({ error: { reason: refusal } });
      return;
    }
    expect(outcome).toMatchObject({ kind: "held", addedMicro: needed });
    if (outcome?.kind !== "held") return;
    const manager = model.managerOf(key);
    model.running.push({ key, manager, hold: outcome.hold });
    for (const name of model.counting({ key, manager }))
      if (model.knowsRunning(name)) model.of(name).note(model.at);
  }

  #checkGrown(request: { hold: Hold; amountMicro: bigint }, outcome: Admitted | undefined): void {
    const { model } = this;
    const running = model.running.find(({ hold }) => hold.requestId === request.hold.requestId);
    if (!running) throw new Error("it does not run");
    const free = model.posted - model.heldBy("pool");
    const wanted = request.amountMicro - running.hold.amountMicro;
    const added = least(wanted, free);
    const amountMicro = running.hold.amountMicro + (added > 0n ? added : 0n);
    expect(outcome).toMatchObject({ kind: "held", hold: { amountMicro } });
    running.hold = { ...running.hold, amountMicro };
  }

  async #end(batch: Extract<Command, { do: "end" }>["batch"]): Promise<void> {
    for (const { which, output, shrinks } of batch) {
      const running = this.model.running[which % Math.max(1, this.model.running.length)];
      if (!running) return;
      const { hold } = running;
      if (shrinks) {
        const amountMicro = hold.amountMicro - BigInt(output);
        await connection.run(() => settlementBatch([{ kind: "shrink", hold, amountMicro }]));
        running.hold = { ...hold, amountMicro };
      } else await this.settle(hold, output);
    }
  }

  async settle(hold: Hold, output: number): Promise<void> {
    const { model } = this;
    const ending = endingWith({ output });
    const [settled] = await connection.run(() =>
      settlementBatch([{ kind: "settle", hold, ending }]),
    );
    const cost = BigInt(Math.min(output, hold.grantedOutput)) * microEach.output;
    const running = model.running.find((one) => one.hold.requestId === hold.requestId);
    if (!running) throw new Error("it does not run");
    const micro = cost < running.hold.amountMicro ? cost : running.hold.amountMicro;
    expect(settled).toMatchObject({ kind: "charged", charge: { amountMicro: micro } });
    model.posted -= micro;
    model.running = model.running.filter((one) => one !== running);
    for (const name of model.counting(running)) {
      const payer = model.of(name);
      payer.note(model.at);
      payer.charges.push({ micro, at: payer.latest });
    }
    model.admitted.push({ key: running.key, micro, at: hold.admittedAt.getTime() });
  }

  async moveTo(at: number): Promise<void> {
    this.model.at = at;
    await ledger.run("update clock.times set at = $1", [new Date(at)]);
  }

  /** Compares every figure of the account with the model. */
  async compare(): Promise<void> {
    const { model } = this;
    for (const name of payerNames) {
      const { accountId, payer } = this.#idOf(name);
      const rows = await postgres.run(sql.readBudgetsOf, { accountId, payer });
      const row = rows.find(({ family }) => family === "v1");
      if (!row) {
        expect(model.runningOf(name)).toEqual([]);
        continue;
      }
      const budget = readBudget(row.budget, row.at);
      const { limits } = model.of(name);
      expect([name, budget]).toMatchObject([
        name,
        {
          held: model.knowsRunning(name) ? model.heldBy(name) : 0n,
          running: model.knowsRunning(name) ? model.runningOf(name).length : 0,
          requestsAtOnce: limits.requestsAtOnce,
          windows: windows.map((window) => ({
            name: window,
            limit: limits[window],
            // Without a limit, nobody starts to count what a manager spends.
            ...(isLimited(model.of(name)) && { spent: model.of(name).spent(window, model.at) }),
          })),
        },
      ]);
    }
  }

  #idOf(name: PayerName) {
    const { accountId, keyId } = this.#keys[name === "key b" ? "key b" : "key a"];
    const payer = name === "pool" ? "" : name.startsWith("key") ? keyId : `person:${name}`;
    return { accountId, family: "v1" as const, payer };
  }
}

function timeAfter(at: number, by: Extract<Command, { do: "pass" }>["by"]): number {
  const midnight = startOf("day", at) + dayMs;
  if (by === "minute") return at + 60_000;
  if (by === "back") return at - 5 * 3_600_000;
  if (by === "midnight") return midnight;
  if (by === "just before midnight") return midnight - 1;
  const last = Date.UTC(2028, 3, 20);
  if (by === "monday") return Math.min(startOf("week", at) + 7 * dayMs, last);
  const date = new Date(at);
  // Not beyond the partitions: the end of March is as good as any other.
  const next = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1);
  return Math.min(next, last);
}
