// Budgets of keys, persons, management keys and pools: what they may spend. Limits change under the
// lock of the pool, which admissions wait for, so that the next request follows them on every node.

import * as sql from "../../gen/sql/billing.ts";
import { type BudgetLimits, columnsOf } from "../base/budgets.ts";
import type { FamilyName } from "../base/families.ts";
import type { Runner } from "../postgres/statement.ts";

/** A pool and whose budget of it: a key id, `person:<id>`, `mgmt:<id>`, or all of it, empty. */
type BudgetId = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly payer: string;
};
type KeyOfPool = Omit<BudgetId, "payer"> & { readonly keyId: string };

/** What the ledger does for keys, in the transaction that changes them. */
export const budgetsOfKeys = {
  /** Gives a new key its budget. */
  async open(tx: Runner, { keyId, ...pool }: KeyOfPool, limits: BudgetLimits): Promise<void> {
    const id = { ...pool, payer: keyId };
    await tx.run(sql.openBudget, id);
    // Nobody waits for the pool: no request of the key is there yet.
    await tx.run(sql.setLimits, { ...id, ...columnsOf(limits) });
  },
  /** Admits no request of the pool until the end of the transaction. Before any lock of a key. */
  async lock(tx: Runner, { accountId, family }: Omit<KeyOfPool, "keyId">): Promise<void> {
    await tx.run(sql.lockPool, { accountId, family });
  },
  async setLimits(tx: Runner, { keyId, ...pool }: KeyOfPool, limits: BudgetLimits): Promise<void> {
    await setLimits(tx, { ...pool, payer: keyId }, limits);
  },
};

/** Replaces the limits of a payer. Locks the pool. */
export async function setLimits(tx: Runner, id: BudgetId, limits: BudgetLimits): Promise<void> {
  await tx.run(sql.lockPool, id);
  if (id.payer === "") await tx.run(sql.setPoolLimits, { ...id, ...columnsOf(limits) });
  else {
    // A key has counted since it was made.
    if (id.payer.includes(":")) {
      await tx.run(sql.openBudget, id);
      await tx.run(sql.startManager, id);
    }
    await tx.run(sql.setLimits, { ...id, ...columnsOf(limits) });
  }
}

/** Begins the total of a payer anew. Locks the pool. */
export async function resetTotal(tx: Runner, id: BudgetId): Promise<void> {
  await tx.run(sql.lockPool, id);
  if (id.payer === "") await tx.run(sql.resetPoolTotal, id);
  else await tx.run(sql.resetTotal, id);
}
