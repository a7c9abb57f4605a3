// Who has which role, in accounts and among the operators, against a model beside others.

import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import * as sql from "../../gen/sql/people.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { fillTable } from "../support/rows.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const earlier = new Date(now.getTime() - 60_000);

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
afterAll(() => close());
beforeAll(async () => {
  for (const [accountId, name] of [
    ["acc_1", "Zoo"],
    ["acc_2", "Ant"],
    ["acc_3", "Ant"],
  ])
    await run("insert into accounts (account_id, name) values ($1, $2)", [accountId, name]);
});

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

const roles = ["viewer", "member", "owner"] as const;
type Role = (typeof roles)[number];
const accounts = ["acc_1", "acc_2"] as const;
const operators = ["none", "support", "admin"] as const;

/** Each operator role with each state, and one who was deleted. Logins run against the ids. */
const people = operators.flatMap((operator) =>
  [false, true].flatMap((isDisabled) =>
    [false, true].map((hasEmail) => ({ operator, isDisabled, hasEmail })),
  ),
);
const all = people.map((one, index) => ({
  ...one,
  personId: `per_${String(index).padStart(2, "0")}`,
  login: `login${String(99 - index)}`,
  /** Of the first account: all three roles, and nobody's. Of the second, another one. */
  role: roles[(index + Math.floor(index / 4)) % 4],
  roleOfOther: roles[(index + 1 + Math.floor(index / 4)) % 4],
}));
type One = (typeof all)[number];
const emailOf = ({ personId, hasEmail }: One) => (hasEmail ? `${personId}@example.com` : null);
const ids = (some: readonly { readonly personId: string }[]) => some.map((one) => one.personId);
/** No two were seen last at the same time. */
const lastSeen = (personId: string) => new Date(now.getTime() - Number(personId.slice(4)));
const byLogin = (one: One, other: One) => (one.login < other.login ? -1 : 1);

beforeEach(async () => {
  for (const table of ["members", "sessions", "passwords"]) await run(`delete from ${table}`);
  await fillTable(
    postgres,
    "people",
    all.map((one) => ({
      ...{ person_id: one.personId, login: one.login, name: `Name ${one.login.slice(-1)}` },
      ...{ operator: one.operator, email: emailOf(one), created_at: earlier },
      ...{ email_verified_at: one.hasEmail ? earlier : null },
      ...{ disabled_at: one.isDisabled ? earlier : null },
    })),
  );
  await fillTable(
    postgres,
    "members",
    accounts.flatMap((account_id) =>
      membersOf(account_id).map((one) => ({
        ...{ account_id, person_id: one.personId, role: roleIn(account_id, one) },
        joined_at: earlier,
      })),
    ),
  );
  await fillTable(
    postgres,
    "sessions",
    all.flatMap(({ personId: person_id }) =>
      [earlier, lastSeen(person_id), earlier].map((at, index) => ({
        ...{ session_id: `${person_id} ${index}`, person_id, method: "password", made_at: at },
        ...{ digest: `\\x${Buffer.from(`${person_id} ${index}`).toString("hex")}` },
        ...{ used_at: at, ends_at: now, strong_until: now, address: "", agent: "" },
      })),
    ),
  );
});
const roleIn = (accountId: string, one: One) =>
  accountId === "acc_1" ? one.role : one.roleOfOther;
const membersOf = (accountId: string) => all.filter((one) => roleIn(accountId, one) !== undefined);

async function rolesNow(): Promise<Record<string, string>> {
  const rows = await run<{ id: string; role: string }>(
    "select account_id || ' ' || person_id as id, role from members order by 1",
  );
  return Object.fromEntries(rows.map(({ id, role }) => [id, role]));
}

test("a member who is added again keeps the higher role", async () => {
  const [one] = all;
  expect.assert(one);
  const { personId } = one;
  const before = await rolesNow();
  for (const [index, had] of roles.entries())
    for (const [other, given] of roles.entries()) {
      await run("delete from members where account_id = 'acc_3'");
      const put = (role: Role) =>
        postgres.run(sql.putMember, { accountId: "acc_3", personId, role });
      expect((await put(had)).role).toBe(had);
      const kept = roles[Math.max(index, other)];
      expect((await put(given)).role).toBe(kept);
      expect(await rolesNow()).toEqual({ ...before, [`acc_3 ${personId}`]: kept });
    }
});

test("the members of an account are listed, locked and looked up with their roles", async () => {
  for (const accountId of accounts) {
    const members = membersOf(accountId);
    const listed = await postgres.run(sql.listMembers, { accountId, personId: null });
    expect(listed.map(({ personId, role, lastSeenAt }) => [personId, role, lastSeenAt])).toEqual(
      members
        .toSorted(byLogin)
        .map((one) => [one.personId, roleIn(accountId, one), lastSeen(one.personId)]),
    );
    expect(await postgres.run(sql.listRoles, { accountId })).toEqual(
      members.map((one) => ({ personId: one.personId, role: roleIn(accountId, one) })),
    );
    expect(await postgres.run(sql.lockMembers, { accountId })).toEqual(
      members.map((one) => ({
        ...{ personId: one.personId, role: roleIn(accountId, one), enabled: !one.isDisabled },
      })),
    );
    for (const one of all) {
      const { personId } = one;
      const role = roleIn(accountId, one);
      const found = await postgres.run(sql.listMembers, { accountId, personId });
      expect(ids(found)).toEqual(role === undefined ? [] : [personId]);
      const isOwner = role === "owner" && !one.isDisabled;
      const owner = await postgres.run(sql.lockOwner, { accountId, personId });
      expect(owner?.personId).toBe(isOwner ? personId : undefined);
      for (const statement of [sql.shareMember, sql.lockMember])
        expect((await postgres.run(statement, { accountId, personId }))?.role).toBe(role);
    }
  }
  const many = { accountIds: [...accounts], personIds: ids(all.slice(0, 5)) };
  const logins = await postgres.run(sql.listLogins, many);
  expect(logins.map(({ accountId, login }) => `${accountId} ${login}`).sort()).toEqual(
    accounts
      .flatMap((accountId) =>
        membersOf(accountId)
          .filter((one) => all.indexOf(one) < 5)
          .map(({ login }) => `${accountId} ${login}`),
      )
      .sort(),
  );
  const of = async (accountIds: string[], personIds: string[]) =>
    (await postgres.run(sql.listLogins, { accountIds, personIds })).map((one) => one.accountId);
  expect([await of(["acc_1"], []), await of([], ["per_00"])]).toEqual([[], []]);
  expect(await of(["acc_1"], ["per_00"])).toEqual(["acc_1"]);
  const account = (accountId: string) => postgres.run(sql.findAccount, { accountId });
  expect([await account("acc_1"), await account("unknown")]).toEqual([
    ...[{ name: "Zoo", status: "active" }, undefined],
  ]);
});

test("a role is changed, and a member removed, in one account alone", async () => {
  const before = await rolesNow();
  const [accountId, personId] = ["acc_1", "per_02"];
  await postgres.run(sql.updateMember, { accountId, personId, role: "viewer" });
  expect(await rolesNow()).toEqual({ ...before, "acc_1 per_02": "viewer" });
  await postgres.run(sql.deleteMember, { accountId, personId });
  const { "acc_1 per_02": _, ...rest } = before;
  expect(await rolesNow()).toEqual(rest);
});

test("owners, accounts of a person and recipients are those of the account", async () => {
  const owners = await postgres.run(sql.listOwners, { accountIds: [...accounts, "acc_3"] });
  const expected = accounts.flatMap((accountId) =>
    membersOf(accountId)
      .filter((one) => roleIn(accountId, one) === "owner")
      .toSorted(byLogin),
  );
  expect(ids(owners)).toEqual(ids(expected));
  expect(new Set(owners.map((one) => one.owners))).toEqual(new Set([3]));
  // Three at most are named, and all are counted.
  await run("update members set role = 'owner' where account_id = 'acc_1'");
  const more = await postgres.run(sql.listOwners, { accountIds: ["acc_1"] });
  const members = membersOf("acc_1").toSorted(byLogin);
  expect([ids(more), more[0]?.owners]).toEqual([ids(members.slice(0, 3)), members.length]);
  const [first] = members;
  await postgres.run(sql.deletePerson, { personId: first?.personId ?? "" });
  const left = await postgres.run(sql.listOwners, { accountIds: ["acc_1"] });
  expect([ids(left), left[0]?.owners]).toEqual([ids(members.slice(1, 4)), members.length - 1]);
  await postgres.run(sql.putMember, { accountId: "acc_3", personId: "per_00", role: "viewer" });
  const own = await postgres.run(sql.listAccountsOfPerson, { personId: "per_00" });
  expect(own.map(({ accountId, role }) => [accountId, role])).toEqual([
    ["acc_2", "member"],
    ["acc_3", "viewer"],
    ["acc_1", "owner"],
  ]);
});

test("mail of an account goes to its owners and those named, of the operator to its admins", async () => {
  const named = ["per_01", "per_04", "per_05"];
  const canGet = (one: One) => one.hasEmail && !one.isDisabled;
  for (const accountIds of [["acc_1"], ["acc_2", ""], [""]]) {
    const rows = await postgres.run(sql.listRecipients, { accountIds, personIds: named });
    const expected = accountIds.flatMap((accountId) =>
      all
        .filter((one) => {
          const role = roleIn(accountId, one);
          if (accountId === "") return one.operator === "admin" && canGet(one);
          const isNamed = role !== undefined && named.includes(one.personId);
          return canGet(one) && (role === "owner" || isNamed);
        })
        .map((one) => `${accountId} ${emailOf(one)}`),
    );
    expect(rows.map(({ accountId, address }) => `${accountId} ${address}`).sort()).toEqual(
      expected.sort(),
    );
  }
});

test("operator admins are those who have the role and may sign in", async () => {
  const admins = all.filter((one) => one.operator === "admin" && !one.isDisabled);
  expect(await postgres.run(sql.lockOperators)).toEqual(
    admins.map(({ personId }) => ({ personId })),
  );
  expect((await postgres.run(sql.countAdmins)).admins).toBe(admins.length);
  const shared = await postgres.run(sql.shareOperators, { personIds: ids(all.slice(0, 9)) });
  expect(ids(shared)).toEqual(ids(admins.filter((one) => all.indexOf(one) < 9)));
  for (const { personId, operator, isDisabled } of all)
    expect((await postgres.run(sql.sharePerson, { personId }))?.operator).toBe(
      isDisabled ? undefined : operator,
    );
  expect(await postgres.run(sql.hasOperator)).toBeDefined();
  for (const change of ["operator = 'support'", "disabled_at = now()"]) {
    await run("update people set operator = 'admin', disabled_at = null");
    await run(`update people set ${change}`);
    expect(await postgres.run(sql.hasOperator)).toBeUndefined();
  }
});

type State = { operator: string; disabled: Date | null; email: string | null };
async function peopleNow() {
  const rows = await run<State & { id: string; verified: Date | null; login: string | null }>(
    `select person_id as id, operator, disabled_at as disabled, email, login,
       email_verified_at as verified
     from people order by 1`,
  );
  return Object.fromEntries(rows.map(({ id, ...one }) => [id, one]));
}

test("a role of an operator, a state and an address are those of one person", async () => {
  const before = await peopleNow();
  const update = (personId: string, isDisabled: boolean) =>
    postgres.run(sql.updatePerson, { personId, operator: "support", isDisabled });
  for (const [personId, isDisabled, disabled] of [
    ["per_00", true, now],
    ["per_02", true, earlier],
    ["per_03", false, null],
  ] as const) {
    await update(personId, isDisabled);
    const changed = { ...before[personId], operator: "support", disabled };
    expect(await peopleNow()).toEqual({ ...before, [personId]: changed });
    Object.assign(before, { [personId]: changed });
  }
  for (const [email, verified] of [
    ["new@example.com", now],
    [null, null],
  ] as const) {
    await postgres.run(sql.setEmail, { personId: "per_01", email });
    const changed = { ...before.per_01, email, verified };
    expect(await peopleNow()).toEqual({ ...before, per_01: changed });
  }
});

test("who was deleted leaves an id, and is found by nobody", async () => {
  const before = await peopleNow();
  for (const [personId, disabled] of [
    ["per_09", now],
    ["per_11", earlier],
  ] as const) {
    await postgres.run(sql.deletePerson, { personId });
    const gone = { operator: "none", disabled, email: null, login: null, verified: null };
    Object.assign(before, { [personId]: gone });
    expect(await peopleNow()).toEqual(before);
    expect(await postgres.run(sql.findPerson, { personId })).toBeUndefined();
    expect(await postgres.run(sql.lockPerson, { personId })).toBeUndefined();
  }
  expect((await postgres.run(sql.findPerson, { personId: "per_00" }))?.lastSeenAt).toEqual(now);
  expect((await postgres.run(sql.lockPerson, { personId: "per_00" }))?.login).toBe("login99");
});

test("a login is found where its person may sign in, and is taken in any case", async () => {
  await run("insert into passwords (person_id, hash) values ('per_00', 'hash'), ('per_01', 'no')");
  for (const { login, personId, isDisabled } of all.slice(0, 4)) {
    const found = await postgres.run(sql.findLogin, { login });
    const hash = { per_00: "hash", per_01: "no" }[personId] ?? null;
    expect(found).toEqual(isDisabled ? undefined : { personId, hash });
    expect(await postgres.run(sql.isLoginTaken, { login })).toBeDefined();
  }
  const has = async (address: string) =>
    (await postgres.run(sql.findAddress, { address })) !== undefined;
  expect([await has("login99"), await has("per_01@example.com"), await has("x")]).toEqual([
    ...[true, true, false],
  ]);
  expect(await postgres.run(sql.isLoginTaken, { login: "x" })).toBeUndefined();
  const insert = (login: string, email: string | null) =>
    postgres.run(sql.insertPerson, {
      ...{ personId: `per_${login}`, login, name: "new", operator: "support", email },
    });
  expect([await insert("login99", null), await insert("new", "n@example.com")]).toEqual([0, 1]);
  await insert("other", null);
  const { per_new, per_other } = await peopleNow();
  expect([per_new, per_other]).toMatchObject([
    { email: "n@example.com", verified: now, operator: "support" },
    { email: null, verified: null },
  ]);
});

test("people are listed by their logins, from one on, and by a part of a login or a name", async () => {
  const list = async (text: string, afterLogin = "", rows = 99) =>
    ids(await postgres.run(sql.listPeople, { text, afterLogin, rows }));
  const inOrder = all.toSorted(byLogin);
  expect(await list("")).toEqual(ids(inOrder));
  expect(await list("", inOrder[2]?.login, 2)).toEqual(ids(inOrder.slice(3, 5)));
  expect(await list("GIN9")).toEqual(ids(inOrder.filter(({ login }) => login > "login9")));
  expect(await list("name 8")).toEqual(ids(inOrder.filter(({ login }) => login.endsWith("8"))));
  expect(await list("nobody")).toEqual([]);
});

test("the accounts that a network got are counted for a day, and kept for two", async () => {
  await run("delete from sign_ups");
  const at = (hours: number, ms: number) => new Date(now.getTime() - hours * 3_600_000 + ms);
  const made: [string, string, Date][] = [24, 48].flatMap((hours) =>
    [-1, 0, 1].map((ms): [string, string, Date] => [`a ${hours} ${ms}`, "n1", at(hours, ms)]),
  );
  for (const [accountId, network, madeAt] of [...made, ["other", "n2", now] as const])
    await run("insert into sign_ups (account_id, network, made_at) values ($1, $2, $3)", [
      ...[accountId, Buffer.from(network), madeAt],
    ]);
  expect((await postgres.run(sql.countSignUps, { network: Buffer.from("n1") })).made).toBe(1);
  await postgres.run(sql.insertSignUp, { accountId: "other", network: Buffer.from("n1") });
  await postgres.run(sql.removeSignUps);
  const left = await run<{ id: string; network: string }>(
    "select account_id as id, convert_from(network, 'UTF8') as network from sign_ups order by 1",
  );
  expect(left.map(({ id, network }) => `${network} ${id}`)).toEqual([
    ...["n1 a 24 -1", "n1 a 24 0", "n1 a 24 1", "n1 a 48 0", "n1 a 48 1", "n2 other"],
  ]);
});
