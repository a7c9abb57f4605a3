// Budgets that many processes use at once, that change under load, and whose transactions are
// killed at each of their statements.

import { afterEach, beforeEach, expect, test } from "vitest";
import { unlimited } from "../../src/base/budgets.ts";
import type { Hold, Payer } from "../../src/billing/admission.ts";
import { setLimits } from "../../src/billing/budgets.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { endingWith, freshLedger, heldFor, holdRequest, startNode } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
beforeEach(async () => {
  ledger = await freshLedger();
});
afterEach(async () => {
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await ledger.close();
});

const need = heldFor(10);
const never = new AbortController().signal;
type Node = Pick<typeof ledger, "holds">;

/** Keys of one person and pool, and two more processes. */
async function openTeam(keys: number) {
  const others = [await startNode(ledger.url), await startNode(ledger.url)];
  const first = await ledger.payer(10_000n * need);
  const { accountId } = first;
  const payers = [first];
  while (payers.length < keys) payers.push(await ledger.payer(0n, { accountId }));
  await ledger.run("update keys set managed_by = 'person:ana'");
  const id = { accountId, family: "v1" as const, payer: "person:ana" };
  const set = (limits: Partial<typeof unlimited>) =>
    ledger.store.transaction((tx) => setLimits(tx, id, { ...unlimited, ...limits }));
  const stop = () => Promise.all(others.map((node) => node.stop()));
  return { nodes: [ledger, ...others] satisfies Node[], payers, id, set, stop };
}

/** Places so many requests at once, over all keys and processes. */
async function placeAll(nodes: readonly Node[], payers: readonly Payer[], requests: number) {
  const placed = await Promise.allSettled(
    Array.from({ length: requests }, async (_, index) => {
      const [node, payer] = [nodes[index % nodes.length], payers[index % payers.length]];
      if (!node || !payer) throw new Error("none");
      const signal = AbortSignal.timeout(1);
      return { node, hold: await node.holds.place(holdRequest(payer, 10), signal) };
    }),
  );
  const reasons = new Set<string>();
  const held: { node: Node; hold: Hold }[] = [];
  for (const one of placed)
    if (one.status === "fulfilled") held.push(one.value);
    else reasons.add(String(one.reason.reason));
  return { held, reasons: [...reasons].sort() };
}

test("of 500 requests at once over 20 keys of one person and three processes, his budget of seven admits seven, then what the settlements left", async () => {
  const { nodes, payers, set, stop } = await openTeam(20);
  await set({ day: 7n * need });
  let spent = 0n;
  for (const admitted of [7, 4, 2, 2, 1]) {
    const { held, reasons } = await placeAll(nodes, payers, 500);
    expect(held).toHaveLength(Number((7n * need - spent) / need));
    expect(held).toHaveLength(admitted);
    expect(reasons).toEqual(["credits_held"]);
    // Each costs 600 of the 1,600 that it holds.
    for (const { node, hold } of held) {
      const { chargedMicrocredits: amountMicrocredits } = await node.holds.settle(
        hold,
        endingWith({ input: 10, output: 10 }),
      );
      spent += amountMicrocredits ?? 0n;
    }
  }
  await set({ requestsAtOnce: 7 });
  const { held, reasons } = await placeAll(nodes, payers, 500);
  expect([held.length, reasons]).toEqual([7, ["too_many_running"]]);
  for (const { node, hold } of held) await node.holds.settle(hold, endingWith({}));
  await stop();
});

test("limits that are set and cleared under load deadlock nothing in 10,000 requests", async () => {
  const { nodes, payers, id, set, stop } = await openTeam(5);
  let requests = 0;
  const worker = async () => {
    while (requests < 10_000) {
      const number = requests++;
      const [node, payer] = [nodes[number % nodes.length], payers[number % payers.length]];
      if (!node || !payer) throw new Error("none");
      const hold = await node.holds.place(holdRequest(payer, 10), never).catch(() => undefined);
      if (hold) await node.holds.settle(hold, endingWith({ output: 1 }));
    }
  };
  let changes = 0;
  const changing = async () => {
    for (; requests < 10_000; changes++) {
      await set(changes % 2 === 0 ? { day: 1_000_000n * need, requestsAtOnce: 200 } : {});
      const pool = { ...id, payer: "" };
      const limits = { ...unlimited, week: changes % 3 === 0 ? null : 1_000_000n * need };
      await ledger.store.transaction((tx) => setLimits(tx, pool, limits));
      const manager = changes % 5 === 0 ? "person:bob" : "person:ana";
      await ledger.run("update keys set managed_by = $1 where key_id = $2", [
        ...[manager, payers[changes % payers.length]?.keyId],
      ]);
    }
  };
  await Promise.all([...Array.from({ length: 120 }, worker), changing()]);
  const [row] = await ledger.run<{ deadlocks: bigint }>(
    "select deadlocks from pg_stat_database where datname = current_database()",
  );
  expect([row?.deadlocks, changes > 50]).toEqual([0n, true]);
  await stop();
});

test("a change of limits that is killed at any of its statements leaves all or nothing", async () => {
  const { payers, id, stop } = await openTeam(2);
  const [payer] = payers;
  if (!payer) throw new Error("none");
  const hold = await ledger.holds.place(holdRequest(payer, 10), never);
  const owner = connectPostgres(ledger.url);
  const statements = 5;
  for (let killedAt = 0; killedAt <= statements; killedAt++) {
    const work = owner.transaction(async (tx) => {
      let ran = 0;
      const killing: typeof tx = {
        run: async (statement, ...values) => {
          const result = await tx.run(statement, ...values);
          // The transaction is killed behind this statement; behind the last one it is committed.
          if (ran++ === killedAt) throw new Error("killed");
          return result;
        },
      };
      await setLimits(killing, id, { ...unlimited, day: need });
    });
    if (killedAt < statements) await expect(work).rejects.toThrow("killed");
    else await work;
    const rows = await ledger.run("select held, running from budgets where payer = $1", [id.payer]);
    expect(rows).toEqual(killedAt < statements ? [] : [{ held: need, running: 1 }]);
    expect(await ledger.store.verifyLedger()).toEqual([]);
  }
  await ledger.holds.settle(hold, endingWith({ output: 1 }));
  await owner.close();
  await stop();
});
