// Which charges a list finds, how far each page looks, and that no plan reads all charges, neither
// of lists nor of exports.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  ExportChargesRequestSchema,
  ListChargesRequestSchema,
  type ListChargesResponse,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { listCharges } from "../../src/billing/charges.ts";
import { exportCharges } from "../../src/billing/export-charges.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { createReports } from "../../src/billing/usage.ts";
import type { Call } from "../../src/contract/contract.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { errorOf, freshBilling } from "../support/billing.ts";
import { writeCharges } from "../support/charges.ts";
import { planOf, scannedCharges } from "../support/plans.ts";

const hourMs = 3_600_000;
const start = new Date("2026-08-20T00:00:00.000Z");
const at = (hours: number) => new Date(start.getTime() + hours * hourMs);

let world: Awaited<ReturnType<typeof freshBilling>>;
let mine: Payer;
let other: Payer;
let busy: Payer;

beforeAll(async () => {
  world = await freshBilling();
  mine = await world.payer(0n);
  other = await world.payer(0n, { accountId: mine.accountId });
  busy = await world.payer(0n);
  // 40 days in two months, a charge an hour; the other key has one charge of each outcome.
  await writeCharges(world.run, { payer: mine, count: 960, from: start, stepMs: hourMs });
  for (const [index, outcome] of ["completed", "client_left", "revoked"].entries())
    await writeCharges(world.run, {
      payer: { ...other, keyId: `${other.keyId}${index}` },
      count: 1,
      from: at(index),
      stepMs: 1,
      outcome,
      model: index === 2 ? "model-rare" : "model-test",
      amountMicro: 5_000n,
    });
  await writeCharges(world.run, { payer: busy, count: 45_000, from: start, stepMs: 60_000 });
});
afterAll(() => world.close());

type Request = MessageInitShape<typeof ListChargesRequestSchema>;

function list(request: Request, call: Call = world.admin): Promise<ListChargesResponse> {
  return world.billing.listCharges(create(ListChargesRequestSchema, request), call);
}

/** All pages. */
async function listAll(request: Request, call?: Call): Promise<ListChargesResponse[]> {
  const pages: ListChargesResponse[] = [];
  let pageToken = "";
  do {
    const page = await list({ ...request, pageToken }, call);
    pages.push(page);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return pages;
}

async function idsOf(request: Request, call?: Call): Promise<string[]> {
  const pages = await listAll({ accountId: mine.accountId, ...request }, call);
  return pages.flatMap(({ charges }) => charges.map(({ requestId }) => requestId));
}

describe("a filter", () => {
  test("of a range takes what was admitted from its start until before its end", async () => {
    const range = { startAt: timestampFromDate(at(10)), endAt: timestampFromDate(at(13)) };
    expect(await idsOf(range)).toEqual(
      [12, 11, 10].map((n) => `req_${mine.keyId}_${String(n).padStart(7, "0")}`),
    );
    expect(await idsOf({ ...range, pageSize: 1 })).toHaveLength(3);
  });

  test("of a range crosses months", async () => {
    // 2026-08-31T22:00Z to 2026-09-01T02:00Z.
    const range = { startAt: timestampFromDate(at(286)), endAt: timestampFromDate(at(290)) };
    expect(await idsOf(range)).toHaveLength(4);
  });

  test("of a key, a model, outcomes or a least amount takes the charges that match", async () => {
    const [first, second, third] = [0, 1, 2].map((index) => `req_${other.keyId}${index}_0000000`);
    expect(await idsOf({ filter: { keyId: `${other.keyId}1` } })).toEqual([second]);
    expect(await idsOf({ filter: { model: "model-rare" } })).toEqual([third]);
    const outcomes = [Outcome.CLIENT_LEFT, Outcome.REVOKED, Outcome.REVOKED];
    expect(await idsOf({ filter: { outcomes } })).toEqual([third, second]);
    expect(await idsOf({ filter: { minChargedMicrocredits: 5_000n } })).toEqual([
      third,
      second,
      first,
    ]);
    const all = { keyId: `${other.keyId}2`, outcomes: [Outcome.CLIENT_LEFT] };
    expect(await idsOf({ filter: all })).toEqual([]);
  });

  test("of what does not exist finds nothing, as of another account's key", async () => {
    for (const filter of [{ keyId: "key_none" }, { keyId: busy.keyId }, { model: "model-none" }])
      expect(await idsOf({ filter })).toEqual([]);
  });

  test("of another key finds nothing for a key that sees only itself", async () => {
    const call = world.keyCall(mine);
    expect(await idsOf({ filter: { keyId: `${other.keyId}1` } }, call)).toEqual([]);
    expect(await idsOf({ filter: { keyId: mine.keyId } }, call)).toHaveLength(960);
    expect(await idsOf({ filter: { model: "model-rare" } }, call)).toEqual([]);
    expect(await idsOf({ filter: { model: "model-rare" } }, world.readerCall(mine))).toHaveLength(
      1,
    );
  });

  test.for<{ fault: string; from: Date; to?: Date; field: string }>([
    { fault: "goes backwards", from: at(2), to: at(1), field: "end_at" },
    { fault: "begins in the future", from: new Date(Date.now() + hourMs), field: "start_at" },
    {
      fault: "is longer than ten years",
      from: new Date("2010-01-01T00:00:00Z"),
      field: "start_at",
    },
  ])("of a range that $fault is an error", async ({ from, to, field }) => {
    const request = {
      accountId: mine.accountId,
      startAt: timestampFromDate(from),
      ...(to && { endAt: timestampFromDate(to) }),
    };
    expect(await errorOf(list(request))).toEqual({ reason: "invalid_request", field });
  });

  test("of an amount below zero is an error", async () => {
    const filter = { minChargedMicrocredits: -1n };
    expect(await errorOf(list({ accountId: mine.accountId, filter }))).toEqual({
      reason: "invalid_request",
      field: "filter.min_charged_microcredits",
    });
  });
});

describe("a page", () => {
  const byAmount = (least: bigint) => ({
    accountId: busy.accountId,
    filter: { minChargedMicrocredits: least },
  });

  test("looks at 20,000 charges and says how far it looked", async () => {
    const request = { ...byAmount(0n), filter: { model: "model-none" } };
    const pages = await listAll(request);
    expect(pages.map(({ charges }) => charges.length)).toEqual([0, 0, 0]);
    const searched = pages.map(({ searchedTo }) => searchedTo && timestampDate(searchedTo));
    const minute = (n: number) => new Date(start.getTime() + n * 60_000);
    expect(searched).toEqual([minute(25_000), minute(5_000), undefined]);
  });

  test("finds across its bounds what the filter asks for, each once", async () => {
    // The amount of the nth charge is n + 100: these are the newest 30,000.
    const pages = await listAll({ ...byAmount(15_100n), pageSize: 1_000 });
    const ids = pages.flatMap(({ charges }) => charges.map(({ requestId }) => requestId));
    expect(ids).toHaveLength(30_000);
    expect(new Set(ids).size).toBe(30_000);
    expect(ids.at(-1)).toBe(`req_${busy.keyId}_0015000`);
  });

  test("that is full says how far it looked too", async () => {
    const { charges, searchedTo } = await list({ accountId: mine.accountId, pageSize: 3 });
    expect(searchedTo).toEqual(charges.at(-1)?.admittedAt);
  });

  test("of another question is refused", async () => {
    const { nextPageToken: pageToken } = await list({ accountId: mine.accountId, pageSize: 1 });
    const questions: Request[] = [
      { accountId: busy.accountId },
      { accountId: mine.accountId, filter: { model: "model-test" } },
      { accountId: mine.accountId, filter: { keyId: mine.keyId } },
      { accountId: mine.accountId, startAt: timestampFromDate(start) },
      { accountId: mine.accountId, endAt: timestampFromDate(at(900)) },
    ];
    for (const question of questions)
      expect(await errorOf(list({ ...question, pageToken }))).toEqual({
        reason: "invalid_request",
        field: "page_token",
      });
    // Another size is the same question.
    expect(
      (await list({ accountId: mine.accountId, pageSize: 7, pageToken })).charges,
    ).toHaveLength(7);
  });
});

test("an export of an account and one of a key have each charge once, also those of one moment", async () => {
  const one = await world.payer(0n);
  const next = { ...one, keyId: `${one.keyId}b` };
  for (const payer of [one, next])
    await writeCharges(world.run, { payer, count: 2_100, from: at(5), stepMs: 0 });
  const parts = {
    store: createLedgerStore(world.postgres),
    usage: createReports(world.postgres.reports),
  };
  const scope = { accountId: one.accountId, onlyKey: undefined };
  const idsOfFile = async (keyId: string) => {
    const request = create(ExportChargesRequestSchema, { keyId });
    let text = "";
    const pages = exportCharges(parts, request, scope, new AbortController().signal);
    for await (const { csv } of pages) text += csv;
    const lines = text.split("\r\n").slice(1, -1);
    return lines.map((line) => line.split(",")[0]);
  };
  const idsOfKey = ({ keyId }: Payer) =>
    Array.from({ length: 2_100 }, (_, n) => `req_${keyId}_${String(n).padStart(7, "0")}`);
  const ofAccount = await idsOfFile("");
  expect(ofAccount.toSorted()).toEqual([...idsOfKey(one), ...idsOfKey(next)].toSorted());
  expect(await idsOfFile(next.keyId)).toEqual(idsOfKey(next));
});

test("a list or an export that takes too long is ended by the database, and says so", async () => {
  const hurried = connectPostgres(world.url, { timeoutMs: 2_100 });
  const client = new Client({ connectionString: world.url });
  await client.connect();
  await client.query("begin; lock table charges");
  const store = createLedgerStore({ ...hurried, run: hurried.reports.run });
  const scope = { accountId: busy.accountId, onlyKey: undefined };
  const never = new AbortController().signal;
  const usage = createReports(world.postgres.reports);
  const lines = exportCharges({ store, usage }, create(ExportChargesRequestSchema), scope, never);
  try {
    // The line of names needs no charge.
    await lines.next();
    const failed = await Promise.all([
      errorOf(listCharges(store, create(ListChargesRequestSchema), scope)),
      errorOf(lines.next()),
    ]);
    expect(failed.map(({ reason }) => reason)).toEqual(Array(2).fill("report_too_large"));
  } finally {
    await Promise.all([client.end(), hurried.close()]);
  }
});

describe("the plan", () => {
  const [from, to] = [new Date("2026-09-01T00:00:00Z"), new Date("2026-09-15T00:00:00Z")];
  const list = {
    ...{ from, before: to, beforeId: "", model: "model-none", outcomes: ["completed"], tags: null },
    madeBy: null,
    ...{ least: 1, looks: 20_000, rows: 101 },
  };
  const page = { after: from, afterId: "", to, rows: 1_000 };

  for (const isGeneric of [false, true]) {
    for (const hasStatistics of [false, true]) {
      const kind = `${isGeneric ? "generic" : "custom"} plan ${hasStatistics ? "with" : "without"} statistics`;
      test(`reads charges through an index, and one month: ${kind}`, async () => {
        if (hasStatistics) await world.run("analyze charges");
        const queries = [
          sql.listCharges.with({ ...busy, ...list }),
          sql.listKeyCharges.with({ ...busy, ...list }),
          sql.exportCharges.with({ ...busy, ...page }),
          sql.exportKeyCharges.with({ ...busy, ...page }),
        ];
        for (const query of queries) {
          const plan = await planOf(world.url, query, isGeneric);
          const tables = plan.flatMap(({ table = "" }) =>
            table.startsWith("charges") ? [table] : [],
          );
          expect(scannedCharges(plan)).toEqual([]);
          expect(tables).toEqual(["charges_2026_09"]);
          // The order comes from the index: a sort would read the whole range first.
          const sorts = plan.filter(({ kind }) => kind === "Sort");
          expect(sorts.length).toBeLessThanOrEqual(1);
        }
      });
    }
  }
});
