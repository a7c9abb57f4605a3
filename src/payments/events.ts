// What becomes true of an order and its buyer should hear, as one pure function over what was
// decided. Each event has a subject, and no order has two of one kind and subject: so a repeated
// look, a process that died and another node add none.

import { coins } from "./coins.ts";
import {
  type Decision,
  isLateBlock,
  isSameAsset,
  type RuledDeposit,
  type RuledOrder,
  rateOf,
  valueDeposit,
} from "./decide.ts";

/** As the table names them, and alerts. */
export type EventKind =
  | "payment_seen"
  | "payment_credited"
  | "payment_short"
  | "payment_late"
  | "payment_lost"
  | "payment_refunded"
  | "payment_decided";

/** By name: ids, amounts in micro-units and in words. Never the reason of a person. */
export type EventFacts = Readonly<Record<string, string>>;

export type NewEvent = {
  readonly kind: EventKind;
  /** What it is of: a deposit, a grant, a refund, a decision. Empty: the whole order. */
  readonly subject: string;
  readonly facts: EventFacts;
  /** The payment whose transaction it names. Empty: none. */
  readonly depositId: string;
};

type TellingOrder = RuledOrder & {
  readonly kind: "pack" | "direct";
  /** `numeric` as text. Null: the order was never opened. */
  readonly quotedAtoms: string | null;
  /** Events of before this time are not written. Null: all are. */
  readonly quietBefore: Date | null;
  /** Those that are stored, as `kind:subject`. */
  readonly events: readonly string[];
};

/** Less is dust, of which nobody hears. */
const leastUsdMicro = 1_000_000n;

/** What a decision made true and is not stored. `deposits`: all that was ever reported. */
export function eventsOf(
  order: TellingOrder,
  deposits: readonly RuledDeposit[],
  decision: Decision,
): NewEvent[] {
  const found = [
    ...seen(order, deposits, decision),
    // What came without an order has no quote that could end.
    ...(order.kind === "pack" ? late(order, deposits, decision) : []),
    ...(order.kind === "pack" ? short(order, deposits, decision) : []),
  ];
  return found.filter(({ kind, subject }) => !order.events.includes(`${kind}:${subject}`));
}

function seen(
  order: TellingOrder,
  deposits: readonly RuledDeposit[],
  { valued }: Decision,
): NewEvent[] {
  const live = deposits.filter(({ state }) => state !== "lost");
  const [first] = live;
  if (!first || isQuiet(order, first.firstSeenAt)) return [];
  const worth = live.map((one) => worthOf(order, one, valued));
  const sum = worth.reduce<bigint>((all, one) => all + (one ?? 0n), 0n);
  const isUnknown = worth.includes(undefined);
  if (!isUnknown && sum < leastUsdMicro) return [];
  const atoms = live
    .filter((one) => isSameAsset(one, first))
    .reduce((all, one) => all + one.atoms, 0n);
  const facts = {
    ...coinFacts(first, atoms),
    deposit_id: first.externalId,
    ...(!isUnknown && { usd_micro: String(sum) }),
  };
  return [{ kind: "payment_seen", subject: "", facts, depositId: first.externalId }];
}

/** Each payment that came after the quote, once it is known what becomes of it. */
function late(
  order: TellingOrder,
  deposits: readonly RuledDeposit[],
  { valued, facts: waiting }: Decision,
): NewEvent[] {
  return deposits.flatMap((deposit): NewEvent[] => {
    const { externalId, state, firstSeenAt, atoms, decimals } = deposit;
    const isLate =
      firstSeenAt.getTime() > order.quotedUntil.getTime() || isLateBlock(order, deposit);
    if (state === "lost" || !isLate || isQuiet(order, firstSeenAt)) return [];
    const by = valued.get(externalId);
    const usdMicro = by && valueDeposit(order, deposit, by);
    if (usdMicro !== undefined && usdMicro < leastUsdMicro) return [];
    if (!by && !waiting.includes(`late:${externalId}`)) return [];
    const facts = {
      ...coinFacts(deposit, atoms),
      deposit_id: externalId,
      rated: by ?? "person",
      ...(by && usdMicro !== undefined && { usd_micro: String(usdMicro) }),
      ...(by &&
        by !== "processor" && {
          rate_usd_micro: String(rateOf(order, deposit, by)),
          decimals: String(decimals),
        }),
    };
    return [{ kind: "payment_late", subject: externalId, facts, depositId: externalId }];
  });
}

function short(
  order: TellingOrder,
  deposits: readonly RuledDeposit[],
  { isShort, receivedUsdMicro, targetMicro }: Decision,
): NewEvent[] {
  if (!isShort || isQuiet(order, order.quotedUntil)) return [];
  const settled = deposits.filter((one) => one.state === "settled" && isSameAsset(one, order));
  const atoms = settled.reduce((all, one) => all + one.atoms, 0n);
  const missingAtoms = BigInt(order.quotedAtoms ?? 0) - atoms;
  const facts = {
    ...coinFacts(order, atoms),
    usd_micro: String(receivedUsdMicro),
    missing_usd_micro: String(order.usdMicro - receivedUsdMicro),
    ...(missingAtoms > 0n && { missing_amount: coins(missingAtoms, order.decimals) }),
    microcredits: String(targetMicro),
    until: order.watchedUntil.toISOString(),
  };
  return [{ kind: "payment_short", subject: "", facts, depositId: "" }];
}

function isQuiet({ quietBefore }: TellingOrder, at: Date): boolean {
  return quietBefore !== null && at.getTime() < quietBefore.getTime();
}

function coinFacts(
  { asset, network, decimals }: Pick<RuledDeposit, "asset" | "network" | "decimals">,
  atoms: bigint,
): EventFacts {
  return { asset, network, amount: coins(atoms, decimals) };
}

/** What a payment is worth, or may be, in micro-dollars. Undefined: nobody knows yet. */
function worthOf(
  order: RuledOrder,
  deposit: RuledDeposit,
  valued: Decision["valued"],
): bigint | undefined {
  const by = valued.get(deposit.externalId);
  if (by) return valueDeposit(order, deposit, by);
  if (deposit.processorUsdMicro !== null) return deposit.processorUsdMicro;
  // What came without an order and is of unknown value has no real rate.
  if (isSameAsset(order, deposit) && order.rate > 1n) return valueDeposit(order, deposit, "quote");
  return deposit.marketRate === null ? undefined : valueDeposit(order, deposit, "market");
}
