// Requests that were rejected before their admission: their counts by account, UTC hour, key and
// reason, and some of them one by one, by the id that the client was shown. They are figures, not
// money: a crash loses those of the last seconds.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import * as sql from "../../gen/sql/billing.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";
import type { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { reasonOf } from "../base/reasons.ts";
import { type Report, Task, warnOnce } from "../base/task.ts";
import type { Runner } from "../postgres/statement.ts";
import { hourMs } from "./usage-days.ts";

/** A person who tries a new key sees within seconds why its request was refused. */
const everyMs = 1_000;
const batchMax = 1_000;
/** Rows of one removal, for which other statements of the database wait. */
const removedMax = 10_000;
/** Refused requests that are kept for each hour: of a key, and of an account with all its keys. */
const keptOfKey = 100;
const keptOfAccount = 500;
const keysMax = 20_000;
/** Refused requests in memory. The second half has room for the first few of an account only. */
const refusalsMax = 20_000;
const firstFew = 10;
const modelLengthMax = 200;
const fieldLengthMax = 100;

type Payer = { readonly accountId: string; readonly keyId: string };

/** A refused request, as its client knows it. */
type RefusedRequest = { readonly requestId: string; readonly model?: string };

type Refusal = Payer &
  Required<RefusedRequest> & { readonly at: Date; readonly reason: string; readonly facts: string };

type Rejected = {
  accountId: string;
  hourMs: number;
  keyId: string;
  reason: string;
  count: bigint;
  /** When the last of them was rejected. */
  lastMs: number;
};

type Parts = {
  readonly db: Runner;
  readonly log: Log;
  readonly clock?: Clock | undefined;
  /** The most counts in memory. Rejections beyond are not counted, and logged. */
  readonly countsMax?: number;
};

export class Rejections {
  readonly #parts: Parts;
  readonly #report: Report;
  readonly #writing: Task;
  #counts = new Map<string, Rejected>();
  #uncounted = 0;
  #refusals: Refusal[] = [];
  /** How many of the hour are kept, by key and hour, and by account and hour. */
  readonly #keptOfKeys = new BoundedMap<string, number>(keysMax);
  readonly #keptOfAccounts = new BoundedMap<string, number>(keysMax);
  #cleanedHour = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#report = warnOnce(parts.log, {
      code: "rejections_not_counted",
      failed: "cannot write the counts of rejected requests yet",
    });
    this.#writing = new Task({
      run: () => this.write(),
      firstMs: everyMs,
      everyMs,
      report: this.#report,
      clock: parts.clock,
    });
  }

  start(): void {
    this.#writing.start();
  }

  /** Writes what was counted until now. */
  async stop(): Promise<void> {
    await this.#writing.stop();
    await this.write().catch((error: unknown) => this.#report.failed(error, true));
  }

  /** `request`: absent for one without an id. */
  count({ accountId, keyId }: Payer, error: ApiError, request?: RefusedRequest): void {
    const at = new Date();
    const { reason } = error;
    const hour = Math.floor(at.getTime() / hourMs);
    const lastMs = at.getTime();
    this.#add({ accountId, keyId, reason, hourMs: hour * hourMs, count: 1n, lastMs });
    if (!request?.requestId || !this.#mayKeep(accountId, keyId, hour)) return;
    const { requestId, model = "" } = request;
    const asked = plainText(model, modelLengthMax);
    const facts = JSON.stringify(factsOf(error));
    this.#refusals.push({ accountId, keyId, requestId, at, reason, model: asked, facts });
  }

  /** Counts one more, unless there are enough. Callers who flood leave room for those of others. */
  #mayKeep(accountId: string, keyId: string, hour: number): boolean {
    const account = `${accountId} ${hour}`;
    const key = `${keyId} ${hour}`;
    const ofAccount = this.#keptOfAccounts.get(account) ?? 0;
    const ofKey = this.#keptOfKeys.get(key) ?? 0;
    const inMemory = this.#refusals.length;
    const most = inMemory < refusalsMax / 2 ? keptOfAccount : firstFew;
    if (inMemory >= refusalsMax || ofAccount >= most || ofKey >= keptOfKey) return false;
    this.#keptOfAccounts.set(account, ofAccount + 1);
    this.#keptOfKeys.set(key, ofKey + 1);
    return true;
  }

  /** Throws when it cannot: what is left is written the next time. */
  async write(): Promise<void> {
    const { db, log } = this.#parts;
    if (this.#uncounted > 0)
      log.warn(
        { code: "rejections_not_counted", requests: this.#uncounted },
        "rejected requests were not counted",
      );
    this.#uncounted = 0;
    const left = [...this.#counts.values()];
    this.#counts = new Map();
    try {
      while (left.length > 0) {
        const batch = left.slice(0, batchMax);
        await db.run(sql.addErrors, {
          accountIds: batch.map(({ accountId }) => accountId),
          hours: batch.map(({ hourMs }) => new Date(hourMs)),
          keyIds: batch.map(({ keyId }) => keyId),
          reasons: batch.map(({ reason }) => reason),
          counts: batch.map(({ count }) => count),
          lasts: batch.map(({ lastMs }) => new Date(lastMs)),
        });
        left.splice(0, batch.length);
      }
    } finally {
      for (const one of left) this.#add(one);
    }
    await this.#writeRefusals();
  }

  async #writeRefusals(): Promise<void> {
    const { db } = this.#parts;
    while (this.#refusals.length > 0) {
      const batch = this.#refusals.slice(0, batchMax);
      // A request that was refused again has the same id: its last refusal stays.
      const byId = new Map(batch.map((one) => [`${one.accountId} ${one.requestId}`, one]));
      const last = [...byId.values()];
      await db.run(sql.addRefusals, {
        requestIds: last.map(({ requestId }) => requestId),
        accountIds: last.map(({ accountId }) => accountId),
        keyIds: last.map(({ keyId }) => keyId),
        ats: last.map(({ at }) => at),
        reasons: last.map(({ reason }) => reason),
        models: last.map(({ model }) => model),
        facts: last.map(({ facts }) => facts),
      });
      this.#refusals.splice(0, batch.length);
    }
    const hour = Math.floor(Date.now() / hourMs);
    if (this.#cleanedHour === hour) return;
    // The rest goes with the next writes.
    if ((await db.run(sql.removeRefusals, { rows: removedMax })) < removedMax)
      this.#cleanedHour = hour;
  }

  #add({ count, lastMs, ...of }: Rejected): void {
    const { countsMax = 20_000 } = this.#parts;
    const name = [of.accountId, of.hourMs, of.keyId, of.reason].join("\n");
    const known = this.#counts.get(name);
    if (known) {
      known.count += count;
      known.lastMs = Math.max(known.lastMs, lastMs);
    } else if (this.#counts.size < countsMax) this.#counts.set(name, { ...of, count, lastMs });
    else this.#uncounted += Number(count);
  }
}

/** A refused request, as `FindRequests` answers it. */
export function toRefused({ facts, at, ...row }: sql.FindRefusalsRow) {
  const texts = Object.entries(Object(facts)).map(([name, value]) => [name, String(value)]);
  return {
    ...row,
    reason: reasonOf(row.reason),
    occurredAt: timestampFromDate(at),
    facts: Object.fromEntries(texts),
  };
}

/** What an error says besides its reason, without words of the request. */
function factsOf({ facts }: ApiError): Record<string, string> {
  const { field, limit, retryAfterMs, neededMicro } = facts;
  const free = limit?.name === "pool_microcredits" ? limit.remaining : undefined;
  return {
    ...(neededMicro !== undefined && { needed_microcredits: String(neededMicro) }),
    ...(free !== undefined && { free_microcredits: String(free) }),
    ...(field !== undefined && { field: plainText(named(field), fieldLengthMax) }),
    ...(limit && { limit_name: limit.name, limit: String(limit.limit) }),
    ...(limit?.used !== undefined && { used: String(limit.used) }),
    ...(limit?.remaining !== undefined && { remaining: String(limit.remaining) }),
    ...(retryAfterMs !== undefined && { retry_after_ms: String(Math.ceil(retryAfterMs)) }),
  };
}

/** The path of a field, up to the first map whose names the client chooses. */
function named(field: string): string {
  return field.replace(/\b(metadata|tags|properties|input_schema|parameters)\b.*$/s, "$1");
}

/** A text that the database can store. */
function plainText(text: string, lengthMax: number): string {
  return text
    .replaceAll(/\p{Cc}/gu, " ")
    .slice(0, lengthMax)
    .toWellFormed();
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** reports of errors lack requests; look at the database if it goes on */
    rejections_not_counted: true;
  }
}
