// A gateway over a ledger with an archived month, and with a sink: what its callers get.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { closeMonth, exportMonth } from "../../src/history/history.ts";
import { keepRetention } from "../../src/history/retention.ts";
import { type ChildGateway, startChildGateway } from "../support/child-gateway.ts";
import { type FreshHistory, freshHistory } from "../support/history.ts";
import { freePort } from "../support/ports.ts";
import { addAll } from "../support/sales.ts";

const token = "the-admin-token-of-archives";

let world: FreshHistory;
let folder: string;
let gateway: ChildGateway;
let metricsPort: number;
let accountId: string;
beforeAll(async () => {
  world = await freshHistory();
  folder = await mkdtemp(join(tmpdir(), "gateway-archived-"));
  const payer = await world.payer(1_000_000_000n);
  ({ accountId } = payer);
  await world.chargeAgo(payer, 3);
  await world.chargeAgo(payer, 2);
  await world.days.run();
  await closeMonth(world.ledger, world.month(3));
  await exportMonth(world.ledger, { month: world.month(3), to: join(folder, "exports") });
  await addAll(world.ledger.postgres);
  await keepRetention(world.ledger, { months: 2, sink: undefined });
  metricsPort = await freePort();
  gateway = await startChildGateway({
    DATABASE_URL: world.url,
    ADMIN_TOKEN: token,
    DATA_DIR: folder,
    METRICS_PORT: String(metricsPort),
    RETENTION_MONTHS: "2",
    EXPORT_SINK: `file://${folder}/sink`,
  });
});
afterAll(async () => {
  await gateway.end("SIGTERM");
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

const headers = { authorization: `Bearer ${token}` };
const idAt = (at: Date) =>
  `req_${at.getTime().toString(16).padStart(12, "0")}7000a${"0".repeat(15)}`;
const get = (path: string) => fetch(`${gateway.address}${path}`, { headers });

test("a receipt of an archived month is gone over REST, and archived over Connect", async () => {
  const requestId = idAt(world.monthsAgo(3));
  const gone = await get(`/v1/receipts/${requestId}?account_id=${accountId}`);
  expect(gone.status).toBe(410);
  expect(gone.headers.get("x-should-retry")).toBe("false");
  const name = world.month(3).slice(0, 7);
  const message = `The charges of ${name} were archived. The operator of this gateway has them.`;
  expect(JSON.stringify(await gone.json())).toContain(message);
  const method = "gateway.usage.v1.UsageService/GetReceipt";
  const answer = await fetch(`${gateway.address}/${method}`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({ requestId, accountId }),
  });
  expect(await answer.json()).toMatchObject({
    code: "not_found",
    message,
    details: [{ type: "google.rpc.ErrorInfo", debug: { reason: "ARCHIVED" } }],
  });
  const missing = await get(`/v1/receipts/${idAt(world.monthsAgo(2))}?account_id=${accountId}`);
  expect(missing.status).toBe(404);
});

test("a list of receipts says from when on it is complete, and usage has every month", async () => {
  const list: unknown = await (await get(`/v1/receipts?account_id=${accountId}`)).json();
  expect(list).toMatchObject({
    data: [expect.anything()],
    archived_before: `${world.month(2)}T00:00:00Z`,
  });
  const from = `${world.month(4)}T00:00:00Z`;
  const usage: unknown = await (
    await get(`/v1/usage?account_id=${accountId}&bucket=month&from=${from}`)
  ).json();
  expect(usage).toMatchObject({ totals: { requests: 2 } });
});

test("a process reports how far the sink is", async () => {
  const lag = async () => {
    const answer = await fetch(`http://127.0.0.1:${metricsPort}/metrics`);
    return /^gateway_sink_lag_seconds (\S+)$/m.exec(await answer.text())?.[1];
  };
  await expect.poll(lag).toBeDefined();
  expect(await world.run("select sink from sink_cursors")).toEqual([
    { sink: `file://${folder}/sink` },
  ]);
});
