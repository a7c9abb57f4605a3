// A gateway process like the shipped one, except that its holds live in memory: the difference is
// the cost of durable billing.

import { readFileSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { ReceiptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { costMicro } from "../../src/base/cost.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys, createBilling, type Hold, type Holds } from "../../src/billing/billing.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readCatalogPath, readConfig } from "../../src/config/environment.ts";
import { localCore, serviceTypes } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createFailedCredentials, createIdentifyCaller } from "../../src/http/authenticate.ts";
import { createHttpServer } from "../../src/http/http.ts";
import { createCatalog, createInference } from "../../src/inference/inference.ts";
import { createKeys } from "../../src/keys/keys.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { createProviders } from "../../src/providers/providers.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";
import { coreReadiness } from "../../src/server/readiness.ts";
import { shrinkHeap } from "../../src/server/shrink-heap.ts";
import { defaultLimits } from "../support/limits.ts";
import { noAlerts, noOperations, noPayments, noPeople } from "../support/no-service.ts";

const freeMicro = 2n ** 52n;

/** Grants every hold at once and stores none. */
const holdsInMemory: Holds = {
  place: async ({ requestId, payer, model, price, bounds }): Promise<Hold> => ({
    requestId,
    payer,
    model,
    price,
    freeMicro,
    left: { ofPool: undefined, ofKey: undefined, ofManager: undefined },
    manager: undefined,
    grantedOutput: bounds.maxOutput,
    amountMicro: 1n,
    month: "2026-01-01",
    admittedAt: new Date(),
  }),
  // Nothing to overlap: a hold is placed at once.
  expectFull: () => undefined,
  placeFull: async () => undefined,
  amend: () => {},
  resize: async (hold) => hold,
  fits: () => true,
  watch: () => () => {},
  settle: async (
    { requestId, payer, model, price, admittedAt },
    { usage, outcome, basis, attempts },
  ) =>
    create(ReceiptSchema, {
      requestId,
      model,
      price,
      usage,
      outcome,
      basis,
      accountId: payer.accountId,
      keyId: payer.keyId,
      chargedMicrocredits: costMicro(price, usage),
      attempts: [...attempts],
      admittedAt: timestampFromDate(admittedAt),
      settledAt: timestampFromDate(new Date()),
    }),
};

const config = readConfig(process.env);
const log = createLog(config.logLevel);
const file = readCatalogFile(readFileSync(readCatalogPath(process.env) ?? "", "utf8"));
const catalog = createCatalog(file);
const postgres = connectPostgres(config.databaseUrl ?? "");
const providers = createProviders({ file, log, env: process.env });
const resolveModel = (name: string) => catalog.find(name)?.model.id;
const keys = createKeys({
  budgets: budgetsOfKeys,
  postgres,
  adminToken: config.adminToken ?? "",
  resolveModel,
  log,
});
const limits = createRateLimits({ nodes: { id: () => "bench", live: () => ["bench"] }, log });
const billing = createBilling({
  postgres,
  priceOf: (model) => catalog.priceOf(model),
  log,
});
const inference = createInference({
  settings: { catalog },
  holds: holdsInMemory,
  askToEnd: async () => undefined,
  keys,
  limits,
  providers,
  log,
  confirmAlive: () => undefined,
});
keys.start();
await limits.start();

const core = localCore({
  billing: intercept(serviceTypes.billing, billing.service, {
    authenticate: keys.authenticate,
    log,
  }),
  keys: intercept(serviceTypes.keys, keys.service, { authenticate: keys.authenticate, log }),
  inference: intercept(InferenceService, inference.service, {
    authenticate: keys.authenticate,
    log,
  }),
  people: noPeople,
  payments: noPayments,
  alerts: noAlerts,
  operations: noOperations,
});
const httpServer = createHttpServer({
  core,
  settings: { file, trustedProxies: config.trustedProxies },
  readiness: coreReadiness({
    postgres,
    months: { state: () => undefined },
    billing: { problem: () => undefined },
    limits,
    providers,
  }),
  identifyCaller: createIdentifyCaller(core, createFailedCredentials()),
  ...defaultLimits(),
  log,
});
const http = await httpServer.listen({ host: config.host, port: config.port });
shrinkHeap();
log.info({ http }, "ready");
