// The days of the usage: when they are closed, what a late settlement does, and when hours go.

import { afterAll, beforeEach, expect, test } from "vitest";
import { Bucket } from "../../gen/gateway/usage/v1/usage_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { UsageDays } from "../../src/billing/usage-days.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { writeCharges } from "../support/charges.ts";
import { endingWith, log } from "../support/ledger.ts";
import { query } from "../support/query.ts";
import { freshUsage, stamp, startOf } from "../support/usage.ts";

let world: Awaited<ReturnType<typeof freshUsage>>;
let payer: Payer;
const opened: Awaited<ReturnType<typeof freshUsage>>[] = [];
beforeEach(async () => {
  world = await freshUsage();
  opened.push(world);
  payer = await world.payer(1_000_000_000_000n);
});
afterAll(() => Promise.all(opened.map((one) => one.close())));

const charge = (daysAgo: number, output = 1) =>
  world.chargeAt(payer, world.daysAgo(daysAgo, 3_600_000), endingWith({ output }));
const daily = async () =>
  (
    await world.run<{ day: string; requests: bigint }>(
      "select day, requests from usage_daily order by day",
    )
  ).map(({ day, requests }) => [day, Number(requests)]);
const day = (daysAgo: number) => world.daysAgo(daysAgo).toISOString().slice(0, 10);
const hours = async () =>
  (
    await world.run<{ count: bigint }>(
      "select count(*) as count from usage_hourly where account_id = $1",
      [payer.accountId],
    )
  )[0]?.count;
const reported = async () => {
  const { rows, totals } = await world.query(
    { startAt: stamp(world.daysAgo(300)), bucket: Bucket.DAY },
    { accountId: payer.accountId, onlyKey: undefined },
  );
  const sums = rows.map((row) => [startOf(row).slice(0, 10), Number(row.sums?.requests)]);
  return { rows: sums, total: Number(totals?.requests) };
};

test("days are closed two days after their end, each once, by whichever process comes first", async () => {
  for (const daysAgo of [0, 1, 2, 3, 4, 4, 20]) await charge(daysAgo);
  const others = Array.from({ length: 4 }, () => new UsageDays(world.postgres, log));
  await Promise.all([world.days, ...others].map((one) => one.run()));
  const closed = [
    [day(20), 1],
    [day(4), 2],
    [day(3), 1],
  ];
  expect(await daily()).toEqual(closed);
  expect(await reported()).toEqual({
    rows: [...closed, [day(2), 1], [day(1), 1], [day(0), 1]],
    total: 7,
  });
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("a day with a running request stays open, and so do the days after it", async () => {
  await charge(6);
  const hold = await world.holdAt(payer, world.daysAgo(5));
  await charge(5);
  await charge(4);
  await world.days.run();
  expect(await daily()).toEqual([[day(6), 1]]);
  expect((await reported()).total).toBe(3);
  await world.settle(hold, endingWith({ output: 1 }));
  await world.days.run();
  expect(await daily()).toEqual([
    [day(6), 1],
    [day(5), 2],
    [day(4), 1],
  ]);
  expect((await reported()).total).toBe(4);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("a settlement of a closed day writes the day again, and the verifier sees what is missing", async () => {
  await charge(5);
  await world.days.run();
  await charge(5);
  const violated = (await world.store.verifyLedger()).map(({ invariant }) => invariant);
  expect(violated).toEqual(["days = hours"]);
  world.days.noteSettled(world.daysAgo(5));
  await world.days.stop();
  expect(await daily()).toEqual([[day(5), 2]]);
  expect((await reported()).total).toBe(2);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("many late settlements of a day end in the right sums", async () => {
  await charge(5);
  await world.days.run();
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      await charge(5);
      world.days.noteSettled(world.daysAgo(5));
    }),
  );
  await world.days.stop();
  expect(await daily()).toEqual([[day(5), 21]]);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("a day that cannot be written again now is written at the next turn", async () => {
  await charge(5);
  let isAway = false;
  const days = new UsageDays(
    {
      transaction: (work) =>
        isAway ? Promise.reject(new Error("away")) : world.postgres.transaction(work),
    },
    log,
  );
  await days.run();
  await charge(5);
  isAway = true;
  days.noteSettled(world.daysAgo(5));
  await new Promise((resolve) => setImmediate(resolve));
  isAway = false;
  days.start();
  await days.stop();
  expect(await daily()).toEqual([[day(5), 2]]);
});

test("days that a clock ahead of time has closed are opened again", async () => {
  for (const daysAgo of [5, 1, 0]) await charge(daysAgo);
  await world.days.run();
  await world.run(
    `insert into usage_daily (account_id, day, key_id, model, amount, amount_output, output,
       requests, completed)
     select account_id, (hour at time zone 'utc')::date, key_id, model, amount, amount_output,
       output, requests, completed
     from usage_hourly where hour >= $1`,
    [world.daysAgo(1)],
  );
  await world.run("update usage_progress set closed_to = $1::date", [day(-200)]);
  expect(await world.store.verifyLedger()).toEqual([]);
  await charge(0);
  expect((await world.store.verifyLedger()).length).toBeGreaterThan(0);
  await world.days.run();
  // What is written of the open ones counts no more.
  expect(await world.run("select closed_to from usage_progress")).toEqual([{ closed_to: day(2) }]);
  expect((await reported()).total).toBe(4);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("hours are removed after 101 days, and reports of days go on", async () => {
  for (const daysAgo of [150, 102, 101, 100, 99]) await charge(daysAgo);
  await world.days.run();
  expect(await hours()).toBe(3n);
  expect(await reported()).toEqual({
    rows: [150, 102, 101, 100, 99].map((daysAgo) => [day(daysAgo), 1]),
    total: 5,
  });
  expect(await world.store.verifyLedger()).toEqual([]);
  // A settlement of such a day is added to it, since its hours are gone.
  await charge(150);
  expect((await world.store.verifyLedger()).length).toBeGreaterThan(0);
  await world.days.mend(day(150));
  expect(await hours()).toBe(3n);
  expect(await daily()).toContainEqual([day(150), 2]);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("a day that differs from its hours is mended before they are removed", async () => {
  await charge(120, 5);
  await world.run(
    `insert into usage_daily (account_id, day, key_id, model, amount, requests)
     select account_id, (hour at time zone 'utc')::date, key_id, model, 1, 1 from usage_hourly`,
  );
  await world.run("update usage_progress set closed_to = $1::date", [day(50)]);
  expect((await world.store.verifyLedger()).length).toBeGreaterThan(0);
  await world.days.run();
  expect(await hours()).toBe(0n);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("counts of rejected requests are removed with the hours", async () => {
  const { accountId, keyId } = payer;
  for (const daysAgo of [150, 99])
    await world.run(
      "insert into errors_hourly (account_id, hour, key_id, reason, requests) values ($1, $2, $3, 'rate_limited', 1)",
      [accountId, world.daysAgo(daysAgo), keyId],
    );
  await world.days.run();
  const left = await world.run<{ hour: Date }>("select hour from errors_hourly");
  expect(left.map(({ hour }) => hour)).toEqual([world.daysAgo(99)]);
});

/** Many charges of one account, and some of five others, with tags, on the days 150 and 5. */
async function writeMany(): Promise<void> {
  const others = await Promise.all(Array.from({ length: 5 }, () => world.payer(0n)));
  for (const [index, one] of [payer, ...others].entries())
    for (const [daysAgo, count] of [
      [150, 30],
      [5, index === 0 ? 800 : 7],
    ] as const)
      await writeCharges(world.run, {
        payer: { ...one, keyId: `${one.keyId}_${daysAgo}` },
        count,
        from: world.daysAgo(daysAgo),
        stepMs: 100_000,
        // Some values cost the same, and one looks like the name of the others.
        tags: `jsonb_build_object('user', 'u' || n % 70, 'env',
          case n % 3 when 0 then '(other)' else 'e' || n % 2 end)`,
      });
  await world.run("analyze");
}

/** Closes the days of all charges, and returns what is written then. */
async function closeAll(days: UsageDays) {
  for (const table of ["usage_hourly", "usage_daily", "tags_daily"])
    await world.run(`delete from ${table}`);
  await world.run(
    `insert into usage_hourly (account_id, key_id, model, hour, input, output, amount, amount_input,
       amount_output, requests, completed)
     select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), sum(input),
       sum(output), sum(amount), sum(amount_input), sum(amount_output), count(*), count(*)
     from charge_sums group by 1, 2, 3, 4`,
  );
  const start = "0001-01-01";
  await world.run("update usage_progress set closed_to = $1, hours_from = $1, tags_to = $1", [
    start,
  ]);
  await days.run();
  return readAll();
}

async function readAll() {
  return [
    await world.run("select * from usage_daily order by account_id, day, key_id, model"),
    await world.run("select * from tags_daily order by account_id, tag, value, key_id"),
    await world.run("select account_id, key_id, hour from usage_hourly order by 1, 2, 3"),
    await world.run("select closed_to, hours_from, removed_to, tags_to from usage_progress"),
    await world.run("select * from tag_sums"),
  ];
}

test("days are written by slices as in one transaction, and no slice has many rows", async () => {
  await writeMany();
  const many = { accounts: 1e6, hours: 1e6, charges: 1e6, sums: 1e6, values: 20 };
  const whole = await closeAll(new UsageDays(world.postgres, log, many));
  const rows: number[] = [];
  const transaction: typeof world.postgres.transaction = (work) =>
    world.postgres.transaction(async (tx) => {
      // The tables are too small for an index.
      await query(tx, { name: "", text: "set local enable_seqscan = off" });
      const before = await rowsOf(tx);
      const result = await work(tx);
      rows.push((await rowsOf(tx)) - before);
      return result;
    });
  const few = { accounts: 2, hours: 30, charges: 40, sums: 30, values: 20 };
  expect(await closeAll(new UsageDays({ transaction }, log, few))).toEqual(whole);
  expect(whole.map((table) => table.length)).toEqual([12, 71, 28, 1, 0]);
  // A late settlement writes its day again.
  await new UsageDays(world.postgres, log, few).mend(day(5));
  expect(await readAll()).toEqual(whole);
  // Of 40 charges with two tags each, and what they are added to. There are 985 charges.
  expect(Math.max(...rows)).toBeLessThan(200);
});

test("a late settlement is in the tags of its day also while these are written", async () => {
  const next = await world.payer(1_000_000_000_000n);
  const chargeOf = (one: Payer) =>
    world.chargeAt(one, world.daysAgo(5), endingWith({ output: 1 }), { tags: { team: "a" } });
  for (const one of [payer, next, next]) await chargeOf(one);
  const few = { accounts: 2, hours: 30, charges: 2, sums: 30, values: 20 };
  let late: Promise<void> | undefined;
  const transaction: typeof world.postgres.transaction = async (work) => {
    let areWritten = false;
    const result = await world.postgres.transaction((tx) => {
      const run: Runner["run"] = (statement, ...values) => {
        areWritten ||= statement.name === "billing/write-tags";
        return tx.run(statement, ...values);
      };
      return work({ run });
    });
    // The tags of the first account are written, those of the next are not.
    if (areWritten && !late) {
      await chargeOf(payer);
      late = days.mend(day(5));
    }
    return result;
  };
  const days: UsageDays = new UsageDays({ transaction }, log, few);
  await days.run();
  expect.assert(late);
  await late;
  const tags = await world.run<{ account_id: string; requests: bigint }>(
    "select account_id, requests from tags_daily where tag = 'team' and value = 'a' order by 1",
  );
  expect(tags.map(({ requests }) => requests)).toEqual([2n, 2n]);
});

/** The rows that the session has read and written, without those that it has reported. */
async function rowsOf(tx: Runner): Promise<number> {
  const text = `
    select sum(seq_tup_read + idx_tup_fetch + n_tup_ins + n_tup_upd + n_tup_del)::int as rows
    from pg_stat_xact_user_tables`;
  const [row] = await query<{ rows: number }>(tx, { name: "", text });
  return row?.rows ?? 0;
}
