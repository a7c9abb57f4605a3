// The services of one process, in four parts: data, accounts, what a request needs, and money.
// Everything is made before anything starts, and each part uses only those before it. `gateway.ts`
// opens the listeners.

import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { withTimeout } from "../base/clock.ts";
import type { Billing } from "../billing/billing.ts";
import { type CatalogFile, chainKeysOf, checkCell } from "../config/catalog.ts";
import type { Authenticate, Services } from "../contract/contract.ts";
import { serviceTypes } from "../contract/contract.ts";
import { type Generate, guard } from "../contract/generation.ts";
import { intercept } from "../contract/interceptor.ts";
import type { CellServing } from "../grpc/grpc.ts";
import { createHistory } from "../history/history.ts";
import type { Readiness } from "../http/http.ts";
import type { OnPayerChange } from "../http/key-load.ts";
import type { Installation } from "../people/people.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import { createAccounts } from "./accounts.ts";
import { createCellServing } from "./cell-service.ts";
import { findContentKeys } from "./content-key.ts";
import { openData } from "./data.ts";
import { checkDescriptors } from "./descriptors.ts";
import { createMoney } from "./money.ts";
import type { GatewayParts } from "./parts.ts";
import { coreReadiness } from "./readiness.ts";
import { createRequestParts } from "./request.ts";
import { createSettings } from "./settings.ts";
import { watchVerifications } from "./verification-watch.ts";

export type StartedServices = {
  readonly services: Services;
  readonly generate: Generate;
  readonly authenticate: Authenticate;
  readonly adminToken: string;
  readonly installation: Installation;
  /** Runs the work of a first start while no other process of the ledger does. */
  firstStart<T>(work: () => Promise<T>): Promise<T>;
  /** The address under which people reach the console. */
  publicUrl(): URL;
  /** Creates an account with this id, unless it exists. */
  ensureAccount(accountId: string, name: string): Promise<void>;
  /** Call when the HTTP listener is open: without PUBLIC_URL, people reach it at localhost. */
  listensOn(port: number): void;
  /** Call when the gRPC listener is open. */
  servesGrpcOn(port: number): void;
  /** Call once an hour with each peer that looks like a proxy and is not named as one. */
  noteProxy(peer: string): void;
  /** What facades of several cells ask. */
  readonly cells: CellServing;
  readonly limits: RateLimits;
  readonly onPayerChange: OnPayerChange;
  /** As `Billing.countRejected`. */
  readonly countRejected: Billing["countRejected"];
  readiness(): Promise<Readiness>;
  /** Takes models, prices, routes and providers from another file. */
  reload(file: CatalogFile): void;
  /** Cancels the active requests. Resolves when each settlement is queued. */
  cancelActive(): Promise<void>;
  /** After the end: the requests whose settlement is left to other processes. */
  unsettled(): number;
};

/** How long a stop waits for what loses nothing. */
const tasksMsMax = 3_000;

/**
 * Makes the services, each of those that it uses, then starts them. `stack` gets the function that
 * stops each part; the database stops last.
 */
export async function startServices(
  parts: GatewayParts,
  stack: AsyncDisposableStack,
): Promise<StartedServices> {
  const { config, log, metrics, clock, outbound } = parts;
  const data = await openData(parts, stack);
  checkDescriptors(parts.catalog, log);
  checkCell(config.cell, parts.catalog.payments);
  const settings = createSettings(parts);
  const contentKeys = await findContentKeys(config);
  const accounts = await createAccounts(parts, data, settings, contentKeys);
  const { adminToken, keys, billing, people, authenticate } = accounts;
  const { installation } = people;
  // First of all that writes: the database may be that of another cell.
  const installationId = await data.untilReached(() => installation.claimCell());
  const request = createRequestParts(parts, data, settings, accounts, stack);
  const { providers, limits, inference } = request;
  const money = createMoney(parts, data, settings, accounts, request, contentKeys);
  const { interceptor, payments, alerts, operations, sales } = money;
  const history = createHistory({
    ledger: data.ledger,
    log,
    metrics,
    retentionMonths: config.retentionMonths,
    sink: config.sink,
    outbound,
  });
  stack.defer(() => inference.stop());

  await billing.start({
    onLost: () => void inference.cancelAll("declared dead"),
    onEndAsked: (requests) => inference.end(requests),
    describe: () => operations.describe(),
    exports: [keys, people, payments, alerts].map(({ ofAccount }) => ofAccount.export),
  });
  const tasks: (() => Promise<void>)[] = [];
  stack.defer(async () => {
    // All at once: where the database hangs, each of them waits for it.
    const ended = Promise.all(tasks.map((stop) => stop()));
    const ending = withTimeout(ended, tasksMsMax, () => undefined);
    await Promise.all([billing.stop(), ending]);
  });
  const run = async (one: { start(): unknown; stop(): Promise<void> }) => {
    await one.start();
    tasks.push(() => one.stop());
  };
  await run(keys);
  await run({ start: () => people.start({ sellsCredits: payments.sells }), stop: people.stop });
  await run(limits);
  await run(history);
  if (metrics) {
    const verifications = watchVerifications(billing, { metrics, log, clock });
    tasks.push(() => verifications.stop());
  }
  if (adminToken === "" && !(await data.untilReached(() => installation.hasOperator())))
    throw new Error("ADMIN_TOKEN is required with DATABASE_URL until an operator can sign in");
  await run(payments);
  await run(alerts);
  await run(sales);
  return {
    services: {
      billing: money.billingService,
      keys: intercept(serviceTypes.keys, keys.service, interceptor),
      inference: intercept(InferenceService, inference.service, interceptor),
      people: intercept(serviceTypes.people, people.service, interceptor),
      payments: intercept(serviceTypes.payments, payments.service, interceptor),
      alerts: intercept(AlertsService, alerts.service, interceptor),
      operations: intercept(serviceTypes.operations, operations.service, interceptor),
    },
    generate: guard(inference.generate, log),
    authenticate,
    adminToken,
    firstStart: data.firstStart,
    installation,
    publicUrl: settings.publicUrl,
    ensureAccount: billing.ensureAccount,
    countRejected: billing.countRejected,
    listensOn: settings.listensOn,
    servesGrpcOn: settings.servesGrpcOn,
    noteProxy: operations.noteProxy,
    cells: createCellServing({
      cell: config.cell,
      installationId,
      contentKeys,
      chainKeys: () => chainKeysOf(settings.file.payments),
      people: people.forCells,
    }),
    limits,
    onPayerChange(listener) {
      billing.onFundsChange(listener);
      keys.onChanged(({ keyId }) => listener({ kind: "key", keyId }));
    },
    readiness: coreReadiness({ ...data, billing, limits, providers }),
    reload(next) {
      checkCell(config.cell, next.payments);
      // First: it may throw, and then the file that is in use stays.
      providers.reload(next);
      people.reload(next.people);
      payments.reload(next.payments);
      alerts.reload(next.alerts);
      sales.reload(next);
      settings.replace(next);
    },
    cancelActive: () => inference.cancelAll("draining"),
    unsettled: billing.unsettled,
  };
}
