// Lists of many keys: tags and their groups, what deserves a look, and the days of each key.

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Key, KeyAttention, KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { countAttention, listGroups, pageAccountKeys } from "../../gen/sql/keys.ts";
import { readBudget } from "../../src/base/budgets.ts";
import {
  keyDaysShown,
  keyExpiresSoonDays,
  keyNearBudgetPercent,
  keyUnusedDays,
} from "../../src/base/shown-figures.ts";
import { errorOf, type KeysClient, startTestKeys } from "../support/keys.ts";
import { query } from "../support/query.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
let client: KeysClient;
const run = <Row>(name: string, text: string, values: unknown[] = []) =>
  query<Row>(fixture.database, { name: `test/${name}`, text }, values);

const keysMade = 5_000;
const dayMs = 86_400_000;

beforeAll(async () => {
  fixture = await startTestKeys();
  client = fixture.client;
  // Of every age, use, expiry and budget, without a random number.
  await run(
    "seed keys",
    `with made as (
       insert into keys (key_id, account_id, family, name, status, paused, created_at, expires_at)
       select 'key_' || lpad(n::text, 5, '0'), 'acc_a', case when n % 3 = 0 then 'v2' else 'v1' end,
         repeat('Schlüssel ключ 鍵 ', 4) || n, case when n % 50 = 0 then 'revoked' else 'active' end,
         n % 40 = 0, now() - n % 181 * interval '1 day' - interval '1 minute',
         case when n % 9 = 0 then now() + (n % 20 - 3) * interval '1 day' end
       from generate_series(1, $1::int) n returning key_id
     ), secrets as (
       insert into key_secrets (digest, secret_id, key_id, shown)
       select sha256(key_id::bytea), 'sec_' || key_id, key_id, 'sk-gw1-1AbCd…wXyZ' from made
     ), numbered as (
       select key_id, right(key_id, 5)::int as n from made
     )
     insert into budgets (account_id, family, payer, spent, day, day_base, week_base, month_base,
       last_used_at, day_limit, week_limit, month_limit, total_limit)
     select 'acc_a', case when n % 3 = 0 then 'v2' else 'v1' end, key_id, n % 100,
       (now() at time zone 'utc')::date - n % 40, n % 7, n % 5, n % 3,
       case when n % 4 > 0 then now() - n % 200 * interval '1 day' end,
       case when n % 10 = 1 then 20 end, case when n % 10 = 2 then 70 end,
       case when n % 10 = 3 then 90 end, case when n % 10 = 4 then n % 2 * 100 end
     from numbered`,
    [keysMade],
  );
  await run(
    "seed tags",
    `insert into key_tags (key_id, account_id, tag, value)
     select 'key_' || lpad(n::text, 5, '0'), 'acc_a', t.tag, t.value
     from generate_series(1, $1::int) n
     cross join lateral (values ('team', 'команда 組 ' || n % 12), ('job', 'job-' || n),
       ('run', 'run-' || n)) t (tag, value)
     where t.tag <> 'team' or n % 6 > 0`,
    [keysMade],
  );
  await run("analyze", "analyze keys, budgets, key_tags, key_secrets");
});
afterAll(() => fixture.drop());

async function listAll(more: object): Promise<Key[]> {
  const all: Key[] = [];
  let pageToken = "";
  do {
    const request = { accountId: "acc_a", pageSize: 1000, ...more, pageToken };
    const page = await client.listKeys(request);
    all.push(...page.keys);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all;
}

test("what deserves a look is counted as it is filtered, and as its budget is read", async () => {
  const { attention } = await client.listKeys({ accountId: "acc_a", includeAttention: true });
  const all = await listAll({});
  expect(all).toHaveLength(keysMade);
  const isLive = ({ state: status }: Key) =>
    status === KeyState.ACTIVE || status === KeyState.PAUSED;
  const live = all.filter(isLive);
  const rows = await run<{ keyId: string; numbers: bigint[]; at: Date }>(
    "budgets",
    `select payer as "keyId", now() as at, array[day - date '1970-01-01', spent, held, running,
       day_base, week_base, month_base, total_base, coalesce(day_limit, -1),
       coalesce(week_limit, -1), coalesce(month_limit, -1), coalesce(total_limit, -1),
       coalesce(running_limit, -1)]::bigint[] as numbers
     from budgets where account_id = 'acc_a'`,
  );
  const near = new Set(
    rows
      .filter(({ numbers, at }) =>
        readBudget(numbers.map(BigInt), at).windows.some(
          ({ spent, limit }) =>
            limit !== null && spent * 100n >= limit * BigInt(keyNearBudgetPercent),
        ),
      )
      .map(({ keyId }) => keyId),
  );
  const now = Date.now();
  const msOf = (at: { seconds: bigint } | undefined) => at && Number(at.seconds) * 1000;
  const expected = {
    unused: live.filter(
      ({ createdAt, lastUsedAt }) =>
        (msOf(createdAt) ?? now) < now - keyUnusedDays * dayMs &&
        (msOf(lastUsedAt) ?? 0) < now - keyUnusedDays * dayMs,
    ),
    expiresSoon: live.filter(
      ({ expiresAt }) => (msOf(expiresAt) ?? Infinity) < now + keyExpiresSoonDays * dayMs,
    ),
    nearBudget: live.filter(({ keyId }) => near.has(keyId)),
  };
  for (const [name, keys] of Object.entries(expected))
    expect([name, keys.length > 20]).toEqual([name, true]);
  expect(attention).toMatchObject({
    unused: expected.unused.length,
    expiresSoon: expected.expiresSoon.length,
    nearBudget: expected.nearBudget.length,
  });
  const idsOf = (keys: readonly Key[]) => keys.map(({ keyId }) => keyId);
  for (const [look, keys] of [
    [KeyAttention.UNUSED, expected.unused],
    [KeyAttention.EXPIRES_SOON, expected.expiresSoon],
    [KeyAttention.NEAR_BUDGET, expected.nearBudget],
  ] as const)
    expect(idsOf(await listAll({ attention: look, onlyIds: true }))).toEqual(idsOf(keys));
});

/** How many pages of the database a statement reads. */
async function pagesOf([{ text }, values]: readonly [{ text: string }, readonly unknown[]]) {
  const rows = await run<Record<string, string>>(
    `explain ${text}`,
    `explain (analyze, buffers, format text) ${text}`,
    [...values],
  );
  const lines = rows.map((row) => Object.values(row)[0] ?? "");
  const read = /shared hit=(\d+)(?: read=(\d+))?/.exec(
    lines.find((line) => /Buffers/.test(line)) ?? "",
  );
  return Number(read?.[1] ?? 0) + Number(read?.[2] ?? 0);
}

test("the looks of 5,000 keys are counted from the rows of their account alone", async () => {
  const [statement] = fixture.database.ran.filter((name) => name === "keys/count-attention");
  expect(statement).toBeDefined();
  const pages = await pagesOf(countAttention.with({ accountId: "acc_a" }));
  console.info(`the looks of ${keysMade} keys read ${pages} pages`);
  expect(pages).toBeGreaterThan(0);
  expect(pages).toBeLessThan(2_000);
});

test("a search for a tag reads its entries, and not the tags of every key", async () => {
  const filter = {
    ...{
      accountId: "acc_a",
      statuses: null,
      text: "",
      withoutTag: "",
      attention: "",
      keyIds: null,
    },
    ...{ tags: ["team", "job"], values: ["команда 組 5", "job-5"] },
  };
  const pages = await pagesOf(
    pageAccountKeys.with({
      ...filter,
      ...{ sort: "made", descending: true, after: "", skip: 0, rows: 50 },
    }),
  );
  const groupPages = await pagesOf(
    listGroups.with({ ...filter, tag: "run", prefix: "", after: null, rows: 50 }),
  );
  console.info(`a search for tags in ${keysMade} keys read ${pages} pages, groups ${groupPages}`);
  expect(pages).toBeGreaterThan(0);
  expect(pages).toBeLessThan(1_000);
  expect(groupPages).toBeGreaterThan(0);
  expect(groupPages).toBeLessThan(2_000);
});

test("keys are found by their tags, without one, and by their ids", async () => {
  const team = "команда 組 5";
  const tagged = await listAll({ tags: { team } });
  expect(tagged.length).toBeGreaterThan(300);
  expect(new Set(tagged.map(({ tags }) => tags.team))).toEqual(new Set([team]));
  const both = await listAll({ tags: { team, job: tagged[0]?.tags.job ?? "" } });
  expect(both.map(({ keyId }) => keyId)).toEqual([tagged[0]?.keyId]);
  const without = await listAll({ withoutTag: "team", onlyIds: true });
  expect(without.length).toBe(Math.floor(keysMade / 6));
  const ids = ["key_00007", "key_00003", "key_none", "key_00003"];
  expect((await listAll({ keyIds: ids })).map(({ keyId }) => keyId)).toEqual([
    "key_00003",
    "key_00007",
  ]);
});

test("groups add up to the keys and what they spent, those without the tag first", async () => {
  const { groups, tagKeys, keys } = await client.listKeys({
    accountId: "acc_a",
    groupByTag: "team",
    includeTagKeys: true,
  });
  expect(keys).toEqual([]);
  expect(tagKeys).toEqual(["job", "run", "team"]);
  expect(groups[0]?.value).toBe("");
  const values = groups.map(({ value }) => value);
  expect(values).toEqual(
    [...values].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
  );
  const all = await listAll({});
  expect(groups.reduce((sum, one) => sum + one.keys, 0)).toBe(keysMade);
  const spent = all.reduce((sum, one) => sum + one.monthSpentMicrocredits, 0n);
  expect(groups.reduce((sum, one) => sum + one.monthSpentMicrocredits, 0n)).toBe(spent);
  for (const { value, keys: count } of groups.slice(0, 3)) {
    const filter = value === "" ? { withoutTag: "team" } : { tags: { team: value } };
    expect((await listAll({ ...filter, onlyIds: true })).length).toBe(count);
  }
});

test("of 10,000 values of tags, each answer has a few, by their beginning and in pages", async () => {
  const page = async (more: object) =>
    client.listKeys({ accountId: "acc_a", groupByTag: "job", ...more });
  const first = await page({ valuePrefix: "job-49", pageSize: 20 });
  expect(first.groups.map(({ value }) => value)).toEqual(
    Array.from({ length: keysMade }, (_, n) => `job-${n + 1}`)
      .filter((value) => value.startsWith("job-49"))
      .sort()
      .slice(0, 20),
  );
  expect(first.keys).toEqual([]);
  const values: string[] = [];
  let pageToken = "";
  do {
    const some = await page({ valuePrefix: "job-4", pageSize: 300, pageToken });
    values.push(...some.groups.map(({ value }) => value));
    pageToken = some.nextPageToken;
  } while (pageToken !== "");
  // 4, 4x, 4xx and 4xxx.
  expect(values).toHaveLength(1 + 10 + 100 + 1000);
  expect(new Set(values).size).toBe(values.length);
  expect((await page({ valuePrefix: "nothing" })).groups).toEqual([]);
});

test("the days of a key are what it was charged, from the days and the hours", async () => {
  await run(
    "progress",
    "update usage_progress set closed_to = (now() at time zone 'utc')::date - 2",
  );
  await run(
    "days",
    `insert into usage_daily (account_id, key_id, model, day, amount)
     select 'acc_a', 'key_00001', m, (now() at time zone 'utc')::date - n, n * 10
     from generate_series(3, 40) n cross join (values ('a'), ('b')) models (m)`,
  );
  await run(
    "hours",
    `insert into usage_hourly (account_id, key_id, model, hour, amount)
     select 'acc_a', 'key_00001', 'a', date_trunc('day', now(), 'UTC') - n * interval '1 hour', 1
     from generate_series(0, 48) n`,
  );
  const { keys } = await client.listKeys({
    accountId: "acc_a",
    keyIds: ["key_00001", "key_00002"],
    includeDays: true,
  });
  const expected = Array.from({ length: keyDaysShown }, (_, place) => {
    const ago = keyDaysShown - 1 - place;
    return ago === 0 ? 1n : ago <= 2 ? 24n : BigInt(ago * 20);
  });
  expect(keys.map((key) => key.daysMicrocredits)).toEqual([expected, []]);
});

test.for<[string, object, string]>([
  ["a tag without a value", { tags: { team: "" } }, "invalid_request tags"],
  [
    "eleven tags",
    { tags: Object.fromEntries(Array.from({ length: 11 }, (_, n) => [`t${n}`, "v"])) },
    "invalid_request tags",
  ],
  ["a tag whose key is none", { groupByTag: "no tag" }, "invalid_request group_by_tag"],
  ["no tag that is none", { withoutTag: "=" }, "invalid_request without_tag"],
  [
    "a long beginning",
    { groupByTag: "t", valuePrefix: "x".repeat(201) },
    "invalid_request value_prefix",
  ],
  [
    "1,001 ids",
    { keyIds: Array.from({ length: 1001 }, (_, n) => `key_${n}`) },
    "invalid_request key_ids",
  ],
  ["the token of another tag", { groupByTag: "t", pageToken: "abc" }, "invalid_request page_token"],
])("a list by %s is refused with its field", async ([, more, expected]) => {
  expect(await errorOf(client.listKeys({ accountId: "acc_a", ...more }))).toBe(expected);
});
