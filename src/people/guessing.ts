// Slows down the guessing of passwords and of codes, on all nodes together, since the counts are in
// the database. Nobody is locked out: passkeys are never delayed, and failures elsewhere delay a
// login by at most five seconds.
//
//   a login in one network   5 free failures, then waits of 1 s, 2 s, 4 s … 15 min
//   a network                20 free failures, then the same waits
//   a login                  after 100 failures within an hour, each attempt takes up to 5 s longer

import { hash } from "node:crypto";
import * as sql from "../../gen/sql/people.ts";
import { networkOf } from "../base/client-address.ts";
import { type Clock, pause, systemClock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Runner } from "../postgres/statement.ts";
import { type AttemptSubject, countAttempts, type PeopleStore } from "./store.ts";

const freeFailuresOfLogin = 100;
const delayMsMax = 5_000;
const delayMsEach = 100;
// Delayed attempts cost memory only.
const delayedMax = 1_000;

export type Guessing = {
  /**
   * Counts an attempt before its outcome is known, so that attempts at the same time cannot all be
   * free. Throws `auth_rate_limited`. Call the result if the attempt succeeds.
   */
  begin(login: string, address: string, signal: AbortSignal): Promise<() => Promise<void>>;
  /**
   * Counts something else that costs us work or mail, such as `sign-up`, of one network: 20 are
   * free, then it waits as above. Throws `auth_rate_limited`. Call the result to undo the count.
   */
  count(what: string, address: string): Promise<() => Promise<void>>;
};

export function createGuessing(parts: {
  store: PeopleStore;
  /** Default: the clock of this machine. */
  clock?: Clock | undefined;
}): Guessing {
  const { store, clock = systemClock } = parts;
  const advice = "Too many wrong passwords. Wait, or sign in with a passkey.";
  let delayed = 0;
  const forgive = async (subjects: readonly Buffer[]) => {
    await store.run(sql.forgiveAttempt, { subjects });
  };
  return {
    async begin(login, address, signal) {
      const network = networkOf(address);
      const subjects: AttemptSubject[] = [
        { kind: "pair", digest: digestOf("pair", login, network) },
        { kind: "network", digest: digestOf("network", network) },
        { kind: "login", digest: digestOf("login", login) },
      ];
      const digests = subjects.map((one) => one.digest);
      // First, so that an attempt which has to wait is not counted for the other subjects.
      const waits = await store.run(sql.readWaits, { subjects: digests });
      if (waits) throw tooMany(waits.waitMs, advice);
      const counted = await store.countAttempts(subjects);
      const refused = counted.filter((one) => !one.counted);
      if (refused.length > 0) throw tooMany(Math.max(...refused.map((one) => one.waitMs)), advice);

      const failures = counted.find(({ kind }) => kind === "login")?.failures ?? 0;
      const delayMs = Math.min((failures - freeFailuresOfLogin) * delayMsEach, delayMsMax);
      if (delayMs > 0) {
        if (delayed >= delayedMax) throw tooMany(delayMsMax, advice);
        delayed++;
        await pause(clock, delayMs, signal);
        delayed--;
        signal.throwIfAborted();
      }
      return () => forgive(digests);
    },
    async count(what, address) {
      const digest = digestOf("network", what, networkOf(address));
      const [counted] = await store.countAttempts([{ kind: "network", digest }]);
      if (counted && !counted.counted)
        throw tooMany(counted.waitMs, "Too many attempts from your network. Wait a moment.");
      return () => forgive([digest]);
    },
  };
}

/** Slows down the guessing of codes. The caller has locked the account. */
export type CodeGuesses = {
  /** Throws `auth_rate_limited` after 5 wrong codes of an account, or 20 of a network. */
  check(tx: Runner, accountId: string, address: string): Promise<void>;
  /** Counts a wrong code. */
  count(tx: Runner, accountId: string, address: string): Promise<void>;
};

/** `what`: the codes, counted by themselves. `advice`: the message of the error. */
export function codeGuesses(what: string, advice: string): CodeGuesses {
  const subjectsOf = (accountId: string, address: string): AttemptSubject[] => [
    { kind: "pair", digest: digestOf(what, "account", accountId) },
    { kind: "network", digest: digestOf(what, "network", networkOf(address)) },
  ];
  return {
    async check(tx, accountId, address) {
      const subjects = subjectsOf(accountId, address).map(({ digest }) => digest);
      const waits = await tx.run(sql.readWaits, { subjects });
      if (waits) throw tooMany(waits.waitMs, advice);
    },
    async count(tx, accountId, address) {
      await countAttempts(tx, subjectsOf(accountId, address));
    },
  };
}

function tooMany(waitMs: number, message: string): ApiError {
  return new ApiError("auth_rate_limited", { message, retryAfterMs: Math.ceil(waitMs) });
}

/** Of a subject. The table holds no logins that somebody typed, which may be passwords. */
export function digestOf(...parts: string[]): Buffer {
  return hash("sha256", parts.join("\0"), "buffer");
}
