// Links, admin tokens, ways in and failed passwords against simple models, beside rows of others.
// The time of the database stands still, so that rows stand exactly at the border of a condition.

import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/people.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { fillTable } from "../support/rows.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);
const timeOf = (ms: number | null) => (ms === null ? null : after(ms));
const [second, hour, day] = [1_000, 3_600_000, 86_400_000];
const near = (ms: number) => [ms - 1, ms, ms + 1];

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
afterAll(() => close());

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);
const fill = (table: string, rows: readonly object[]) => fillTable(postgres, table, rows);
const hex = (text: string) => `\\x${Buffer.from(text).toString("hex")}`;
const bytes = (text: string) => Buffer.from(text);
const byId = (one: { link_id: string }, other: { link_id: string }) =>
  one.link_id < other.link_id ? -1 : 1;

const accounts = ["acc_1", "acc_2"] as const;
const symmetric = ["invitation", "recovery"].flatMap((purpose) =>
  [null, -5].flatMap((usedMs) =>
    [-1, 0, 1].flatMap((endsMs) =>
      accounts.flatMap((accountId) =>
        // The moments at which an invitation counts no more, most for open ones.
        (usedMs === null ? [...near(-day), ...near(-8 * day)] : [-1]).map((madeMs) => ({
          ...{ purpose, usedMs, endsMs, accountId, madeMs },
        })),
      ),
    ),
  ),
);
/** The accounts and the purposes differ in how many open links they have. */
const links = [
  ...symmetric,
  ...["invitation", "recovery", "recovery"].map((purpose) => ({
    ...{ purpose, usedMs: null, endsMs: 1, accountId: "acc_1" as const, madeMs: -7 },
  })),
];
type Link = (typeof links)[number] & {
  readonly link_id: string;
  readonly person_id: string;
  readonly made_by: string;
  readonly login: string;
};
const all: readonly Link[] = links.map((one, index) => ({
  ...one,
  link_id: `lnk_${String(index).padStart(3, "0")}`,
  person_id: `per_${index % 3}`,
  made_by: `person:${index % 2}`,
  login: ["", "ann", "bob", "cid", "dan"][index % 5] ?? "",
}));

async function fillLinks(): Promise<void> {
  await fill(
    "links",
    all.map(({ purpose, usedMs, endsMs, accountId, madeMs, ...more }) => ({
      ...more,
      ...{ digest: hex(more.link_id), purpose, account_id: accountId, role: "member" },
      ...{ made_at: after(madeMs), ends_at: after(endsMs), used_at: timeOf(usedMs) },
      email: `${more.link_id}@example.com`,
    })),
  );
}
const isUnused = ({ usedMs }: Link) => usedMs === null;
const isOpen = (one: Link) => isUnused(one) && one.endsMs > 0;
const isInvitation = ({ purpose }: Link) => purpose === "invitation";

test("a link is found, renewed and used once, while it is open", async () => {
  await fillLinks();
  for (const one of all) {
    const found = await postgres.run(sql.findLink, { digest: bytes(one.link_id) });
    expect(found?.linkId).toBe(isOpen(one) ? one.link_id : undefined);
  }
  for (const { link_id: linkId } of all)
    await postgres.run(sql.renewLink, { linkId, digest: bytes(`new ${linkId}`) });
  const renewed = await run<{ link_id: string }>(
    "select link_id from links where digest = convert_to('new ' || link_id, 'UTF8')",
  );
  expect(renewed.map(({ link_id }) => link_id).sort()).toEqual(
    all.filter(isOpen).map(({ link_id }) => link_id),
  );
  for (const one of all) {
    const { link_id: linkId } = one;
    const use = (digest: string) => postgres.run(sql.useLink, { digest: bytes(digest) });
    if (isOpen(one)) expect(await use(linkId)).toBeUndefined();
    const used = await use(isOpen(one) ? `new ${linkId}` : linkId);
    const { purpose, person_id: personId, accountId, login } = one;
    if (isOpen(one))
      expect(used).toEqual({
        ...{ linkId, purpose, personId, accountId, role: "member", login },
        ...{ endsAt: after(one.endsMs), email: `${linkId}@example.com` },
      });
    else expect(used).toBeUndefined();
    expect(await use(`new ${linkId}`)).toBeUndefined();
  }
  const rows = await run<{ link_id: string; used_at: Date | null }>(
    "select link_id, used_at from links",
  );
  expect(rows.sort(byId)).toEqual(
    all.map((one) => ({
      link_id: one.link_id,
      used_at: isOpen(one) ? now : timeOf(one.usedMs),
    })),
  );
});

test("the invitations of an account are counted, listed and found apart from others", async () => {
  await fillLinks();
  await fill(
    "mails",
    all.map(({ link_id }, index) => ({
      ...{ mail_id: `mai_${index}`, kind: "invitation", address: "a@example.com", link_id },
      ...{ facts: {}, state: index % 2 === 0 ? "sent" : "failed", problem: `p${index}` },
      ...{ attempts: 1, made_at: now, next_at: now, ends_at: now },
    })),
  );
  const stateOf = (one: Link) => (all.indexOf(one) % 2 === 0 ? "sent" : "failed");
  for (const accountId of accounts) {
    const own = all.filter((one) => isInvitation(one) && one.accountId === accountId);
    const made = own.filter(({ madeMs }) => madeMs > -day);
    expect(await postgres.run(sql.countInvitations, { accountId })).toEqual({
      made: made.length,
      resetsAt: after(Math.min(...made.map(({ madeMs }) => madeMs)) + day),
      open: own.filter((one) => isOpen(one) && one.madeMs > -8 * day).length,
    });
    const listed = await postgres.run(sql.listInvitations, { accountId });
    const newest = own
      .filter(isOpen)
      .sort((one, other) => other.madeMs - one.madeMs || -byId(one, other));
    expect(listed.map(({ invitationId, mail }) => [invitationId, mail])).toEqual(
      newest.map((one) => [one.link_id, stateOf(one)]),
    );
    for (const one of all) {
      const found = await postgres.run(sql.findInvitation, { accountId, linkId: one.link_id });
      const isOwn = own.includes(one);
      expect([found?.invitationId, found?.mail]).toEqual(
        isOwn ? [one.link_id, stateOf(one)] : [undefined, undefined],
      );
    }
  }
});

test("the links that are to end do, and no other, and those of a person are deleted", async () => {
  const [accountId] = accounts;
  const some = all.find((one) => isInvitation(one) && isOpen(one) && one.accountId === accountId);
  expect.assert(some);
  const { link_id: linkId, person_id: personId, made_by: madeBy } = some;
  const cases: readonly (readonly [() => Promise<number>, (one: Link) => boolean])[] = [
    [() => postgres.run(sql.endInvitation, { accountId, linkId }), (one) => one === some],
    [() => postgres.run(sql.endInvitation, { accountId: "acc_2", linkId }), () => false],
    [
      () => postgres.run(sql.endLinks, { purpose: "recovery", personId: null }),
      (one) => !isInvitation(one) && isUnused(one),
    ],
    [
      () => postgres.run(sql.endLinks, { purpose: "invitation", personId }),
      (one) => isInvitation(one) && isUnused(one) && one.person_id === personId,
    ],
    [
      () => postgres.run(sql.endLinksOfMaker, { madeBy, accountId: null }),
      (one) => isUnused(one) && one.made_by === madeBy,
    ],
    [
      () => postgres.run(sql.endLinksOfMaker, { madeBy, accountId }),
      (one) => isUnused(one) && one.made_by === madeBy && one.accountId === accountId,
    ],
  ];
  for (const [end, isEnded] of cases) {
    await fillLinks();
    await end();
    const rows = await run<{ link_id: string }>("select link_id from links where used_at = $1", [
      now,
    ]);
    expect(rows.map(({ link_id }) => link_id).sort()).toEqual(
      all.filter(isEnded).map((one) => one.link_id),
    );
  }
  // What may not be ended: used ones, those of another purpose, and those that are over.
  await fillLinks();
  for (const { link_id } of all.filter((one) => !(isInvitation(one) && isOpen(one))))
    for (const of of accounts)
      await postgres.run(sql.endInvitation, { accountId: of, linkId: link_id });
  expect(await run("select from links where used_at = $1", [now])).toHaveLength(0);
  await postgres.run(sql.deleteLinks, { personId, login: "ann" });
  const left = await run<{ link_id: string }>("select link_id from links");
  expect(left.map(({ link_id }) => link_id).sort()).toEqual(
    all
      .filter((one) => one.person_id !== personId && one.login !== "ann")
      .map((one) => one.link_id),
  );
});

test("a link is made for as long as it is to last", async () => {
  await run("delete from links");
  const made = await postgres.run(sql.insertLink, {
    ...{ digest: bytes("new"), linkId: "lnk_new", purpose: "invitation", personId: "per_1" },
    ...{ accountId: "acc_1", role: "viewer", login: "ann", madeBy: "person:1" },
    ...{ lifetimeMs: 1_234, email: "a@example.com" },
  });
  expect(made).toEqual({
    ...{ invitationId: "lnk_new", role: "viewer", login: "ann", createdBy: "person:1" },
    ...{ createdAt: expect.any(Date), endsAt: after(1_234), email: "a@example.com" },
  });
  expect((await postgres.run(sql.findLink, { digest: bytes("new") }))?.personId).toBe("per_1");
});

const free = { pair: 5, network: 20 } as const;
type Failures = {
  readonly kind: "login" | "network" | "pair";
  readonly failures: number;
  readonly lastMs: number;
  readonly waitMs: number;
};
/** A count after a further attempt. Null: no wait. */
function afterAttempt({ kind, failures, lastMs, waitMs }: Failures) {
  if (waitMs > 0) return { kind, failures, counted: false, waitMs };
  if (lastMs < -hour) return { kind, failures: 1, counted: true, waitMs: null };
  const beyond = kind === "login" ? Number.NEGATIVE_INFINITY : failures + 1 - free[kind];
  const wait = Math.min(900, 2 ** Math.min(10, beyond)) * second;
  return { kind, failures: failures + 1, counted: true, waitMs: beyond < 0 ? null : wait };
}
const counts: readonly Failures[] = (["login", "network", "pair"] as const).flatMap((kind) =>
  [1, 3, 4, 5, 13, 14, 15, 18, 19, 20, 28, 29, 40].flatMap((failures) => [
    { kind, failures, lastMs: -1, waitMs: 0 },
    { kind, failures, lastMs: -hour - 1, waitMs: -1 },
    { kind, failures, lastMs: -hour, waitMs: -1 },
    { kind, failures, lastMs: -hour + 1, waitMs: 1 },
    { kind, failures, lastMs: -hour - 1, waitMs: 1 },
    { kind, failures, lastMs: -hour - 1, waitMs: 0 },
  ]),
);
const subjectOf = (index: number) => bytes(`s${String(index).padStart(4, "0")}`);
async function fillFailures(): Promise<void> {
  await fill(
    "sign_in_failures",
    counts.map(({ kind, failures, lastMs, waitMs }, index) => ({
      ...{ subject: `\\x${subjectOf(index).toString("hex")}`, kind, failures },
      ...{ last_at: after(lastMs), wait_until: after(waitMs) },
    })),
  );
}
async function failuresNow() {
  const rows = await run<{ subject: Buffer; failures: number; last: Date; wait: Date }>(
    `select subject, failures, last_at as last, wait_until as wait
     from sign_in_failures order by subject`,
  );
  return rows.map(({ subject, failures, last, wait }) => [
    ...[subject.toString(), failures, last.getTime() - now.getTime()],
    wait.getTime() === 0 ? null : wait.getTime() - now.getTime(),
  ]);
}
const names = counts.map((_, index) => subjectOf(index).toString());

test("failed passwords of a login's network double the wait, up to a quarter of an hour", async () => {
  await fillFailures();
  const asked = counts.map((_, index) => index).filter((index) => index % 7 !== 0);
  const answers = await postgres.run(sql.countAttempts, {
    subjects: [...asked.map(subjectOf), bytes("t new")],
    kinds: [...asked.map((index) => counts[index]?.kind ?? "pair"), "pair"],
  });
  const expected = counts.map(afterAttempt);
  const shown = (one: ReturnType<typeof afterAttempt> | undefined) => [
    ...[one?.kind, one?.failures, one?.counted],
    one?.waitMs ?? -now.getTime(),
  ];
  expect(
    answers.map(({ kind, failures, counted, waitMs }) => [kind, failures, counted, waitMs]),
  ).toEqual([...asked.map((index) => shown(expected[index])), ["pair", 1, true, -now.getTime()]]);
  expect(await failuresNow()).toEqual([
    ...counts.map(({ failures, lastMs, waitMs }, index) => {
      const next = expected[index];
      return asked.includes(index) && next?.counted
        ? [names[index], next.failures, 0, next.waitMs]
        : [names[index], failures, lastMs, waitMs];
    }),
    ["t new", 1, 0, null],
  ]);
});

test("the longest wait counts, a success takes its attempt back, and what has no effect goes", async () => {
  await fillFailures();
  const waitOf = async (...indexes: number[]) =>
    (await postgres.run(sql.readWaits, { subjects: indexes.map(subjectOf) }))?.waitMs;
  const waits = counts.map(({ waitMs }) => waitMs);
  expect(await waitOf(waits.indexOf(0), waits.indexOf(-1))).toBeUndefined();
  await run("update sign_in_failures set wait_until = $1 where subject = $2", [
    ...[after(5), subjectOf(0)],
  ]);
  expect([await waitOf(0), await waitOf(waits.indexOf(1))]).toEqual([5, 1]);
  expect(await waitOf(0, waits.indexOf(1), waits.indexOf(-1))).toBe(5);
  await fillFailures();
  const forgiven = counts.map((_, index) => index).filter((index) => index % 3 === 0);
  await run("update sign_in_failures set failures = 0 where subject = $1", [subjectOf(0)]);
  await postgres.run(sql.forgiveAttempt, { subjects: forgiven.map(subjectOf) });
  expect(await failuresNow()).toEqual(
    counts.map(({ kind, failures, lastMs, waitMs }, index) => {
      if (!forgiven.includes(index)) return [names[index], failures, lastMs, waitMs];
      const left = kind === "pair" || index === 0 ? 0 : failures - 1;
      return [names[index], left, lastMs, null];
    }),
  );
  await fillFailures();
  await postgres.run(sql.removeFailures);
  const left = (await failuresNow()).map(([name]) => name);
  expect(left).toEqual(
    names.filter((_, index) => {
      const { lastMs = 0, waitMs = 0 } = counts[index] ?? {};
      return !(lastMs < -hour && waitMs < 0);
    }),
  );
});

test("a challenge is answered once, until its time is over", async () => {
  await run("delete from spent_challenges");
  const spend = (name: string, lifetimeMs: number) =>
    postgres.run(sql.spendChallenge, { digest: bytes(name), lifetimeMs });
  const spent = [await spend("a", -1), await spend("b", 0), await spend("c", 1)];
  expect([...spent, await spend("a", 5)]).toEqual([1, 1, 1, 0]);
  const ends = await run<{ at: Date }>("select ends_at as at from spent_challenges order by at");
  expect(ends.map(({ at }) => at)).toEqual([-1, 0, 1].map(after));
  await postgres.run(sql.removeChallenges);
  const left = await run<{ digest: Buffer }>("select digest from spent_challenges order by 1");
  expect(left.map(({ digest }) => digest.toString())).toEqual(["b", "c"]);
});

const tokens = [null, -60_000, ...near(-50 * second)].flatMap((usedMs) =>
  [null, -5].map((revokedMs) => ({ usedMs, revokedMs })),
);
const tokenOf = (index: number) => `tok_${index}`;
async function fillTokens(): Promise<void> {
  await fill(
    "admin_tokens",
    tokens.map(({ usedMs, revokedMs }, index) => ({
      ...{ digest: hex(tokenOf(index)), token_id: tokenOf(index), name: `n${index}` },
      ...{ scope: "read", shown: "hint", created_by: "person:1", created_at: now },
      ...{ used_at: timeOf(usedMs), revoked_at: timeOf(revokedMs), allowed_addresses: [] },
    })),
  );
}
async function tokensNow() {
  const rows = await run<{ token_id: string; used_at: Date | null; revoked_at: Date | null }>(
    "select token_id, used_at, revoked_at from admin_tokens order by token_id",
  );
  return rows.map(({ token_id, used_at, revoked_at }) => [token_id, used_at, revoked_at]);
}

test("an admin token is found also when it is revoked, and its use is recorded unless it is", async () => {
  await fillTokens();
  const asked = tokens.map((_, index) => index).filter((index) => index !== 2);
  const found = await postgres.run(sql.findAdminTokens, {
    digests: [...asked.map((index) => bytes(tokenOf(index))), bytes("unknown")],
  });
  expect(found.map(({ tokenId, isRevoked }) => [tokenId, isRevoked]).sort()).toEqual(
    asked.map((index) => [tokenOf(index), tokens[index]?.revokedMs === -5]),
  );
  expect(await tokensNow()).toEqual(
    tokens.map(({ usedMs, revokedMs }, index) => {
      const isUsed =
        index !== 2 && revokedMs === null && (usedMs === null || usedMs < -50 * second);
      return [tokenOf(index), isUsed ? now : timeOf(usedMs), timeOf(revokedMs)];
    }),
  );
  expect((await postgres.run(sql.findAdminToken, { tokenId: "tok_1" }))?.name).toBe("n1");
});

test("admin tokens are listed in pages, locked while they are good, and revoked once", async () => {
  await fillTokens();
  const list = async (afterId: string, rows: number) =>
    (await postgres.run(sql.listAdminTokens, { afterId, rows })).map(({ tokenId }) => tokenId);
  const ids = tokens.map((_, index) => tokenOf(index));
  expect([await list("", 3), await list("tok_2", 2)]).toEqual([ids.slice(0, 3), ids.slice(3, 5)]);
  for (const [index, { revokedMs }] of tokens.entries()) {
    const tokenId = tokenOf(index);
    const expected = revokedMs === null ? { tokenId } : undefined;
    expect(await postgres.run(sql.lockAdminToken, { tokenId })).toEqual(expected);
    expect(await postgres.run(sql.shareTokenByName, { name: `n${index}` })).toEqual(expected);
  }
  for (const [tokenId, at] of [
    ["tok_0", now],
    ["tok_1", after(-5)],
  ] as const)
    expect((await postgres.run(sql.revokeAdminToken, { tokenId }))?.revokedAt).toEqual(at);
  expect((await tokensNow()).map(([, , revoked]) => revoked)).toEqual(
    tokens.map(({ revokedMs }, index) => (index === 0 ? now : timeOf(revokedMs))),
  );
  const insert = (name: string, tokenId: string) =>
    postgres.run(sql.insertAdminToken, {
      ...{ digest: bytes(tokenId), tokenId, name, scope: "all", hint: "hint" },
      ...{ createdBy: "person:1", personId: null, allowedAddresses: [] },
    });
  expect([await insert("N1", "tok_x"), await insert("other", "tok_y")]).toEqual([0, 1]);
});

const persons = ["per_1", "per_2"] as const;
async function fillWays(): Promise<void> {
  for (const table of ["passkeys", "passwords", "identities", "members", "sessions", "people"])
    await run(`delete from ${table}`);
  await fill("people", [
    { person_id: "per_1", login: "ann", disabled_at: null, created_at: now },
    { person_id: "per_2", login: "bob", disabled_at: now, created_at: now },
  ]);
  await fill(
    "passkeys",
    persons.flatMap((person_id) =>
      [2, 1, 2].map((ms, index) => ({
        ...{ credential_id: `c ${person_id} ${index}`, passkey_id: `k ${person_id} ${index}` },
        ...{ person_id, public_key: hex("key"), counter: 5, name: "n", created_at: after(ms) },
      })),
    ),
  );
  await fill(
    "passwords",
    persons.map((person_id) => ({ person_id, hash: `hash ${person_id}`, changed_at: after(-5) })),
  );
  await fill(
    "identities",
    persons.flatMap((person_id) =>
      [2, 1, 2].map((ms, index) => ({
        ...{ issuer: `i${index}`, subject: person_id, identity_id: `d ${person_id} ${index}` },
        ...{ person_id, operator: "none", accounts: {}, created_at: after(ms), used_at: after(-5) },
      })),
    ),
  );
}
const countOf = async (table: string) =>
  (
    await run<{ id: string }>(
      `select ${{ passkeys: "passkey_id", passwords: "person_id" }[table] ?? "identity_id"} as id
       from ${table} order by 1`,
    )
  ).map(({ id }) => id);
const own = (letter: string, person: string) => [0, 1, 2].map((at) => `${letter} ${person} ${at}`);

test("the ways in of a person are counted, found and listed, without those of others", async () => {
  await fillWays();
  const personId = "per_1";
  const ways = async (...issuers: string[]) =>
    (await postgres.run(sql.countWaysIn, { personId, issuers })).ways;
  expect([await ways(), await ways("i0", "i2", "unknown")]).toEqual([4, 6]);
  const inOrder = [`k ${personId} 1`, `k ${personId} 0`, `k ${personId} 2`];
  const passkeys = await postgres.run(sql.listPasskeys, { personId });
  expect(passkeys.map(({ passkeyId }) => passkeyId)).toEqual(inOrder);
  const identities = await postgres.run(sql.listIdentities, { personId });
  expect(identities.map(({ identityId }) => identityId)).toEqual(
    inOrder.map((id) => id.replace("k", "d")),
  );
  const passkeyOf = async (person: string) =>
    (await postgres.run(sql.findPasskey, { credentialId: `c ${person} 1` }))?.personId;
  expect([await passkeyOf("per_1"), await passkeyOf("per_2")]).toEqual(["per_1", undefined]);
  expect((await postgres.run(sql.findPassword, { personId }))?.hash).toBe("hash per_1");
  const found = async (issuer: string, subject: string) =>
    (await postgres.run(sql.findIdentity, { issuer, subject }))?.identityId;
  expect([await found("i1", "per_2"), await found("i3", "per_2")]).toEqual([
    ...["d per_2 1", undefined],
  ]);
});

test("ways in are added once, and a use of one is recorded", async () => {
  await fillWays();
  const personId = "per_1";
  const passkey = (credentialId: string) =>
    postgres.run(sql.insertPasskey, {
      ...{ credentialId, passkeyId: `k ${credentialId}`, personId, name: "n" },
      ...{ publicKey: bytes("key"), counter: 0n },
    });
  expect((await passkey("new"))?.passkeyId).toBe("k new");
  expect(await passkey("new")).toBeUndefined();
  const identity = (issuer: string, subject: string) =>
    postgres.run(sql.insertIdentity, { issuer, subject, identityId: `${issuer} x`, personId });
  expect([await identity("i0", "per_2"), await identity("i9", "per_2")]).toEqual([0, 1]);
  await postgres.run(sql.putPassword, { personId, hash: "changed" });
  expect(await run("select hash, changed_at from passwords order by person_id")).toEqual([
    { hash: "changed", changed_at: now },
    { hash: "hash per_2", changed_at: after(-5) },
  ]);
  for (const [counter, kept] of [
    [4n, 5n],
    [9n, 9n],
  ] as const) {
    await postgres.run(sql.usePasskey, { credentialId: "c per_1 1", counter });
    const rows = await run<{ id: string; counter: bigint; used_at: Date | null }>(
      "select passkey_id as id, counter, used_at from passkeys where used_at is not null",
    );
    expect(rows).toEqual([{ id: "k per_1 1", counter: kept, used_at: now }]);
  }
  const use = (person: string) =>
    postgres.run(sql.useIdentity, {
      ...{ identityId: "d per_1 1", personId: person, operator: "admin" },
      accounts: JSON.stringify({ acc_1: "owner" }),
    });
  expect([await use("per_2"), await use("per_1")]).toEqual([0, 1]);
  const used = await run("select identity_id, operator from identities where used_at = $1", [now]);
  expect(used).toEqual([{ identity_id: "d per_1 1", operator: "admin" }]);
});

test("ways in are removed one by one and all at once, of their person alone", async () => {
  const [personId, other] = persons;
  const cases: [() => Promise<number>, string, string[]][] = [
    [
      () => postgres.run(sql.deletePasskey, { personId, passkeyId: `k ${personId} 1` }),
      "passkeys",
      [`k ${personId} 1`],
    ],
    [
      () => postgres.run(sql.deletePasskey, { personId, passkeyId: `k ${other} 1` }),
      "passkeys",
      [],
    ],
    [() => postgres.run(sql.deletePasskeys, { personId }), "passkeys", own("k", personId)],
    [() => postgres.run(sql.deletePassword, { personId }), "passwords", [personId]],
    [
      () => postgres.run(sql.deleteIdentity, { personId, identityId: `d ${personId} 1` }),
      "identities",
      [`d ${personId} 1`],
    ],
    [
      () => postgres.run(sql.deleteIdentity, { personId, identityId: `d ${other} 1` }),
      "identities",
      [],
    ],
    [() => postgres.run(sql.deleteIdentities, { personId }), "identities", own("d", personId)],
  ];
  for (const [remove, table, gone] of cases) {
    await fillWays();
    const before = await countOf(table);
    await remove();
    expect(await countOf(table)).toEqual(before.filter((id) => !gone.includes(id)));
  }
});
