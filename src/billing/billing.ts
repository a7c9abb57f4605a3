// Accounts, pools, holds and charges: the implementation of the services about them, and
// the interface to the holds of this process. README.md explains the rules.

import { create } from "@bufbuild/protobuf";
import { durationMs, timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  AccountsService,
  CreateAccountResponseSchema,
  GetAccountResponseSchema,
  ListAccountsResponseSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  BillingService,
  CheckpointHoldResponseSchema,
  GetPoolsResponseSchema,
  ListTransfersResponseSchema,
  type PlaceHoldRequest,
  PlaceHoldResponseSchema,
  type Pool,
  PoolSchema,
  type SettleHoldRequest,
  SettleHoldResponseSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Forecast } from "../../gen/gateway/common/v1/forecast_pb.ts";
import type { KeyLabel } from "../../gen/gateway/common/v1/key_label_pb.ts";
import { UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  Bucket,
  FindRequestsResponseSchema,
  GetForecastResponseSchema,
  GetReceiptResponseSchema,
  ListRunningRequestsResponseSchema,
  type QueryRefusalsRequest,
  QueryRefusalsRequestSchema,
  type QueryUsageRequest,
  RefusalGroup,
  UsageService,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { type Clock, withTimeout } from "../base/clock.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { isRequestId, requestIdRule } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { encodeTimeCursor, readPage } from "../base/paging.ts";
import { reportRowsMax } from "../base/shown-figures.ts";
import { checkTags } from "../base/tags.ts";
import type { PriceFacts } from "../config/catalog.ts";
import type { ApprovalLimit, CarryOut } from "../contract/approvals.ts";
import { actorOf, confinedTo } from "../contract/callers.ts";
import type { AuthenticatedCall, Implementation, serviceTypes } from "../contract/contract.ts";
import type { Metrics } from "../metrics/metrics.ts";
import { isUniqueViolation, type Postgres } from "../postgres/postgres.ts";
import type { Hints } from "../redis/redis.ts";
import { createAccount, updateAccount } from "./account-settings.ts";
import {
  type AccountExport,
  type AccountParts,
  accountQuery,
  closeAccount,
  exportAccount,
  type KeysOfAccount,
  type MembersOfAccount,
  resumeAccount,
  suspendAccount,
} from "./accounts.ts";
import type { RequestKey } from "./admission.ts";
import { type AlertFigures, createAlertFigures } from "./alert-figures.ts";
import { refuseArchived } from "./archived.ts";
import {
  type BudgetParts,
  budgetsFor,
  budgetsOfPerson,
  listBudgets,
  resetBudget,
  setBudget,
} from "./budgets.ts";
import { ChargeWatch } from "./charge-watch.ts";
import { chosenCharges, isChosen, listCharges } from "./charges.ts";
import { ClusterNode } from "./cluster-node.ts";
import { exportCharges } from "./export-charges.ts";
import { HoldKeeper, type Holds } from "./holds.ts";
import { LedgerMetrics } from "./ledger-metrics.ts";
import { createOverview, type LedgerOverview } from "./overview.ts";
import {
  carryOutAccountPriceList,
  carryOutPriceList,
  createPriceList,
  createPriceListVersion,
  findPriceList,
  listPriceLists,
  type PriceListParts,
  previewPrices,
  readLists,
  setAccountPriceList,
} from "./price-lists.ts";
import { type PriceBook, PriceLists } from "./prices.ts";
import { findArchived, type LoggedCharge } from "./reconcile.ts";
import { Rejections, toRefused } from "./rejections.ts";
import { runningReceipt } from "./settlement.ts";
import { createLedgerStore, type LedgerStore } from "./store.ts";
import {
  carryOutTransfer,
  createTransfer,
  exportTransfers,
  type MoveParts,
  moveCredits,
  type TransferParts,
} from "./transfers.ts";
import { createReports, type Reports, type Scope } from "./usage.ts";
import { UsageDays } from "./usage-days.ts";
import { getLastVerification, type VerificationParts, verifyLedger } from "./verification.ts";

export type { Hold } from "./admission.ts";
export { budgetsOfKeys, budgetsOfMembers } from "./budgets.ts";
export { minHoldMicro, type UsageBounds } from "./hold-size.ts";
export type { ExpectedHold, Holds, NewHold } from "./holds.ts";
export { chargedUsage } from "./price.ts";
export { PriceBook, PriceLists } from "./prices.ts";
export {
  type Correction,
  compareCharges,
  correctionsFor,
  type Difference,
  type LoggedCharge,
  parseLogLine,
} from "./reconcile.ts";
export type { Ending } from "./settlement.ts";

export type Billing = {
  readonly service: Implementation<typeof serviceTypes.billing, AuthenticatedCall>;
  readonly holds: Holds;
  /** Sorted ids of the live processes on this database, including this one. */
  readonly liveNodes: () => readonly string[];
  readonly nodeId: () => string;
  /** What operators ask about the whole ledger. */
  readonly overview: LedgerOverview;
  /**
   * Calls `listener` for each settlement of this process, before its answer, and for each transfer:
   * before the answer of one that this process made, soon after one that another process made.
   */
  onFundsChange(listener: FundsListener): void;
  /** Why requests fail now although the database answers. Undefined: they do not. */
  problem(): string | undefined;
  /** The amounts of the charges that these requests have. One without a charge is left out. */
  findAmounts: LedgerStore["findAmounts"];
  /**
   * Counts a request of a key that was rejected before its admission, for `QueryRefusals`, and
   * keeps it for `FindRequests` if it has an id.
   */
  countRejected: Rejections["count"];
  /**
   * Asks the process that runs a request to end it. Undefined: no such request runs. False: an
   * internal service holds it, which settles it.
   */
  askToEnd: LedgerStore["askToEnd"];
  /** How many of these requests hold credits, and so are yet to be charged. */
  countRunning(requests: readonly RequestKey[]): Promise<number>;
  /** What alerts compare with the settings of accounts. */
  readonly figures: AlertFigures;
  /** The logged charges that may be in a month whose charges were archived. */
  findArchived<Logged extends LoggedCharge>(logged: readonly Logged[]): Promise<Logged[]>;
  /** Does what was approved. */
  readonly carryOut: Readonly<Record<"transfer" | "price_list" | "account_price_list", CarryOut>>;
  /** The price list of an account. Undefined: the public prices. */
  findPriceList(accountId: string): Promise<string | undefined>;
  /** Call for each thing that the feed of keys names: price lists are read again. */
  onPricesChanged(id: string): void;
  /** Creates an account with this id and two empty pools, unless it exists. */
  ensureAccount(accountId: string, name: string): Promise<void>;
  /** How long the credits of an account will last, one for each pool. Empty: no such account. */
  forecastsOf(accountId: string): Promise<readonly Forecast[]>;
  /** Registers this process as a node; starts heartbeats, checkpoints and reaping. */
  start(peers?: BillingPeers): Promise<void>;
  /**
   * Undefined while this process runs without a pause. After one, resolves when the ledger has
   * confirmed that it still owns its requests. Nothing may be delivered before.
   */
  confirmAlive(): Promise<void> | undefined;
  /** Returns when every queued settlement is durable, or after a time without the database. */
  stop(): Promise<void>;
  /** After `stop`: the requests whose settlement is left to other processes. */
  unsettled(): number;
};

/** The credits of an account changed. */
type FundsListener = (change: {
  readonly kind: "transfer" | "settlement";
  readonly accountId: string;
}) => void;

/** The parts that the ledger uses of services that need it themselves. */
export type BillingPeers = {
  /**
   * Called when other processes declared this one dead. They have settled its running requests,
   * which must fail now.
   */
  readonly onLost: () => void;
  /** Called with requests of this process that somebody wants ended. */
  readonly onEndAsked: (requests: readonly RequestKey[]) => void;
  /** How this process describes itself to operators, as JSON. */
  readonly describe: () => string | undefined;
  /** The parts of an account that ExportAccount sends besides the ledger. */
  readonly exports: readonly AccountExport[];
};

const noPeers: BillingPeers = {
  onLost() {},
  onEndAsked() {},
  describe: () => undefined,
  exports: [],
};

type Parts = {
  readonly postgres: Postgres;
  /** Carries hints of transfers to other processes. */
  readonly hints?: Hints | undefined;
  /** Price of a catalogue model. Undefined for an unknown model. */
  readonly priceOf: PriceBook["priceOf"];
  /** The price lists in force, which this service reads. Absent: there are none. */
  readonly priceLists?: PriceLists | undefined;
  /** The configuration file of this moment. Absent: it has no models. */
  readonly file?: PriceListParts["file"] | undefined;
  /** The values of conditions that have a price there. Absent: none has. */
  readonly offered?: PriceBook["offered"] | undefined;
  readonly log: Log;
  /** The keys of accounts. Absent: no key is here that an account could change. */
  readonly keys?: KeysOfAccount | undefined;
  /** The members of accounts. Absent: nobody owns one here. */
  readonly members?: MembersOfAccount | undefined;
  /** True if an account has this management key. Absent: there are none. */
  readonly hasManagementKey?: BudgetParts["hasManagementKey"];
  /** Default: nobody needs another person. */
  readonly approvalLimit?: ApprovalLimit | undefined;
  /** True: owners move credits between pools. Default: they do not. */
  readonly ownersMove?: (() => boolean) | undefined;
  /** How long an admission waits for the database. */
  readonly maxWaitMs?: number;
  /** Default: the clock of this machine. */
  readonly clock?: Clock | undefined;
  /** Present in a worker. */
  readonly parent?: NodeParent | undefined;
  /** Absent: nothing is counted. */
  readonly metrics?: Metrics | undefined;
};

/** The parent of several processes. It sees each of them end, and holds no connection itself. */
export type NodeParent = {
  /** This process is about to register as this node. */
  announce(nodeId: string): void;
  /** Calls `listener` with each node whose process has ended, also before this process began. */
  onNodeEnded(listener: (nodeId: string) => void): void;
};

export function createBilling(parts: Parts): Billing {
  let peers = noPeers;
  const store = createLedgerStore(parts.postgres);
  const reports = createLedgerStore({ ...parts.postgres, run: parts.postgres.reports.run });
  const metrics = parts.metrics && new LedgerMetrics(parts.metrics);
  const node = new ClusterNode({
    store,
    log: parts.log,
    onLost: () => peers.onLost(),
    onRegister: parts.parent?.announce,
    onEndAsked: (requests) => peers.onEndAsked(requests),
    describe: () => peers.describe(),
    clock: parts.clock,
    onReaped(requests) {
      if (metrics) metrics.reaped.value += requests;
    },
  });
  parts.parent?.onNodeEnded((nodeId) => node.markEnded(nodeId));
  const funds = createFundsChanges(parts.hints);
  const days = new UsageDays(parts.postgres, parts.log);
  const rejections = new Rejections({ ...parts, db: parts.postgres });
  const watch = new ChargeWatch({ ...parts, store: reports });
  const holds = new HoldKeeper({
    ...parts,
    metrics,
    store,
    nodeId: node.id,
    liveNodes: () => node.live().length,
    onLost: () => node.lose(),
    onSettled(accountId, admittedAt) {
      funds.notify({ kind: "settlement", accountId });
      days.noteSettled(admittedAt);
    },
    onCharge: (charge) => watch.pass(charge),
  });
  if (parts.metrics) readLedger(parts.metrics, holds, node);
  const keys = parts.keys ?? noKeys;
  const lists = parts.priceLists ?? new PriceLists();
  lists.readBy((known) => readLists(parts.postgres, known));
  let unsettled = 0;
  const usage = createReports(reports);
  const approvalLimit = parts.approvalLimit ?? (() => undefined);
  const priceLists: PriceListParts = {
    transaction: store.transaction,
    reports: parts.postgres.reports,
    keys,
    lists,
    approvalLimit,
    file: parts.file ?? (() => ({ models: [], priceMultipliers: {} })),
  };
  return {
    service: createService({
      store,
      reports,
      holds,
      watch,
      priceOf: parts.priceOf,
      offered: parts.offered,
      usage,
      lists,
      priceLists,
      labelsOf: (accountId, keyIds) => keys.labels(parts.postgres.reports, accountId, keyIds),
      log: parts.log,
      accounts: {
        transaction: store.transaction,
        keys,
        members: parts.members ?? noMembers,
        exports: () => peers.exports,
        reports,
        onTransfer: funds.publishTransfer,
      },
      budgets: {
        transaction: store.transaction,
        reports,
        keys,
        members: parts.members ?? noMembers,
        hasManagementKey: parts.hasManagementKey,
        onTransfer: funds.publishTransfer,
      },
      transfers: {
        store,
        transaction: store.transaction,
        approvalLimit,
        ownersMove: parts.ownersMove ?? (() => false),
        log: parts.log,
        onTransfer: funds.publishTransfer,
      },
    }),
    holds,
    carryOut: {
      transfer: carryOutTransfer(funds.publishTransfer),
      price_list: carryOutPriceList(priceLists),
      account_price_list: carryOutAccountPriceList(priceLists),
    },
    async ensureAccount(accountId, name) {
      if (await store.findAccount(accountId)) return;
      await store.insertAccount(name, accountId).catch((error: unknown) => {
        // Another process that starts now was faster.
        if (!isUniqueViolation(error)) throw error;
      });
    },
    forecastsOf: (accountId) => usage.forecast(accountId),
    liveNodes: node.live,
    nodeId: node.id,
    overview: createOverview(reports),
    onFundsChange: funds.listen,
    problem: () => problemOf(holds, node),
    figures: createAlertFigures(reports),
    findAmounts: (requests) => reports.findAmounts(requests),
    countRejected: (key, error, request) => rejections.count(key, error, request),
    askToEnd: (request) => store.askToEnd(request),
    countRunning: async (requests) => (await reports.findHolds(requests)).length,
    findArchived: (logged) => findArchived(reports, logged),
    findPriceList: (accountId) => findPriceList(reports, accountId),
    onPricesChanged: (id) => lists.change(id),
    confirmAlive: () => node.confirmAlive(),
    async start(others = noPeers) {
      peers = others;
      await lists.read();
      await node.start(holds);
      days.start();
      rejections.start();
    },
    async stop() {
      funds.stop();
      const watched = watch.stop();
      unsettled = await holds.close();
      // They lose nothing but figures.
      const figures = Promise.all([watched, days.stop(), rejections.stop()]);
      await Promise.all([withTimeout(figures, figuresMsMax, () => undefined), node.stop()]);
    },
    unsettled: () => unsettled,
  };
}

/** What the ledger is like in the moment of a scrape. */
function readLedger(metrics: Metrics, holds: HoldKeeper, node: ClusterNode): void {
  metrics.read("gateway_ledger_queue", () => {
    const { admit, settle } = holds.waiting;
    return [
      { labels: ["admit"], value: admit },
      { labels: ["settle"], value: settle },
    ];
  });
  metrics.readOne("gateway_unsettled_requests", () => holds.waiting.settle);
  metrics.readOne("gateway_ledger_up", () => (problemOf(holds, node) === undefined ? 1 : 0));
  metrics.readOne("gateway_nodes", () => node.live().length);
}

/** Requests wait for no lock so long. */
const stalledMsMax = 3_000;
/** Several heartbeats. */
const silentMsMax = 5_000;

// A lock, a full disk or a lost standby: the database answers, but every request waits or fails.
function problemOf(holds: HoldKeeper, node: ClusterNode): string | undefined {
  if (holds.admissionStalledMs >= stalledMsMax) return "admits no requests";
  if (holds.settlementStalledMs >= stalledMsMax) return "settles no requests";
  return node.silentMs >= silentMsMax ? "takes no heartbeats" : undefined;
}

/** How long a stopping process waits until its figures are written. */
const figuresMsMax = 2_000;

const transfersChannel = "gateway:transfers";

/** Reports changed credits: of this process directly, transfers also to others by hints. */
function createFundsChanges(hints: Hints | undefined) {
  const listeners: FundsListener[] = [];
  const notify: FundsListener = (change) => {
    for (const listener of listeners) listener(change);
  };
  const stop = hints?.subscribe(transfersChannel, (accountId) =>
    notify({ kind: "transfer", accountId }),
  );
  return {
    notify,
    publishTransfer(accountId: string) {
      notify({ kind: "transfer", accountId });
      hints?.publish(transfersChannel, accountId);
    },
    listen: (listener: FundsListener) => void listeners.push(listener),
    stop: () => stop?.(),
  };
}

type ServiceParts = {
  readonly store: LedgerStore;
  readonly holds: HoldKeeper;
  readonly priceOf: Parts["priceOf"];
  readonly offered: Parts["offered"];
  readonly lists: PriceLists;
};

/** `reports` reads the same ledger on connections that heartbeats and admissions do not use. */
function createService({
  store,
  reports,
  usage,
  labelsOf,
  holds,
  watch,
  priceOf,
  offered,
  lists,
  priceLists,
  accounts,
  budgets,
  transfers,
  log,
}: ServiceParts & {
  readonly budgets: BudgetParts;
  readonly priceLists: PriceListParts;
  readonly reports: LedgerStore;
  readonly usage: Reports;
  /** What people know these keys of an account by. Unknown ones are left out. */
  readonly labelsOf: (accountId: string, keyIds: readonly string[]) => Promise<KeyLabel[]>;
  readonly watch: ChargeWatch;
  readonly accounts: AccountParts;
  readonly transfers: TransferParts & MoveParts;
  readonly log: VerificationParts["log"];
}): Implementation<typeof serviceTypes.billing, AuthenticatedCall> {
  return {
    async createAccount(request, call) {
      const id = await createAccount(budgets, request, call);
      return create(CreateAccountResponseSchema, { account: await store.findAccount(id) });
    },
    async getAccount(_, { accountId }) {
      const account = await reports.findAccount(accountId);
      if (!account) throw noSuch("account");
      return create(GetAccountResponseSchema, { account });
    },
    async listAccounts(request, call) {
      const query = await accountQuery(reports, request.query);
      const { entries, nextPageToken } = await readPage(
        AccountsService.method.listAccounts,
        request,
        call,
        {
          read: (after, limit) => reports.listAccounts(query, after ?? "", limit),
          cursorOf: ({ accountId }) => accountId,
        },
      );
      return create(ListAccountsResponseSchema, { accounts: entries, nextPageToken });
    },
    updateAccount: (request, call) => updateAccount(budgets, request, call),
    closeAccount: (request, call) => closeAccount(accounts, request, call),
    exportAccount: (_, call) => exportAccount(accounts, call),
    suspendAccount: (request, call) => suspendAccount(accounts, request, call),
    resumeAccount: (request, call) => resumeAccount(accounts, request, call),
    createPriceList: (request, call) => createPriceList(priceLists, request, call),
    createPriceListVersion: (request, call) => createPriceListVersion(priceLists, request, call),
    listPriceLists: (request, call) => listPriceLists(priceLists, request, call),
    setAccountPriceList: (request, call) => setAccountPriceList(priceLists, request, call),
    previewPrices: (request) => previewPrices(priceLists, request),
    setBudget: (request, call) => setBudget(budgets, request, call),
    resetBudget: (request, call) => resetBudget(budgets, request, call),
    listBudgets: (request, call) => listBudgets(budgets, request, call),
    async getPools(_, { accountId, caller }) {
      const pools = await reports.readPools(accountId);
      if (pools.length === 0) throw noSuch("account");
      return create(GetPoolsResponseSchema, {
        pools: caller.kind === "key" ? poolsFor(caller.key, pools) : pools,
        budgets: caller.kind === "key" ? await budgetsFor(reports, caller.key) : [],
      });
    },

    createTransfer: (request, call) => createTransfer(transfers, request, call),
    moveCredits: (request, call) => moveCredits(transfers, request, call),
    async *exportTransfers(request, call) {
      if (!request.allAccounts) await knownAccount(reports, call);
      yield* exportTransfers(reports, request, call);
    },
    async listTransfers(request, call) {
      const accountId = await knownAccount(reports, call);
      const page = await readPage(BillingService.method.listTransfers, request, call, {
        read: (after, limit) => reports.listTransfers(accountId, after ?? null, limit),
        cursorOf: ({ transferId }) => transferId,
      });
      const { entries: transfers, nextPageToken } = page;
      return create(ListTransfersResponseSchema, { transfers, nextPageToken });
    },

    async placeHold(request, call) {
      const hold = await placeHold({ store, holds, priceOf, offered, lists }, request, call);
      return create(PlaceHoldResponseSchema, {
        accountId: hold.payer.accountId,
        grantedOutputTokens: hold.grantedOutput,
        holdMicrocredits: hold.amountMicro,
        price: hold.price,
        admittedAt: timestampFromDate(hold.admittedAt),
      });
    },
    async checkpointHold({ accountId, requestId, usage }) {
      const metered = { accountId, requestId, usage: usage ?? create(UsageSchema) };
      if ((await store.checkpoint([metered])) === 0) throw noSuch("hold");
      return create(CheckpointHoldResponseSchema);
    },
    async settleHold(request, { note }) {
      note?.({ requestId: request.requestId });
      return create(SettleHoldResponseSchema, {
        receipt: await settleHold({ store, holds }, request),
      });
    },

    async listRunningRequests(request, call) {
      const accountId = await knownAccount(reports, call);
      const { entries: holds, nextPageToken } = await readPage(
        UsageService.method.listRunningRequests,
        request,
        call,
        {
          read: (after, rows) => reports.listRunning(accountId, after, rows),
          cursorOf: ({ hold }) => encodeTimeCursor({ at: hold.admittedAt, id: hold.requestId }),
        },
      );
      const requests = holds.map(runningReceipt);
      return create(ListRunningRequestsResponseSchema, {
        requests,
        keys: await labelsOf(accountId, distinct(requests)),
        nextPageToken,
      });
    },
    async getReceipt({ requestId }, { caller, accountId }) {
      const request = { accountId, requestId };
      // In this order a request that is settled between the two reads is found.
      const hold = await reports.findHold(request);
      const receipt = (await reports.findCharge(request)) ?? (hold && runningReceipt(hold));
      const onlyKey = confinedTo(caller);
      if (!receipt) await refuseArchived(reports, { accountId, keyId: onlyKey }, requestId);
      if (!receipt || (onlyKey !== undefined && receipt.keyId !== onlyKey)) throw noSuch("request");
      const [key] = await labelsOf(accountId, [receipt.keyId]);
      return create(GetReceiptResponseSchema, { receipt, ...(key && { key }) });
    },
    async findRequests({ requestId }) {
      // In this order a request that is settled between the two reads is found.
      const running = await reports.findRunning(requestId);
      const charged = await reports.findCharges(requestId);
      const refused = await reports.run(sql.findRefusals, { requestId });
      const settled = new Set(charged.map(({ accountId }) => accountId));
      const left = running.filter(({ hold }) => !settled.has(hold.payer.accountId));
      if (left.length + charged.length + refused.length === 0)
        await refuseArchived(reports, { accountId: undefined, keyId: undefined }, requestId);
      return create(FindRequestsResponseSchema, {
        receipts: [...left.map(runningReceipt), ...charged],
        refusals: refused.map(toRefused),
      });
    },
    async listCharges(request, call) {
      const scope = await scopeOf(reports, call);
      const answer = await listCharges(reports, request, scope);
      answer.keys = await labelsOf(scope.accountId, distinct(answer.charges));
      return answer;
    },
    async *exportCharges(request, call) {
      const scope = await scopeOf(reports, call);
      yield* exportCharges({ store: reports, usage }, request, scope, call.signal);
    },
    async *watchCharges({ filter }, call) {
      const scope = await scopeOf(reports, call);
      const chosen = chosenCharges(filter, scope);
      const matches = (charge: Receipt) => isChosen(chosen, charge);
      yield* watch.watch({ accountId: scope.accountId, matches }, call.signal);
    },
    async queryUsage(request, call) {
      const scope = await scopeOf(reports, call);
      const answer = await usage.queryUsage(request, scope);
      answer.keys = await labelsOf(scope.accountId, distinct(answer.rows));
      if (request.includeRefusals && request.pageToken === "")
        answer.refusals = await usage.queryRefusals(refusalsOf(request), scope);
      if (request.includeOwnBudgets && request.pageToken === "" && call.caller.kind === "person")
        answer.ownBudgets = await budgetsOfPerson(reports, { ...scope, ...call.caller });
      return answer;
    },
    async queryRefusals(request, call) {
      return usage.queryRefusals(request, await scopeOf(reports, call));
    },
    async getForecast(_, { accountId }) {
      const forecasts = await usage.forecast(accountId);
      if (forecasts.length === 0) throw noSuch("account");
      return create(GetForecastResponseSchema, { forecasts });
    },
    verifyLedger: (_, call) => verifyLedger({ store, reports, log }, call),
    getLastVerification: () => getLastVerification(reports),
  };
}

/** The rejected requests of a report, by reason. */
function refusalsOf({ startAt, endAt, keyIds }: QueryUsageRequest): QueryRefusalsRequest {
  const range = { ...(startAt && { startAt }), ...(endAt && { endAt }) };
  const groupBy = [RefusalGroup.REASON];
  // There are fewer reasons than rows of a page.
  const pageSize = reportRowsMax;
  return create(QueryRefusalsRequestSchema, {
    ...{ ...range, bucket: Bucket.NONE, groupBy, keyIds, pageSize },
  });
}

/** The keys that some rows name. */
function distinct(rows: readonly { readonly keyId: string }[]): string[] {
  return [...new Set(rows.map(({ keyId }) => keyId))].filter((keyId) => keyId !== "");
}

const noKeys: KeysOfAccount = {
  checkProgram: () => Promise.reject(new ApiError("not_permitted")),
  labels: async () => [],
  announce: async () => [],
  announceChange: async () => [],
  revokeAll: async () => [],
  publish() {},
};
const noMembers: MembersOfAccount = {
  checkOwner: () => Promise.reject(new ApiError("not_permitted")),
  checkManager: () => Promise.reject(new ApiError("not_permitted")),
  roleOf: async () => undefined,
  list: async () => [],
};

/** What a key sees of the pools: an account reader everything, another what its pool has free. */
function poolsFor({ accountReader, family }: Key, pools: readonly Pool[]): Pool[] {
  if (accountReader) return [...pools];
  return pools
    .filter((pool) => pool.family === family)
    .map(({ freeMicrocredits }) => create(PoolSchema, { family, freeMicrocredits }));
}

/** The account of the call, which an operator may have invented. Throws `not_found`. */
async function knownAccount(
  reports: LedgerStore,
  { caller, accountId }: AuthenticatedCall,
): Promise<string> {
  if (caller.kind !== "key" && !(await reports.findAccount(accountId))) throw noSuch("account");
  return accountId;
}

/** Whose figures the caller sees. Throws `not_found` for an account that an operator invented. */
async function scopeOf(reports: LedgerStore, call: AuthenticatedCall): Promise<Scope> {
  return { accountId: await knownAccount(reports, call), onlyKey: confinedTo(call.caller) };
}

const defaultDeadlineMs = 15 * 60_000;

/** The conditions that a calling service names. */
function factsOf({ speed, geo, tier }: PlaceHoldRequest): PriceFacts {
  return {
    ...(speed !== "" && { speed }),
    ...(geo !== "" && { geo }),
    ...(tier !== "" && { tier }),
  };
}

async function placeHold(
  { store, holds, priceOf, offered, lists }: ServiceParts,
  request: PlaceHoldRequest,
  { caller, signal }: AuthenticatedCall,
) {
  const {
    requestId,
    keyId,
    model,
    maxInputTokens: input,
    mostExpensiveInput,
    minOutputTokens: minOutput,
    maxOutputTokens: maxOutput,
    nonce,
  } = request;
  const { webSearches } = request;
  const tags = checkTags(request.tags, "tags");
  if (!isRequestId(requestId)) throw invalidField("request_id", requestIdRule);
  if (minOutput > maxOutput)
    throw invalidField("min_output_tokens", "is larger than max_output_tokens");
  if (input === 0 && maxOutput === 0)
    throw invalidField("max_input_tokens", "a hold needs input or output to cover");
  const deadlineMs = request.deadline ? durationMs(request.deadline) : defaultDeadlineMs;
  const found = await store.findPayer(keyId);
  const facts = factsOf(request);
  await lists.ensure(found?.priceListId);
  // Before a price is made of them, which would be remembered.
  const priced = offered?.(model, found?.priceListId);
  for (const name of ["speed", "geo", "tier"] as const) {
    const value = facts[name];
    if (value === undefined || !priced || priced[name].has(value)) continue;
    const message = `${name}: ${value.slice(0, 100)} has no price at this model.`;
    throw new ApiError("feature_not_offered", { field: name, message });
  }
  const price = priceOf(model, facts, found?.priceListId);
  if (!price) throw new ApiError("model_not_found", { field: "model" });
  if (!found) throw noSuch("key");
  const { payer } = found;
  const bounds = { input, mostExpensiveInput, webSearches, minOutput, maxOutput };
  const madeBy = caller.kind === "internal" ? undefined : actorOf(caller);
  const hold = { requestId, nonce, payer, model, price, bounds, deadlineMs, tags, madeBy };
  return holds.place(hold, signal);
}

async function settleHold(
  { store, holds }: Pick<ServiceParts, "store" | "holds">,
  request: SettleHoldRequest,
): Promise<Receipt> {
  const { outcome, basis, attempts } = request;
  const usage = request.usage ?? create(UsageSchema);
  const stored = await store.findHold(request);
  if (stored) return holds.settle(stored.hold, { usage, outcome, basis, attempts });
  const charge = await store.findCharge(request);
  if (!charge) throw noSuch("hold");
  return charge;
}

function noSuch(thing: string): ApiError {
  return new ApiError("not_found", { message: `No such ${thing}.` });
}
