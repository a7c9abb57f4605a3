// Closing, export and removal of months: the audit says the same before and after, and nothing of a
// month is lost, doubled or silently short.

import { createHash } from "node:crypto";
import { appendFile, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ExportAccountRequestSchema } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  Bucket,
  ExportChargesRequestSchema,
  FindRequestsRequestSchema,
  GetReceiptRequestSchema,
  ListChargesRequestSchema,
  UsageGroup,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { handOverKeys } from "../../gen/sql/keys.ts";
import { unlimited } from "../../src/base/budgets.ts";
import { timeOrderedId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { setLimits } from "../../src/billing/budgets.ts";
import { findArchived } from "../../src/billing/reconcile.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import {
  closeMonth,
  exportMonth,
  HistoryError,
  prepareClosing,
  RetentionKeeper,
} from "../../src/history/history.ts";
import { asReader, readRest } from "../../src/history/read-month.ts";
import { keepRetention } from "../../src/history/retention.ts";
import { callBy } from "../support/calls.ts";
import { writeCharges } from "../support/charges.ts";
import { type FreshHistory, historyOfTest } from "../support/history.ts";
import { endingWith, holdRequest, log } from "../support/ledger.ts";
import { query } from "../support/query.ts";
import { addAll } from "../support/sales.ts";
import { addUp, stamp } from "../support/usage.ts";

const fresh = historyOfTest();
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-history-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const newFolder = () => mkdtemp(join(folder, "export-"));

/** As `keepRetention`, when the sums of sales have all charges. */
async function keepAll(
  { ledger }: FreshHistory,
  settings: Parameters<typeof keepRetention>[1],
): ReturnType<typeof keepRetention> {
  await addAll(ledger.postgres);
  return keepRetention(ledger, settings);
}

/** Charges of two accounts and three keys in the months 3 and 2 ago and now, with closed days. */
async function filled(world: FreshHistory): Promise<[Payer, Payer, Payer]> {
  const payer = await world.payer(1_000_000_000n);
  const second = await world.payer(0n, { accountId: payer.accountId });
  const other = await world.payer(1_000_000_000n);
  await world.run("update keys set managed_by = 'person:ana' where key_id = $1", [payer.keyId]);
  await world.run(
    `insert into budgets (account_id, family, payer, month_limit)
     values ($1, 'v1', 'person:ana', 1000000000)`,
    [payer.accountId],
  );
  for (const count of [3, 2, 0])
    for (const one of [payer, second, other]) {
      await world.chargeAgo(one, count, 1 + count);
      await world.chargeAgo(one, count, 7, "model-other");
    }
  await world.days.run();
  expect(await world.store.verifyLedger()).toEqual([]);
  return [payer, second, other];
}

const messageOf = (work: Promise<unknown>) =>
  work.then(
    () => "",
    (error: unknown) => (error instanceof HistoryError ? error.message : String(error)),
  );

async function removeOldest(world: FreshHistory, to: string): Promise<void> {
  await closeMonth(world.ledger, world.month(3));
  await exportMonth(world.ledger, { month: world.month(3), to });
  await keepAll(world, { months: 2, sink: undefined });
}

test("the audit and every report say the same before and after closing and removal", async () => {
  const world = await fresh();
  const [payer, second, other] = await filled(world);
  const ask = async ({ accountId }: Payer) => {
    const scope = { accountId, onlyKey: undefined };
    const groups = [UsageGroup.KEY, UsageGroup.MODEL];
    const question = { startAt: stamp(world.monthsAgo(5)), groupBy: groups };
    const [pages, totals] = [
      await world.queryAll({ ...question, bucket: Bucket.MONTH }, scope),
      await world.query({ ...question, bucket: Bucket.NONE }, scope),
    ];
    return { rows: pages.flatMap(({ rows }) => addUp(rows)), totals: totals.totals };
  };
  const balances = () =>
    world.run("select account_id, family, posted, held from pools order by 1, 2");
  const before = [await ask(payer), await ask(other), await balances()];
  const closing = await closeMonth(world.ledger, world.month(3));
  expect(closing).toMatchObject({ charges: 6n });
  await closeMonth(world.ledger, world.month(2));
  expect(await world.store.verifyLedger()).toEqual([]);
  const to = await newFolder();
  for (const count of [3, 2]) await exportMonth(world.ledger, { month: world.month(count), to });
  await keepAll(world, { months: 1, sink: undefined });
  const left = await world.run<{ month: string }>("select distinct month from charges");
  expect(left.map(({ month }) => month)).toEqual([world.month(0)]);
  expect(await world.store.verifyLedger()).toEqual([]);
  expect([await ask(payer), await ask(other), await balances()]).toEqual(before);
  expect(second.accountId).toBe(payer.accountId);
});

test("the audit sees a change of what a closed month sums up to", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  await closeMonth(world.ledger, world.month(3));
  const violations = async () =>
    [...new Set((await world.store.verifyLedger()).map(({ invariant }) => invariant))].sort();
  await expect(world.run("update closed_months set amount = 0")).rejects.toThrow("append-only");
  await expect(world.run("truncate month_closings")).rejects.toThrow("append-only");
  await world.run("alter table closed_months disable trigger user");
  await world.run(
    "update closed_months set amount = amount + 1 where account_id = $1 and key_id = $2 and model = 'model-test'",
    [payer.accountId, payer.keyId],
  );
  expect(await violations()).toEqual([
    "a closed month = its sums",
    "budget = its charges and holds",
    "days = closed months",
  ]);
});

test("the audit sees a change of what a person has spent in a closed month", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  await closeMonth(world.ledger, world.month(3));
  await closeMonth(world.ledger, world.month(2));
  const spent = await world.run("select month::text, amount from closed_budgets order by 1");
  const charged = await world.run(
    `select month::text, sum(amount)::bigint as amount from closed_months where key_id = $1
     group by month order by 1`,
    [payer.keyId],
  );
  expect([spent, spent.length]).toEqual([charged, 2]);
  const violations = async () =>
    (await world.store.verifyLedger()).map(({ invariant, subject }) => [invariant, subject]);
  expect(await violations()).toEqual([]);
  const month = world.month(2);
  const tamper = () =>
    world.run("update closed_budgets set amount = amount + 1 where month = $1", [month]);
  const refused = "closed_budgets of a closed month is append-only";
  await expect(tamper()).rejects.toThrow(refused);
  for (const text of [
    "delete from closed_budgets where month = $1",
    `insert into closed_budgets (account_id, "family", payer, month, amount)
     values ('acc', 'v1', 'person:eve', $1, 1)`,
    "update closed_budgets set month = month + interval '10 years' where month = $1",
  ])
    await expect(world.run(text, [month])).rejects.toThrow(refused);
  await expect(world.run("truncate closed_budgets")).rejects.toThrow("is append-only");
  await world.run("alter table closed_budgets disable trigger user");
  await tamper();
  expect(await violations()).toEqual([
    ["budget = its charges and holds", `${payer.accountId}/v1/person:ana`],
  ]);
});

test("months close while limits change, keys change hands and requests run, without a deadlock", async () => {
  const world = await fresh();
  const payers = await filled(world);
  const [{ accountId, family }] = payers;
  let isOver = false;
  let changes = 0;
  const never = new AbortController().signal;
  const changing = async () => {
    for (; !isOver; changes++) {
      for (const payer of ["person:ana", ""])
        await world.store.transaction((tx) =>
          setLimits(
            tx,
            { accountId, family, payer },
            { ...unlimited, day: BigInt(10 ** 9 + changes) },
          ),
        );
      const managers = ["person:ana", "person:ben"];
      const to = managers[changes % 2];
      const values = { accountId, managedBy: managers[(changes + 1) % 2] ?? "", next: to ?? "" };
      await world.store.transaction((tx) =>
        tx.run(handOverKeys, { ...values, changeId: timeOrderedId("chg_") }),
      );
    }
  };
  const spending = async () => {
    while (!isOver)
      for (const payer of payers) {
        const hold = await world.holds.place(holdRequest(payer, 10), never);
        await world.holds.settle(hold, endingWith({ output: 1 }));
      }
  };
  const busy = Promise.all([changing(), spending(), spending(), spending()]);
  for (const count of [3, 2]) await closeMonth(world.ledger, world.month(count));
  isOver = true;
  await busy;
  expect(changes).toBeGreaterThan(0);
  expect(await world.store.verifyLedger()).toEqual([]);
  const [row] = await world.run<{ deadlocks: bigint }>(
    "select deadlocks from pg_stat_database where datname = current_database()",
  );
  expect(row?.deadlocks).toBe(0n);
});

test("the role of the gateway reads closed months, and cannot write them", async () => {
  const world = await fresh();
  await filled(world);
  await closeMonth(world.ledger, world.month(3));
  const { postgres } = world.ledger;
  const run = (text: string) => query(postgres, { name: "", text }, []);
  expect(await run("select * from closed_months")).toHaveLength(6);
  for (const text of [
    "insert into month_closings select * from month_closings",
    "insert into closed_months select * from closed_months",
    "insert into month_archives (month, sha256, place) values ('2026-01-01', '', '')",
    "update month_archives set dropped_at = now()",
    "update closing_blocks set sha256 = ''",
    "delete from closing_sums",
  ])
    await expect(run(text)).rejects.toThrow("permission denied");
});

test("a month is refused while it runs, has a hold, an open month before it or open days", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  const close = (count: number) => messageOf(closeMonth(world.ledger, world.month(count)));
  expect(await close(0)).toMatch(/cannot be closed: it is not over/);
  expect(await close(-1)).toMatch(/cannot be closed: it is not over/);
  expect(await close(2)).toMatch(/before it is open/);
  expect(await close(9)).toMatch(/has no charges of it/);
  const hold = await world.holdAt(payer, world.monthsAgo(3));
  expect(await close(3)).toMatch(/1 of its requests still hold credits, the oldest since 20/);
  await world.settle(hold, endingWith({ output: 2 }));
  await world.days.mend(world.monthsAgo(3).toISOString().slice(0, 10));
  await world.run("update usage_progress set closed_to = $1::date, tags_to = $1::date", [
    world.month(3),
  ]);
  expect(await close(3)).toMatch(/the usage of its days is not complete/);
  await world.days.run();
  expect(await close(3)).toBe("");
  expect(await close(3)).toBe("");
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("a charge that breaks a rule, and days that differ, keep a month open", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  await world.run("update usage_daily set requests = requests + 1, completed = completed + 1");
  expect(await messageOf(closeMonth(world.ledger, world.month(3)))).toMatch(
    /its days differ from its charges in 6 places/,
  );
  await world.run("update usage_daily set requests = requests - 1, completed = completed - 1");
  // Its amount is not that of its tokens. The first closing has sealed the month.
  const partition = `charges_${world.month(3).slice(0, 7).replace("-", "_")}`;
  await world.run(`alter table ${partition} disable trigger closed`);
  await writeCharges(world.run, { payer, count: 1, from: world.monthsAgo(3), stepMs: 1 });
  expect(await messageOf(closeMonth(world.ledger, world.month(3)))).toMatch(
    /1 of its charges break a rule/,
  );
  expect(await world.run("select * from month_closings")).toEqual([]);
  expect(await world.run("select * from closed_months")).toEqual([]);
});

test("a closing month takes no late charge: its settlement fails, and nothing of it is stored", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  await closeMonth(world.ledger, world.month(3));
  // As a database whose clock was set back by months would admit it.
  const hold = await world.holdAt(payer, world.monthsAgo(3));
  const text = `insert into charges select account_id, request_id, month, family, key_id, secret_id,
      model, 0, 0, 0, 0, 0, 0, price_version, 1, 1, 0, 0, 0, 0, 'reaped', 'reported', '[]',
      admitted_at, now() from holds where request_id = $1`;
  await expect(world.run(text, [hold.requestId])).rejects.toThrow(
    /the month of charges_\d{4}_\d\d is closed/,
  );
  expect((await world.store.verifyLedger()).map(({ invariant }) => invariant)).toContain(
    "no hold of a closed month",
  );
});

test("of two processes that close a month, one does, and both find it closed", async () => {
  const world = await fresh();
  await filled(world);
  const month = world.month(3);
  const both = await Promise.allSettled([
    closeMonth(world.ledger, month),
    closeMonth(world.ledger, month),
  ]);
  for (const one of both)
    if (one.status === "rejected")
      expect(String(one.reason)).toMatch(/another process reads or closes a month/);
  expect(both.some(({ status }) => status === "fulfilled")).toBe(true);
  expect(await world.run("select * from month_closings")).toHaveLength(1);
  expect(await world.run("select * from closing_sums")).toEqual([]);
  expect(await world.store.verifyLedger()).toEqual([]);
});

test("an export read back is the ledger, and its digest that of the closing", async () => {
  const world = await fresh();
  await filled(world);
  const month = world.month(3);
  await world.run("alter table charges disable trigger user");
  await world.run(
    "update charges set tags = $1 where request_id in (select min(request_id) from charges)",
    [JSON.stringify({ team: 'a"b\\', env: "x=y\n{}" })],
  );
  const rows = await world.run<Record<string, unknown>>(
    `select account_id, request_id, family, key_id, secret_id, model, outcome, basis, price_version,
       hold, amount, overrun, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
       granted_output, output_over, thinking_over, attempts, coalesce(tags, '{}') as tags,
       to_char(admitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US') as admitted_at,
       to_char(settled_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US') as settled_at
     from charges where month = $1 order by charges.settled_at, request_id, account_id`,
    [month],
  );
  const closing = await closeMonth(world.ledger, month);
  const { folder: path, manifest } = await exportMonth(world.ledger, {
    month,
    to: await newFolder(),
  });
  const file = await readFile(join(path, manifest.file), "utf8");
  const lines = file
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  // To the microsecond, without its zeros.
  const canonical = (value: unknown) => {
    const [seconds, fraction = ""] = String(value).replace(/Z$/, "").split(".");
    return `${seconds}.${fraction.replace(/0+$/, "")}`;
  };
  expect(lines).toEqual(
    rows.map((row) => ({
      ...Object.fromEntries(
        Object.entries(row).map(([name, value]) => [
          name,
          typeof value === "bigint" ? Number(value) : value,
        ]),
      ),
      admitted_at: expect.toSatisfy((at) => canonical(at) === canonical(row.admitted_at)),
      settled_at: expect.toSatisfy((at) => canonical(at) === canonical(row.settled_at)),
    })),
  );
  const digestOf = (text: string | Buffer) => createHash("sha256").update(text);
  expect(manifest).toMatchObject({
    charges: String(rows.length),
    sums: { amount: String(closing.amountMicro) },
    // One block.
    sha256: digestOf(digestOf(file).digest()).digest("hex"),
    fileSha256: digestOf(file).digest("hex"),
    bytes: String(file.length),
  });
  expect(closing.sha256.toString("hex")).toBe(manifest.sha256);
});

/** Charges of one account, three months ago, as if they had been charged by the rules. */
async function addMany(world: FreshHistory, count: number, stepMs: number): Promise<void> {
  const payer = await world.payer(0n);
  await writeCharges(world.run, { payer, count, from: world.monthsAgo(3), stepMs });
  await world.run("alter table charges disable trigger user");
  await world.run(
    `update charges set amount = cost, hold = cost, overrun = 0, granted_output = 10
     from (select request_id as id, input * 10 + 50 as cost from charges) c
     where c.id = request_id`,
  );
  await world.run(
    `insert into usage_hourly (account_id, key_id, model, hour, input, output, amount, amount_input,
       amount_output, requests, completed)
     select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), sum(input),
       sum(output), sum(amount), sum(input * 10), sum(output * 50), count(*), count(*)
     from charges group by 1, 2, 3, 4`,
  );
  await world.days.run();
}

/** Closes the month of `addMany` and exports it: what was closed is what is there. */
async function closeMany(world: FreshHistory, ledger: Ledger = world.ledger) {
  const closing = await closeMonth(ledger, world.month(3));
  const { manifest, folder: path } = await exportMonth(world.ledger, {
    month: world.month(3),
    to: await newFolder(),
  });
  expect(manifest.sha256).toBe(closing.sha256.toString("hex"));
  expect(manifest.charges).toBe(String(closing.charges));
  expect(await world.run("select 1 from closing_blocks")).toEqual([]);
  expect(await world.run("select 1 from closing_sums")).toEqual([]);
  const lines = (await readFile(join(path, manifest.file), "utf8")).trimEnd().split("\n");
  return { closing, ids: new Set(lines.map((line) => JSON.parse(line).request_id)) };
}

type Ledger = Pick<FreshHistory["ledger"], "asOwner">;

/** A ledger that counts the blocks that are digested. */
function counting({ asOwner }: Ledger) {
  const count = { blocks: 0 };
  const ledger: Ledger = {
    asOwner: (work) =>
      asOwner((owner) =>
        work({
          ...owner,
          run: (statement, ...values) => {
            if (statement.name === "history/digest-block") count.blocks += 1;
            return owner.run(statement, ...values);
          },
        }),
      ),
  };
  return { ledger, count };
}

const progressOf = (world: FreshHistory) =>
  world.run(
    `select count(*)::int as blocks, coalesce(sum(charges), 0)::int as charges,
       (select coalesce(sum(requests), 0)::int from closing_sums) as summed
     from closing_blocks`,
  );

test("many charges of one moment are digested, exported and summed up each once", async () => {
  const world = await fresh();
  await addMany(world, 25_000, 0);
  const { closing, ids } = await closeMany(world);
  expect(closing.charges).toBe(25_000n);
  expect(ids.size).toBe(25_000);
});

test("a month is read ahead in whole blocks, and its closing reads the rest alone", async () => {
  const world = await fresh();
  const month = world.month(3);
  await addMany(world, 25_000, 20);
  await world.run("update charges set settled_at = now() - interval '23 hours' where input < 100");
  const { ledger, count } = counting(world.ledger);
  // Its days are not complete: it cannot be closed yet.
  await world.run("update usage_progress set tags_to = $1::date", [month]);
  await keepRetention(ledger, { months: 12, sink: undefined });
  expect(await progressOf(world)).toEqual([{ blocks: 2, charges: 20_000, summed: 20_000 }]);
  await world.days.run();
  count.blocks = 0;
  await prepareClosing(ledger, [month]);
  expect(count.blocks).toBe(1);
  expect(await progressOf(world)).toEqual([{ blocks: 2, charges: 20_000, summed: 20_000 }]);
  const { closing, ids } = await closeMany(world, ledger);
  expect(count.blocks).toBe(2);
  expect(closing.charges).toBe(25_000n);
  expect(ids.size).toBe(25_000);
  await prepareClosing(ledger, [month]);
  expect(count.blocks).toBe(2);
});

// As if a commit had hung for a day, and where nothing seals a month.
for (const [when, isRead] of [
  ["before others that were read ahead", "ahead"],
  ["after a closing that was killed had read all", "whole"],
] as const)
  test(`charges that become visible ${when} are closed with them`, async () => {
    const world = await fresh();
    const month = world.month(3);
    await addMany(world, 12_000, 20);
    const [first, last] = isRead === "ahead" ? [0, 3] : [11_997, 12_000];
    await world.run("create table late as select * from charges where input >= $1 and input < $2", [
      first,
      last,
    ]);
    await world.run("delete from charges where request_id in (select request_id from late)");
    if (isRead === "ahead") await prepareClosing(world.ledger, [month]);
    else await asReader(world.ledger, undefined, (reader) => readRest(reader, month));
    await world.run("insert into charges select * from late");
    const { closing, ids } = await closeMany(world);
    expect(closing.charges).toBe(12_000n);
    expect(ids.size).toBe(12_000);
  });

test("what was read ahead in another form is read again, and so is a month that was refused", async () => {
  const world = await fresh();
  const month = world.month(3);
  await addMany(world, 12_000, 20);
  await prepareClosing(world.ledger, [month]);
  await world.run("update closing_blocks set form = 0, sha256 = ''");
  // It costs less than was summed up.
  await world.run("update charges set amount = amount - 1 where input = 7");
  const broken = /1 of its charges break a rule/;
  expect(await messageOf(closeMonth(world.ledger, month))).toMatch(broken);
  expect(await progressOf(world)).toEqual([{ blocks: 0, charges: 0, summed: 0 }]);
  await world.run("update charges set amount = amount + 1 where input = 7");
  expect((await closeMany(world)).closing.charges).toBe(12_000n);
});

test("an export that is not what was closed is refused, and so is a folder without a manifest", async () => {
  const world = await fresh();
  await filled(world);
  const [month, to] = [world.month(3), await newFolder()];
  expect(await messageOf(exportMonth(world.ledger, { month, to }))).toMatch(
    /is open; npm run close-month/,
  );
  await closeMonth(world.ledger, month);
  const { folder: path, manifest } = await exportMonth(world.ledger, { month, to });
  const again = await exportMonth(world.ledger, { month, to });
  expect(again).toEqual({ folder: path, manifest });
  expect(await readdir(to)).toEqual([month.slice(0, 7)]);
  await appendFile(join(path, manifest.file), "{}\n");
  expect(await messageOf(exportMonth(world.ledger, { month, to }))).toMatch(
    /not the line of a charge/,
  );
  const text = await readFile(join(path, manifest.file), "utf8");
  await writeFile(
    join(path, manifest.file),
    text.replace("{}\n", "").replace('"output":4', '"output":5'),
  );
  expect(await messageOf(exportMonth(world.ledger, { month, to }))).toMatch(
    /not what its manifest/,
  );
  await rm(join(path, "manifest.json"));
  expect(await messageOf(exportMonth(world.ledger, { month, to }))).toMatch(/move the folder away/);
  // A charge that was changed after the closing: nothing is exported.
  await world.run("alter table charges disable trigger user");
  await world.run("update charges set outcome = 'reaped' where month = $1", [month]);
  const elsewhere = await newFolder();
  expect(await messageOf(exportMonth(world.ledger, { month, to: elsewhere }))).toMatch(
    /is not what was closed/,
  );
  expect(await readdir(elsewhere)).toEqual([]);
});

test("charges are removed only when they are old enough, closed, exported and in the sink", async () => {
  const world = await fresh();
  await filled(world);
  const monthsLeft = async () =>
    (await world.run<{ month: string }>("select distinct month from charges order by 1")).map(
      ({ month }) => month,
    );
  const keep = async (months: number, sink?: string) =>
    (await keepAll(world, { months, sink })).map(({ month, why }) => [month, why.message]);
  const oldest = world.month(3);
  expect(await keep(3)).toEqual([]);
  expect(await world.run("select month from month_closings")).toContainEqual({ month: oldest });
  expect(await keep(2)).toEqual([
    [
      oldest,
      `${oldest.slice(0, 7)} is not exported: npm run export -- --month ${oldest.slice(0, 7)} --to DIR`,
    ],
  ]);
  const to = await newFolder();
  await exportMonth(world.ledger, { month: oldest, to });
  expect(await keep(2, "a sink")).toEqual([
    [oldest, `${oldest.slice(0, 7)} is not in the sink a sink yet`],
  ]);
  expect(await keep(3)).toEqual([]);
  expect(await monthsLeft()).toContain(oldest);
  // Two processes at once.
  expect(await Promise.all([keep(2), keep(2)])).toEqual([[], []]);
  expect(await monthsLeft()).not.toContain(oldest);
  expect(
    await world.run("select 1 from pg_class where relname = $1", [
      `charges_${oldest.slice(0, 7).replace("-", "_")}`,
    ]),
  ).toEqual([]);
  expect(
    await messageOf(exportMonth(world.ledger, { month: oldest, to: await newFolder() })),
  ).toMatch(/were removed after an export/);
  // The export that exists can be verified for ever.
  await exportMonth(world.ledger, { month: oldest, to });
});

test("a receipt, a list and a file of charges say what is archived", async () => {
  const world = await fresh();
  const [payer, second, other] = await filled(world);
  const stranger = await world.payer(0n);
  await removeOldest(world, await newFolder());
  const idAt = (at: Date) =>
    `req_${at.getTime().toString(16).padStart(12, "0")}7000a${"0".repeat(15)}`;
  const as = ({ accountId }: Payer) => callBy(environmentToken, { accountId });
  const receipt = (requestId: string, one: Payer) =>
    world.service
      .getReceipt(create(GetReceiptRequestSchema, { requestId, accountId: one.accountId }), as(one))
      .then(
        () => "found",
        ({ reason }) => reason,
      );
  const [old, kept] = [idAt(world.monthsAgo(3)), idAt(world.monthsAgo(2))];
  expect(await receipt(old, payer)).toBe("archived");
  expect(await receipt(old, other)).toBe("archived");
  // An account that was not charged then learns nothing.
  expect(await receipt(old, stranger)).toBe("not_found");
  expect(await receipt(kept, payer)).toBe("not_found");
  expect(await receipt("req_proposed-by-a-caller", payer)).toBe("not_found");
  const find = (requestId: string) =>
    world.service.findRequests(create(FindRequestsRequestSchema, { requestId }), as(payer)).then(
      ({ receipts }) => receipts.length,
      ({ reason }) => reason,
    );
  expect(await find(old)).toBe("archived");
  expect(await find(kept)).toBe(0);

  const list = (one: Payer, from?: Date) =>
    world.service.listCharges(
      create(ListChargesRequestSchema, {
        accountId: one.accountId,
        ...(from && { startAt: stamp(from) }),
      }),
      as(one),
    );
  const start = new Date(`${world.month(2)}T00:00:00Z`);
  const listed = await list(payer);
  expect(listed.charges).toHaveLength(8);
  expect(listed.archivedBefore && timestampDate(listed.archivedBefore)).toEqual(start);
  expect((await list(payer, start)).archivedBefore).toBeUndefined();
  expect((await list(stranger)).archivedBefore).toBeUndefined();

  const csv = async (from?: Date) => {
    let text = "";
    const request = create(ExportChargesRequestSchema, {
      accountId: payer.accountId,
      ...(from && { startAt: stamp(from) }),
    });
    for await (const part of world.service.exportCharges(request, as(payer))) text += part.csv;
    return text.trimEnd().split("\n").length - 1;
  };
  expect(await csv()).toBe(8);
  await expect(csv(world.monthsAgo(3))).rejects.toMatchObject({ reason: "archived" });
  expect(second.accountId).toBe(payer.accountId);
});

test("the file of a whole account says from when on its charges are there", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  await removeOldest(world, await newFolder());
  const call = callBy(environmentToken, { accountId: payer.accountId });
  const request = create(ExportAccountRequestSchema, { accountId: payer.accountId });
  let charges = 0;
  let archivedBefore: Date | undefined;
  for await (const part of world.service.exportAccount(request, call)) {
    charges += part.charges.length;
    if (part.archivedBefore) archivedBefore = timestampDate(part.archivedBefore);
  }
  expect(charges).toBe(8);
  expect(archivedBefore).toEqual(new Date(`${world.month(2)}T00:00:00Z`));
});

test("logged charges of an archived month are not taken for lost", async () => {
  const world = await fresh();
  const [payer] = await filled(world);
  await removeOldest(world, await newFolder());
  const { accountId } = payer;
  const logged = [3, 2, 0].map((count) => ({
    accountId,
    requestId: `req_of-month-${count}`,
    family: "v1" as const,
    amountMicro: 1n,
    day: world.monthsAgo(count).toISOString().slice(0, 10),
  }));
  // Admitted in the archived month, and logged in the next one.
  const late = { ...logged[1], day: world.month(2) } as (typeof logged)[number];
  expect(await findArchived(world.store, [...logged, late])).toEqual([logged[0], late]);
});

test("the task counts the months that are due, and ends with its process", async () => {
  const world = await fresh();
  await filled(world);
  const keep = (signal: AbortSignal) =>
    keepRetention(world.ledger, { months: 1, sink: undefined }, signal);
  const keeper = new RetentionKeeper(keep, log);
  expect(keeper.due).toBeUndefined();
  await keeper.run(new AbortController().signal);
  // Closed, and not exported.
  expect(keeper.due).toBe(2);
  expect(await world.run("select 1 from month_closings")).not.toHaveLength(1);
  await keeper.stop();
  const other = await fresh();
  await filled(other);
  const stopped = AbortSignal.abort();
  const waiting = await keepRetention(other.ledger, { months: 1, sink: undefined }, stopped);
  expect(waiting[0]?.why.message).toBe("this process stops");
  expect(await other.run("select 1 from month_closings")).toEqual([]);
});
