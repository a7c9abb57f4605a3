// Compares the request lines of logs with the charges of the ledger. A failover without synchronous
// replication, or a restored backup, takes charges with it that the gateways had answered; the logs
// still have them.

import { type FamilyName, familyOf } from "../base/families.ts";
import type { RequestKey } from "./admission.ts";
import { monthsBetween } from "./archived.ts";
import type { LedgerStore } from "./store.ts";

/** What a log line says of a charge. */
export type LoggedCharge = RequestKey & {
  readonly family: FamilyName;
  readonly amountMicro: bigint;
  /** UTC day of the line, `YYYY-MM-DD`. */
  readonly day: string;
};

/** A charge that the ledger lacks, or has with another amount. */
export type Difference = LoggedCharge & {
  /** Undefined: the ledger has no charge. */
  readonly ledgerMicro: bigint | undefined;
};

/** What corrects one pool for one day. */
export type Correction = {
  readonly accountId: string;
  readonly family: ReturnType<typeof familyOf>;
  /** What the pool gets: negative where the ledger lost charges. */
  readonly amountMicro: bigint;
  readonly idempotencyKey: string;
  readonly requests: number;
};

/**
 * Reads one line of a log. Undefined for every line that is not of a charged request, also where it
 * is no JSON at all. Throws an Error for a line of a charged request that lacks what it needs.
 */
export function parseLogLine(text: string): LoggedCharge | undefined {
  const line = parseObject(text);
  if (line?.msg !== "request" || line.amountMicrocredits === undefined) return undefined;
  const { requestId, accountId, family, amountMicrocredits, time } = line;
  if (typeof requestId !== "string" || typeof accountId !== "string")
    throw new Error("a charged request without requestId or accountId");
  if (family !== "v1" && family !== "v2") throw new Error("a charged request without its family");
  if (typeof amountMicrocredits !== "string" || !/^\d{1,19}$/.test(amountMicrocredits))
    throw new Error("amountMicrocredits is not a whole number");
  const at = new Date(typeof time === "number" || typeof time === "string" ? time : Number.NaN);
  if (Number.isNaN(at.getTime())) throw new Error("a line without its time");
  const amountMicro = BigInt(amountMicrocredits);
  return { requestId, accountId, family, amountMicro, day: at.toISOString().slice(0, 10) };
}

/** The logged charges that the ledger lacks or has with another amount. */
export function compareCharges(
  logged: readonly LoggedCharge[],
  ledger: readonly (RequestKey & { readonly amountMicro: bigint })[],
): Difference[] {
  const nameOf = ({ accountId, requestId }: RequestKey) => `${accountId}/${requestId}`;
  const amounts = new Map(ledger.map((charge) => [nameOf(charge), charge.amountMicro]));
  return logged
    .map((charge) => ({ ...charge, ledgerMicro: amounts.get(nameOf(charge)) }))
    .filter(({ amountMicro, ledgerMicro }) => amountMicro !== ledgerMicro);
}

const dayMs = 86_400_000;

/**
 * The logged charges that may be of a month whose charges were archived: a request is logged when
 * it ends, at most a day after its admission.
 */
export async function findArchived<Logged extends LoggedCharge>(
  store: Pick<LedgerStore, "readArchivedMonths">,
  logged: readonly Logged[],
): Promise<Logged[]> {
  const months = await store.readArchivedMonths({ accountId: undefined, keyId: undefined });
  return logged.filter(({ day }) => {
    const endMs = Date.parse(day);
    return monthsBetween(endMs - dayMs, endMs).some((month) => months.includes(month));
  });
}

/** One correction for each pool and day whose sum is not zero. */
export function correctionsFor(differences: readonly Difference[]): Correction[] {
  const pools = Map.groupBy(differences, ({ accountId, family, day }) =>
    [accountId, family, day].join("/"),
  );
  return [...pools.values()].flatMap((pool) => {
    const [first] = pool;
    const missingMicro = pool.reduce(
      (sum, { amountMicro, ledgerMicro = 0n }) => sum + amountMicro - ledgerMicro,
      0n,
    );
    if (first === undefined || missingMicro === 0n) return [];
    const { accountId, family, day } = first;
    return {
      accountId,
      family: familyOf(family),
      amountMicro: -missingMicro,
      idempotencyKey: `reconcile/${day}/${family}`,
      requests: pool.length,
    };
  });
}

function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
