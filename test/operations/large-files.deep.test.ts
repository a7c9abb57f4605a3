// Files of 300,000 orders, their documents and their transfers: their sums are those of the
// page, they wait for a slow reader, and one that its reader leaves asks the database no further.

import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Authenticator } from "../support/authenticator.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const count = 300_000;
const granted = 1_000_000_000n;
const usdMicro = 5_000_000n;
const soon = { timeout: 20_000, interval: 20 };

let gateway: TestGateway;
let db: Client;
let accountId = "";
let headers: Record<string, string> = {};
beforeAll(async () => {
  gateway = await startTestGateway();
  db = new Client({ connectionString: gateway.databaseUrl });
  await db.connect();
  const { core, call } = gateway.admin;
  headers = { cookie: await signIn(), "sec-fetch-site": "same-origin" };
  const { account } = await core.billing.createAccount({ name: "many" }, call);
  accountId = account?.accountId ?? "";
  const ids = `'ord_' || lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0')
    || '70008' || lpad(n::text, 15, '0')`;
  const run = (text: string) => db.query(text, [accountId]);
  await db.query("set session_replication_role = replica");
  await run(
    `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
       processor, method, asset, network, decimals, external_id, quoted_atoms, rate, state,
       created_by, seller_id, buyer_name, quoted_until, watched_until)
     select ${ids}, $1, 'v1', 'many-' || n, ${usdMicro}, 'many', 'many:btc', 'BTC', 'bitcoin', 8,
       'many-' || n, 5000, 100000000000, 'paid', 'token:many', 'many', 'Buyer ' || n, now(), now()
     from generate_series(1, ${count}) n`,
  );
  await run(
    `insert into payment_grants (order_id, n, micro, transfer_id)
     select order_id, 1, ${granted}, 'tra_' || substr(order_id, 5)
     from payment_orders where account_id = $1`,
  );
  await run(
    `insert into payment_documents (seller, kind, year, n, number, order_id)
     select 'many', 'receipt', 2026, n, 'M2026-' || n, order_id
     from (select order_id, row_number() over (order by order_id) as n
       from payment_orders where account_id = $1) numbered`,
  );
  await run(
    `insert into transfers (account_id, transfer_id, "family", kind, amount, posted_after, actor,
       idempotency_key)
     select $1, 'tra_' || substr(order_id, 5), 'v1', 'deposit', ${granted},
       ${granted} * row_number() over (order by order_id), 'payments', 'pay:' || order_id || '#1'
     from payment_orders where account_id = $1`,
  );
  await db.query("analyze payment_orders, payment_grants, payment_documents, transfers");
}, 240_000);
afterAll(async () => {
  for (const table of ["payment_documents", "payment_grants", "payment_orders"])
    await db.query(`truncate ${table} cascade`);
  await db.query("delete from transfers where account_id = $1", [accountId]);
  await db.end();
  await gateway.stop();
}, 60_000);

/** The cookie of the first operator. */
async function signIn(): Promise<string> {
  const { origin, hash } = new URL(gateway.ownerLink);
  const token = hash.slice(1);
  const { people } = gateway.admin.core;
  const { passkeyOptionsJson } = await people.beginPasskey({ linkToken: token, login: "olga" });
  const passkeyAnswerJson = new Authenticator(origin).register(passkeyOptionsJson);
  const url = `${gateway.address}/gateway.people.v1.PeopleService/RedeemLink`;
  const answer = await fetch(url, {
    ...{ method: "POST", headers: { "content-type": "application/json" } },
    body: JSON.stringify({ token, login: "olga", passkeyAnswerJson }),
  });
  return answer.headers.get("set-cookie")?.split(";")[0] ?? "";
}

const urlOf = (name: string) =>
  `${gateway.address}/console/export/${name}.csv?account=${accountId}`;

/** A whole file, of which no more is kept than a line: how many rows, and the sum of a column. */
async function readFile(name: string, column: string) {
  const answer = await fetch(urlOf(name), { headers });
  expect(answer.status).toBe(200);
  let [rows, sum, bytes, rest, at] = [0, 0n, 0, "", -1];
  for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    bytes += part.length;
    const lines = `${rest}${part}`.split("\r\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const cells = line.split(",");
      if (at < 0) at = cells.indexOf(column);
      else {
        rows++;
        // No cell of these rows has more places than a micro-credit.
        const [whole = "", fraction = ""] = (cells[at] ?? "").split(".");
        sum += BigInt(whole + fraction.padEnd(6, "0"));
      }
    }
  }
  return { rows, sum, bytes };
}

test("come whole, with the sums of the page", async () => {
  const all = { accountId, withSums: true, pageSize: 1 };
  const { sums } = await gateway.admin.core.payments.listOrders(all, gateway.admin.call);
  const expected = granted * BigInt(count);
  expect(sums).toMatchObject({
    ...{ orders: BigInt(count), grantedMicrocredits: expected },
    orderedMicrodollars: usdMicro * BigInt(count),
  });
  for (const [name, column] of [
    ["orders", "granted_credits"],
    ["documents", "credits"],
    ["transfers", "credits"],
  ] as const) {
    const { rows, sum, bytes } = await readFile(name, column);
    expect({ name, rows, sum }).toEqual({ name, rows: count, sum: expected });
    expect(bytes).toBeGreaterThan(40_000_000);
  }
}, 240_000);

/** The connections on which the orders of a file are read, and when each began its last page. */
async function pages(): Promise<{ pid: number; state: string; began: string; waits: boolean }[]> {
  const found = await db.query(
    `select pid, state, query_start::text as began, wait_event_type = 'Lock' as waits
     from pg_stat_activity where query ~ 'payments/(find|read)-orders' and pid <> pg_backend_pid()`,
  );
  return found.rows;
}

/** When the last page began, once no other one is asked for: a whole file takes much longer. */
async function whenStill(): Promise<string> {
  let before = "";
  return vi.waitFor(
    async () => {
      const now =
        (await pages())
          .map(({ began }) => began)
          .toSorted()
          .at(-1) ?? "";
      const isStill = now !== "" && now === before;
      before = now;
      if (!isStill) throw new Error("pages are still read");
      return now;
    },
    { timeout: 15_000, interval: 1_000 },
  );
}

test("ask the database no further when their reader leaves", async () => {
  const request = get(urlOf("orders"), { headers, agent: false });
  request.on("error", () => {});
  const [answer]: IncomingMessage[] = await once(request, "response");
  await once(answer ?? request, "data");
  answer?.pause();
  // The next page waits for this lock, so the reader leaves in the middle of it.
  await db.query("begin");
  await db.query("lock table payment_orders in access exclusive mode");
  answer?.resume();
  const waiting = await vi.waitFor(async () => {
    const [one] = (await pages()).filter(({ waits }) => waits);
    if (!one) throw new Error("no page is read");
    return one;
  }, soon);
  request.destroy();
  await db.query("commit");
  const last = await whenStill();
  expect(last >= waiting.began).toBe(true);
  expect((await pages()).filter(({ state }) => state === "active")).toEqual([]);
}, 60_000);

test("wait for a reader that takes the head and nothing more", async () => {
  const request = get(urlOf("orders"), { headers, agent: false });
  request.on("error", () => {});
  const [answer]: IncomingMessage[] = await once(request, "response");
  answer?.pause();
  // Buffers of the sockets take some pages. Then none is read, whatever time goes by.
  expect(await whenStill()).not.toBe("");
  request.destroy();
}, 60_000);
