// The verifier reads the ledger by slices while it moves: it finds each fault, and nothing else.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Payer } from "../../src/billing/admission.ts";
import { findViolations } from "../../src/billing/verifier.ts";
import { endingWith, holdRequest } from "../support/ledger.ts";
import { query } from "../support/query.ts";
import { freshUsage } from "../support/usage.ts";

let world: Awaited<ReturnType<typeof freshUsage>>;
let payer: Payer;
beforeAll(async () => {
  world = await freshUsage();
  payer = await world.payer(1_000_000_000_000n);
  const other = await world.payer(1_000_000_000_000n, { accountId: payer.accountId, family: "v2" });
  for (const days of [150, 40, 5, 4, 0])
    for (const one of [payer, other, await world.payer(1_000_000_000_000n)])
      for (const output of [1, 2])
        await world.chargeAt(one, world.daysAgo(days), endingWith({ output }), {
          // The hours of a day of long ago are removed before its tags are written.
          tags: days > 100 ? {} : { user: `u${output}` },
        });
  await world.days.run();
  // A fault may break a rule that the database enforces.
  const tables = ["charges", "transfers", "pools", "budgets", "usage_hourly", "usage_daily"];
  for (const table of tables) await world.run(`alter table ${table} disable trigger user`);
  await spendAs("person:ana");
});
afterAll(() => world.close());

/** Requests of a key that a person with a budget manages: settled long ago, now, one that runs. */
async function spendAs(manager: string) {
  const managed = await world.payer(1_000_000_000n);
  await world.payer(0n);
  const { accountId, family, keyId } = managed;
  await world.run("update keys set managed_by = $2 where key_id = $1", [keyId, manager]);
  await world.run(
    `insert into budgets (account_id, family, payer, week_limit) values ($1, $2, $3, 1000000000)`,
    [accountId, family, manager],
  );
  const place = () => world.holds.place(holdRequest(managed, 10), never);
  for (const output of [1, 2, 3, 4])
    await world.holds.settle(await place(), endingWith({ output }));
  await world.run(
    `update charges set settled_at = settled_at - interval '1 hour'
     where request_id in (select request_id from charges where key_id = $1 order by 1 limit 3)`,
    [keyId],
  );
  await place();
}

const never = new AbortController().signal;
// A request may have a charge in each month.
const smallest = { charges: 1, ids: 20, accounts: 1, rows: 1 };
const verifyBy = async (sizes?: typeof smallest) => {
  const violations = await world.postgres.runSlices(
    (db) => findViolations(db, never, sizes),
    never,
  );
  return violations.map(({ invariant, subject, detail }) => [invariant, subject, detail].join());
};

test("a verification of a ledger at rest finds nothing, however small its slices", async () => {
  expect(await verifyBy(smallest)).toEqual([]);
});

test("a verification of a ledger that moves finds nothing, however small its slices", async () => {
  let isOver = false;
  let settled = 0;
  const request = async () => {
    const hold = await world.holds.place(holdRequest(payer, 10), never);
    await world.holds.settle(hold, endingWith({ output: 1 }));
    settled += 1;
  };
  const moving = Array.from({ length: 4 }, async () => {
    while (!isOver) await request();
  });
  try {
    // Ids come faster than they are read one by one.
    expect(await verifyBy({ ...smallest, ids: 1_000 })).toEqual([]);
    expect(await verifyBy()).toEqual([]);
  } finally {
    isOver = true;
    await Promise.all(moving);
  }
  expect(settled).toBeGreaterThan(10);
});

// Of one row each: a change, and the invariant by which it is found.
const anyCharge = "(select request_id from charges order by admitted_at desc limit 1)";
const faults: { name: string; change: string; found: string }[] = [
  {
    name: "a charge that is gone",
    change: `delete from charges where request_id = ${anyCharge}`,
    found: "hours = charges",
  },
  {
    name: "a charge of another amount",
    change: `update charges set amount = amount - 1 where request_id = ${anyCharge}`,
    found: "charge = tokens x price",
  },
  {
    name: "a charge of another account",
    change: `update charges set account_id = 'acc_x' where request_id = ${anyCharge}`,
    found: "charge is of the pool of its key",
  },
  {
    name: "a charge of the other pool",
    change: `update charges set family = case family when 'v1' then 'v2' else 'v1' end
             where request_id = ${anyCharge}`,
    found: "charge is of the pool of its key",
  },
  {
    name: "a charge above its grant",
    change: `update charges set granted_output = 0 where request_id = ${anyCharge}`,
    found: "charged output <= granted output",
  },
  {
    name: "a second charge of a request, in another month",
    change: `insert into charges select account_id, request_id, date_trunc('month', now())::date,
               family, key_id, secret_id, model, input, output, cache_write_5m, cache_write_1h,
               cache_read, thinking, price_version, granted_output, hold, amount, overrun,
               output_over, thinking_over, outcome, basis, attempts, now(), now(), tags
             from charges order by admitted_at limit 1`,
    found: "one charge per request",
  },
  {
    name: "a balance that is off",
    change: "update pools set posted = posted + 1 where family = 'v2'",
    found: "posted = transfers - charges",
  },
  {
    name: "a transfer that is gone",
    change: "delete from transfers where family = 'v2'",
    found: "posted = transfers - charges",
  },
  {
    name: "a held amount without a hold",
    change: "update pools set held = held + 1 where posted > held",
    found: "held = holds",
  },
  {
    name: "a request that a pool counts too often",
    change: "update pools set running = running + 1 where family = 'v2'",
    found: "held = holds",
  },
  {
    name: "a pool that has spent what no key has",
    change: "update pools set spent = spent + 1, posted = posted - 1 where posted > 1 and held = 0",
    found: "spent = that of its keys",
  },
  ...(["spent = spent + 1", "held = held + 1", "running = running + 1"] as const).flatMap(
    (change) =>
      [
        ["key", "not like '%:%'"],
        ["person", "like '%:%'"],
      ].map(([name, which]) => ({
        name: `a budget of a ${name} that is off: ${change}`,
        change: `update budgets set ${change} where payer = (
        select payer from budgets where payer ${which} limit 1)`,
        found: "budget = its charges and holds",
      })),
  ),
  {
    name: "a key without a budget",
    change: `delete from budgets where payer = (
      select payer from budgets where payer not like '%:%' and spent = 0 limit 1)`,
    found: "budget = its charges and holds",
  },
  {
    name: "a budget that is gone, of a person whose requests were charged",
    change: "update budgets set payer = 'person:bob' where payer = 'person:ana'",
    found: "budget = its charges and holds",
  },
  {
    name: "a charge of a person that names another one",
    change: `update charges set manager = 'person:bob' where request_id = (
      select min(request_id) from charges where manager = 'person:ana')`,
    found: "budget = its charges and holds",
  },
  {
    name: "a charge of a person that names nobody",
    change: `update charges set manager = null where request_id = (
      select max(request_id) from charges where manager = 'person:ana')`,
    found: "budget = its charges and holds",
  },
  {
    name: "a hold of a person that names nobody",
    change: "update holds set manager = null where manager is not null",
    found: "budget = its charges and holds",
  },
  {
    name: "an hour that is off",
    change: "update usage_hourly set requests = requests + 1, completed = completed + 1",
    found: "hours = charges",
  },
  {
    name: "an hour that is gone",
    change: "delete from usage_hourly where hour = (select max(hour) from usage_hourly)",
    found: "hours = charges",
  },
  {
    name: "a day that is off, whose hours are there",
    change: `update usage_daily set requests = requests + 1, completed = completed + 1
             where day = (select max(day) from usage_daily)`,
    found: "days = hours",
  },
  {
    name: "a day that is off, whose hours are removed",
    change: `update usage_daily set requests = requests + 1, completed = completed + 1
             where day = (select min(day) from usage_daily)`,
    found: "days = charges",
  },
  {
    name: "a tag that is off",
    change: "update tags_daily set amount = amount + 1",
    found: "tags of days = charges",
  },
  {
    name: "a sum that is not that of its parts",
    change: "update usage_daily set failed = failed + 1",
    found: "sums = their parts",
  },
];

for (const { name, change, found } of faults)
  test(`a verification finds ${name}`, async () => {
    // In a transaction that is rolled back, on one connection.
    const all: string[] = [];
    const rollback = new Error("rolled back");
    const work = world.postgres.transaction(async (tx) => {
      await query(tx, { name: "", text: change }, []);
      const violations = await findViolations(tx, never, smallest);
      all.push(...violations.map(({ invariant }) => invariant));
      throw rollback;
    });
    await expect(work).rejects.toBe(rollback);
    expect(all).toContain(found);
  });

test("a verification ends between two slices when its caller cancels", async () => {
  const caller = new AbortController();
  const verifying = world.postgres.runSlices(
    (db) => findViolations(db, caller.signal, smallest),
    caller.signal,
  );
  caller.abort();
  await expect(verifying).rejects.toThrow();
});
