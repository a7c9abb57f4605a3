// Which sessions are open, end and go, against a simple model. The time of the database stands
// still, so that sessions stand exactly at the border of each condition.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/people.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);
const timeOf = (ms: number | null) => (ms === null ? null : after(ms));
const [second, day] = [1_000, 86_400_000];
const idleMsMax = day / 2;
const keptDays = 3;

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
afterAll(() => close());

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

const near = (ms: number) => [ms - 1, ms, ms + 1];
const anySessions = fc.array(
  fc.record({
    person: fc.nat(1),
    method: fc.constantFrom("passkey", "password"),
    passkey: fc.constantFrom(null, "key_1", "key_2"),
    confirmedBy: fc.constantFrom(null, "oidc"),
    madeMs: fc.constantFrom(-2, -1, ...near(-10 * second), ...near(-keptDays * day)),
    usedMs: fc.constantFrom(
      ...[0, ...near(-50 * second), ...near(-idleMsMax), ...near(-keptDays * day - idleMsMax)],
    ),
    // Most are open.
    endsMs: fc.oneof(
      { weight: 2, arbitrary: fc.constant(1) },
      fc.constantFrom(-1, 0, ...near(-keptDays * day)),
    ),
    endedMs: fc.oneof(
      { weight: 2, arbitrary: fc.constant(null) },
      fc.constantFrom(-1, ...near(-keptDays * day)),
    ),
    address: fc.constantFrom("", "192.0.2.1", "192.0.2.2"),
  }),
  { maxLength: 7, size: "max" },
);
type Facts = typeof anySessions extends fc.Arbitrary<(infer T)[]> ? T : never;
type Session = Facts & { readonly sessionId: string; readonly personId: string };

const people = ["per_0", "per_1"] as const;
const roles = ["owner", "member"] as const;
const digestOf = ({ sessionId }: Session) => Buffer.from(sessionId);

/** Two people, of whom the second may be disabled, each with an account and a shared one. */
async function write(facts: readonly Facts[], isDisabled: boolean): Promise<Session[]> {
  for (const table of ["sessions", "members", "people"]) await run(`delete from ${table}`);
  for (const [index, personId] of people.entries()) {
    await run("insert into people (person_id, login, disabled_at) values ($1, $1, $2)", [
      ...[personId, index === 1 && isDisabled ? now : null],
    ]);
    for (const [accountId, role] of [
      ["acc_both", "viewer"],
      [`acc_${index}`, roles[index]],
    ])
      await run("insert into members (account_id, person_id, role) values ($1, $2, $3)", [
        ...[accountId, personId, role],
      ]);
  }
  const sessions = facts.map((one, index) => ({
    ...one,
    sessionId: `ses_${index}`,
    personId: people[one.person] ?? "",
  }));
  for (const one of sessions)
    await run(
      `insert into sessions (digest, session_id, person_id, method, passkey_id, confirmed_by,
         made_at, used_at, ends_at, ended_at, strong_until, address, agent)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'browser')`,
      [
        ...[digestOf(one), one.sessionId, one.personId, one.method, one.passkey, one.confirmedBy],
        ...[one.madeMs, one.usedMs, one.endsMs, one.endedMs, 5].map(timeOf),
        one.address,
      ],
    );
  return sessions;
}

const isUnended = ({ endedMs }: Session) => endedMs === null;
const isInTime = (one: Session) => isUnended(one) && one.endsMs > 0;
const isOpen = (one: Session) => isInTime(one) && one.usedMs > -idleMsMax;
const ids = (sessions: readonly { readonly sessionId: string }[]) =>
  sessions.map(({ sessionId }) => sessionId);
/** The newest first. */
const byAge = (one: Session, other: Session) =>
  other.madeMs - one.madeMs || (one.sessionId < other.sessionId ? 1 : -1);

/** Sessions that were open before, and have ended now. */
async function ended(before: readonly Session[]): Promise<string[]> {
  const rows = await run<{ sessionId: string }>(
    `select session_id as "sessionId" from sessions where ended_at = $1 order by 1`,
    [now],
  );
  const all = ids(before.filter(isUnended));
  return ids(rows).filter((id) => all.includes(id));
}

test("a session is found while it is open, used and of somebody who is not disabled", async () => {
  await fc.assert(
    fc.asyncProperty(anySessions, fc.boolean(), async (facts, isDisabled) => {
      const sessions = await write(facts, isDisabled);
      const asked = sessions.slice(0, 3);
      const found = await postgres.run(sql.findSessions, {
        digests: [...asked.map(digestOf), Buffer.from("unknown")],
        idleMsMax,
      });
      const open = asked.filter((one) => isOpen(one) && !(isDisabled && one.person === 1));
      expect(found.toSorted((one, other) => (one.sessionId < other.sessionId ? -1 : 1))).toEqual(
        open.map((one) => ({
          ...{ digest: digestOf(one), sessionId: one.sessionId, personId: one.personId },
          ...{ method: one.method, strongUntil: after(5), operator: "none" },
          ...{ endsInMs: one.endsMs, accountIds: [`acc_${one.person}`, "acc_both"] },
          roles: [roles[one.person], "viewer"],
        })),
      );
      const used = await run<{ sessionId: string; used_at: Date }>(
        `select session_id as "sessionId", used_at from sessions order by 1`,
      );
      // A use is recorded once a minute.
      expect(used.map(({ used_at }) => used_at)).toEqual(
        sessions.map((one) => {
          const isTouched = asked.includes(one) && isOpen(one) && one.usedMs < -50 * second;
          return isTouched ? now : after(one.usedMs);
        }),
      );
      for (const [index, personId] of people.entries()) {
        await write(facts, isDisabled);
        const own = sessions.filter((one) => one.person === index && isOpen(one));
        const listed = await postgres.run(sql.listSessions, { personId, idleMsMax });
        expect(ids(listed)).toEqual(ids(own.toSorted(byAge)));
      }
      for (const { sessionId, method, confirmedBy, endedMs } of sessions) {
        const proof = await postgres.run(sql.findProof, { sessionId });
        expect(proof?.proof).toBe(endedMs === null ? (confirmedBy ?? method) : undefined);
        const confirmed = await postgres.run(sql.confirmSession, {
          ...{ sessionId, strongMs: 9, confirmedBy: "passkey" },
        });
        expect(confirmed?.strongUntil).toEqual(endedMs === null ? after(9) : undefined);
      }
      const confirmed = await run<{ sessionId: string }>(
        `select session_id as "sessionId" from sessions
         where confirmed_by = 'passkey' and strong_until = $1 order by 1`,
        [after(9)],
      );
      expect(ids(confirmed)).toEqual(ids(sessions.filter(isUnended)));
    }),
    { numRuns: 25 },
  );
});

test("the sessions that are to end do, and no other", async () => {
  const [personId] = people;
  const isOwn = (one: Session) => one.personId === personId && isUnended(one);
  const cases: readonly (readonly [
    string,
    () => Promise<number>,
    (sessions: readonly Session[]) => readonly Session[],
  ])[] = [
    [
      "all but the newest",
      () => postgres.run(sql.endOldest, { personId, kept: 1 }),
      (all) =>
        all
          .filter((one) => isOwn(one) && isInTime(one))
          .toSorted(byAge)
          .slice(1),
    ],
    [
      "one of a person",
      () => postgres.run(sql.endSession, { personId, sessionId: "ses_1" }),
      (all) => all.filter((one) => isOwn(one) && one.sessionId === "ses_1"),
    ],
    [
      "those of a person",
      () => postgres.run(sql.endSessions, { personId, butSessionId: null }),
      (all) => all.filter(isOwn),
    ],
    [
      "the others of a person",
      () => postgres.run(sql.endSessions, { personId, butSessionId: "ses_1" }),
      (all) => all.filter((one) => isOwn(one) && one.sessionId !== "ses_1"),
    ],
    [
      "the others that a passkey began",
      () => {
        const passkeyId = "key_1";
        return postgres.run(sql.endSessionsOfPasskey, {
          personId,
          passkeyId,
          butSessionId: "ses_1",
        });
      },
      (all) =>
        all.filter((one) => isOwn(one) && one.passkey === "key_1" && one.sessionId !== "ses_1"),
    ],
  ];
  await fc.assert(
    fc.asyncProperty(anySessions, async (facts) => {
      for (const [name, end, expected] of cases) {
        const sessions = await write(facts, false);
        const count = await end();
        const all = ids(expected(sessions)).toSorted();
        expect([name, count, ...(await ended(sessions))]).toEqual([name, all.length, ...all]);
      }
    }),
    { numRuns: 20 },
  );
});

test("sessions go as long after their end as they are kept, the oldest first", async () => {
  await fc.assert(
    fc.asyncProperty(anySessions, fc.integer({ min: 1, max: 3 }), async (facts, rows) => {
      const sessions = await write(facts, false);
      const keptMs = -keptDays * day;
      const old = sessions.filter((one) => {
        const ends = [one.endsMs, one.usedMs + idleMsMax, one.endedMs ?? Number.POSITIVE_INFINITY];
        return one.madeMs < keptMs && Math.min(...ends) < keptMs;
      });
      const gone = Math.min(rows, old.length);
      expect(await postgres.run(sql.removeSessions, { days: keptDays, idleMsMax, rows })).toBe(
        gone,
      );
      const left = await run<{ sessionId: string; made_at: Date }>(
        `select session_id as "sessionId", made_at from sessions`,
      );
      expect(left).toHaveLength(sessions.length - gone);
      expect(ids(left)).toEqual(
        expect.arrayContaining(ids(sessions.filter((one) => !old.includes(one)))),
      );
      await postgres.run(sql.deleteSessions, { personId: "per_0" });
      const others = await run<{ person: string }>("select person_id as person from sessions");
      expect(others.some(({ person }) => person === "per_0")).toBe(false);
      expect(others.length).toBe(
        ids(left).filter((id) => sessions.some((s) => s.sessionId === id && s.person === 1)).length,
      );
    }),
    { numRuns: 35 },
  );
});

test("sign-ins are listed with the addresses before them, but for the first of a person", async () => {
  await fc.assert(
    fc.asyncProperty(anySessions, fc.integer({ min: 1, max: 4 }), async (facts, rows) => {
      const sessions = await write(facts, false);
      const earlier = (one: Session) =>
        sessions.filter((other) => other.person === one.person && other.madeMs < one.madeMs);
      const listed = sessions
        .filter((one) => one.madeMs > -10 * second && one.address !== "" && earlier(one).length > 0)
        .toSorted((one, other) => one.madeMs - other.madeMs);
      const found = await postgres.run(sql.listSignIns, { since: now, rows });
      expect(found.map(({ at }) => at)).toEqual(
        listed.slice(0, rows).map(({ madeMs }) => after(madeMs)),
      );
      for (const row of found) {
        const one = sessions.find(({ sessionId }) => sessionId === row.sessionId);
        if (!one) throw new Error("no such session");
        const addresses = new Set(earlier(one).map(({ address }) => address));
        expect({ ...row, earlier: row.earlier.toSorted() }).toEqual({
          ...{ sessionId: one.sessionId, personId: one.personId, login: one.personId },
          ...{ address: one.address, agent: "browser", at: after(one.madeMs) },
          ...{ earlier: [...addresses].sort(), accountIds: [`acc_${one.person}`, "acc_both"] },
        });
      }
      const since = after(9 * second);
      const later = await postgres.run(sql.listSignIns, { since, rows: 9 });
      expect(later).toHaveLength(listed.filter(({ madeMs }) => madeMs > -second).length);
    }),
    { numRuns: 35 },
  );
});

test("a session begins with its end and the time for which nothing has to be confirmed", async () => {
  await write([], false);
  const { endsAt } = await postgres.run(sql.insertSession, {
    ...{ digest: Buffer.from("new"), sessionId: "ses_new", personId: "per_0", method: "passkey" },
    ...{ lifetimeMs: 300, strongMs: 20, address: "192.0.2.1", agent: "a", passkeyId: "key_1" },
  });
  expect(endsAt).toEqual(after(300));
  const [row] = await run("select address, agent, strong_until, passkey_id from sessions");
  expect(row).toEqual({
    ...{ address: "192.0.2.1", agent: "a", strong_until: after(20), passkey_id: "key_1" },
  });
});
