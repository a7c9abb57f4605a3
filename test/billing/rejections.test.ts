// Rejected requests: counted in memory, written in turn, reported by key, hour and reason.

import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import {
  Bucket,
  QueryRefusalsRequestSchema,
  RefusalGroup,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { findRefusals } from "../../gen/sql/billing.ts";
import { ApiError, type LimitName } from "../../src/base/errors.ts";
import { reasonName } from "../../src/base/reasons.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { Rejections } from "../../src/billing/rejections.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { errorOf } from "../support/billing.ts";
import { log } from "../support/ledger.ts";
import { freshUsage, stamp } from "../support/usage.ts";

let world: Awaited<ReturnType<typeof freshUsage>>;
beforeAll(async () => {
  world = await freshUsage();
});
afterAll(() => world.close());

type Asked = Parameters<typeof create<typeof QueryRefusalsRequestSchema>>[1];
const query = (payer: Payer, asked: Asked = {}, onlyKey?: string) =>
  world.reports.queryRefusals(create(QueryRefusalsRequestSchema, asked), {
    accountId: payer.accountId,
    onlyKey,
  });

test("rejections of several processes are added up, by key and reason", async () => {
  const payer = await world.payer(0n);
  const other = await world.payer(0n, { accountId: payer.accountId });
  const processes = [world, world].map(({ postgres }) => new Rejections({ db: postgres, log }));
  for (const one of processes) {
    for (let times = 0; times < 3; times++) one.count(payer, new ApiError("rate_limited"));
    one.count(payer, new ApiError("credits_exhausted"));
    one.count(other, new ApiError("rate_limited"));
  }
  await Promise.all(processes.map((one) => one.write()));
  processes[0]?.count(payer, new ApiError("rate_limited"));
  await Promise.all(processes.map((one) => one.stop()));
  const groupBy = [RefusalGroup.KEY, RefusalGroup.REASON];
  const { rows, total } = await query(payer, { groupBy });
  expect(total).toBe(11n);
  expect(rows.map(({ keyId, reason, requests }) => [keyId, reasonName(reason), requests])).toEqual(
    [
      [payer.keyId, "credits_exhausted", 2n],
      [payer.keyId, "rate_limited", 7n],
      [other.keyId, "rate_limited", 2n],
    ].sort((one, two) => (`${one[0]}${one[1]}` < `${two[0]}${two[1]}` ? -1 : 1)),
  );
  expect((await query(payer)).rows.map(({ requests }) => requests)).toEqual([11n]);
  expect((await query(payer, { keyIds: [other.keyId] })).total).toBe(2n);
  // A plain key sees its own.
  expect((await query(payer, {}, other.keyId)).total).toBe(2n);
  expect((await query(payer, { keyIds: [payer.keyId] }, other.keyId)).total).toBe(0n);
});

test("pages follow each other, and a range beyond what is kept says where it begins", async () => {
  const payer = await world.payer(0n);
  for (const daysAgo of [90, 60, 30, 1])
    await world.run(
      "insert into errors_hourly (account_id, hour, key_id, reason, requests) values ($1, $2, $3, 'rate_limited', $4)",
      [payer.accountId, world.daysAgo(daysAgo), payer.keyId, daysAgo],
    );
  const asked = { startAt: stamp(world.daysAgo(300)), bucket: Bucket.DAY, pageSize: 3 };
  const first = await query(payer, asked);
  expect(first.total).toBe(181n);
  expect(first.startAt && timestampDate(first.startAt)).toEqual(world.daysAgo(100));
  const second = await query(payer, { ...asked, pageToken: first.nextPageToken });
  expect(second.total).toBeUndefined();
  expect(second.nextPageToken).toBe("");
  const counts = [...first.rows, ...second.rows].map(({ requests }) => Number(requests));
  expect(counts).toEqual([90, 60, 30, 1]);
  const elsewhere = query(payer, { ...asked, bucket: Bucket.HOUR, pageToken: first.nextPageToken });
  expect(await errorOf(elsewhere)).toEqual({ reason: "invalid_request", field: "page_token" });
});

test("counts that cannot be written now are written later", async () => {
  const payer = await world.payer(0n);
  let isAway = true;
  const run: Runner["run"] = (statement, ...parameters) =>
    isAway ? Promise.reject(new Error("away")) : world.postgres.run(statement, ...parameters);
  const rejections = new Rejections({ db: { run }, log });
  rejections.count(payer, new ApiError("rate_limited"));
  await expect(rejections.write()).rejects.toThrow("away");
  rejections.count(payer, new ApiError("rate_limited"));
  isAway = false;
  await rejections.stop();
  const [row] = await world.run<{ requests: bigint }>(
    "select requests from errors_hourly where account_id = $1",
    [payer.accountId],
  );
  expect(row?.requests).toBe(2n);
});

test("a count has the time of the last rejection, whichever process writes it last", async () => {
  const payer = await world.payer(0n);
  const [one, other] = [0, 1].map(() => new Rejections({ db: world.postgres, log }));
  expect.assert(one && other);
  const times = ["2026-03-04T05:10:00Z", "2026-03-04T05:20:00Z", "2026-03-04T05:05:00Z"];
  vi.useFakeTimers({ toFake: ["Date"] });
  try {
    for (const [index, at] of times.entries()) {
      vi.setSystemTime(new Date(at));
      (index === 2 ? other : one).count(payer, new ApiError("rate_limited"));
    }
    // The clock of a process may go back.
    vi.setSystemTime(new Date("2026-03-04T05:15:00Z"));
    one.count(payer, new ApiError("rate_limited"));
  } finally {
    vi.useRealTimers();
  }
  for (const rejections of [one, other]) {
    await rejections.write();
    const [row] = await world.run<{ last_at: Date }>(
      "select last_at from errors_hourly where account_id = $1",
      [payer.accountId],
    );
    expect(row?.last_at).toEqual(new Date("2026-03-04T05:20:00Z"));
  }
});

test("memory is bounded: more keys than it holds are left out, and the ones in it are counted on", async () => {
  const payer = await world.payer(0n);
  const rejections = new Rejections({ db: world.postgres, log, countsMax: 10 });
  for (let key = 0; key < 50; key++) {
    rejections.count({ ...payer, keyId: `key_${key}` }, new ApiError("rate_limited"));
    rejections.count({ ...payer, keyId: "key_0" }, new ApiError("rate_limited"));
  }
  await rejections.stop();
  const rows = await world.run<{ key_id: string; requests: bigint }>(
    "select key_id, requests from errors_hourly where account_id = $1",
    [payer.accountId],
  );
  expect(rows).toHaveLength(10);
  expect(rows.find(({ key_id }) => key_id === "key_0")?.requests).toBe(51n);
});

test("refused requests are kept by their ids, 100 of a key and hour, without words of them", async () => {
  const payer = await world.payer(0n);
  const rejections = new Rejections({ db: world.postgres, log });
  const wrong = new ApiError("invalid_request", { field: "metadata.tag.a secret of theirs" });
  for (let n = 0; n < 150; n++)
    rejections.count(payer, wrong, { requestId: `req_refused_${n}`, model: "a\nmodel" });
  // The same once more, and one of another process.
  rejections.count(payer, new ApiError("rate_limited"), { requestId: "req_refused_0" });
  await rejections.write();
  const other = new Rejections({ db: world.postgres, log });
  other.count(payer, wrong, { requestId: "req_refused_elsewhere" });
  await other.write();
  const found = async (requestId: string) => world.postgres.run(findRefusals, { requestId });
  expect(await found("req_refused_99")).toMatchObject([
    { reason: "invalid_request", model: "a model", facts: { field: "metadata" } },
  ]);
  for (const requestId of ["req_refused_100", "req_refused_elsewhere", "req_refused_none"])
    expect(await found(requestId)).toEqual([]);
});

const refusedOf = async (accountId: string) =>
  Number(
    (
      await world.run<{ refused: bigint }>(
        "select count(*) as refused from refusals where account_id = $1",
        [accountId],
      )
    )[0]?.refused,
  );

test("those of an account are bounded, however many keys and processes it has", async () => {
  const payer = await world.payer(0n);
  // The second process knows nothing of what the first one kept.
  for (const process of ["one", "two"]) {
    const rejections = new Rejections({ db: world.postgres, log });
    for (let key = 0; key < 40; key++)
      for (let n = 0; n < 40; n++)
        rejections.count({ ...payer, keyId: `key_of_many_${key}` }, new ApiError("rate_limited"), {
          requestId: `req_many_${process}_${key}_${n}`,
        });
    await rejections.stop();
    expect(await refusedOf(payer.accountId)).toBe(500);
  }
});

test("a key that floods takes no room of the other keys of its account", async () => {
  const payer = await world.payer(0n);
  const rejections = new Rejections({ db: world.postgres, log });
  for (let n = 0; n < 1_000; n++)
    rejections.count(payer, new ApiError("rate_limited"), { requestId: `req_flooding_${n}` });
  const other = { ...payer, keyId: "key_that_is_quiet" };
  rejections.count(other, new ApiError("rate_limited"), { requestId: "req_of_quiet_key" });
  await rejections.stop();
  expect(await refusedOf(payer.accountId)).toBe(101);
});

test("while nothing can be written, accounts that flood leave room for those of others", async () => {
  const payer = await world.payer(0n);
  let isAway = true;
  const run: Runner["run"] = (statement, ...parameters) =>
    isAway ? Promise.reject(new Error("away")) : world.postgres.run(statement, ...parameters);
  const rejections = new Rejections({ db: { run }, log, countsMax: 200_000 });
  for (let account = 0; account < 50; account++)
    for (let n = 0; n < 1_000; n++)
      rejections.count(
        { accountId: `acc_floods_${account}`, keyId: `key_floods_${account}_${n % 20}` },
        new ApiError("rate_limited"),
        { requestId: `req_floods_${account}_${n}` },
      );
  await expect(rejections.write()).rejects.toThrow("away");
  rejections.count(payer, new ApiError("rate_limited"), { requestId: "req_of_another" });
  isAway = false;
  await rejections.stop();
  const requestId = "req_of_another";
  expect(await world.postgres.run(findRefusals, { requestId })).toHaveLength(1);
  const [row] = await world.run<{ refused: bigint }>(
    "select count(*) as refused from refusals where account_id like 'acc_floods_%'",
  );
  expect(Number(row?.refused)).toBeLessThanOrEqual(10_500);
});

test("what a request needed and what was free is kept, by the limit that it met", async () => {
  const payer = await world.payer(0n);
  const rejections = new Rejections({ db: world.postgres, log });
  const refuse = (name: LimitName, requestId: string) =>
    rejections.count(
      payer,
      new ApiError("credits_exhausted", {
        limit: { name, limit: 5n, remaining: 5n },
        neededMicro: 7n,
      }),
      { requestId },
    );
  refuse("pool_microcredits", "req_needs_of_pool");
  refuse("key_daily_microcredits", "req_needs_of_key");
  await rejections.stop();
  const factsOf = async (requestId: string) =>
    (await world.postgres.run(findRefusals, { requestId }))[0]?.facts;
  const both = { needed_microcredits: "7", limit: "5", remaining: "5" };
  expect(await factsOf("req_needs_of_pool")).toEqual({
    ...both,
    ...{ limit_name: "pool_microcredits", free_microcredits: "5" },
  });
  expect(await factsOf("req_needs_of_key")).toEqual({
    ...both,
    limit_name: "key_daily_microcredits",
  });
});
