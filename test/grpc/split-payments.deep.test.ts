// Purchases where a facade serves people and a core has the ledger.

import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createConnectTransport } from "@connectrpc/connect-node";
import { expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { clientOver } from "../support/bindings.ts";
import { startChildGateway } from "../support/child-gateway.ts";
import { freshDatabase } from "../support/database.ts";

const adminToken = "the-admin-token-of-a-test";
const asAdmin = { headers: { authorization: `Bearer ${adminToken}` } };

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address ? address.port : 0;
}

test("through a facade an order is made, watched and paid, and becomes credits in the core", async () => {
  await using stack = new AsyncDisposableStack();
  const database = stack.adopt(await freshDatabase(), (one) => one.drop());
  const dataDir = stack.adopt(mkdtempSync(join(tmpdir(), "gateway-split-")), (path) =>
    rmSync(path, { recursive: true }),
  );
  const start = async (env: NodeJS.ProcessEnv) => {
    const common = { LOG_LEVEL: "silent", DATA_DIR: dataDir, PUBLIC_URL: "http://localhost:8080" };
    const gateway = await startChildGateway({ ...common, ...env });
    stack.defer(async () => {
      await gateway.end("SIGKILL");
    });
    return gateway;
  };
  const port = await freePort();
  await start({
    ROLE: "core",
    DATABASE_URL: database.url,
    ADMIN_TOKEN: adminToken,
    GRPC_PORT: String(port),
  });
  const facade = await start({ ROLE: "facade", CORE_ADDRESS: `127.0.0.1:${port}` });
  const core = grpcCore({ addresses: [`127.0.0.1:${port}`] });
  stack.defer(() => core.close());
  const { account } = await core.billing.createAccount(
    { settings: { name: "a customer" } },
    asAdmin,
  );
  const accountId = account?.accountId ?? "";

  const transport = createConnectTransport({ baseUrl: facade.address, httpVersion: "1.1" });
  const payments = clientOver(serviceTypes.payments, transport);
  const { methods } = await payments.listPaymentMethods({}, asAdmin);
  const { order } = await payments.createOrder(
    {
      accountId,
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      idempotencyKey: "once",
      method: methods.find(({ asset }) => asset === "ETH")?.method ?? "",
    },
    asAdmin,
  );
  const orderId = order?.orderId ?? "";
  const states: OrderState[] = [];
  const leaving = new AbortController();
  const watching = (async () => {
    for await (const { order: shown } of payments.watchOrder(
      { orderId },
      { ...asAdmin, signal: leaving.signal },
    ))
      states.push(shown?.state ?? OrderState.UNSPECIFIED);
  })().catch(() => "left");
  await expect.poll(() => states).toContain(OrderState.OPEN);
  const amount = order?.quotedCoins ?? "";
  await payments.simulateDeposit(
    { orderId, event: { case: "deposit", value: { coins: amount, confirmations: 1 } } },
    asAdmin,
  );
  await expect.poll(() => states).toContain(OrderState.PAID);
  leaving.abort();
  expect(await watching).toBe("left");
  const posted = async () => {
    const { pools } = await core.billing.getPools({ accountId }, asAdmin);
    return pools.find(({ family }) => family === Family.V1)?.postedMicrocredits;
  };
  await expect.poll(posted).toBe(1_000_000_000n);
});
