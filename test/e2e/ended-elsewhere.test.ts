// A request that runs in one process, and is ended through another one of the same ledger.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { readConfig } from "../../src/config/environment.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { startGateway } from "../../src/server/gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { fastCatalog, startTestGateway } from "../support/gateway.ts";

test("a request is ended by the process that runs it, whichever one was asked", async () => {
  await using stack = new AsyncDisposableStack();
  const gateway = stack.adopt(await startTestGateway(), (one) => one.stop());
  const dataDir = stack.adopt(await mkdtemp(join(tmpdir(), "gateway-data-")), (path) =>
    rm(path, { recursive: true, force: true }),
  );
  const env = {
    ...{ DATABASE_URL: gateway.databaseUrl, ADMIN_TOKEN: gateway.adminToken, SEED: "false" },
    ...{ PORT: "0", GRPC_PORT: "0", DATA_DIR: dataDir, CONTENT_KEY: contentKey },
  };
  const parts = { config: readConfig(env), catalog: fastCatalog(), env, log: createLog("silent") };
  const other = stack.adopt(await startGateway(parts), (one) => one.stop());
  const core = stack.adopt(grpcCore({ addresses: [other.grpcAddress ?? ""] }), (one) =>
    one.close(),
  );

  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 1_000,
      stream: true,
      messages: [{ role: "user", content: "[[simulate tokens=500 token_ms=200]]" }],
    }),
  });
  expect(answer.status).toBe(200);
  const requestId = answer.headers.get("request-id") ?? "";
  const { accountId, admin } = gateway;
  await core.inference.endRequest({ requestId, accountId }, admin.call);
  expect(await answer.text()).toContain("An owner of the account ended this request.");
  const outcome = async () =>
    (await core.billing.getReceipt({ requestId, accountId }, admin.call)).receipt?.outcome;
  await expect.poll(outcome).toBe(Outcome.REVOKED);
});
