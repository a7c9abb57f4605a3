// Finds what becomes an alert. Every 30 seconds one node reads pools, caps, keys, sign-ins and
// orders of all accounts, in pages of a few statements each. Each node also raises what only it can
// see, and at once what became of payments that it has looked at. Two nodes that find the same
// event make the same id.

import type { Document } from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/alerts.ts";
import type { Log } from "../base/log.ts";
import { credits, decimal } from "../base/money.ts";
import { alertsKeptDays, deliveriesKeptDays } from "../base/shown-figures.ts";
import { Task, warnOnce } from "../base/task.ts";
import { Lease } from "../postgres/lease.ts";
import type { AlertFacts } from "./kinds.ts";
import type { PaymentKind } from "./payment-texts.ts";
import { type Finding, type RaiseParts, raise } from "./raise.ts";
import { defaultSettings, failingDaysMax, type StoredSettings } from "./settings.ts";

/** What other services give, each for many accounts at once. */
export type Sources = {
  readonly billing: BillingFigures;
  readonly listKeyEvents: (since: Date, limit: number) => Promise<readonly KeyEvent[]>;
  readonly listNewPlaces: (since: Date, limit: number) => Promise<readonly NewPlace[]>;
  /** The logins of these persons in these accounts, where they are members. */
  readonly listLogins: (
    accountIds: readonly string[],
    personIds: readonly string[],
  ) => Promise<readonly MemberLogin[]>;
  readonly listWaitingOrders: (after: string, limit: number) => Promise<readonly WaitingOrder[]>;
  readonly listBypasses: (since: Date, limit: number) => Promise<readonly Bypass[]>;
  readonly payments: PaymentEvents;
  /** The newest run of the verifier that found something. Absent: nobody keeps them. */
  readonly findViolations?: () => Promise<Violations | undefined>;
  /** The chains of payments that are not read, each since when. */
  readonly listUnreadChains: () => Promise<readonly UnreadChain[]>;
  /** The credentials that this process saw at addresses that their lists do not allow, lately. */
  readonly listMisplaced: () => readonly Misplaced[];
  /** What the last calls of this process came to, for each provider and model. */
  readonly modelConditions: () => readonly ModelCondition[];
  /** Why a failover would lose charges. Undefined: it would not. */
  readonly ledgerProblem: () => string | undefined;
};

type FamilyName = "v1" | "v2";
type PoolBound = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly belowMicro: bigint;
};

/** As billing documents them. */
export type BillingFigures = {
  listAccounts(
    after: string,
    limit: number,
  ): Promise<readonly { readonly accountId: string; readonly suspendedAt: Date | null }[]>;
  readDailySpend(accountIds: readonly string[]): Promise<
    readonly {
      readonly accountId: string;
      readonly family: FamilyName;
      readonly dailyMicro: bigint;
    }[]
  >;
  findLow(
    bounds: readonly PoolBound[],
  ): Promise<
    readonly (PoolBound & { readonly freeMicro: bigint; readonly filledBy: string | null })[]
  >;
  findSpentLimits(
    asked: readonly { readonly accountId: string; readonly percent: number }[],
  ): Promise<readonly SpentLimit[]>;
};

/** A limit of a budget of which a part is spent in the window of now. */
type SpentLimit = {
  readonly accountId: string;
  readonly family: FamilyName;
  /** A key id, `person:<id>`, `mgmt:<id>`; empty: the whole pool. */
  readonly payer: string;
  /** Of the key or the management key. */
  readonly name: string | null;
  readonly window: "day" | "week" | "month" | "total";
  /** The first day of the window, `YYYY-MM-DD`. Null: it has none. */
  readonly since: string | null;
  /** What the payer had spent before the window. */
  readonly base: bigint;
  readonly limitMicro: bigint;
  readonly spentMicro: bigint;
  /** All that the payer had spent when the limit was raised. Null: it was not. */
  readonly passed: bigint | null;
  /** The total limit of the payer, in micro-credits. Null: none. */
  readonly totalLimit: bigint | null;
  /** Null: the payer is no key. */
  readonly keyCreatedAt: Date | null;
  /** Null: it is no key, or does not expire. */
  readonly keyExpiresAt: Date | null;
  /** True: a request was rejected for it a moment ago. */
  readonly isRefused: boolean;
};
type MemberLogin = {
  readonly accountId: string;
  readonly personId: string;
  readonly login: string;
};

type KeyEvent = {
  readonly keyId: string;
  readonly accountId: string;
  readonly name: string;
  readonly hint: string;
  readonly createdBy: string;
  /** The name of the management key that created it. Null: another caller did. */
  readonly manager: string | null;
  readonly createdAt: Date;
  /** Null: it does not expire. */
  readonly expiresAt: Date | null;
  /** The most micro-credits in total. Null: no such limit. */
  readonly totalLimit: bigint | null;
  readonly pausedAt: Date | null;
  readonly revokedAt: Date | null;
};
type NewPlace = {
  readonly sessionId: string;
  readonly personId: string;
  readonly login: string;
  readonly address: string;
  readonly agent: string;
  readonly at: Date;
  readonly accountIds: readonly string[];
};
type WaitingOrder = {
  readonly orderId: string;
  readonly accountId: string;
  readonly decisions: number;
};
/** As payments document them. */
export type PaymentEvents = {
  listEvents(rows: number): Promise<readonly PaymentEvent[]>;
  markRead(events: readonly PaymentEvent[]): Promise<void>;
  documentsOf(orderId: string): Promise<readonly Document[]>;
  onEvents(listener: () => void): void;
};
type PaymentEvent = {
  readonly orderId: string;
  readonly n: bigint;
  readonly kind: PaymentKind;
  readonly subject: string;
  readonly at: Date;
  readonly facts: AlertFacts;
  readonly accountId: string;
  readonly family: FamilyName;
  readonly asset: string;
  readonly network: string;
  /** As `actorOf` names callers. */
  readonly createdBy: string;
};
/** As approvals document it. */
type Bypass = {
  readonly approvalId: string;
  readonly accountId: string;
  readonly what: string;
  readonly requestedBy: string;
};
type UnreadChain = {
  readonly processor: string;
  readonly chain: string;
  readonly since: Date;
  /** That its node cannot give. Null: none in particular. */
  readonly block: bigint | null;
};
/** As `base/client-address.ts` documents it. */
type Misplaced = {
  readonly accountId: string;
  readonly id: string;
  readonly name: string;
  readonly hint: string;
  readonly address: string;
  readonly day: string;
};
type Violations = { readonly verificationId: string; readonly violations: number };
/** As providers document it. */
type ModelCondition = {
  readonly provider: string;
  readonly model: string;
  readonly isUnusable: boolean;
  readonly isAnswered: boolean;
  readonly lastFailure: { readonly status: number; readonly reason: string } | undefined;
};

/** Accounts of one page. */
const pageMax = 1_000;
/** Events of payments of one statement. */
const paymentEventsMax = 500;
/** Webhooks of one statement. */
const switchedOffMax = 500;
/** Changes that one look reads. More than that in 30 s is an attack or a migration of keys. */
const eventsMax = 10_000;
const families = ["v1", "v2"] as const;
/** From here on, a request that is rejected for a limit means that the limit is reached. */
const refusedPercentMin = 80;
const removedMax = 1_000;
const deliveriesRemovedMax = 10_000;
const overlapMs = 10_000;
/** A model that is answered for so long has recovered. */
const answeredMs = 300_000;
const firstMs = 5_000;
/** Until notices that failed are tried again; each further failure doubles it. */
const noticeAgainMs = 1_000;
const dayMs = 86_400_000;

export type Evaluation = {
  start(): void;
  stop(): Promise<void>;
  /** Looks now, if it is due. Returns whether this process looked at all accounts. */
  look(): Promise<boolean>;
  /** Raises at once what became of payments, and of the webhooks that were switched off last. */
  wake(): void;
};

export function createEvaluation(
  parts: LookParts & {
    readonly log: Log;
    readonly everyMs: number;
    readonly leaseMs: number;
  },
): Evaluation {
  const { store, sources, log, everyMs, leaseMs } = parts;
  // Of this process, so that two looks of one never meet.
  const lease = new Lease(store, { task: "alerts", ms: leaseMs });
  const paces = new Paces(sources.billing);
  /** What could not be read at the last look. */
  const failing = new Set<string>();
  const report = { code: "alerts_unread", failed: "alerts could not be looked for" } as const;
  const looking = new Task({
    async run(stopping) {
      await look(stopping);
    },
    // Soon: the processes of before may have been away for a while.
    firstMs: Math.min(everyMs, firstMs),
    everyMs,
    // A look that comes before the lease rests no more is lost, and the next one is late.
    jitter: 0,
    report: warnOnce(log, report),
  });

  // A process that died before it raised what it had written is covered by the looks of all.
  let noticesFailed = 0;
  const noticing = new Task({
    async run() {
      let isMore = false;
      const areNoticed = [
        await attempt("payments", async () => {
          isMore = await lookAtPayments(parts);
        }),
        await attempt("webhooks", async () => {
          await lookAtWebhooks(parts);
        }),
      ];
      noticesFailed = areNoticed.includes(false) ? noticesFailed + 1 : 0;
      return isMore;
    },
    // A notice waits for no look of all: what failed once is tried again at once.
    everyMs: () =>
      noticesFailed === 0
        ? 10 * everyMs
        : Math.min(everyMs, noticeAgainMs * 2 ** Math.min(noticesFailed - 1, 16)),
    report: warnOnce(log, report),
  });

  async function look(stopping?: AbortSignal): Promise<boolean> {
    await attempt("the ledger", () => raise(parts, ledgerFindings(sources)));
    await attempt("addresses", () => raise(parts, sources.listMisplaced().map(keyMisplaced)));
    await attempt("providers", () => lookAtProviders(parts));
    if (!(await lease.take())) return false;
    const { eventsAt, beganAt } = await store.run(sql.readProgress);
    await attempt("accounts", () => lookAtAccounts(parts, paces, stopping));
    const areRead = await attempt("keys and sign-ins", () => lookAtEvents(parts, eventsAt));
    await attempt("orders", () => lookAtOrders(parts, stopping));
    await attempt("payments", async () => {
      while (await lookAtPayments(parts));
    });
    await attempt("webhooks", async () => {
      for (let last = await lookAtWebhooks(parts); last; ) last = await lookAtWebhooks(parts, last);
    });
    await attempt("the verifier", () => lookAtVerifier(parts));
    await attempt("chains", () => lookAtChains(parts));
    await attempt("old alerts", async () => {
      await store.run(sql.removeAlerts, { days: alertsKeptDays, rows: removedMax });
      const old = { days: deliveriesKeptDays, rows: deliveriesRemovedMax };
      await store.run(sql.removeDeliveries, old);
    });
    if (areRead) await store.run(sql.setProgress, { eventsAt: beganAt });
    await lease.release(everyMs);
    return true;
  }

  /** False: it failed, and is repeated at the next look. One source that fails stops no other. */
  async function attempt(what: string, work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      failing.delete(what);
      return true;
    } catch (err) {
      if (!failing.has(what)) log.warn({ code: report.code, what, err }, report.failed);
      failing.add(what);
      return false;
    }
  }

  return {
    start() {
      looking.start();
      noticing.start();
    },
    async stop() {
      await Promise.all([looking.stop(), noticing.stop()]);
    },
    look: () => look(),
    wake: () => noticing.wake(),
  };
}

/** The parts that the looks need. */
type LookParts = RaiseParts & { readonly sources: Sources };

/** Accounts whose figures are read at once, and their settings. */
type AccountsPage = {
  readonly ids: readonly string[];
  readonly settings: ReadonlyMap<string, StoredSettings>;
};

async function lookAtAccounts(
  parts: LookParts,
  paces: Paces,
  stopping: AbortSignal | undefined,
): Promise<void> {
  const { store, sources } = parts;
  for (let after = ""; !stopping?.aborted; ) {
    const accounts = await sources.billing.listAccounts(after, pageMax);
    const ids = accounts.map(({ accountId }) => accountId);
    const last = ids.at(-1);
    if (last === undefined) return;
    const settings = await store.readSettings(ids);
    const suspended = accounts.flatMap(({ accountId, suspendedAt }) =>
      suspendedAt ? [accountStopped(accountId, suspendedAt)] : [],
    );
    const findings = [
      ...suspended,
      ...(await findLowPools(parts, { paces, ids, settings })),
      ...(await findSpentLimits(parts, { ids, settings })),
    ];
    await raise(parts, findings, settings);
    if (accounts.length < pageMax) return;
    after = last;
  }
}

async function findLowPools(
  { sources: { billing } }: LookParts,
  { paces, ids, settings }: AccountsPage & { readonly paces: Paces },
): Promise<Finding[]> {
  const pools = await paces.of(ids);
  const wanted = ids.flatMap((accountId) => {
    const { belowMicro, belowDays } = settings.get(accountId) ?? defaultSettings(accountId);
    return families.flatMap((family) => {
      const dailyMicro = pools.get(accountId)?.get(family) ?? 0n;
      const byCredits =
        belowMicro === undefined ? [] : [{ belowMicro, days: undefined as number | undefined }];
      const byDays =
        belowDays === undefined || dailyMicro === 0n
          ? []
          : [{ belowMicro: dailyMicro * BigInt(belowDays), days: belowDays }];
      return [...byCredits, ...byDays].map((one) => ({ accountId, family, ...one }));
    });
  });
  if (wanted.length === 0) return [];
  const nameOf = (one: PoolBound) => `${one.accountId} ${one.family} ${one.belowMicro}`;
  const low = new Map((await billing.findLow(wanted)).map((one) => [nameOf(one), one]));
  return wanted.flatMap((one) => {
    const found = low.get(nameOf(one));
    if (!found) return [];
    const { accountId, family, belowMicro, days } = one;
    const bound = days === undefined ? `${credits(belowMicro)}-credits` : `${days}-days`;
    return [
      {
        accountId,
        kind: "credits_low" as const,
        about: `${family}-${bound}`,
        period: found.filledBy ?? "never",
        facts: {
          family,
          ...(days === undefined
            ? { below_credits: credits(belowMicro), below_microcredits: String(belowMicro) }
            : { days: String(days) }),
          free_credits: credits(found.freeMicro),
          free_microcredits: String(found.freeMicro),
        },
      },
    ];
  });
}

async function findSpentLimits(
  { sources }: LookParts,
  { ids, settings }: AccountsPage,
): Promise<Finding[]> {
  const percentsOf = (id: string) => (settings.get(id) ?? defaultSettings(id)).percents;
  const asked = ids.map((accountId) => {
    const percents = percentsOf(accountId);
    const isAtAll = percents.includes(100);
    return { accountId, percent: Math.min(...percents, ...(isAtAll ? [refusedPercentMin] : [])) };
  });
  const limits = await sources.billing.findSpentLimits(asked);
  const persons = limits.flatMap((one) => personIn(one) ?? []);
  const members =
    persons.length === 0
      ? []
      : await sources.listLogins([...new Set(limits.map((one) => one.accountId))], persons);
  return limits.flatMap((limit) => {
    const login = members.find(
      (one) => one.accountId === limit.accountId && one.personId === personIn(limit),
    )?.login;
    return capReached(limit, percentsOf(limit.accountId), login);
  });
}

/** The spending of pools a day, by account: it changes once a UTC day. */
class Paces {
  readonly #billing: BillingFigures;
  /** By account. */
  #kept = new Map<string, ReadonlyMap<FamilyName, bigint>>();
  #day = "";

  constructor(billing: BillingFigures) {
    this.#billing = billing;
  }

  /** Those of these accounts, and of all that were asked for on this day. */
  async of(ids: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<FamilyName, bigint>>> {
    const today = new Date().toISOString().slice(0, 10);
    if (this.#day !== today) this.#kept = new Map();
    this.#day = today;
    const unknown = ids.filter((accountId) => !this.#kept.has(accountId));
    if (unknown.length === 0) return this.#kept;
    const spent = Map.groupBy(await this.#billing.readDailySpend(unknown), (one) => one.accountId);
    for (const accountId of unknown) {
      const pools = spent.get(accountId) ?? [];
      this.#kept.set(accountId, new Map(pools.map((one) => [one.family, one.dailyMicro])));
    }
    return this.#kept;
  }
}

async function lookAtEvents(parts: LookParts, since: Date): Promise<void> {
  const { sources } = parts;
  const keys = await sources.listKeyEvents(since, eventsMax);
  const places = await sources.listNewPlaces(since, eventsMax);
  const bypasses = await sources.listBypasses(since, eventsMax);
  const sinceMs = since.getTime() - overlapMs;
  await raise(parts, [
    ...bypasses.map(bypassed),
    ...keys.flatMap((key) => keyFindings(key, sinceMs)),
    ...places.flatMap(newPlace),
  ]);
}

async function lookAtOrders(parts: LookParts, stopping: AbortSignal | undefined): Promise<void> {
  const { sources } = parts;
  for (let after = ""; !stopping?.aborted; ) {
    const orders = await sources.listWaitingOrders(after, pageMax);
    await raise(parts, orders.flatMap(orderWaiting));
    const last = orders.at(-1);
    if (!last || orders.length < pageMax) return;
    after = last.orderId;
  }
}

/** By any process, and by several at once: an event has one id. True: there are more. */
async function lookAtPayments(parts: LookParts): Promise<boolean> {
  const { sources } = parts;
  const events = await sources.payments.listEvents(paymentEventsMax);
  if (events.length === 0) return false;
  await raise(parts, events.map(paymentEvent));
  // Only now: a process that dies before leaves them to the next look.
  await sources.payments.markRead(events);
  return events.length === paymentEventsMax;
}

/** A page of those that were switched off. Returns its last one, unless there are no more. */
async function lookAtWebhooks(
  parts: LookParts,
  after?: sql.ListSwitchedOffRow,
): Promise<sql.ListSwitchedOffRow | undefined> {
  const found = await parts.store.run(sql.listSwitchedOff, {
    before: after?.webhookOffAt ?? null,
    beforeId: after?.accountId ?? "",
    rows: switchedOffMax,
  });
  await raise(parts, found.map(webhookOff));
  return found.length === switchedOffMax ? found.at(-1) : undefined;
}

/** Outages that only this process knows of, and those that have ended for all. */
async function lookAtProviders(parts: LookParts): Promise<void> {
  const { store, sources } = parts;
  const conditions = sources.modelConditions();
  const unusable = conditions.filter(({ isUnusable }) => isUnusable);
  const answered = conditions.filter(({ isUnusable, isAnswered }) => !isUnusable && isAnswered);
  if (unusable.length > 0) {
    const opened = await store.run(sql.openOutages, namesOf(unusable));
    await raise(
      parts,
      opened.map((outage) => {
        const { provider, model } = outage;
        const { lastFailure } =
          unusable.find((one) => one.provider === provider && one.model === model) ?? {};
        const { status = 0, reason = "" } = lastFailure ?? {};
        const facts = { provider, model, status: String(status), reason };
        return outageFinding("provider_alarm", outage, facts);
      }),
    );
  }
  if (answered.length > 0) await store.run(sql.answerOutages, namesOf(answered));
  for (const outage of await store.run(sql.listEndedOutages, { answeredMs })) {
    const { provider, model, openedAt } = outage;
    const facts = { provider, model, opened_at: openedAt.toISOString() };
    await raise(parts, [outageFinding("provider_recovered", outage, facts)]);
    await store.run(sql.removeOutage, { provider, model });
  }
}

async function lookAtVerifier(parts: LookParts): Promise<void> {
  const { sources } = parts;
  const found = await sources.findViolations?.();
  if (!found) return;
  const { verificationId, violations } = found;
  const facts = { verification_id: verificationId, violations: String(violations) };
  await raise(parts, [
    { accountId: "", kind: "ledger_violated", about: "verifier", period: verificationId, facts },
  ]);
}

async function lookAtChains(parts: LookParts): Promise<void> {
  await raise(parts, (await parts.sources.listUnreadChains()).map(chainUnread));
}

/** Once a day, as long as it lasts. */
function ledgerFindings({ ledgerProblem }: Sources): Finding[] {
  const problem = ledgerProblem();
  if (problem === undefined) return [];
  const period = new Date().toISOString().slice(0, 10);
  return [
    {
      accountId: "",
      kind: "ledger_not_synchronous",
      about: "ledger",
      period,
      facts: { problem },
    },
  ];
}

function namesOf(conditions: readonly ModelCondition[]) {
  return {
    providers: conditions.map(({ provider }) => provider),
    models: conditions.map(({ model }) => model),
  };
}

/** One for each outage, at whichever process it is found. */
function outageFinding(
  kind: "provider_alarm" | "provider_recovered",
  { provider, model, openedAt }: sql.OpenOutagesRow,
  facts: AlertFacts,
): Finding {
  const period = openedAt.toISOString();
  return { accountId: "", kind, about: `${provider} ${model}`, period, facts };
}

function accountStopped(accountId: string, at: Date): Finding {
  return {
    accountId,
    kind: "key_stopped",
    about: "account",
    period: at.toISOString(),
    facts: {},
  };
}

/** The person whose budget it is. Undefined: it is no person's. */
function personIn({ payer }: SpentLimit): string | undefined {
  return payer.startsWith("person:") ? payer.slice("person:".length) : undefined;
}

/** `login`: of the person whose budget it is. He may have left: nobody else spends of it. */
function capReached(
  limit: SpentLimit,
  percents: readonly number[],
  login: string | undefined,
): Finding[] {
  const { accountId, family, payer, window, since, base, limitMicro, spentMicro, passed } = limit;
  const isKey = payer !== "" && !payer.includes(":");
  if (personIn(limit) !== undefined && login === undefined) return [];
  const { totalLimit, keyCreatedAt: createdAt, keyExpiresAt: expiresAt } = limit;
  if (createdAt && isTrial({ totalLimit, createdAt, expiresAt })) return [];
  const share = (percent: number) => spentMicro * 100n >= limitMicro * BigInt(percent);
  const isRefused = limit.isRefused && share(refusedPercentMin);
  // A raise repeats nothing: what was spent before it passes no part of the new limit.
  const isNew = (percent: number) =>
    passed === null || (passed - base) * 100n < limitMicro * BigInt(percent);
  const reached = percents.filter(
    (one) => (share(one) && isNew(one)) || (one === 100 && isRefused),
  );
  const period = since?.slice(0, window === "month" ? 7 : 10);
  return reached.map((percent, index) => ({
    accountId,
    kind: "cap_reached",
    // Another limit can be reached again, and a total that begins anew.
    about: `${isKey ? payer : `${payer || "pool"}-${family}`}-${percent}-of-${credits(limitMicro)}`,
    period:
      window === "total"
        ? `since-${credits(base)}`
        : `${window === "week" ? "week-" : ""}${period ?? ""}`,
    facts: {
      ...whose(limit, login),
      ...(payer !== "" && { payer }),
      family,
      window,
      ...(period !== undefined && { period }),
      percent: String(percent),
      cap_credits: credits(limitMicro),
      cap_microcredits: String(limitMicro),
      spent_credits: credits(spentMicro),
      spent_microcredits: String(spentMicro),
    },
    // An alert about more of a limit replaces those about less of it.
    isSilent: index < reached.length - 1,
  }));
}

function whose({ payer, name }: SpentLimit, login: string | undefined): AlertFacts {
  if (payer === "") return { of: "pool" };
  const [kind, id = ""] = payer.split(":", 2);
  if (kind === "person") return { of: "person", person_id: id, login: login ?? "" };
  if (kind === "mgmt")
    return { of: "management_key", management_key_id: id, management_key: name ?? "" };
  return { of: "key", key_id: payer, key: name ?? "" };
}

const trialLimitMicro = 1_000_000n;
const trialLifeMs = 3_600_000;

/**
 * True: so little and short that its making, end and use are no news, as of a key with which
 * somebody tries a model.
 */
function isTrial({
  totalLimit,
  createdAt,
  expiresAt,
}: Pick<KeyEvent, "totalLimit" | "createdAt" | "expiresAt">): boolean {
  if (totalLimit === null || totalLimit > trialLimitMicro) return false;
  return expiresAt !== null && expiresAt.getTime() - createdAt.getTime() <= trialLifeMs;
}

function keyFindings(key: KeyEvent, sinceMs: number): Finding[] {
  if (isTrial(key)) return [];
  const { accountId, keyId, name, hint, createdBy, manager } = key;
  const { createdAt, pausedAt, revokedAt } = key;
  const facts: AlertFacts = { key_id: keyId, key: name, hint };
  const created: Finding = {
    accountId,
    kind: "key_created",
    about: keyId,
    period: createdAt.toISOString(),
    facts: {
      ...facts,
      ...(createdBy !== "" && { by: createdBy }),
      ...(manager !== null && { management_key: manager }),
    },
  };
  const stopped = (at: Date | null, more: AlertFacts): Finding[] =>
    at && at.getTime() > sinceMs
      ? [
          {
            accountId,
            kind: "key_stopped",
            about: keyId,
            period: at.toISOString(),
            facts: { ...facts, ...more },
          },
        ]
      : [];
  return [
    ...(createdAt.getTime() > sinceMs ? [created] : []),
    ...stopped(pausedAt, {}),
    ...stopped(revokedAt, { revoked: "true" }),
  ];
}

/** Once for each credential and UTC day, at whichever process it is seen. */
function keyMisplaced({ accountId, id, name, hint, address, day }: Misplaced): Finding {
  const facts = { ...(accountId !== "" && { key_id: id }), key: name, hint, address };
  return { accountId, kind: "key_misplaced", about: id, period: day, facts };
}

function newPlace({ sessionId, personId, login, address, agent, accountIds }: NewPlace): Finding[] {
  return accountIds.map((accountId) => ({
    accountId,
    kind: "new_place",
    about: personId,
    period: sessionId,
    facts: { person_id: personId, login, address, agent },
  }));
}

function bypassed({ approvalId, accountId, what, requestedBy }: Bypass): Finding {
  const facts = { account_id: accountId, actor: requestedBy, what };
  return { accountId: "", kind: "approval_bypassed", about: accountId, period: approvalId, facts };
}

function chainUnread({ processor, chain, since, block }: UnreadChain): Finding {
  const period = since.toISOString();
  const facts = { chain, since: period, ...(block !== null && { block: String(block) }) };
  return { accountId: "", kind: "chain_unread", about: `${processor} ${chain}`, period, facts };
}

/** Two alerts: one for the account, one for the operators, who decide. */
function orderWaiting({ orderId, accountId, decisions }: WaitingOrder): Finding[] {
  const finding = {
    kind: "order_waiting" as const,
    about: orderId,
    period: String(decisions),
  };
  return [
    { ...finding, accountId, facts: { order_id: orderId } },
    { ...finding, accountId: "", facts: { order_id: orderId, account_id: accountId } },
  ];
}

/** The member who ordered gets it too, but for credits that were taken from the account. */
function paymentEvent(event: PaymentEvent): Finding {
  const { orderId, n, kind, accountId, facts, family, asset, network, createdBy } = event;
  const [actor, id] = createdBy.split(":", 2);
  const isToMember = actor === "person" && id !== undefined && kind !== "payment_lost";
  const { microcredits, usd_micro: usdMicro } = facts;
  return {
    accountId,
    kind,
    about: orderId,
    period: String(n),
    facts: {
      ...{ order_id: orderId, family, asset, network },
      ...facts,
      ...(microcredits !== undefined && { credits: credits(BigInt(microcredits)) }),
      ...(usdMicro !== undefined && { usd: decimal(BigInt(usdMicro), 6, 2) }),
      ...(isToMember && { person_id: id }),
    },
  };
}

function webhookOff(of: sql.ListSwitchedOffRow): Finding {
  const { accountId, webhookUrl, failingSince, webhookOffAt } = of;
  const since = failingSince.toISOString();
  const isYoung = webhookOffAt.getTime() - failingSince.getTime() < failingDaysMax * dayMs;
  return {
    accountId,
    kind: "webhook_off",
    about: "webhook",
    period: webhookOffAt.toISOString(),
    // Sooner, only its receiver switches it off.
    facts: { host: new URL(webhookUrl).host, since, ...(isYoung && { gone: "true" }) },
  };
}
