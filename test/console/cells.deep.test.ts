// Every table, card and chart of the console, rendered from rows whose figures all differ: each
// cell shows the figure that its heading names.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountsService } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AlertKind, AlertsService, DeliveryState } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { ApprovalsService } from "../../gen/gateway/approvals/v1/approvals_pb.ts";
import { AuditService } from "../../gen/gateway/audit/v1/audit_pb.ts";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { BillingService, TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { PriceListsService } from "../../gen/gateway/billing/v1/price_lists_pb.ts";
import {
  AttemptOutcome,
  Basis,
  Outcome,
  type ReceiptSchema,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { BudgetWindow_Name } from "../../gen/gateway/common/v1/budget_pb.ts";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type KeySchema, KeyState, KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  LimitsStore,
  OperationsService,
  ProviderHealth,
  ProviderKind,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { SupportService } from "../../gen/gateway/operations/v1/support_pb.ts";
import {
  Attention,
  DepositState,
  OrderState,
  RefundState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import { PaymentDeskService } from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { DocumentKind, PaymentsService } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { PromotionsService } from "../../gen/gateway/payments/v1/promotions_pb.ts";
import { AdminTokensService } from "../../gen/gateway/people/v1/admin_tokens_pb.ts";
import { MailState, MembersService } from "../../gen/gateway/people/v1/members_pb.ts";
import { PeopleService } from "../../gen/gateway/people/v1/people_pb.ts";
import { ProfileService } from "../../gen/gateway/people/v1/profile_pb.ts";
import { SalesBucket, SalesService } from "../../gen/gateway/sales/v1/sales_pb.ts";
import { Bucket, UsageService, type UsageSumsSchema } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { VerificationService } from "../../gen/gateway/verification/v1/verification_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { firstEventBoundsMs } from "../../src/base/shown-figures.ts";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { type Answer, accountId, answer, now, type PageStates } from "./states/answers.ts";
import { type StatesServer, scrollThrough, startStates, statePath } from "./states/server.ts";

const { queryUsage, listCharges, getReceipt, getForecast } = UsageService.method;
const { listTransfers } = BillingService.method;
const at = (text: string) => timestampFromDate(new Date(text));

/** Sums of which all figures differ, and differ from those of another `n`. */
function sumsOf(n: bigint): MessageInitShape<typeof UsageSumsSchema> {
  const [input, output, thinking, cache] = [13n * n, 29n * n, 17n * n, 7n * n].map(
    (credits) => credits * 1_000_000n,
  ) as [bigint, bigint, bigint, bigint];
  return {
    usage: {
      ...{ input: 101n * n, output: 211n * n, thinking: 307n * n },
      ...{ cacheWrite5m: 401n * n, cacheWrite1h: 503n * n, cacheRead: 601n * n },
    },
    chargedMicrocredits: input + output + thinking + cache,
    inputMicrocredits: input,
    outputMicrocredits: output,
    thinkingMicrocredits: thinking,
    cacheMicrocredits: cache,
    ...{ requests: 23n * n, completed: 15n * n, failed: 5n * n, cut: 3n * n },
    firstEventCounts: [...firstEventBoundsMs, Infinity].map(
      (bound) => ({ 500: 12n * n, 1000: 10n * n, 11400: n })[bound] ?? 0n,
    ),
    cacheSavedNanocredits: 3_000_000_000n * n + 1n,
  };
}

const labels = ["ci", "batch"].map((name, index) => ({
  ...{ keyId: `key_${index}`, name, hint: `sk-gw2-1a…${index}` },
}));
/** Two keys or models, with sums of 3 and 8 on the 20th and of 2 and 5 two days later. */
const usage = answer(
  queryUsage,
  ({ groupBy, bucket, includeRefusals: withErrors, includeOutcomes: withOutcomes }) => {
    const isGrouped = groupBy.length > 0;
    const days =
      bucket === Bucket.NONE
        ? [[3n + 2n, 8n + 5n]]
        : [
            [3n, 8n],
            [2n, 5n],
          ];
    return {
      rows: days.flatMap(([first = 0n, second = 0n], day) => {
        const startAt = at(day === 0 ? "2026-11-20" : "2026-11-22");
        if (!isGrouped) return [{ startAt, sums: sumsOf(first + second) }];
        return [first, second].map((n, index) => ({
          ...{ startAt, keyId: `key_${index}`, model: `model-${index}`, sums: sumsOf(n) },
        }));
      }),
      totals: sumsOf(18n),
      completeUntil: at("2026-11-22T14:01:00Z"),
      endAt: timestampFromDate(now),
      keys: labels,
      ...(withOutcomes && {
        outcomes: [
          { outcome: Outcome.PROVIDER_FAILED, requests: 97n },
          { outcome: Outcome.CLIENT_LEFT, requests: 4n },
          { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, requests: 3n },
        ],
      }),
      ...(withErrors && {
        refusals: {
          rows: [
            { startAt: at("2026-11-20"), reason: Reason.RATE_LIMITED, requests: 1_204n },
            { startAt: at("2026-11-20"), reason: Reason.CREDITS_EXHAUSTED, requests: 37n },
          ],
          total: 1_241n,
        },
      }),
    };
  },
);

/** Rows of the last seven days, of which two have figures. */
function ofSevenDays(of22: string, none: string, of20: string): string[] {
  return [of22, none, of20, none, none, none, none].map(
    (text, index) => `${22 - index} Nov 2026 | ${text}`,
  );
}

const price = {
  ...{ priceVersion: "price_1", input: 600_000n, output: 3_100_000n, thinking: 3_700_000n },
  ...{ cacheWrite5m: 750_000n, cacheWrite1h: 1_200_000n, cacheRead: 61_000n },
};
type ReceiptInit = MessageInitShape<typeof ReceiptSchema>;
const receipt = {
  ...{ requestId: "req_1", accountId, keyId: "key_0", family: Family.V2, model: "model-0" },
  usage: {
    ...{ input: 1_013, output: 211, thinking: 307, cacheWrite5m: 401, cacheWrite1h: 503 },
    cacheRead: 601,
  },
  reportedUsage: {
    ...{ input: 1_013, output: 223, thinking: 311, cacheWrite5m: 401, cacheWrite1h: 503 },
    cacheRead: 601,
  },
  ...{ price, outcome: Outcome.COMPLETED, basis: Basis.REPORTED },
  ...{
    holdMicrocredits: 3_200_000n,
    chargedMicrocredits: 3_100_000n,
    overrunMicrocredits: 411_000n,
  },
  attempts: [
    { provider: "primary", outcome: AttemptOutcome.FAILED, status: 529 },
    {
      provider: "fallback",
      outcome: AttemptOutcome.DELIVERED,
      status: 200,
      firstEventAfter: { nanos: 410_000_000 },
    },
  ],
  ...{ admittedAt: at("2026-11-22T13:01:02Z"), settledAt: at("2026-11-22T13:01:05.500Z") },
  grantedOutputTokens: 534,
} satisfies ReceiptInit;
const charges = answer(listCharges, () => ({ charges: [receipt], keys: labels }));

/** One model with prices of the account, steps and a condition, and one of everybody. */
const sold = answer(InferenceService.method.listModels, ({ pricesOf }) => ({
  models: [
    {
      ...{ modelId: "model-0", displayName: "Zero", aliases: ["nought"] },
      ...{ contextTokens: 200_003, maxOutputTokens: 32_009 },
      price: {
        ...{ ...price, input: 400_000n, note: "list Acme 7", promptAbove: 100_000 },
        abovePrice: { ...price, note: "above 100,000 tokens of prompt; list Acme 7" },
      },
      ...(pricesOf === accountId && { publicPrice: price }),
      conditional: [
        {
          speed: "fast",
          price: { ...price, output: 6_200_000n, note: "fast; list Acme 7" },
        },
      ],
    },
    { modelId: "model-1", displayName: "One", contextTokens: 1_001, maxOutputTokens: 503, price },
    { modelId: "nought", aliasFor: "model-0", displayName: "Zero (alias)", price },
  ],
}));
const modelKeys = answer(KeysService.method.listKeys, ({ includeModelKeys: withModelKeys }) => ({
  keys: [key],
  liveKeys: 14,
  ...(withModelKeys && { modelKeys: { "model-0": 9, "model-gone": 4 }, anyModelKeys: 3 }),
}));

const key: MessageInitShape<typeof KeySchema> = {
  ...{ keyId: "key_0", accountId, family: Family.V1, name: "ci", state: KeyState.ACTIVE },
  ...{ monthSpentMicrocredits: 611_000_000n, monthHeldMicrocredits: 17_000_000n },
  ...{ monthlyCapMicrocredits: 907_000_000n, requestsPerMinute: 1_429 },
  budget: {
    windows: [
      {
        window: BudgetWindow_Name.MONTH,
        ...{ spentMicrocredits: 611_000_000n, limitMicrocredits: 907_000_000n },
      },
    ],
  },
  ...{ allowedModels: ["model-0", "model-1", "model-2"], createdBy: toActor("person:per_ana") },
  secrets: [
    {
      ...{ secretId: "sec_1", hint: "sk-gw2-1aaaa…1111", createdAt: at("2026-10-02T03:04:05Z") },
      lastUsedAt: at("2026-11-22T12:00:00Z"),
    },
  ],
  ...{ createdAt: at("2026-10-01T02:03:04Z"), lastUsedAt: at("2026-11-22T11:58:00Z") },
};
const keys = answer(KeysService.method.listKeys, () => ({ keys: [key] }));

const forecasts = answer(getForecast, () => ({
  forecasts: [
    {
      ...{ family: Family.V1, freeMicrocredits: 6_412_080_000n, heldMicrocredits: 48_310_000n },
      ...{ dailyMicrocredits: 561_000_000n, daysLeft: 11.4 },
    },
    {
      ...{ family: Family.V2, freeMicrocredits: 1_207_440_000n, heldMicrocredits: 9_970_000n },
      ...{ dailyMicrocredits: 300_000_000n, daysLeft: 4.02 },
    },
  ],
}));
const transfers = answer(listTransfers, () => ({
  transfers: [
    {
      ...{ transferId: "tr_2", accountId, family: Family.V1, kind: TransferKind.DEPOSIT },
      ...{ amountMicrocredits: 4_001_000_000n, postedAfterMicrocredits: 6_812_080_000n },
      ...{
        createdAt: at("2026-11-21T10:11:12Z"),
        createdBy: toActor("payments"),
        reason: "an order",
      },
    },
    {
      ...{ transferId: "tr_1", accountId, family: Family.V2, kind: TransferKind.CHARGEBACK },
      ...{ amountMicrocredits: 12_500_000n, postedAfterMicrocredits: 2_811_080_000n },
      ...{ createdAt: at("2026-11-20T09:08:07Z"), createdBy: toActor("payments"), reason: "gone" },
    },
  ],
}));
const order = {
  ...{ orderId: "ord_1", accountId, family: Family.V2, packMicrodollars: 20_000_000n },
  ...{ packMicrocredits: 4_000_000_000n, grantedMicrocredits: 3_901_000_000n },
  ...{ processor: "btcpay", method: "btcpay:btc", asset: "BTC", network: "bitcoin" },
  ...{ quotedCoins: "0.000307", usdPerCoin: "65000.00", payTo: "bc1qexample" },
  ...{ seenCoins: "0.00001", settledCoins: "0.00003", missingCoins: "0.000267" },
  ...{
    ...{ state: OrderState.PARTLY_PAID, attention: Attention.NONE },
    createdBy: toActor("person:per_ana"),
    receiptNumber: "R2026-000017",
  },
  ...{ createdAt: at("2026-11-22T13:50:00Z"), quotedUntil: at("2026-11-22T14:16:00Z") },
  ...{ watchedUntil: at("2026-11-29T13:50:00Z"), lookedAt: at("2026-11-22T14:02:00Z") },
  deposits: [
    {
      ...{ depositId: "dep_1", asset: "BTC", network: "bitcoin", coins: "0.00003" },
      ...{ state: DepositState.SETTLED, confirmations: 3, confirmationsNeeded: 2 },
      ...{ firstSeenAt: at("2026-11-22T13:51:00Z"), valueMicrodollars: 1_950_100n },
    },
    {
      ...{ depositId: "dep_2", asset: "BTC", network: "bitcoin", coins: "0.00001" },
      ...{ state: DepositState.SEEN, confirmations: 1, confirmationsNeeded: 2 },
      firstSeenAt: at("2026-11-22T13:52:00Z"),
    },
  ],
  refunds: [
    {
      ...{ number: 1, state: RefundState.REFUNDING, refundedMicrodollars: 1_110_000n },
      ...{
        refundedMicrocredits: 222_000_000n,
        createdAt: at("2026-11-22T13:53:00Z"),
        reason: "asked",
      },
    },
  ],
};
const orders = answer(PaymentsService.method.listOrders, () => ({ orders: [order] }));
const paper = answer(PaymentsService.method.getReceiptDocument, () => ({
  receipt: {
    ...{
      number: "R2026-000017",
      orderId: "ord_1",
      kind: DocumentKind.RECEIPT,
      accountId,
      family: Family.V2,
    },
    ...{
      issuedAt: at("2026-11-22T13:54:00Z"),
      seller: { name: "Seller" },
      buyer: { name: "Buyer" },
    },
    lines: [
      {
        microcredits: 390_020_000n,
        microdollars: 1_950_100n,
        occurredAt: at("2026-11-22T13:55:00Z"),
      },
      {
        microcredits: 100_000_000n,
        microdollars: 500_000n,
        occurredAt: at("2026-11-22T13:56:00Z"),
      },
    ],
    ...{ totalMicrodollars: 2_450_100n, totalMicrocredits: 490_020_000n },
  },
  deposits: order.deposits,
}));

const operator = answer(ProfileService.method.getSession, () => ({
  person: { personId: "per_o", login: "o@gateway.example", operatorRole: OperatorRole.ADMIN },
  operatorRole: OperatorRole.ADMIN,
  strongUntil: at("2026-11-22T15:00:00Z"),
}));
const summaries = answer(OperationsService.method.findAccounts, () => ({
  accounts: [
    {
      account: {
        ...{ accountId: "acc_1", name: "ACME", state: AccountState.ACTIVE },
        createdAt: at("2026-05-06T07:08:09Z"),
      },
      pools: [
        { family: Family.V1, freeMicrocredits: 7_919_000_000n, heldMicrocredits: 12_000_000n },
        { family: Family.V2, freeMicrocredits: 211_000_000n, heldMicrocredits: 13_000_000n },
      ],
      ...{ spentMicrocredits: 4_729_330_000n, debtMicrocredits: 317_000_000n },
      ...{ ownerCount: 1, waitingOrders: 2, waitingApprovals: 3 },
      owners: [{ personId: "per_1", login: "owner@acme.example" }],
    },
  ],
}));
const account = answer(AccountsService.method.getAccount, () => ({
  account: {
    ...{ accountId: "acc_1", name: "ACME", state: AccountState.ACTIVE },
    createdAt: at("2026-05-06T07:08:09Z"),
  },
}));
const catalogue = answer(OperationsService.method.listCatalogModels, () => ({
  models: [
    {
      ...{
        modelId: "model-0",
        aliases: ["small"],
        contextTokens: 200_000,
        maxOutputTokens: 32_000,
      },
      ...{ price, usable: true, conditional: [{ ...price, note: "fast", output: 6_200_000n }] },
      routes: [
        { provider: "primary", model: "m-1", weight: 3, group: 1 },
        { provider: "fallback", model: "m-2", weight: 1, group: 1 },
      ],
      prices: [{ price, firstUsedAt: at("2026-08-09T10:11:12Z") }],
    },
  ],
}));
const state = (health: ProviderHealth) => ({
  ...{ provider: "primary", health },
  lastFailure: { occurredAt: at("2026-11-22T13:57:00Z"), httpStatus: 529, reason: "busy" },
});
const providers = answer(OperationsService.method.listProviders, () => ({
  providers: [
    {
      ...{ name: "primary", kind: ProviderKind.BEDROCK, region: "eu-north-3" },
      ...{ baseUrl: "https://a.example", concurrency: 61 },
      ...{ queue: 127, queueTimeout: { seconds: 7n }, connectTimeout: { seconds: 5n } },
      ...{ firstByteTimeout: { seconds: 31n }, idleTimeout: { seconds: 67n } },
      ...{ totalTimeout: { seconds: 611n }, models: ["model-0"] },
      nodes: [{ nodeId: "n_1", state: state(ProviderHealth.GOOD) }],
    },
  ],
}));
const node = (nodeId: string, silentSeconds: number) => ({
  ...{
    nodeId,
    silentFor: { seconds: BigInt(silentSeconds) },
    startedAt: at("2026-11-20T01:02:03Z"),
    answering: nodeId === "n_1",
  },
  report: {
    ...{
      host: `host-${nodeId}`,
      pid: 4_711,
      worker: 2,
      version: "1.2.3",
      runtimeVersion: "24.1.0",
    },
    ...{
      limits: LimitsStore.MEMORY,
      configuration: "c0ffee",
      providers: [state(ProviderHealth.GOOD)],
    },
  },
});
const health = answer(OperationsService.method.getStatus, () => ({
  nodes: [node("n_1", 0), node("n_2", 3), node("n_3", 7_000)],
  database: { version: "18.1", synchronous: true, syncStandbys: 2, monthsAhead: 13 },
  running: {
    ...{ requests: 137n, heldMicrocredits: 611_090_000n },
    ...{
      oldestAdmittedAt: at("2026-11-22T13:58:00Z"),
      firstDeadlineAt: at("2026-11-22T14:09:00Z"),
    },
  },
  readAt: timestampFromDate(now),
}));
const verification = answer(VerificationService.method.getLastVerification, () => ({
  latest: {
    ...{ startedAt: at("2026-11-22T12:00:00Z"), endedAt: at("2026-11-22T12:00:41Z") },
    ...{ startedBy: toActor("verify-ledger"), violationCount: 5 },
    violations: [{ invariant: "pool_held", subject: "acc_1/v1", detail: "17 instead of 19" }],
  },
  latestCleanAt: at("2026-11-21T12:00:00Z"),
}));

const priceLists = answer(PriceListsService.method.listPriceLists, () => ({
  priceLists: [
    {
      ...{ priceListId: "plist_1", name: "Acme", accounts: 13, goneModels: ["model-9"] },
      version: {
        ...{
          number: 7,
          discountBp: 1_225,
          createdBy: toActor("person:per_1"),
          createdAt: at("2026-11-03T04:05:06Z"),
        },
        models: { "model-0": { discountBp: 300 }, "model-9": { discountBp: 1 } },
      },
    },
  ],
}));
const preview = answer(PriceListsService.method.previewPrices, () => ({
  prices: [
    {
      model: "model-0",
      before: price,
      after: {
        ...{ ...price, input: price.input - 1_000n, note: "list Acme 8", promptAbove: 200_000 },
        abovePrice: { ...price, note: "above 200,000 tokens of prompt; list Acme 8" },
      },
      conditionalBefore: [
        { ...price, note: "fast; list Acme 7", output: 6_200_000n },
        { ...price, note: "tier flex; list Acme 7" },
      ],
      conditionalAfter: [
        { ...price, note: "fast; list Acme 8", output: 6_300_000n },
        { ...price, note: "tier flex; list Acme 8", cacheRead: 62_000n },
      ],
    },
  ],
  belowCost: ["model-0"],
  belowHalf: ["model-0"],
}));

const soldInAll = {
  ...{ requests: 31n, chargedMicrocredits: 1_000_000_000n, overrunMicrocredits: 8_000_000n },
  ...{ costPicodollars: "1230000000000", marginMicrodollars: 1_770_000n },
  ...{ uncostedRequests: 11n, uncostedMicrocredits: 400_000_000n },
};
const soldBefore = {
  ...{ startAt: at("2026-10-01"), requests: 29n, chargedMicrocredits: 700_000_000n },
  ...{ costPicodollars: "900000000000", marginMicrodollars: 2_600_000n },
};
const soldByModel = [
  {
    ...{ model: "model-1", requests: 20n, chargedMicrocredits: 600_000_000n },
    ...{ costPicodollars: "1220000000000", marginMicrodollars: 1_780_000n },
    overrunMicrocredits: 2_000_000n,
  },
  {
    ...{ model: "model-2", requests: 11n, chargedMicrocredits: 400_000_000n },
    ...{ costPicodollars: "10000000000", marginMicrodollars: -410_000n },
    overrunMicrocredits: 6_000_000n,
  },
];
const sales = [
  answer(SalesService.method.querySales, ({ bucket, groupBy }) => ({
    totals: soldInAll,
    ...{ bonusMicrocredits: 11_000_000n, adjustmentMicrocredits: 13_000_000n },
    completeUntil: at("2026-11-22T14:01:00Z"),
    rows:
      groupBy.length > 0
        ? soldByModel
        : bucket === SalesBucket.MONTH
          ? [soldBefore, { ...soldInAll, startAt: at("2026-11-01") }]
          : [{ ...soldInAll, startAt: at("2026-11-20") }],
  })),
  answer(SalesService.method.queryRevenue, () => ({
    rows: [
      { startAt: at("2026-10-01"), netMicrodollars: 6_200_000n },
      { startAt: at("2026-11-01"), netMicrodollars: 7_100_000n },
    ],
  })),
  answer(SalesService.method.queryLiabilities, () => ({
    rows: [{ owedMicrocredits: 2_000_000_000n, debtsMicrocredits: 3_500_000n }],
  })),
  answer(SalesService.method.listProviderBills, () => ({
    bills: [
      {
        ...{ provider: "primary", costPicodollars: "1190000000000" },
        ...{ billedMicrodollars: 1_210_000n, note: "as billed" },
      },
    ],
  })),
];
const promotions = answer(PromotionsService.method.listPromotions, () => ({
  promotions: [
    {
      ...{
        promotionId: "pro_1",
        name: "spring",
        family: Family.V1,
        bonusMicrocredits: 211_000_000n,
      },
      ...{ maxUses: 409, uses: 17, needsPurchase: true, expiresAt: at("2026-12-24T00:00:00Z") },
    },
    {
      ...{
        promotionId: "pro_2",
        name: "summer",
        family: Family.V2,
        bonusMicrocredits: 223_500_000n,
      },
      ...{ uses: 1_901, stoppedAt: at("2026-11-02T00:00:00Z") },
    },
    {
      ...{ promotionId: "pro_3", family: Family.V1, bonusMicrocredits: 227_000_000n },
      ...{ maxUses: 31, uses: 31 },
    },
    {
      ...{
        promotionId: "pro_4",
        name: "winter",
        family: Family.V2,
        bonusMicrocredits: 229_000_000n,
      },
      // It ends at this very moment.
      ...{ maxUses: 37, uses: 36, expiresAt: timestampFromDate(now) },
    },
  ],
}));
const people = answer(PeopleService.method.listPeople, () => ({
  people: [
    {
      ...{ personId: "per_1", login: "ana@acme.example", name: "Ana" },
      ...{ createdAt: at("2026-03-04T05:06:07Z"), lastSeenAt: at("2026-11-22T11:02:00Z") },
    },
    {
      ...{ personId: "per_2", login: "bob@acme.example", operatorRole: OperatorRole.SUPPORT },
      ...{ createdAt: at("2026-04-05T06:07:08Z"), disabledAt: at("2026-11-19T00:00:00Z") },
    },
    {
      ...{ personId: "per_o", login: "o@gateway.example", operatorRole: OperatorRole.ADMIN },
      ...{ createdAt: at("2026-05-06T07:08:09Z"), lastSeenAt: at("2026-11-17T11:02:00Z") },
    },
  ],
}));
const tokens = answer(AdminTokensService.method.listAdminTokens, () => ({
  tokens: [
    { tokenId: "ADMIN_TOKEN", name: "ADMIN_TOKEN", scope: AdminScope.ALL },
    {
      ...{ tokenId: "tok_1", name: "billing", scope: AdminScope.MONEY, hint: "adm-gw2-1A…zZ" },
      ...{ createdBy: toActor("person:per_1"), createdAt: at("2026-09-10T11:12:13Z") },
      lastUsedAt: at("2026-11-22T13:51:00Z"),
    },
    {
      ...{ tokenId: "tok_2", name: "export", scope: AdminScope.READ, hint: "adm-gw2-2B…yY" },
      ...{ createdBy: toActor("person:per_o"), createdAt: at("2026-10-11T12:13:14Z") },
      revokedAt: at("2026-11-01T00:00:00Z"),
    },
  ],
}));
const events = answer(AuditService.method.listAuditEvents, () => ({
  events: [
    {
      ...{ eventId: "evt_1", occurredAt: at("2026-11-22T13:14:15Z"), method: "CreateTransfer" },
      ...{
        actor: toActor("person:per_1"),
        accountId: "acc_1",
        succeeded: true,
        address: "203.0.113.7",
      },
      facts: { amountMicrocredits: "-2000050000", family: "V1", accountId: "acc_1" },
    },
    {
      ...{ eventId: "evt_2", occurredAt: at("2026-11-21T12:13:14Z"), method: "ListPeople" },
      ...{ actor: toActor("token:export"), reason: Reason.NOT_PERMITTED },
    },
  ],
}));
const budgets = answer(BillingService.method.listBudgets, () => ({
  budgets: [
    {
      ...{ payer: { payer: { case: "personId" as const, value: "per_3" } }, family: Family.V1 },
      ...{ limits: { requestsAtOnce: 5 }, running: 2, heldMicrocredits: 1_370_000n },
      windows: [
        {
          ...{ window: BudgetWindow_Name.WEEK, resetsAt: at("2026-11-23T00:00:00Z") },
          ...{ spentMicrocredits: 31_070_000n, limitMicrocredits: 47_000_000n },
        },
        { window: BudgetWindow_Name.MONTH, spentMicrocredits: 43_190_000n },
      ],
    },
  ],
}));
const members = answer(MembersService.method.listMembers, () => ({
  members: [
    {
      ...{ personId: "per_1", login: "ana@acme.example", name: "Ana", role: AccountRole.VIEWER },
      ...{ joinedAt: at("2026-02-03T04:05:06Z"), lastSeenAt: at("2026-11-22T13:02:00Z") },
    },
    {
      ...{ personId: "per_2", login: "bob@acme.example", role: AccountRole.OWNER },
      joinedAt: at("2026-03-04T05:06:07Z"),
    },
    {
      ...{ personId: "per_3", login: "cy@acme.example", role: AccountRole.MEMBER },
      ...{ joinedAt: at("2026-04-05T06:07:08Z"), lastSeenAt: at("2026-11-20T13:02:00Z") },
    },
  ],
}));
const invitations = answer(MembersService.method.listInvitations, () => ({
  invitations: [
    {
      ...{ invitationId: "inv_1", email: "dee@acme.example", role: AccountRole.MEMBER },
      ...{
        mailState: MailState.SENT,
        expiresAt: at("2026-11-29T01:02:03Z"),
        createdBy: toActor("person:per_1"),
      },
    },
    {
      ...{
        invitationId: "inv_2",
        login: "eve",
        role: AccountRole.VIEWER,
        createdBy: toActor("token:t"),
      },
      ...{
        mailState: MailState.FAILED,
        expiresAt: at("2026-11-28T01:02:03Z"),
        mailProblem: "no such",
      },
    },
    {
      ...{ invitationId: "inv_3", email: "gil@acme.example", role: AccountRole.OWNER },
      ...{
        mailState: MailState.WAITING,
        expiresAt: at("2026-11-27T01:02:03Z"),
        createdBy: toActor("person:per_2"),
      },
    },
    { invitationId: "inv_4", role: AccountRole.OWNER, expiresAt: at("2026-11-26T01:02:03Z") },
  ],
}));
const memberUsage = answer(queryUsage, () => ({
  rows: [
    {
      ...{ keyId: "key_2", member: toActor("person:per_3") },
      sums: { chargedMicrocredits: 12_130_000n, requests: 411n },
    },
    {
      ...{ keyId: "key_1", member: toActor("person:per_3") },
      sums: { chargedMicrocredits: 41_230_000n, requests: 1_907n },
    },
    {
      keyId: "key_3",
      member: toActor("person:per_1"),
      sums: { chargedMicrocredits: 7n, requests: 1n },
    },
  ],
  keys: [{ keyId: "key_1", name: "ci", hint: "sk-gw2-1A…zZ" }],
}));
const owner = answer(ProfileService.method.getSession, () => ({
  person: { personId: "per_2", login: "bob@acme.example", name: "Bob", email: "b@acme.example" },
  accounts: [{ accountId, name: "ACME", role: AccountRole.OWNER }],
  passkeys: [
    { passkeyId: "pk_1", name: "laptop", lastUsedAt: at("2026-11-22T13:12:00Z") },
    { passkeyId: "pk_2", name: "phone", createdAt: at("2026-11-19T13:12:00Z") },
  ],
  identities: [{ identityId: "id_1", provider: "a", lastUsedAt: at("2026-11-21T13:12:00Z") }],
  providers: [
    { name: "a", title: "First" },
    { name: "b", title: "Second" },
  ],
}));
const sessions = answer(ProfileService.method.listSessions, () => ({
  sessions: [
    {
      ...{ sessionId: "ses_1", createdAt: at("2026-11-22T11:02:00Z"), current: true },
      ...{ lastUsedAt: at("2026-11-22T13:58:00Z"), address: "203.0.113.7" },
      agent: "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    },
    {
      ...{ sessionId: "ses_2", createdAt: at("2026-11-17T11:02:00Z"), address: "2001:db8::17" },
      ...{ lastUsedAt: at("2026-11-20T11:02:00Z"), agent: "curl/8.1" },
    },
  ],
}));
const details = answer(AccountsService.method.getAccount, () => ({
  account: {
    ...{ accountId, name: "ACME", createdAt: at("2026-05-06T07:08:09Z") },
    billingDetails: { name: "ACME Ltd", address: "1 Road\nTown", taxId: "X-17" },
  },
}));
const waiting = {
  ...order,
  ...{ accountId: "acc_1", createdBy: toActor("person:per_1"), refundedMicrodollars: 1_230_000n },
  ...{ attention: Attention.OVERPAID, notice: "Somebody looks." },
};
const attention = answer(PaymentDeskService.method.listAttention, () => ({
  orders: [
    waiting,
    {
      ...{ ...waiting, orderId: "ord_2", accountId: "acc_2", attention: Attention.LATE },
      ...{ deposits: [], createdAt: at("2026-11-21T13:50:00Z") },
    },
  ],
}));
const approvals = answer(ApprovalsService.method.listApprovals, () => ({
  approvals: [
    {
      ...{ approvalId: "apv_1", accountId: "acc_1", what: "Adds 4,711 credits.", reason: "why" },
      ...{
        requestedBy: toActor("person:per_1"),
        personId: "per_1",
        givenMicrodollars: 480_250_000n,
      },
      ...{ requestedAt: at("2026-11-22T12:02:00Z"), subject: "ord_1" },
    },
    {
      ...{
        approvalId: "apv_2",
        what: "Makes ana an operator.",
        requestedBy: toActor("person:per_o"),
      },
      ...{ personId: "per_o", requestedAt: at("2026-11-20T14:02:00Z"), subject: "per_1" },
    },
  ],
}));

const alerts = answer(AlertsService.method.listAlerts, () => ({
  alerts: [
    {
      ...{ alertId: "a1", accountId, kind: AlertKind.PAYMENT_CREDITED, orderId: "ord_1" },
      ...{
        occurredAt: at("2026-11-22T13:02:00Z"),
        facts: { microcredits: "1234000000", family: "v1" },
      },
    },
    {
      ...{
        alertId: "a2",
        accountId,
        kind: AlertKind.CAP_REACHED,
        occurredAt: at("2026-11-20T13:02:00Z"),
      },
      facts: { of: "key", key: "ci", percent: "83", cap_microcredits: "907000000" },
    },
    {
      ...{
        alertId: "a3",
        accountId,
        kind: AlertKind.WEBHOOK_OFF,
        occurredAt: at("2026-11-19T13:02:00Z"),
      },
      facts: { host: "hooks.example" },
    },
  ],
}));
const deliveries = answer(AlertsService.method.listDeliveries, () => ({
  deliveries: [
    {
      ...{ alertId: "a1", kind: AlertKind.PAYMENT_CREDITED, createdAt: at("2026-11-22T13:02:00Z") },
      delivery: { personId: "per_2", state: DeliveryState.SENT },
    },
    {
      ...{ alertId: "a2", kind: AlertKind.CAP_REACHED, createdAt: at("2026-11-20T13:02:00Z") },
      delivery: { state: DeliveryState.FAILED, failures: 6, problem: "No answer within 5 s" },
    },
    {
      ...{ alertId: "a3", kind: AlertKind.WEBHOOK_OFF, createdAt: at("2026-11-19T13:02:00Z") },
      delivery: { state: DeliveryState.WAITING, failures: 1, problem: "The host has no address" },
    },
  ],
}));
const mails = answer(SupportService.method.listMails, () => ({
  mails: [
    {
      delivery: {
        ...{ alertId: "a1", kind: AlertKind.PAYMENT_CREDITED, title: "1,234 credits." },
        ...{ createdAt: at("2026-11-22T13:02:03Z") },
        delivery: { personId: "per_1", state: DeliveryState.SENT },
      },
      address: "a…@acme.example",
    },
    {
      delivery: {
        ...{ alertId: "a2", kind: AlertKind.NEW_PLACE, createdAt: at("2026-11-20T13:04:05Z") },
        delivery: { personId: "per_2", state: DeliveryState.FAILED, problem: "550 no such user" },
      },
      address: "",
    },
    {
      delivery: {
        createdAt: at("2026-11-19T13:04:05Z"),
        delivery: { state: DeliveryState.SENT },
      },
      ...{ address: "n…@new.example", invitationId: "lnk_1" },
    },
  ],
}));
const documents = answer(SupportService.method.listDocuments, () => ({
  documents: [
    {
      ...{ number: "C2026-000019", kind: DocumentKind.CREDIT_NOTE, orderId: "ord_1" },
      issuedAt: at("2026-11-17T13:02:00Z"),
    },
  ],
}));
const namedLists = answer(PriceListsService.method.listPriceLists, () => ({
  priceLists: [
    { priceListId: "prl_1", name: "Acme", version: { number: 23 } },
    { priceListId: "prl_2", name: "Other", version: { number: 29 } },
  ],
}));
const listed = answer(AccountsService.method.getAccount, () => ({
  account: {
    ...{ accountId: "acc_1", name: "ACME", state: AccountState.ACTIVE },
    ...{ priceListId: "prl_1", priceListAt: at("2026-11-05T07:08:09Z") },
  },
}));

type Shown = {
  /** The figures and facts: label and texts. */
  readonly figures?: readonly string[];
  /** The rows of each table, its foot last. Of a chart, those that are not zero. */
  readonly tables?: Readonly<Record<string, readonly string[]>>;
  /** Other texts that have figures. */
  readonly texts?: readonly string[];
};

type Case = {
  readonly path: string;
  readonly answers: readonly Answer[];
  /** A button that shows the rest. */
  readonly press?: string;
  readonly shown: Shown;
};

const usageFigures = [
  "Credits spent | 1,188.00 | nothing in the 30 days before",
  "Requests | 414 | 90 failed, 54 cut off",
  "Tokens | 38.2 K | 37 % read from cache",
  "First token, median | ≤ 0.5 s | slowest 1 %: ≤ 11.4 s",
];
const byHead = (of: string) =>
  `${of} | Credits | Requests | Failed or cut | Input | Output | Thinking | Cache`;
const sumsOfFirst = "330.00 | 115 | 40 | 505 | 1,055 | 1,535 | 7,525";
const sumsOfSecond = "858.00 | 299 | 104 | 1,313 | 2,743 | 3,991 | 19.6 K";
const sumsOfAll = "1,188.00 | 414 | 144 | 1,818 | 3,798 | 5,526 | 27.1 K";
const byKey = [
  byHead("Key"),
  `batch sk-gw2-1a…1 | ${sumsOfSecond}`,
  `ci sk-gw2-1a…0 | ${sumsOfFirst}`,
  `All keys | ${sumsOfAll}`,
];
const refusedRows = [
  "Why | Requests | What to do",
  "Requests per minute | 1,204 | Raise the limit of the key, or wait.",
  "No credits left | 37 | Buy credits for this pool.",
  "Total | 1,241 |",
];
const ofModels = [
  "Day, UTC | model-1 | model-0 | Total",
  "22 Nov 2026 | 330.00 credits | 132.00 credits | 462.00 credits",
  "20 Nov 2026 | 528.00 credits | 198.00 credits | 726.00 credits",
  "Total | 858.00 credits | 330.00 credits | 1,188.00 credits",
];
const arrived = [
  "Seen | Amount | State | Value | Id",
  "22 Nov 2026, 13:51:00 UTC | 0.00003 BTC | settled | $1.9501 | dep_1",
  "22 Nov 2026, 13:52:00 UTC | 0.00001 BTC | 1 of 2 confirmations. | – | dep_2",
];
const returned = [
  "Time | Amount | State | Reason | Transaction",
  "22 Nov 2026, 13:53:00 UTC | $1.11 | to be sent | asked | –",
];

const operatorAt = (path: string) => `/console/operator${path}`;
const cases: Readonly<Record<string, Case>> = {
  "the models that are sold": {
    path: "models",
    answers: [sold, modelKeys, usage],
    shown: {
      tables: {
        "Models and their prices": [
          "Model | This call | Input | Output | Cached | Context | First token | Keys allowed | Price rules",
          // 2,000 × 400 + 8,000 × 61 + 1,000 × 3,100 micro-credits, and 2,000 × 600 for everybody.
          "Zero own prices model-0 nought | 4.3880 $0.0219 | 400 $2.00 public $3.00 | 3,100 $15.50 | 61 $0.305 | 200,003 32,009 out | ≤ 0.5 s | 12 of 14 | 2 rules Above 100,000 tokens of prompt: 3.00 USD (600 credits) in and 15.50 USD (3,100 credits) out; 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads.Fast: 3.00 USD (600 credits) in and 31.00 USD (6,200 credits) out; 18.50 USD (3,700 credits) for thinking, 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads.",
          "One model-1 | 4.7880 $0.0239 | 600 $3.00 | 3,100 $15.50 | 61 $0.305 | 1,001 503 out | ≤ 0.5 s | 3 of 14 | –",
        ],
      },
    },
  },
  "a fast call of a long prompt": {
    path: "models?in=100,001&out=7&cached=0&as=fast%2F%2F&q=model",
    answers: [sold, modelKeys, usage],
    shown: {
      tables: {
        "Models and their prices": [
          "Model | This call | Input | Output | Cached | Context | First token | Keys allowed | Price rules",
          "Zero own prices model-0 nought | 60.0440 $0.3002 | 400 $2.00 public $3.00 | 3,100 $15.50 | 61 $0.305 | 200,003 32,009 out | ≤ 0.5 s | 12 of 14 | 2 rules Above 100,000 tokens of prompt: 3.00 USD (600 credits) in and 15.50 USD (3,100 credits) out; 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads.Fast: 3.00 USD (600 credits) in and 31.00 USD (6,200 credits) out; 18.50 USD (3,700 credits) for thinking, 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads.",
          "One model-1 | not offered | 600 $3.00 | 3,100 $15.50 | 61 $0.305 | 1,001 503 out | ≤ 0.5 s | 3 of 14 | –",
        ],
      },
    },
  },
  usage: {
    path: "usage",
    answers: [usage],
    shown: {
      figures: usageFigures,
      tables: {
        "Credits per day": [
          "Day, UTC | Input | Output | Thinking | Cache | Total",
          "22 Nov 2026 | 91.00 credits | 203.00 credits | 119.00 credits | 49.00 credits | 462.00 credits",
          "20 Nov 2026 | 143.00 credits | 319.00 credits | 187.00 credits | 77.00 credits | 726.00 credits",
          "Total | 234.00 credits | 522.00 credits | 306.00 credits | 126.00 credits | 1,188.00 credits",
        ],
        "By key": byKey,
        "Refused requests": refusedRows,
      },
      texts: [
        "20 Nov 2026: 726.00 credits. Input 143.00 credits, Output 319.00 credits, Thinking 187.00 credits, Cache 77.00 credits.",
      ],
    },
  },
  "usage in tokens by model": {
    path: "usage?by=model&in=tokens",
    answers: [usage],
    shown: {
      figures: usageFigures,
      tables: {
        "Tokens per day": [
          "Day, UTC | model-1 | model-0 | Total",
          "22 Nov 2026 | 10,620 tokens | 4,248 tokens | 14,868 tokens",
          "20 Nov 2026 | 16,992 tokens | 6,372 tokens | 23,364 tokens",
          "Total | 27,612 tokens | 10,620 tokens | 38,232 tokens",
        ],
        "By model": [
          byHead("Model"),
          `model-1 | ${sumsOfSecond}`,
          `model-0 | ${sumsOfFirst}`,
          `All models | ${sumsOfAll}`,
        ],
        "Refused requests": refusedRows,
      },
      texts: ["22 Nov 2026: 14,868 tokens. model-1 10,620 tokens, model-0 4,248 tokens."],
    },
  },
  "usage in requests": {
    path: "usage?in=requests",
    answers: [usage],
    shown: {
      figures: usageFigures,
      tables: {
        "Requests per day": [
          "Day, UTC | Completed | Failed | Cut off | Total",
          "22 Nov 2026 | 105 requests | 35 requests | 21 requests | 161 requests",
          "20 Nov 2026 | 165 requests | 55 requests | 33 requests | 253 requests",
          "Total | 270 requests | 90 requests | 54 requests | 414 requests",
        ],
        "By key": byKey,
        "Refused requests": refusedRows,
      },
      texts: [],
    },
  },
  "usage with an open bar": {
    path: "usage?period=7d&at=2026-11-20",
    answers: [
      usage,
      answer(UsageService.method.queryRefusals, () => ({
        rows: [
          { startAt: at("2026-11-20"), reason: Reason.RATE_LIMITED, requests: 1_204n },
          { startAt: at("2026-11-22"), reason: Reason.CREDITS_EXHAUSTED, requests: 37n },
        ],
        total: 1_241n,
        startAt: at("2026-11-16"),
      })),
    ],
    shown: {
      tables: {
        "Keys of this time": [
          "Key | Requests | Credits",
          "batch | 299 | 858.00",
          "ci | 115 | 330.00",
          "Total | 414 | 1,188.00",
        ],
        "Models of this time": [
          "Model | Requests | Credits",
          "model-1 | 299 | 858.00",
          "model-0 | 115 | 330.00",
          "Total | 414 | 1,188.00",
        ],
        "Failed and cut off": [
          "How | Requests",
          "Provider failed | 97",
          "Client left | 7",
          "Archived: the outcome is not kept | 40",
          "Total | 144",
        ],
        Refused: [
          "Why | Requests",
          "Requests per minute | 1,204",
          "No credits left | 37",
          "Total | 1,241",
        ],
        "Outcomes per day": [
          "Day, UTC | Completed | Failed | Cut off | Total",
          "22 Nov 2026 | 105 requests | 35 requests | 21 requests | 161 requests",
          "20 Nov 2026 | 165 requests | 55 requests | 33 requests | 253 requests",
          "Total | 270 requests | 90 requests | 54 requests | 414 requests",
        ],
        "Refused per day": [
          "Day, UTC | Requests per minute | No credits left | Total",
          "22 Nov 2026 | 0 requests | 37 requests | 37 requests",
          "20 Nov 2026 | 1,204 requests | 0 requests | 1,204 requests",
          "Total | 1,204 requests | 37 requests | 1,241 requests",
        ],
        "First token per day": [
          "Day, UTC | Median (p50) | Slowest 5 % (p95)",
          ...ofSevenDays("≤ 0.5 s | ≤ 1 s", "none | none", "≤ 0.5 s | ≤ 1 s"),
        ],
        "Saved by the cache per day": [
          "Day, UTC | Saved",
          ...ofSevenDays("21.00 credits", "none", "33.00 credits"),
        ],
        "Read from cache per day": [
          "Day, UTC | Share of the input",
          ...ofSevenDays("37 %", "none", "37 %"),
        ],
      },
      texts: [
        "1,188.00 credits, 414 requests",
        "54.00 credits in all: what its tokens would have cost as plain input, less what they cost.",
        "Day 21: This month 726.00 credits, Last month 0.00 credits.",
        "Day 22: This month 1,188.00 credits, Last month 0.00 credits.",
        "Day 23: Last month 0.00 credits.",
      ],
    },
  },
  overview: {
    path: "",
    answers: [usage, forecasts, keys, charges],
    shown: {
      figures: [
        "Credits left, v1 | 6,412.08 | 48.31 held by running requests · about 11 days left",
        "Credits left, v2 | 1,207.44 | 9.97 held by running requests · about 4 days left",
        "Credits spent today, UTC | 462.00 | ≈ $2.31",
        "Credits spent this month, UTC | 1,188.00 | ≈ $5.94",
      ],
      tables: {
        "Credits per UTC day, by model": ofModels,
        "Top keys this month": [
          "Key | This month, UTC",
          "ci sk-gw2-1aaaa…1111 Active | 611.00 of 907 this month",
        ],
        "Newest requests": [
          "Time | Key | Model | Status | Tokens | Credits",
          "1 hour ago | ci | model-0 | Completed | 3,036 | 3.1000",
        ],
      },
      texts: ["20 Nov 2026: 726.00 credits. model-1 528.00 credits, model-0 198.00 credits."],
    },
  },
  requests: {
    path: "requests",
    answers: [keys, charges],
    shown: {
      tables: {
        "Requests, newest first": [
          "Time | Key | Model | Input | Output | Thinking | Cache | Credits | Duration",
          "22 Nov, 13:01:02 UTC | ci | model-0 | 1,013 | 211 | 307 | 1,505 | 3.1000 | 3.50 s",
        ],
      },
    },
  },
  receipt: {
    path: "requests/req_1",
    answers: [keys, answer(getReceipt, () => ({ receipt, key: labels[0] }))],
    shown: {
      figures: [
        "Charged | 3.1000 credits | ≈ $0.02",
        "Took | 3.50 s | First token after 0.41 s",
        "Paid by | v2 pool | Pays for keys that begin with sk-\u2060gw2-\u20602: the command-line coding assistant.",
        "Beyond the hold, not charged | −0.2388",
        "Charged | 3.1000",
        "Held at the start | 3.2000 credits",
        "Output granted | 534 tokens",
        "Released at the end | 0.1000 credits",
        "Price version | price_1",
      ],
      tables: {
        "What it cost": [
          "Category | Tokens | Reported | Credits per million | Credits",
          "Input | 1,013 | 1,013 | × 600 | = 0.6078",
          "Output | 211 | 223 | × 3,100 | = 0.6541",
          "Thinking | 307 | 311 | × 3,700 | = 1.1359",
          "Cache write 5 min | 401 | 401 | × 750 | = 0.3008",
          "Cache write 1 h | 503 | 503 | × 1,200 | = 0.6036",
          "Cache read | 601 | 601 | × 61 | = 0.0367",
          "Sum | 3,036 | 3,052 |  | 3.3388",
        ],
        "Calls to providers": [
          "Provider | How it ended | Status | First event",
          "primary | failed | 529 | –",
          "fallback | delivered | 200 | 0.41 s",
        ],
      },
      texts: ["the operator bears the price of the others, 0.1722 credits."],
    },
  },
  credits: {
    path: "credits",
    answers: [forecasts, transfers, orders, account],
    shown: {
      tables: {
        "Orders, newest first": [
          "Order | Pack | State | Paid with | Pool | Credits | Receipt",
          "22 Nov 2026, 13:50:00 UTC | 4,000.00 credits | Partly paid | BTC on Bitcoin | v2 pool | 3,901.00 | R2026-000017",
        ],
        "Transfers, newest first": [
          "Time | What | Credits | Balance after | Pool | Note",
          "21 Nov 2026, 10:11:12 UTC | Payment | +4,001.00 | 6,812.08 | v1 pool | an order",
          "20 Nov 2026, 09:08:07 UTC | Chargeback | −12.50 | 2,811.08 | v2 pool | gone",
        ],
      },
      texts: [
        "6,412.08 ≈ $32.06 48.31 held by running requests about 11 days at the pace of this week",
        "1,207.44 ≈ $6.04 9.97 held by running requests about 4 days at the pace of this week",
      ],
    },
  },
  order: {
    path: "credits/orders/ord_1",
    answers: [
      answer(PaymentsService.method.getOrder, () => ({ order })),
      answer(PaymentsService.method.watchOrder, () => [{ order }]),
    ],
    shown: {
      figures: ["Pool | v2 pool", "Rate | 1 BTC = $65,000.00"],
      tables: { "What arrived": arrived, "What goes back": returned },
      texts: ["A refund is under way: $1.11."],
    },
  },
  document: {
    path: "credits/orders/ord_1/receipt",
    answers: [paper, account],
    shown: {
      tables: {
        "What was credited": [
          "Date, UTC | What | USD",
          "22 Nov 2026, 13:55:00 | 390.02 credits for the v2 pool | 1.9501",
          "22 Nov 2026, 13:56:00 | 100.00 credits for the v2 pool | 0.50",
          "Total | 490.02 credits for the v2 pool | 2.4501",
        ],
        "Paid with": [
          "Arrived, UTC | Amount and id | USD",
          "22 Nov 2026, 13:51:00 | 0.00003 BTC on Bitcoin dep_1 | 1.9501",
          "22 Nov 2026, 13:52:00 | 0.00001 BTC on Bitcoin dep_2 | –",
        ],
      },
    },
  },
  keys: {
    path: "keys",
    answers: [keys],
    shown: {
      tables: {
        "The keys of this account": [
          "| Key | This month, UTC | 30 days, UTC | Models | Last used | Made | Actions",
          "| ci sk-gw2-1aaaa…1111 Active | 611.00 of 907 this month | – | 3 | 2 hours ago | 1 Oct 2026 | Pause",
        ],
      },
    },
  },
  key: {
    path: "keys/key_0",
    answers: [usage, charges, keys, answer(KeysService.method.getKey, () => ({ key }))],
    shown: {
      figures: [
        "Spent this month, UTC | 611.00 | of 907.00 credits",
        "Held by running requests | 17.00 | freed or charged when they end",
        "Requests a minute | 1,429",
      ],
      tables: {
        "Credits per UTC day, by model": ofModels,
        "Newest requests": [
          "Time | Model | Status | Tokens | Credits",
          "1 hour ago | model-0 | Completed | 3,036 | 3.1000",
        ],
      },
    },
  },
  "key with addresses, behind a proxy": {
    path: "keys/key_0",
    answers: [
      ...[operator, usage, charges, keys],
      answer(KeysService.method.getKey, () => ({
        key: { ...key, allowedAddresses: ["192.0.2.0/24"] },
      })),
      answer(OperationsService.method.getStatus, () => ({
        nodes: ["198.51.100.9", "198.51.100.7"].map((peer) => ({
          report: { unnamedProxies: [peer] },
        })),
      })),
    ],
    shown: {
      texts: [
        "Peers that forward addresses and are not in TRUSTED_PROXIES: 198.51.100.7, 198.51.100.9.",
      ],
    },
  },
  accounts: {
    path: operatorAt("/accounts"),
    answers: [operator, summaries],
    shown: {
      tables: {
        "Accounts, newest first": [
          "Account | Owners | v1 free | v2 free | Spent, 30 days | Waits | Made",
          "ACME | owner@acme.example | 7,919.00 | 211.00 | 4,729.33 | 2 orders 3 approvals owes 317.00 | 6 May 2026",
        ],
      },
    },
  },
  account: {
    path: operatorAt("/accounts/acc_1"),
    answers: [
      ...[operator, summaries, listed, keys, transfers, orders, people],
      ...[mails, documents, namedLists],
    ],
    shown: {
      figures: [
        "v1 pool, free | 7,919.00 credits | ≈ $39.60, 12.00 held",
        "v2 pool, free | 211.00 credits | ≈ $1.06, 13.00 held",
        "Spent, 30 days | 4,729.33 credits | ≈ $23.65",
        "Waits for a person | 2 orders 3 approvals owes 317.00 | Open Attention",
      ],
      tables: {
        "Keys of the account": [
          "Key | Status | This month | Last used",
          "ci sk-gw2-1aaaa…1111 | active | 611.00 | 2 hours ago",
        ],
        "Transfers, newest first": [
          "Time | What | Credits | Balance after | Pool | By | Reason",
          "21 Nov 2026, 10:11:12 UTC | Payment | +4,001.00 | 6,812.08 | v1 pool | payments | an order",
          "20 Nov 2026, 09:08:07 UTC | Chargeback | −12.50 | 2,811.08 | v2 pool | payments | gone",
        ],
        "Orders, newest first": [
          "Order | State | Pack | Credits | Receipt",
          "22 Nov 2026, 13:50:00 UTC | Partly paid | 4,000.00 credits | 3,901.00 | R2026-000017",
        ],
        "Mails to people of the account, newest first": [
          "Time | About | To | State | Send again",
          "22 Nov 2026, 13:02:03 UTC | Credits bought, with the receipt | " +
            "Ana a…@acme.example | Sent | Send again",
          "20 Nov 2026, 13:04:05 UTC | Sign-in from a new place | " +
            "bob@acme.example no confirmed address | Failed 550 no such user | Send again",
          "19 Nov 2026, 13:04:05 UTC | Invitation | n…@new.example | Sent |",
        ],
        "Receipts and credit notes of the account, newest first": [
          "Number | What | Issued | Mail it",
          "C2026-000019 | Credit note | 17 Nov 2026 | Mail it",
        ],
      },
      texts: ["Pays by the price list Acme, version 23, since 5 Nov 2026. Take a list back"],
    },
  },
  models: {
    path: operatorAt("/models"),
    answers: [operator, catalogue, providers],
    shown: {
      figures: [
        "Region | eu-north-3",
        "At once | 61 calls; 127 more wait up to 7.00 s",
        "Waits | 5.00 s to connect, 31 s for the first byte, 67 s between bytes, 10 min in all",
      ],
      tables: {
        "The catalogue": [
          "Model | Input | Output | Thinking | Write 5 min | Write 1 h | Read | Context | Routes",
          "model-0 Also called small. Context 200,000 tokens, answers up to 32,000. Fast: 3.00 USD (600 credits) in and 31.00 USD (6,200 credits) out; 18.50 USD (3,700 credits) for thinking. A call of 10,000 tokens in, 80 % of them cached, and 1,000 out costs 0.02394 USD (4.788 credits). | 600 | 3,100 | 3,700 | 750 | 1,200 | 61 | 200.0 K | primary: m-1, weight 3 fallback: m-2, weight 1",
        ],
        "Every price at which requests were charged": [
          "Model | First used | Prices | Version",
          "model-0 | 9 Aug 2026, 10:11:12 UTC | 600 in, 3,100 out, 750 write, 61 read | price_1",
        ],
      },
    },
  },
  health: {
    path: operatorAt("/health"),
    answers: [operator, health],
    shown: {
      figures: [
        "Nodes | 2 of 3 | on 3 machines",
        "Running requests | 137 | 611.09 credits held",
        "Oldest request | 4 minutes ago | settled by 14:09 UTC at the latest",
        "Database | Synchronous | 2 standbys; PostgreSQL 18.1; 13 months ahead prepared",
      ],
      tables: {
        "Nodes of this installation": [
          "Node | State | Started | Version | Limits store | Configuration",
          "host-n_1, process 4711 worker 2 this answer | alive | 2 days ago | 1.2.3 Node 24.1.0 | memory | c0ffee",
          "host-n_2, process 4711 worker 2 | silent for 3 s | 2 days ago | 1.2.3 Node 24.1.0 | memory | c0ffee",
          "host-n_3, process 4711 worker 2 | dead | 2 days ago | 1.2.3 Node 24.1.0 | memory | c0ffee",
        ],
      },
    },
  },
  attention: {
    path: operatorAt("/attention"),
    answers: [operator, summaries, verification, attention, approvals, people],
    shown: {
      tables: {
        "Orders that wait for a person, oldest first": [
          "Order | Account | Why | Arrived | Decision",
          "22 Nov 2026, 13:50:00 UTC | ACME | More arrived than is credited without asking | 0.00001 BTC | Open",
          "21 Nov 2026, 13:50:00 UTC | acc_2 | Late, and its value is unknown | BTC on Bitcoin | Open",
        ],
        "What waits for an approval, newest first": [
          "Asked | Account | What | By | Reason | Actions",
          "2 hours ago | ACME | Adds 4,711 credits. | Ana gave $480.25 today | why | Approve Reject",
          "2 days ago |  | Makes ana an operator. | you | – | Another approves Reject",
        ],
        Violations: [
          "What must be true | Where | Figures",
          "pool_held | acc_1/v1 | 17 instead of 19",
        ],
        "Accounts in debt": ["Account | Owners | Owes", "ACME | owner@acme.example | 317.00"],
      },
      texts: [
        "found 5 violations. The last check without one was 1 day ago. By the command, in 41 s.",
        "4 more are not shown.",
      ],
    },
  },
  "order of an operator": {
    path: operatorAt("/orders/ord_1"),
    answers: [
      ...[operator, summaries, people, approvals],
      answer(PaymentsService.method.getOrder, () => ({ order: waiting })),
    ],
    shown: {
      figures: [
        "Account | ACME",
        "Pack | 4,000.00 credits, $20, v2 pool",
        "Paid with | BTC on Bitcoin",
        "Rate | 1 BTC = $65,000.00",
        "Quoted | 0.000307 BTC",
        "Seen, not settled | 0.00001 BTC",
        "Settled | 0.00003 BTC",
        "Credited | 3,901.00",
        "Refunded | $1.23",
        "Ordered | 22 Nov 2026, 13:50:00 UTC",
        "By | Ana",
        "Watched until | 29 Nov 2026, 13:50:00 UTC",
        "Address | bc1qexample",
        "Order | ord_1",
      ],
      tables: { "What arrived": arrived, "What goes back": returned },
      texts: [
        "More arrived than is credited without asking. The customer reads: Somebody looks.",
        "Ana: Adds 4,711 credits. why Approve Reject",
        "Send $1.11 back, and enter the transaction.",
      ],
    },
  },
  priceLists: {
    path: operatorAt("/prices"),
    answers: [operator, people, priceLists],
    shown: {
      tables: {
        "Price lists, by name": [
          "List | Discount | Models of its own | Accounts | Version | Since | By | Actions",
          "Acme | 12.25 % | 2 1 gone | 13 | 7 | 3 Nov 2026, 04:05:06 UTC | Ana | Give",
        ],
      },
    },
  },
  priceList: {
    path: operatorAt("/prices/plist_1"),
    answers: [operator, people, priceLists, catalogue, preview],
    press: "Preview",
    shown: {
      tables: {
        "Every model before and after": [
          "Model | Input | Output | Thinking | Write 5 min | Write 1 h | Read",
          "model-0 below cost less than half Fast: 3.00 USD (600 credits) in and 31.00 USD (6,200 credits) out; 18.50 USD (3,700 credits) for thinking, 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads. Tier flex: 3.00 USD (600 credits) in and 15.50 USD (3,100 credits) out; 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads. Above 200,000 tokens of prompt: 3.00 USD (600 credits) in and 15.50 USD (3,100 credits) out; 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads. Fast: 3.00 USD (600 credits) in and 31.50 USD (6,300 credits) out; 18.50 USD (3,700 credits) for thinking, 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.305 USD (61 credits) for cache reads. Tier flex: 3.00 USD (600 credits) in and 15.50 USD (3,100 credits) out; 3.75 USD (750 credits) for cache writes of 5 minutes, 6.00 USD (1,200 credits) for cache writes of 1 hour, 0.31 USD (62 credits) for cache reads. | 600 599 | 3,100 | 3,700 | 750 | 1,200 | 61",
        ],
      },
      texts: [
        "Version 7, 13 accounts",
        "The configuration file has no model-9 any more: the next version leaves that out.",
      ],
    },
  },
  sales: {
    path: operatorAt("/sales"),
    answers: [operator, ...sales],
    shown: {
      figures: [
        "Paid in | $7.10 | $6.20 the month before",
        "Used | $5.00 | $3.50 the month before",
        "Cost | $1.23 | $0.90 the month before",
        "Margin | $1.77 | of 60 % of the use: the rest has no cost",
      ],
      tables: {
        "Sums of the month": [
          "Model | Requests | Used | Cost | Margin | Not paid",
          "model-1 | 20 | $3.00 | $1.22 | $1.78 | $0.01",
          "model-2 | 11 | $2.00 | $0.01 | −$0.41 | $0.03",
        ],
        "Providers of the month": [
          "Provider | Cost | Billed | Note | Actions",
          "primary | $1.19 | $1.21 | as billed | Enter bill",
        ],
      },
      texts: [
        "Promotions gave 11.00 credits, adjustments 13.00.",
        "At its end, customers had 2,000.00 unused credits ($10.00) and owed 3.50.",
        "All that was settled before 22 Nov 2026, 14:01:00 UTC is counted.",
      ],
    },
  },
  promotions: {
    path: operatorAt("/promotions"),
    answers: [operator, promotions],
    shown: {
      tables: {
        "Promotions, newest first": [
          "Promotion | Credits | Pool | Redeemed | Ends | State | Actions",
          "spring after a purchase | 211.00 | v1 pool | 17 of 409 | 24 Dec 2026, 00:00:00 UTC | open | End",
          "summer | 223.50 | v2 pool | 1,901, any number | never | stopped |",
          "unnamed | 227.00 | v1 pool | 31 of 31 | never | used up |",
          "winter | 229.00 | v2 pool | 36 of 37 | 22 Nov 2026, 14:02:31 UTC | over |",
        ],
      },
    },
  },
  people: {
    path: operatorAt("/people"),
    answers: [operator, people, tokens],
    shown: {
      tables: {
        "People, by login": [
          "Person | Operator | Last seen | Since | Actions",
          "Ana ana@acme.example | no | 3 hours ago | 4 Mar 2026 | Sign-in link Disable",
          "bob@acme.example disabled | support: looks | never | 5 Apr 2026 | Sign-in link Enable",
          "o@gateway.example | admin: changes | 5 days ago | 6 May 2026 | Sign-in link Disable",
        ],
        "Admin tokens, oldest first": [
          "Name | May | Made by | Made | Last used | Actions",
          "ADMIN_TOKEN | do everything | of the environment | – | – |",
          "billing adm-gw2-1A…zZ | move credits | Ana | 10 Sep 2026 | 11 minutes ago | Revoke",
          "export adm-gw2-2B…yY revoked | read everything | you | 11 Oct 2026 | – |",
        ],
      },
    },
  },
  audit: {
    path: operatorAt("/audit"),
    answers: [operator, events, people, summaries],
    shown: {
      figures: ["amount | −2,000.05 credits", "family | V1"],
      tables: {
        "Audit events, newest first": [
          "Time | Act | Who | Account | Outcome | Facts | From",
          "22 Nov 2026, 13:14:15 UTC | made a transfer | Ana | ACME | ok | 2 facts amount −2,000.05 credits family V1 | 203.0.113.7",
          "21 Nov 2026, 12:13:14 UTC | looked at the people | program export | – | not permitted | – | –",
        ],
      },
    },
  },
  members: {
    path: "members",
    answers: [owner, members, invitations, budgets],
    shown: {
      tables: {
        "The members of this account": [
          "Person | Budget | This month, UTC | Role | Last seen | Actions",
          "Ana ana@acme.example | Limits | 0.00 | Viewer | 1 hour ago | Remove",
          "bob@acme.example you | Limits | 0.00 | Owner | never | Leave",
          "cy@acme.example | v1 31.07 of 47 this week Limits | 43.19 | Member | 2 days ago | Remove",
        ],
        "Invitations that nobody has used yet": [
          "Invited | Role | Link | Good until | By | Actions",
          "dee@acme.example | Member | mailed | 29 Nov 2026 | Ana | Withdraw",
          "eve | Viewer | mail failed | 28 Nov 2026 | program t | Withdraw",
          "gil@acme.example | Owner | mail waits | 27 Nov 2026 | you | Withdraw",
          "anyone with the link | Owner | link was shown | 26 Nov 2026 | the owners | Withdraw",
        ],
      },
    },
  },
  member: {
    path: "members/per_3",
    answers: [owner, members, budgets, memberUsage],
    shown: {
      figures: [
        "Credits spent this month, UTC | 53.36 | ≈ $0.27",
        "Requests this month, UTC | 2,318",
      ],
      tables: {
        "Keys used this month": [
          "Key | Requests | Credits",
          "ci sk-gw2-1A…zZ | 1,907 | 41.23",
          "key_2 | 411 | 12.13",
        ],
      },
      texts: [
        "31.07 of 47 credits this week",
        "until 23 Nov 2026, 00:00 UTC",
        "Running requests hold 1.37 credits of each.",
        "2 of 5 requests at once",
      ],
    },
  },
  alerts: {
    path: "alerts",
    answers: [owner, alerts, deliveries],
    shown: {
      tables: {
        Deliveries: [
          "Time | Alert | To | State | Send again",
          "1 hour ago | Credits bought, with the receipt | Mail | Sent |",
          "2 days ago | Budget spent | Webhook | Failed No answer within 5 s | Send again",
          "3 days ago | Webhook switched off | Webhook | Waits The host has no address | Send again",
        ],
      },
      texts: [
        "ci: 83 % of 907.00 credits spent 2 days ago Dismiss",
        "The webhook at hooks.example was switched off 3 days ago Dismiss",
      ],
    },
  },
  settings: {
    path: "settings",
    answers: [owner, sessions, details],
    shown: {
      figures: [
        "Name | ACME",
        "Id | acct_acme",
        "Login | bob@acme.example",
        "Name | Bob",
        "E-mail | b@acme.example",
      ],
      tables: {
        "Your sessions": [
          "Browser | Address | Since | Last used | Actions",
          "Firefox, Linux this one | 203.0.113.7 | 3 hours ago | 4 minutes ago |",
          "curl/8.1 | 2001:db8::17 | 5 days ago | 2 days ago | End",
        ],
      },
      texts: [
        "ACME Ltd 1 Road Town X-17",
        "laptop used 50 minutes ago Remove phone added 3 days ago Remove",
        "Sign-in at First used 1 day ago Remove",
        "Sign-in at Second Add Second",
      ],
    },
  },
};

/** What a page shows by now, as `Shown` has it. Runs in the page. */
const read = `(async () => {
  const line = (element) => (element.innerText ?? "").replace(/\\s+/g, " ").trim();
  // The text of a select is that of all its options.
  const shown = (cell) => cell.querySelector("select")?.selectedOptions[0].text ?? line(cell);
  const cells = (row) => [...row.cells].map(shown).join(" | ").trim();
  for (const one of document.querySelectorAll("main details")) one.open = true;
  await ${scrollThrough};
  const isZero = (row) => [...row.cells].slice(1).every((one) => /^0(\\.00)? /.test(line(one)));
  return {
    figures: [...document.querySelectorAll("main dl > div")].map((one) =>
      [...one.children].map(line).filter((text) => text !== "").join(" | ")),
    tables: Object.fromEntries([...document.querySelectorAll("main table")].map((table) => [
      table.caption.textContent,
      [...table.rows]
        .filter((row) => row.parentElement.tagName !== "TBODY" || !isZero(row))
        .map(cells),
    ])),
    text: line(document.querySelector("main")) + [...document.querySelectorAll("[data-bar]")]
      .map((one) => one.getAttribute("aria-label").replace(/\\s+/g, " ")).join(" "),
    /** Of each bar of the first chart that is there: its height, and what it stands for. */
    bars: [
      ...(document.querySelector(".bars")?.querySelectorAll("[data-bar]") ?? []),
    ].flatMap((bar) => {
      const heights = [...bar.querySelectorAll("rect:not(.bars-hit)")].map((one) =>
        Number(one.getAttribute("height")) + 1);
      const total = /: \\$?([\\d,.]+)/.exec(bar.getAttribute("aria-label"))[1].replaceAll(",", "");
      const height = heights.reduce((sum, one) => sum + one, 0);
      return height === 0 ? [] : [[height, Number(total)]];
    }),
  };
})()`;

type Read = {
  readonly figures: readonly string[];
  readonly tables: Readonly<Record<string, readonly string[]>>;
  readonly text: string;
  readonly bars: readonly (readonly [number, number])[];
};

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let browser: Browser;
  let server: StatesServer;
  let page: Page;
  beforeAll(async () => {
    const pages: PageStates[] = Object.entries(cases).map(([name, { path, answers }]) => ({
      ...{ name, path },
      states: { all: answers },
    }));
    [browser, server] = await Promise.all([startChromium(), startStates(pages)]);
    page = await browser.newPage();
    await page.clock.setFixedTime(now);
  });
  afterAll(async () => {
    await browser.close();
    await server.stop();
  });

  test.for(Object.entries(cases))("the page %s shows each figure where it belongs", async (one) => {
    const [name, { shown, press }] = one;
    await page.goto(server.address + statePath(name, "all"));
    if (press !== undefined) await page.getByRole("button", { name: press }).click();
    const { figures = [], tables = {}, texts = [] } = shown;
    let seen: Read | undefined;
    const found = async () => {
      seen = await page.evaluate<Read>(read);
      return {
        figures: figures.filter((text) => seen?.figures.includes(text)),
        tables: Object.fromEntries(
          Object.keys(tables).map((caption) => [caption, seen?.tables[caption]]),
        ),
        texts: texts.filter((text) => seen?.text.includes(text)),
      };
    };
    await expect.poll(found, { timeout: 20_000 }).toEqual({ figures, tables, texts });
    // The bars of a chart are to scale.
    const [[height = 0, value = 0] = [], ...others] = seen?.bars ?? [];
    for (const [h, v] of others) expect(Math.abs(h / height - v / value)).toBeLessThan(0.02);
  });
});
