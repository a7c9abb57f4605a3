// The services of one process and the parts they are built from: database, Redis, providers,
// rate limits. `gateway.ts` opens the listeners.

import cluster from "node:cluster";
import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { OperationsService } from "../../gen/gateway/operations/v1/operations_pb.ts";
import { PaymentsService } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { PeopleService } from "../../gen/gateway/people/v1/people_pb.ts";
import { type Alerts, createAlerts } from "../alerts/alerts.ts";
import { type Clock, pause, systemClock } from "../base/clock.ts";
import type { ErrorReason } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { withTimeout } from "../base/timeout.ts";
import { createBilling } from "../billing/billing.ts";
import type { CatalogFile } from "../config/catalog.ts";
import type { Config } from "../config/environment.ts";
import { listBypasses } from "../contract/approvals.ts";
import { type Authenticate, localClient, type Services } from "../contract/contract.ts";
import { type Generate, guard } from "../contract/generation.ts";
import { intercept } from "../contract/interceptor.ts";
import { createHistory } from "../history/history.ts";
import type { OnPayerChange } from "../http/early-check.ts";
import type { Readiness } from "../http/http.ts";
import {
  createCatalog,
  createInference,
  GenaiMetrics,
  type Inference,
} from "../inference/inference.ts";
import { createKeys } from "../keys/keys.ts";
import { createMailer } from "../mail/mail.ts";
import { type Metrics, version } from "../metrics/metrics.ts";
import { createOperations, type Operations } from "../operations/operations.ts";
import { createPayments } from "../payments/payments.ts";
import { codeGuesses, createPeople, type Installation, isOfPeople } from "../people/people.ts";
import { type Embedded, startEmbedded } from "../postgres/embedded/embedded.ts";
import { Lease } from "../postgres/lease.ts";
import { type OpenLedger, openLedger } from "../postgres/open-ledger.ts";
import { checkConnection, checkDatabase } from "../postgres/preflight.ts";
import { many } from "../postgres/statement.ts";
import { databaseOf, waitForDatabase } from "../postgres/wait-for-database.ts";
import { createProviders } from "../providers/providers.ts";
import { createRateLimits, limitStates, type RateLimits } from "../rate-limits/rate-limits.ts";
import { connectRedis, hintsOn, type Redis } from "../redis/redis.ts";
import type { Tracer } from "../tracing/tracing.ts";
import { findAdminToken } from "./bootstrap.ts";
import { checkDescriptors } from "./descriptors.ts";
import { LedgerWatch } from "./ledger-watch.ts";
import { MonthKeeper } from "./month-keeper.ts";
import { coreReadiness } from "./readiness.ts";
import { watchVerifications } from "./verification-watch.ts";
import type { Shared } from "./worker.ts";

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
  readonly limits: RateLimits;
  readonly onPayerChange: OnPayerChange;
  /** As `Billing.countRejected`. */
  countRejected(key: Key, reason: ErrorReason): void;
  readiness(): Promise<Readiness>;
  /** Takes models, prices, routes and providers from another file. */
  reload(file: CatalogFile): void;
  /** Cancels the active requests. Resolves when each settlement is queued. */
  cancelActive(): Promise<void>;
  /** After the end: the requests whose settlement is left to other processes. */
  unsettled(): number;
};

/** The input of a gateway, in every role. */
export type GatewayParts = {
  readonly config: Config;
  readonly catalog: CatalogFile;
  /** Holds the credentials of the providers. */
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  /** Ends the wait for a database that is not there. */
  readonly giveUp?: AbortSignal | undefined;
  /** The embedded database, if somebody else has begun to start it. */
  readonly embedded?: Promise<Embedded> | undefined;
  /** Absent: nothing is counted. */
  readonly metrics?: Metrics | undefined;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer | undefined;
  /** Of heartbeats, polls, retries and counts. Default: the clock of this machine. */
  readonly clock?: Clock;
  /** Present in a worker: what the workers of a machine share. Redis, if configured, goes first. */
  readonly shared?: Shared;
};

/** How long a process that died in its first start keeps others from theirs. */
const firstStartMsMax = 10_000;
/** How long a stop waits for what loses nothing. */
const tasksMsMax = 3_000;
/** The use of the admin token is noted so often at most. */
const adminUseEveryMs = 50_000;

/** Starts the services. `stack` gets the function that stops each part; the database stops last. */
export async function startServices(
  parts: GatewayParts,
  stack: AsyncDisposableStack,
): Promise<StartedServices> {
  const { config, env, log, metrics, clock } = parts;
  const url = config.databaseUrl ?? (await embed(parts, stack));
  const ledger = await reachLedger(parts, url);
  log.debug("ledger migrated");
  const postgres = stack.adopt(ledger.postgres, (one) => one.close());
  const untilReached = createWait(parts, config.databaseUrl);
  // On a slow machine a connection takes longer than a request may wait. What follows uses these.
  await untilReached(() => postgres.readChangeable());
  await untilReached(() => postgres.heartbeats.run(ping));
  const months = new MonthKeeper(ledger, log);
  await untilReached(() => months.start());
  stack.defer(() => months.stop());
  metrics?.readOne("gateway_ledger_months_ahead", () => months.monthsAhead);
  // Where the database is elsewhere, the environment alone gives the token. Empty: there is none.
  const adminToken =
    config.databaseUrl === undefined
      ? await findAdminToken(config.dataDir, config.adminToken)
      : (config.adminToken ?? "");
  let adminUsedAtMs: number | undefined;
  metrics?.readOne("gateway_admin_token_used_seconds", () =>
    adminUsedAtMs === undefined ? undefined : adminUsedAtMs / 1_000,
  );
  let ledgerProblem: () => string | undefined = () => undefined;
  if (config.databaseUrl !== undefined) {
    const watch = new LedgerWatch(postgres, log);
    ledgerProblem = () => watch.problem;
    const { roleStatements } = ledger;
    await untilReached(() => watch.start({ ...config, roleStatements }));
    metrics?.readOne("gateway_ledger_sync_standbys", () => watch.syncStandbys);
    metrics?.readOne("gateway_ledger_oldest_snapshot_seconds", () => watch.oldestSnapshotS);
    stack.defer(() => watch.stop());
  }
  checkDescriptors(parts.catalog, log);
  const redis = openRedis(config.redisUrl, log, stack);
  const hints = redis ?? parts.shared?.hints;
  let { catalog: file } = parts;
  let catalog = createCatalog(file);
  const mailer = config.smtp && stack.adopt(createMailer(config.smtp), (one) => one.close());

  const providers = stack.adopt(createProviders({ file, log, env, metrics }), (one) => one.close());
  const keys = createKeys({
    postgres,
    adminToken,
    resolveModel: (name) => catalog.find(name)?.model.id,
    // Called only after the start.
    checkManager: (...of) => people.ofAccount.checkManager(...of),
    keysMax: () => file.people.limits.keys,
    onAdminUse() {
      const nowMs = Date.now();
      const isDue = adminUsedAtMs === undefined || nowMs - adminUsedAtMs > adminUseEveryMs;
      if (!isDue) return;
      adminUsedAtMs = nowMs;
      people.installation.noteAdminToken().catch((err: unknown) => {
        log.debug({ err }, "the use of the admin token is not noted");
      });
    },
    log,
    hints,
    maxWaitMs: config.ledgerMaxWaitMs,
    clock,
    metrics,
  });
  let publicUrl = config.publicUrl ?? new URL(`http://localhost:${config.port}`);
  const approvalLimit = () => approvalLimitOf(file.payments);
  const people = createPeople({
    postgres,
    approvalLimit,
    hasAdminToken: adminToken !== "",
    publicUrl: () => publicUrl,
    keys: keys.managed,
    hints: hints && hintsOn(hints, "gateway:people-changed"),
    mailer,
    settings: file.people,
    env,
    ensureAccount: (accountId, name) => billing.ensureAccount(accountId, name),
    forecastsOf: (accountId) => billing.forecastsOf(accountId),
    sellsCredits: () => payments.sells(),
    clock,
    log,
  });
  const billing = createBilling({
    postgres,
    hints,
    priceOf: (model) => catalog.priceOf(model),
    log,
    keys: keys.ofAccount,
    members: people.ofAccount,
    exports: [
      keys.ofAccount.export,
      people.ofAccount.export,
      (accountId) => payments.ofAccount.export(accountId),
      (accountId) => alerts.ofAccount.export(accountId),
    ],
    approvalLimit,
    maxWaitMs: config.ledgerMaxWaitMs,
    parent: parts.shared?.nodes,
    clock,
    metrics,
    // Called only after this process has lost its heartbeat, when `inference` exists.
    onLost: () => void inference.cancelAll("declared dead"),
    // Called only after the start.
    onEndAsked: (requests) => inference.end(requests),
    // Called only after the start.
    describe: () => operations.describe(),
  });
  const nodes = { id: billing.nodeId, live: billing.liveNodes };
  const limiter = redis ? undefined : parts.shared?.limiter;
  limiter?.follow(billing.liveNodes);
  const limits = createRateLimits({ redis, limiter, nodes, log });
  const inference: Inference = createInference({
    catalog: () => catalog,
    holds: billing.holds,
    askToEnd: billing.askToEnd,
    confirmAlive: billing.confirmAlive,
    countRejected: billing.countRejected,
    keys,
    limits,
    providers,
    log,
    overlap: config.overlap,
    clock,
    genai: metrics && config.metrics?.genai ? new GenaiMetrics(metrics) : undefined,
    tracer: parts.tracer,
  });
  const operations: Operations = createOperations({
    postgres,
    ledger: billing.overview,
    ownersOf: people.ownersOf,
    waitingOrders: (limit) => payments.waitingOrders(limit),
    ...people.forApprovals,
    carryOut: {
      ...people.forApprovals.carryOut,
      ...billing.carryOut,
      // Called only after the start.
      decision: (...of) => payments.carryOut.decision(...of),
      refund: (...of) => payments.carryOut.refund(...of),
      promotion: (...of) => payments.carryOut.promotion(...of),
      sweep_payment: (...of) => payments.carryOut.sweep_payment(...of),
    },
    nodeId: billing.nodeId,
    adminTokenUsedAt: people.installation.adminTokenUsedAt,
    database: {
      isEmbedded: config.databaseUrl === undefined,
      monthsAhead: () => months.monthsAhead,
    },
    providers,
    limits: () => limits.state(),
    process: { version, worker: parts.shared ? (cluster.worker?.id ?? 0) : 0 },
    file: () => file,
    priceOf: (model) => catalog.priceOf(model),
  });
  if (metrics) {
    const { counters } = inference;
    metrics.readOne("gateway_provider_zero_usage_total", () => counters.providerReportedZero);
    metrics.readOne("gateway_overlap_aborted_total", () => counters.discardedCalls);
    metrics.readOne("gateway_left_unpaid_total", () => counters.leftUnpaid);
    metrics.read("gateway_limits_state", () => {
      const state = limits.state();
      return limitStates.map((one) => ({ labels: [one] as const, value: one === state ? 1 : 0 }));
    });
  }
  stack.defer(() => inference.stop());

  await billing.start();
  const tasks: (() => Promise<void>)[] = [];
  stack.defer(async () => {
    // All at once: where the database hangs, each of them waits for it.
    const ended = Promise.all(tasks.map((stop) => stop()));
    const ending = withTimeout(ended, tasksMsMax, () => undefined);
    await Promise.all([billing.stop(), ending]);
  });
  keys.start();
  tasks.push(() => keys.stop());
  people.start();
  tasks.push(() => people.stop());
  await limits.start();
  tasks.push(() => limits.stop());

  const history = createHistory({
    ledger,
    log,
    metrics,
    retentionMonths: config.retentionMonths,
    sink: config.sink,
  });
  history.start();
  tasks.push(() => history.stop());
  if (metrics) {
    const verifications = watchVerifications(billing, { metrics, log, clock });
    tasks.push(() => verifications.stop());
  }

  if (adminToken === "" && !(await untilReached(() => people.installation.hasOperator())))
    throw new Error("ADMIN_TOKEN is required with DATABASE_URL until an operator can sign in");
  const authenticate = identifyBy(keys.authenticate, people.authenticate);
  const { audit, onCallerChange, installation } = people;
  const interceptor = { authenticate, log, audit, onCallerChange, clock };
  const billingService = intercept(BillingService, billing.service, interceptor);
  const payments = createPayments({
    postgres,
    billing: localClient(BillingService, billingService),
    publicUrl: () => publicUrl,
    settings: file.payments,
    env,
    guesses: codeGuesses("promotion code", "Too many wrong codes. Wait, and try again."),
    clock,
    log,
  });
  payments.start();
  tasks.push(() => payments.stop());
  const alerts: Alerts = createAlerts({
    postgres,
    sources: {
      billing: billing.figures,
      listKeyEvents: keys.listEvents,
      listNewPlaces: people.forAlerts.listNewPlaces,
      listWaitingOrders: payments.listWaiting,
      listUnreadChains: payments.listUnreadChains,
      listBypasses: (since, limit) => listBypasses(postgres, since, limit),
      findViolations: billing.overview.findViolations,
      modelConditions: providers.modelConditions,
      ledgerProblem,
    },
    listRecipients: people.forAlerts.listRecipients,
    mailer,
    publicUrl: () => publicUrl,
    config: file.alerts,
    log,
  });
  alerts.start();
  tasks.push(() => alerts.stop());
  return {
    services: {
      billing: billingService,
      keys: intercept(KeysService, keys.service, interceptor),
      inference: intercept(InferenceService, inference.service, interceptor),
      people: intercept(PeopleService, people.service, interceptor),
      payments: intercept(PaymentsService, payments.service, interceptor),
      alerts: intercept(AlertsService, alerts.service, interceptor),
      operations: intercept(OperationsService, operations.service, interceptor),
    },
    generate: guard(inference.generate, log),
    authenticate,
    adminToken,
    async firstStart(work) {
      const lease = new Lease(postgres, { task: "server/first-start", ms: firstStartMsMax });
      while (!(await untilReached(() => lease.take()))) await pause(systemClock, 100);
      try {
        return await work();
      } finally {
        await lease.release().catch(() => undefined);
      }
    },
    installation,
    publicUrl: () => publicUrl,
    ensureAccount: billing.ensureAccount,
    countRejected: billing.countRejected,
    listensOn(port) {
      if (!config.publicUrl) publicUrl = new URL(`http://localhost:${port}`);
    },
    limits,
    onPayerChange(listener) {
      billing.onFundsChange(listener);
      keys.onChanged(({ keyId }) => listener({ kind: "key", keyId }));
    },
    readiness: coreReadiness({ postgres, months, billing, limits, providers }),
    reload(next) {
      // First: it may throw, and then the file that is in use stays.
      providers.reload(next);
      people.reload(next.people);
      catalog = createCatalog(next);
      payments.reload(next.payments);
      alerts.reload(next.alerts);
      file = next;
    },
    cancelActive: () => inference.cancelAll("draining"),
    unsettled: billing.unsettled,
  };
}

/**
 * Finds callers by each kind of credential: `Session …` is a person's, `Bearer adm-gw2-…` an admin
 * token of `people`, and any other is left to `keys`. So a session is never a key, nor a key a
 * session.
 */
export function identifyBy(keys: Authenticate, people: Authenticate): Authenticate {
  return (requestHeader) =>
    isOfPeople(requestHeader.get("authorization") ?? "")
      ? people(requestHeader)
      : keys(requestHeader);
}

/** What a person gives away alone in a UTC day, in micro-dollars. Undefined: any amount. */
function approvalLimitOf(settings: CatalogFile["payments"]): bigint | undefined {
  const above = settings?.secondApprovalAboveUsd;
  return above === undefined ? undefined : BigInt(above) * 1_000_000n;
}

const ping = many<undefined, void>(
  "server/ping",
  "select",
  () => [],
  () => undefined,
  "",
);

/** Runs work that is harmless when repeated until it reaches the database at `url`. */
function createWait({ config, log, giveUp }: GatewayParts, url: string | undefined) {
  const database =
    url === undefined ? `the embedded database in ${config.dataDir}` : databaseOf(url);
  const wait = { database, withinMs: config.databaseWaitMs, giveUp, log };
  return <T>(work: () => Promise<T>) => waitForDatabase(wait, work);
}

/** Migrates the database, and connects to it. */
async function reachLedger(parts: GatewayParts, url: string): Promise<OpenLedger> {
  const { databaseUrl, migrationDatabaseUrl: ownerUrl } = parts.config;
  const untilReached = createWait(parts, databaseUrl);
  if (databaseUrl !== undefined) await untilReached(() => checkDatabase(databaseUrl));
  if (ownerUrl !== undefined) await createWait(parts, ownerUrl)(() => checkConnection(ownerUrl));
  return untilReached(() => openLedger({ url, ownerUrl }, parts.log));
}

async function embed(
  { config, log, embedded }: GatewayParts,
  stack: AsyncDisposableStack,
): Promise<string> {
  const started = await (embedded ?? startEmbedded(config.dataDir, log));
  return stack.adopt(started, (one) => one.stop()).url;
}

function openRedis(
  url: string | undefined,
  log: Log,
  stack: AsyncDisposableStack,
): Redis | undefined {
  return url === undefined
    ? undefined
    : stack.adopt(connectRedis(url, log), (redis) => redis.close());
}
