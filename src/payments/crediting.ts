// From a look to credits, each exactly once. What a look saw and what follows from it are stored in
// one transaction with the order locked; what is to be granted is posted afterwards, under a key
// that names it. A process may die between any two steps: the sweep repeats the rest. An account
// that was closed meanwhile gets its credits all the same, and a person looks at the order.

import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { familyOf } from "../base/families.ts";
import { min } from "../base/money.ts";
import { asService } from "../contract/contract.ts";
import { type Decision, decide, quoteHoldsMs, type RuledOrder, valueDeposit } from "./decide.ts";
import { documentGrant } from "./documents.ts";
import { eventsOf } from "./events.ts";
import { type Parts, purchaseMicro } from "./parts.ts";
import { type Look, type Processor, type SeenDeposit, usdMicroMax } from "./processor.ts";
import { nextLookMs } from "./schedule.ts";
import type { PaymentsTables, StoredOrder } from "./store.ts";

/**
 * The answer of a processor, when it was asked, and the last request for a look before that: one
 * that came later asks for another look, whatever the clocks say.
 */
export type Answer = { readonly look: Look; readonly startedAt: Date; readonly hook: string };

/** Stores what a look saw and decides about the order. Posts what follows. */
export async function applyLook(
  parts: Parts,
  processor: Processor,
  orderId: string,
  answer: Answer,
): Promise<void> {
  const deposits = await withMarketRates(processor, answer.look.deposits);
  await parts.store.transaction(async (tables) => {
    const order = await tables.lockOrder(orderId);
    if (!order) return;
    const { processor, accountId, family } = order;
    // In one order for all, so that two looks never wait for each other.
    for (const one of deposits) {
      const { usdMicro: processorUsdMicro = null, mayReturn = false, hash, ...deposit } = one;
      const of = { processor, orderId, accountId, family };
      const seen = { ...deposit, ...of, processorUsdMicro, mayReturn };
      if ((await tables.run(sql.upsertDeposit, seen)) === 0)
        parts.log.error(
          {
            code: "deposit_of_another_order",
            orderId,
            processor,
            deposit: deposit.externalId,
          },
          "a processor reports the deposit of another order",
        );
      else if (hash !== undefined) await noteHash(tables, { ...seen, hash });
    }
    await redecide(tables, order, answer);
  });
  parts.changed(orderId);
  await postGrants(parts, orderId);
}

const hashForm = /^(0x)?[0-9a-f]{16,128}$/i;

/** Keeps the hash that a processor gives of a payment, unless it is none. */
async function noteHash(
  tables: PaymentsTables,
  of: Pick<SeenDeposit, "network" | "externalId"> & { processor: string; hash: string },
): Promise<void> {
  const { processor, network, externalId, hash } = of;
  if (!hashForm.test(hash)) return;
  const tx = hash.toLowerCase();
  await tables.run(sql.noteTransaction, { processor, chain: network, tx, externalId });
}

/** Records that a look got no answer. Time has passed all the same, so the order is decided. */
export async function recordFailedLook(parts: Parts, orderId: string): Promise<void> {
  await parts.store.transaction(async (tables) => {
    const order = await tables.lockOrder(orderId);
    if (order) await redecide(tables, order, "failed");
  });
  parts.changed(orderId);
  await postGrants(parts, orderId);
}

/**
 * Decides about an order that is locked, stores the decision, and what is to be granted. `answer`
 * undefined: a person changed something.
 */
export async function redecide(
  tables: PaymentsTables,
  order: StoredOrder,
  answer?: Answer | "failed",
): Promise<Decision> {
  const { orderId, processor, readAt } = order;
  const isAnswered = answer !== undefined && answer !== "failed";
  const failedLooks = isAnswered ? 0 : order.failedLooks + (answer === "failed" ? 1 : 0);
  const faults = isAnswered
    ? [...new Set([...order.faults, ...answer.look.faults])].sort()
    : order.faults;
  const lookedAt = isAnswered ? (answer.look.asOf ?? answer.startedAt) : null;
  const deposits = await tables.listDeposits([orderId]);
  const ruled: RuledOrder = {
    ...order,
    rate: order.rate ?? 0n,
    faults,
    lookedAt: lookedAt ?? order.lookedAt,
    decided: await tables.run(sql.listDecided, { orderId }),
  };
  const decision = decide(ruled, deposits, readAt);
  for (const deposit of deposits) {
    const { externalId } = deposit;
    const valuedBy = decision.valued.get(externalId);
    if (!valuedBy || deposit.valuedBy) continue;
    const value = valueDeposit(ruled, deposit, valuedBy);
    const usdMicro = min(value, usdMicroMax);
    await tables.run(sql.valueDeposit, { processor, externalId, usdMicro, valuedBy });
  }
  const { state, targetMicro, ruleMicro, attention = null } = decision;
  const due = { orderId, targetMicro, purchaseMicro };
  for (const grant of await tables.run(sql.insertGrant, due))
    await documentGrant(tables, order, grant);
  await tables.insertEvents(orderId, eventsOf({ ...order, ...ruled }, deposits, decision));
  const isAsked = order.hookAt !== null;
  const watched = { ...order, isClosed: state === "closed", failedLooks, isAsked };
  await tables.run(sql.updateOrder, {
    orderId,
    state,
    attention,
    faults,
    ruleMicro,
    isLook: answer !== undefined,
    hook: isAnswered ? answer.hook : null,
    lookedAt,
    failedLooks,
    nextLookMs: nextLookMs(watched, readAt) ?? null,
  });
  return decision;
}

/**
 * The deposits in the order of their ids, each with the rate of the market at its first sight, and
 * at its block if that came long after it.
 */
async function withMarketRates(processor: Processor, deposits: readonly SeenDeposit[]) {
  const ordered = deposits.toSorted((one, other) => (one.externalId < other.externalId ? -1 : 1));
  return Promise.all(
    ordered.map(async (deposit) => {
      const { firstSeenAt, blockAt = null, marketRate } = deposit;
      const isLate = blockAt && blockAt.getTime() - firstSeenAt.getTime() > quoteHoldsMs;
      const rateAt = async (at: Date) => (await processor.marketRate?.(deposit, at)) ?? null;
      return {
        ...deposit,
        blockAt,
        marketRate: marketRate ?? (await rateAt(firstSeenAt)),
        blockRate: isLate ? await rateAt(blockAt) : null,
      };
    }),
  );
}

/**
 * Posts what is granted for an order and has no transfer yet, oldest first. The key of each row
 * makes a repeat the same transfer. Throws if billing cannot be reached: the sweep repeats it.
 */
export async function postGrants(parts: Parts, orderId: string): Promise<void> {
  const { store, billing } = parts;
  for (const { n, micro, accountId, family } of await store.run(sql.listUnposted, { orderId })) {
    const { transfer } = await billing.createTransfer(
      {
        accountId,
        family: familyOf(family),
        kind: micro > 0n ? TransferKind.DEPOSIT : TransferKind.CHARGEBACK,
        amountMicrocredits: micro > 0n ? micro : -micro,
        idempotencyKey: `pay:${orderId}#${n}`,
        reason: micro > 0n ? "payment received" : "payment lost",
      },
      { contextValues: asService("payments") },
    );
    if (!transfer) throw new Error("billing answered without a transfer");
    if (micro > 0n && (await isClosed(billing, accountId))) await noteClosed(parts, orderId, n);
    await store.run(sql.putTransfer, { orderId, n, transferId: transfer.transferId });
    store.noticed();
  }
}

async function isClosed(billing: Parts["billing"], accountId: string): Promise<boolean> {
  const { account } = await billing.getAccount(
    { accountId },
    { contextValues: asService("payments") },
  );
  return account?.state === AccountState.CLOSED;
}

/** Lets a person look at credits that nobody can use. */
async function noteClosed({ store, changed }: Parts, orderId: string, n: number): Promise<void> {
  await store.transaction(async (tables) => {
    const order = await tables.lockOrder(orderId);
    if (!order) return;
    const faults = [...new Set([...order.faults, `account_closed:${n}`])].sort();
    await redecide(tables, { ...order, faults });
  });
  changed(orderId);
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * two orders name one deposit; look at both at the processor before crediting anything by hand
     */
    deposit_of_another_order: true;
  }
}
