// The files of sales, revenue and liabilities: who gets them, and that their lines are those of the
// methods that the page asks.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { SalesBucket, SalesGroup } from "../../gen/gateway/sales/v1/sales_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { parseCredits } from "../../src/base/money.ts";
import { readConfig } from "../../src/config/environment.ts";
import { startGateway } from "../../src/server/gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sumDays } from "../support/sales.ts";

let gateway: TestGateway;
let db: Client;
let cookie = "";
let memberCookie = "";
const from = "2026-01-01";
const to = "2026-07-01";
const range = {
  startAt: timestampFromDate(new Date(from)),
  endAt: timestampFromDate(new Date(to)),
};
const query = `from=${from}&to=${to}`;

beforeAll(async () => {
  gateway = await startTestGateway({ split: false });
  db = new Client({ connectionString: gateway.databaseUrl });
  await db.connect();
  const redeem = async (link: string, login: string) => {
    const answer = await fetch(`${gateway.address}/gateway.people.v1.SignInService/RedeemLink`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        ...{ token: new URL(link).hash.slice(1), login, password: "a long password" },
      }),
    });
    return answer.headers.get("set-cookie")?.split(";")[0] ?? "";
  };
  cookie = await redeem(gateway.ownerLink, "olga");
  const invited = await gateway.admin.core.people.createInvitation(
    { accountId: gateway.accountId, role: AccountRole.OWNER },
    { headers: { authorization: `Session ${cookie.split("=")[1]}` } },
  );
  memberCookie = await redeem(invited.link, "mia");
  await db.query(
    `insert into sales_daily
     select day::date, 'acc_' || n, 'v1', '=model ' || n, 'pro,vider', 'cost_1', 2, n % 2, 10, 20,
       30, 1, 2, 3, 4, 1000001 + n, n, 12345678901 + n
     from generate_series('2026-01-01'::date, '2026-06-30'::date, interval '1 day') day,
       generate_series(1, 15) n`,
  );
  await sumDays((text) => db.query(text));
});
afterAll(async () => {
  await db.end();
  await gateway.stop();
});

const read = (path: string, session = cookie) =>
  fetch(`${gateway.address}/console/export/${path}`, {
    headers: { cookie: session, "sec-fetch-site": "same-origin" },
  });

function parse(text: string): Record<string, string>[] {
  const cells = (line: string) =>
    [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
      ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? "",
    );
  const [head = "", ...lines] = text.split("\r\n").slice(0, -1);
  return lines.map((line) => {
    const values = cells(line);
    return Object.fromEntries(cells(head).map((name, index) => [name, values[index] ?? ""]));
  });
}

/** Units of a decimal with so many places, below zero too. */
function unitsOf(text = "", places: number): bigint {
  const [whole = "", fraction = ""] = text.replace("-", "").split(".");
  const units = BigInt(whole + fraction.padEnd(places, "0"));
  return text.startsWith("-") ? -units : units;
}

test("the lines of sales.csv are the rows of the method, on as many pages as there are", async () => {
  const { operations } = gateway.admin.core;
  const asked = {
    ...range,
    bucket: SalesBucket.DAY,
    groupBy: [SalesGroup.ACCOUNT, SalesGroup.MODEL, SalesGroup.PROVIDER],
    pageSize: 2_000,
  };
  const answer = await read(`sales.csv?${query}&group_by=account,model,provider`);
  expect(answer.headers.get("content-type")).toBe("text/csv; charset=utf-8");
  const lines = parse(await answer.text());
  const first = await operations.querySales(asked, gateway.admin.call);
  const second = await operations.querySales(
    { ...asked, pageToken: first.nextPageToken },
    gateway.admin.call,
  );
  const rows = [...first.rows, ...second.rows];
  expect([first.rows.length, second.nextPageToken]).toEqual([2_000, ""]);
  expect(lines.map((line) => [line.from, line.account_id, line.provider])).toEqual(
    rows.map((row) => [
      timestampDate(row.startAt ?? range.startAt)
        .toISOString()
        .slice(0, 10),
      row.accountId,
      row.provider,
    ]),
  );
  const sum = (name: string, places: number) =>
    lines.reduce((total, line) => total + unitsOf(line[name], places), 0n);
  const { totals } = first;
  expect(totals?.requests).toBe(2n * 15n * 181n);
  expect([
    ...[sum("requests", 0), sum("charged_credits", 6), sum("charged_usd", 9)],
    ...[sum("overrun_credits", 6), sum("cost_usd", 12), sum("uncosted_requests", 0)],
    ...[sum("input", 0), sum("thinking", 0), sum("web_searches", 0)],
  ]).toEqual([
    totals?.requests,
    totals?.chargedMicrocredits,
    (totals?.chargedMicrocredits ?? 0n) * 5n,
    totals?.overrunMicrocredits,
    BigInt(totals?.costPicodollars ?? ""),
    totals?.uncostedRequests,
    ...[totals?.usage?.input, totals?.usage?.thinking, totals?.usage?.webSearches],
  ]);
  expect(lines[0]?.margin_usd).toMatch(/^-0\.0\d+$/);
  expect(lines[0]?.model).toBe("'=model 1");
  const [whole] = parse(await (await read(`sales.csv?${query}&bucket=all`)).text());
  expect(parseCredits(whole?.charged_credits ?? "")).toBe(totals?.chargedMicrocredits);
});

test("the lines of revenue.csv and liabilities.csv are those of their methods", async () => {
  const { operations } = gateway.admin.core;
  const revenue = await read(`revenue.csv?${query}&group_by=asset,kind`);
  expect(await revenue.text()).toBe(
    "from,pack_usd,asset,network,processor,kind,orders,paid_usd,refunded_usd,lost_usd,net_usd," +
      "coins\r\n",
  );
  const tomorrow = new Date(Math.ceil(Date.now() / 86_400_000) * 86_400_000);
  const recent = { from: new Date(tomorrow.getTime() - 3 * 86_400_000), to: tomorrow };
  const days = [recent.from, recent.to].map((day) => day.toISOString().slice(0, 10));
  const lines = parse(await (await read(`liabilities.csv?from=${days[0]}&to=${days[1]}`)).text());
  const { rows } = await operations.queryLiabilities(
    { startAt: timestampFromDate(recent.from), endAt: timestampFromDate(recent.to) },
    gateway.admin.call,
  );
  expect(lines).toHaveLength(3);
  const owed = lines.flatMap((line) => [line.v1_owed_credits, line.v2_owed_credits]);
  expect(owed.map((one) => parseCredits(one ?? ""))).toEqual(
    rows.map((row) => row.owedMicrocredits),
  );
  const pools = await db.query('select posted from pools order by "family"');
  expect(rows.slice(-2).map((row) => row.owedMicrocredits)).toEqual(
    pools.rows.map(({ posted }) => BigInt(posted)),
  );
});

test("every process serves the same files, and keeps none of them", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "gateway-data-"));
  const env = {
    ...{ DATABASE_URL: gateway.databaseUrl, ADMIN_TOKEN: gateway.adminToken, SEED: "false" },
    ...{ PORT: "0", GRPC_PORT: "0", DATA_DIR: dataDir, CONTENT_KEY: contentKey },
  };
  const parts = { config: readConfig(env), catalog: fastCatalog(), env, log: createLog("silent") };
  const other = await startGateway(parts);
  try {
    // Behind one address they share the cookie, too: at localhost its name has the port.
    const port = new URL(other.httpAddress ?? "").port;
    const own = `gateway-session-${port}=${cookie.split("=")[1]}`;
    const headers = { cookie: own, "sec-fetch-site": "same-origin" };
    const both = `${query}&group_by=account,model,provider`;
    for (const path of [`sales.csv?${both}`, `revenue.csv?${query}`, `liabilities.csv?${query}`]) {
      const answer = await fetch(`${other.httpAddress}/console/export/${path}`, { headers });
      expect(answer.status).toBe(200);
      expect(await answer.text()).toBe(await (await read(path)).text());
    }
    // A page that one process gave goes on at the other.
    const next = async (address: string, pageToken = "") => {
      const answer = await fetch(`${address}/gateway.sales.v1.SalesService/QuerySales`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          authorization: `Bearer ${gateway.adminToken}`,
        },
        body: JSON.stringify({
          ...{ startAt: `${from}T00:00:00Z`, endAt: `${to}T00:00:00Z`, pageToken },
          ...{ bucket: "SALES_BUCKET_DAY", groupBy: ["SALES_GROUP_ACCOUNT"], pageSize: 2_000 },
        }),
      });
      return Object(await answer.json());
    };
    const { nextPageToken } = await next(gateway.address);
    expect(nextPageToken).not.toBe("");
    const [here, there] = [
      await next(gateway.address, nextPageToken),
      await next(other.httpAddress ?? "", nextPageToken),
    ];
    expect(here.rows.length).toBeGreaterThan(100);
    expect(there.rows).toEqual(here.rows);
  } finally {
    await other.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
});

test("operators get them alone, and what is no range is refused by name", async () => {
  for (const file of ["sales.csv", "revenue.csv", "liabilities.csv"]) {
    expect((await read(`${file}?${query}`, memberCookie)).status).toBe(403);
    expect((await read(`${file}?${query}`, "")).status).toBe(401);
    const { error } = Object(await (await read(`${file}?from=${from}`)).json());
    expect(error).toMatchObject({ reason: "invalid_request", field: "to" });
  }
  for (const wrong of ["bucket=hour", "group_by=key", "form=2026-01-01"])
    expect((await read(`sales.csv?${query}&${wrong}`)).status).toBe(400);
});
