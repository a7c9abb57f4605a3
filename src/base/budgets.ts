// Budgets: what a key, a person, a management key or a pool may spend in a UTC day, week and month,
// in total, and how many requests it may run at once. The database keeps an odometer of each; the
// windows are computed here, for admissions and for everybody who shows them.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  BudgetLimitsSchema,
  type Budget as BudgetMessage,
  BudgetSchema,
  BudgetWindow_Name,
  type BudgetLimits as LimitsMessage,
  type Payer,
} from "../../gen/gateway/common/v1/budget_pb.ts";
import { type FamilyName, familyOf } from "./families.ts";

const dayMs = 86_400_000;

export type WindowName = "day" | "week" | "month" | "total";

/** Amounts in micro-credits. Null: no limit. */
export type BudgetLimits = Readonly<Record<WindowName, bigint | null>> & {
  /** Of `running`, as the column `running_limit` has it. */
  readonly requestsAtOnce: number | null;
};

export const limitNames = ["day", "week", "month", "total", "requestsAtOnce"] as const;

export const unlimited: BudgetLimits = {
  ...{ day: null, week: null, month: null, total: null },
  requestsAtOnce: null,
};

/** The limits as columns have them. */
export type LimitColumns = {
  readonly dayLimit: bigint | null;
  readonly weekLimit: bigint | null;
  readonly monthLimit: bigint | null;
  readonly totalLimit: bigint | null;
  readonly runningLimit: number | null;
};

export function limitsOf(row: LimitColumns): BudgetLimits {
  const { dayLimit: day, weekLimit: week, monthLimit: month, totalLimit: total } = row;
  return { day, week, month, total, requestsAtOnce: row.runningLimit };
}

export function columnsOf(limits: BudgetLimits): LimitColumns {
  const { day, week, month, total, requestsAtOnce } = limits;
  const amounts = { dayLimit: day, weekLimit: week, monthLimit: month, totalLimit: total };
  return { ...amounts, runningLimit: requestsAtOnce };
}

/** What was spent in a window. Null: it has no limit. */
export type BudgetWindow = {
  readonly name: WindowName;
  readonly spent: bigint;
  readonly limit: bigint | null;
  /** Undefined: never. */
  readonly resetsAt: Date | undefined;
};

/** A budget at a moment. */
export type Budget = {
  readonly held: bigint;
  readonly running: number;
  readonly requestsAtOnce: number | null;
  readonly windows: readonly BudgetWindow[];
};

/**
 * Reads the numbers of a row of `budgets` or `pools`, as statements return them: the day of its
 * last change, from 1970-01-01 on, and its columns `spent`, `held`, `running`, the bases of the
 * day, week and month and of the total, and the limits of these and of `running`, -1 for none.
 *
 * A charge counts in the window in which it is settled. Of a row that was last changed after `at`,
 * because the clock went back, the later day stands.
 */
export function readBudget(numbers: readonly bigint[], at: Date): Budget {
  const [lastDay, spent, held, running, ofDay, ofWeek, ofMonth, ofTotal, ...limits] = numbers;
  if (lastDay === undefined || spent === undefined || held === undefined || running === undefined)
    throw new Error(`a budget has ${numbers.length} numbers`);
  const [last, now] = [periodsOf(Number(lastDay)), periodsOf(dayOf(at))];
  const window = (name: WindowName, base = 0n, limit = -1n): BudgetWindow => {
    const ofLimit = limit < 0n ? null : limit;
    if (name === "total") return { name, spent: spent - base, limit: ofLimit, resetsAt: undefined };
    const isOver = last[name].startMs < now[name].startMs;
    const { end: resetsAt } = isOver ? now[name] : last[name];
    return { name, spent: isOver ? 0n : spent - base, limit: ofLimit, resetsAt };
  };
  const [day, week, month, total, requestsAtOnce = -1n] = limits;
  return {
    held,
    running: Number(running),
    requestsAtOnce: requestsAtOnce < 0n ? null : Number(requestsAtOnce),
    windows: [
      window("day", ofDay, day),
      window("week", ofWeek, week),
      window("month", ofMonth, month),
      window("total", ofTotal, total),
    ],
  };
}

/** When the day, the week and the month of a time began. A week begins on Monday. */
export function startsOf(at: Date) {
  const { day, week, month } = periodsOf(dayOf(at));
  return { day: day.startMs, week: week.startMs, month: month.startMs };
}

/** Days since 1970-01-01. */
function dayOf(at: Date): number {
  return Math.floor(at.getTime() / dayMs);
}

/** `end`: exclusive. */
type Period = { readonly startMs: number; readonly end: Date };
type Periods = Readonly<Record<Exclude<WindowName, "total">, Period>>;

let latest: { readonly day: number; readonly periods: Periods } | undefined;

/** The day, the week and the month of a day. Nearly all ask for today: the last answer is kept. */
function periodsOf(day: number): Periods {
  if (latest?.day === day) return latest.periods;
  const startMs = day * dayMs;
  const date = new Date(startMs);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  const monday = startMs - ((date.getUTCDay() + 6) % 7) * dayMs;
  const periods = {
    day: { startMs, end: new Date(startMs + dayMs) },
    week: { startMs: monday, end: new Date(monday + 7 * dayMs) },
    month: { startMs: Date.UTC(year, month), end: new Date(Date.UTC(year, month + 1)) },
  };
  latest = { day, periods };
  return periods;
}

/** The limits of a message. */
export function readLimits(message: LimitsMessage): BudgetLimits {
  return {
    day: message.dailyMicrocredits ?? null,
    week: message.weeklyMicrocredits ?? null,
    month: message.monthlyMicrocredits ?? null,
    total: message.totalMicrocredits ?? null,
    requestsAtOnce: message.requestsAtOnce ?? null,
  };
}

function toLimits({ day, week, month, total, requestsAtOnce }: BudgetLimits): LimitsMessage {
  return create(BudgetLimitsSchema, {
    ...(day !== null && { dailyMicrocredits: day }),
    ...(week !== null && { weeklyMicrocredits: week }),
    ...(month !== null && { monthlyMicrocredits: month }),
    ...(total !== null && { totalMicrocredits: total }),
    ...(requestsAtOnce !== null && { requestsAtOnce }),
  });
}

const windowNames: Readonly<Record<WindowName, BudgetWindow_Name>> = {
  day: BudgetWindow_Name.DAY,
  week: BudgetWindow_Name.WEEK,
  month: BudgetWindow_Name.MONTH,
  total: BudgetWindow_Name.TOTAL,
};

export type NamedPayer = Exclude<Payer["payer"], { case: undefined }>;

const prefixes = { keyId: "", personId: "person:", managementKeyId: "mgmt:" } as const;

/** A payer as the column `payer` has it. Empty: the whole pool. */
export function payerText(named: NamedPayer): string {
  return named.case === "pool" ? "" : prefixes[named.case] + named.value;
}

/** The payer of such a text. */
export function toPayer(text: string): NamedPayer {
  if (text === "") return { case: "pool", value: true };
  for (const kind of ["personId", "managementKeyId"] as const)
    if (text.startsWith(prefixes[kind]))
      return { case: kind, value: text.slice(prefixes[kind].length) };
  return { case: "keyId", value: text };
}

export function toBudget(payer: Payer["payer"], family: FamilyName, budget: Budget): BudgetMessage {
  const { held, running, requestsAtOnce, windows } = budget;
  const limits = Object.fromEntries(windows.map(({ name, limit }) => [name, limit]));
  return create(BudgetSchema, {
    payer: { payer },
    family: familyOf(family),
    limits: toLimits({ ...unlimited, ...limits, requestsAtOnce }),
    windows: windows.map(({ name, spent, limit, resetsAt }) => ({
      window: windowNames[name],
      spentMicrocredits: spent,
      ...(limit !== null && { limitMicrocredits: limit }),
      ...(limit !== null && { freeMicrocredits: leftOf(limit - spent - held) }),
      ...(resetsAt && { resetsAt: timestampFromDate(resetsAt) }),
    })),
    heldMicrocredits: held,
    running,
  });
}

function leftOf(micro: bigint): bigint {
  return micro > 0n ? micro : 0n;
}
