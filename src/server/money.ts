// How money comes in, what people hear of it, and what operators see of everything.

import cluster from "node:cluster";
import { createAlerts } from "../alerts/alerts.ts";
import { listBypasses } from "../contract/approvals.ts";
import { localClient, serviceTypes } from "../contract/contract.ts";
import { intercept } from "../contract/interceptor.ts";
import { version } from "../metrics/metrics.ts";
import { createOperations } from "../operations/operations.ts";
import { createPayments } from "../payments/payments.ts";
import { codeGuesses } from "../people/people.ts";
import { createSales } from "../sales/sales.ts";
import type { Accounts } from "./accounts.ts";
import type { Data } from "./data.ts";
import type { GatewayParts } from "./parts.ts";
import type { RequestParts } from "./request.ts";
import type { SettingsInUse } from "./settings.ts";

export function createMoney(
  { config, env, log, clock, outbound, metrics, shared }: GatewayParts,
  { postgres, months, ledgerProblem, mailer }: Data,
  settings: SettingsInUse,
  { keys, billing, people, authenticate, misplaced }: Accounts,
  { providers, limits }: RequestParts,
  contentKeys: readonly Uint8Array[],
) {
  const { audit, onCallerChange } = people;
  const { countChange } = keys;
  const interceptor = { authenticate, log, audit, onCallerChange, countChange, clock };
  const billingService = intercept(serviceTypes.billing, billing.service, interceptor);
  const payments = createPayments({
    postgres,
    billing: localClient(serviceTypes.billing, billingService),
    publicUrl: settings.publicUrl,
    settings: settings.file.payments,
    env,
    outbound,
    guesses: codeGuesses("promotion code", "Too many wrong codes. Wait, and try again."),
    clock,
    log,
  });
  const alerts = createAlerts({
    postgres,
    sources: {
      billing: billing.figures,
      listKeyEvents: keys.listEvents,
      listNewPlaces: people.forAlerts.listNewPlaces,
      listLogins: people.forAlerts.listLogins,
      listWaitingOrders: payments.listWaiting,
      listUnreadChains: payments.listUnreadChains,
      listBypasses: (since, limit) => listBypasses(postgres, since, limit),
      payments: payments.forAlerts,
      findViolations: billing.overview.findViolations,
      listMisplaced: () => misplaced.list(),
      modelConditions: providers.modelConditions,
      ledgerProblem,
    },
    listRecipients: people.forAlerts.listRecipients,
    mailer,
    publicUrl: settings.publicUrl,
    config: settings.file.alerts,
    contentKeys,
    env,
    log,
  });
  const sales = createSales({ postgres, file: settings.file, log, metrics });
  const operations = createOperations({
    postgres,
    sales,
    ledger: billing.overview,
    findRequests: billing.overview.findRequests,
    ownersOf: people.ownersOf,
    waitingOrders: payments.waitingOrders,
    mails: alerts.forDesk,
    listInvitationMails: people.listInvitationMails,
    alertChannels: alerts.operatorChannels,
    mailFrom: config.smtp?.from,
    publicUrl: settings.publicUrl,
    trustedProxies: config.trustedProxies,
    findDocument: payments.findDocument,
    ...people.forApprovals,
    carryOut: { ...people.forApprovals.carryOut, ...billing.carryOut, ...payments.carryOut },
    nodeId: billing.nodeId,
    adminTokenUsedAt: people.installation.adminTokenUsedAt,
    database: {
      isEmbedded: config.databaseUrl === undefined,
      monthsAhead: () => months.monthsAhead,
    },
    providers,
    limits: limits.state,
    clock,
    process: { version, worker: shared ? (cluster.worker?.id ?? 0) : 0 },
    file: () => settings.file,
    priceOf: (model) => settings.catalog.priceOf(model),
    conditionalPricesOf: (model) => settings.catalog.conditionalPricesOf(model),
  });
  return { interceptor, billingService, payments, alerts, operations, sales };
}
