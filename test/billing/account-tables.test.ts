// What the statements find and change of an account beside others, against a simple model. The time
// of the database stands still.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/billing.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const before = new Date(now.getTime() - 1);

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
afterAll(() => close());

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

const statuses = ["active", "suspended", "closed"] as const;
const anyAccounts = fc.uniqueArray(
  fc.record({
    number: fc.nat(4),
    name: fc.constantFrom("", "Ana", "BANANA", "ana_%", "%"),
    status: fc.constantFrom(...statuses),
    isChanged: fc.boolean(),
  }),
  { selector: ({ number }) => number, maxLength: 5, size: "max" },
);
type Facts = typeof anyAccounts extends fc.Arbitrary<(infer T)[]> ? T : never;
const idOf = (number: number) => `acc_${number}`;

/** The rows as statements return them, oldest first. All that texts name differs. */
async function write(facts: readonly Facts[]) {
  await run("delete from pools");
  await run("delete from accounts");
  const rows = facts.map(({ number, name, status, isChanged }) => ({
    ...{ accountId: idOf(number), name, createdAt: before, status },
    ...{ statusReason: `reason ${number}`, statusChangedAt: isChanged ? before : null },
    ...{ billingName: `name ${number}`, billingAddress: `address ${number}` },
    ...{ billingTaxId: `tax ${number}`, priceListId: null, priceListAt: null },
  }));
  for (const row of rows)
    await run("insert into accounts values ($1, $2, $3, $4, $5, $6, $7, $8, $9)", [
      ...[row.accountId, row.name, row.createdAt, row.status, row.statusReason],
      ...[row.statusChangedAt, row.billingName, row.billingAddress, row.billingTaxId],
    ]);
  return rows.toSorted((one, other) => (one.accountId < other.accountId ? -1 : 1));
}

const all = () => postgres.run(sql.listAccounts, { after: "", name: "", accountIds: [], rows: 99 });

test("an account is found by its id alone, and accounts by theirs, whichever are there", async () => {
  const ids = fc.uniqueArray(fc.nat(4), { maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(anyAccounts, fc.nat(4), ids, async (facts, number, numbers) => {
      const rows = await write(facts);
      const accountId = idOf(number);
      const own = rows.find((one) => one.accountId === accountId);
      expect(await postgres.run(sql.findAccount, { accountId })).toEqual(own);
      expect(await postgres.run(sql.lockAccount, { accountId })).toEqual(own);
      const status = await postgres.run(sql.readAccountStatus, { accountId });
      expect(status).toEqual(own && { status: own.status });
      const accountIds = numbers.map(idOf);
      const read = await postgres.run(sql.readAccounts, { accountIds });
      expect(read.toSorted((one, other) => (one.accountId < other.accountId ? -1 : 1))).toEqual(
        rows.filter((one) => accountIds.includes(one.accountId)),
      );
    }),
    { numRuns: 60 },
  );
});

test("accounts are listed by age, from any one on, by a part of the name or by their ids", async () => {
  const anyList = fc.record({
    from: fc.option(fc.nat(4)),
    name: fc.constantFrom("", "ana", "na", "%", "_", "x"),
    numbers: fc.uniqueArray(fc.nat(4), { maxLength: 2 }),
    rows: fc.integer({ min: 1, max: 6 }),
  });
  await fc.assert(
    fc.asyncProperty(anyAccounts, anyList, async (facts, { from, name, numbers, rows: most }) => {
      const rows = await write(facts);
      const after = from === null ? "" : idOf(from);
      const accountIds = numbers.map(idOf);
      const isNamed = (one: (typeof rows)[number]) =>
        name === "" || one.name.toLowerCase().includes(name) || accountIds.includes(one.accountId);
      const later = rows.filter(({ accountId }) => accountId > after);
      expect(await postgres.run(sql.listAccounts, { after, name, accountIds, rows: most })).toEqual(
        later.filter(isNamed).slice(0, most),
      );
      expect(await postgres.run(sql.listOpenAccounts, { after, rows: most })).toEqual(
        later
          .filter(({ status }) => status !== "closed")
          .slice(0, most)
          .map(({ accountId, status, statusChangedAt }) => ({
            accountId,
            suspendedAt: status === "suspended" ? statusChangedAt : null,
          })),
      );
    }),
    { numRuns: 100 },
  );
});

test("a change of an account returns it as it is then, and changes no other", async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(2), fc.constantFrom(...statuses), async (number, status) => {
      const rows = await write(
        [0, 1, 2].map((one) => ({ number: one, name: "Ana", status: "active", isChanged: false })),
      );
      const accountId = idOf(number);
      const changed = async (to: object, change: () => Promise<object | number>) => {
        const wanted = rows.map((one) =>
          one.accountId === accountId ? Object.assign(one, to) : one,
        );
        const returned = await change();
        if (typeof returned === "object")
          expect(returned).toEqual(wanted.find((one) => one.accountId === accountId));
        expect(await all()).toEqual(wanted);
      };
      await changed({ name: "Bo" }, () =>
        postgres.run(sql.renameAccount, { accountId, name: "Bo" }),
      );
      const standing = { status, reason: "why" };
      await changed({ status, statusReason: "why", statusChangedAt: now }, () =>
        postgres.run(sql.setAccountStatus, { accountId, ...standing }),
      );
      await changed({ billingName: "N", billingAddress: "A", billingTaxId: "T" }, () =>
        postgres.run(sql.setBillingDetails, { accountId, name: "N", address: "A", taxId: "T" }),
      );
    }),
    { numRuns: 9 },
  );
});

test("the limits of new members are those of their account", async () => {
  await write([0, 1].map((number) => ({ number, name: "", status: "active", isChanged: false })));
  const read = async (number: number) =>
    postgres.run(sql.readDefaultLimits, { accountId: idOf(number) });
  await postgres.run(sql.setDefaultLimits, { accountId: idOf(1), limits: '{"a": 1}' });
  expect([await read(0), await read(1), await read(2)]).toEqual([
    ...[{ defaultMemberLimits: null }, { defaultMemberLimits: { a: 1 } }, undefined],
  ]);
  await postgres.run(sql.setDefaultLimits, { accountId: idOf(1), limits: null });
  expect(await read(1)).toEqual({ defaultMemberLimits: null });
});

test("a new account has its name, and one empty pool of each family", async () => {
  const [other] = await write([{ number: 1, name: "Ana", status: "closed", isChanged: true }]);
  const made = await postgres.run(sql.insertAccount, { accountId: idOf(0), name: "Bo" });
  expect(made).toMatchObject({ accountId: idOf(0), name: "Bo", status: "active" });
  expect(await all()).toEqual([made, other]);
  const pools = await run("select account_id, family, posted, held, account_status from pools");
  expect(pools).toEqual(
    ["v1", "v2"].map((family) => ({
      ...{ account_id: idOf(0), family, posted: 0n, held: 0n, account_status: "active" },
    })),
  );
});
