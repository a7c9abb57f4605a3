// The states of the pages with figures: usage, requests, receipts, credits and purchases.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { AccountsService } from "../../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AccountState } from "../../../gen/gateway/billing/v1/account_pb.ts";
import { BillingService, TransferKind } from "../../../gen/gateway/billing/v1/billing_pb.ts";
import {
  AttemptOutcome,
  Basis,
  Outcome,
  type Receipt,
  type ReceiptSchema,
} from "../../../gen/gateway/billing/v1/receipt_pb.ts";
import { Reason } from "../../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../../gen/gateway/common/v1/family_pb.ts";
import { InferenceService } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { type KeySchema, KeyState, KeysService } from "../../../gen/gateway/keys/v1/keys_pb.ts";
import {
  Attention,
  DepositState,
  type OrderSchema,
  OrderState,
  RefundState,
} from "../../../gen/gateway/payments/v1/order_pb.ts";
import { DocumentKind, PaymentsService } from "../../../gen/gateway/payments/v1/payments_pb.ts";
import { ViewsService } from "../../../gen/gateway/people/v1/views_pb.ts";
import {
  Bucket,
  UsageGroup,
  UsageService,
  type UsageSumsSchema,
} from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { toActor } from "../../../src/base/actors.ts";
import { costMicro } from "../../../src/base/cost.ts";
import { type Answer, answer, failing, now, type PageStates, pending } from "./answers.ts";

const accountId = "acct_acme";
const dayMs = 86_400_000;
const credit = 1_000_000n;
const at = (date: Date) => timestampFromDate(date);
const ago = (seconds: number) => at(new Date(now.getTime() - seconds * 1000));

/** The same numbers in every run. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = ((state % 2_147_483_647) * 16_807) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

type KeyInit = MessageInitShape<typeof KeySchema>;

/** Real names: long, empty, in other scripts, and with what must stay text. */
const names = [
  "ci",
  "editor, Ana",
  "batch",
  '<img src="x" onerror="alert(1)"> & Söhne',
  "مفتاح الإنتاج الرئيسي",
  "🚀 nightly build 🧪",
  "a key whose name has exactly sixty characters, which is long",
  "",
  "contractor",
];

function keyOf(index: number): KeyInit {
  const name = names[index] ?? `service ${index}`;
  const hint = `sk-gw2-1${String(index).padStart(4, "k")}…w${String(index).padStart(3, "y")}`;
  return {
    ...{ keyId: `key_${index}`, accountId, family: Family.V1, name, state: KeyState.ACTIVE },
    createdAt: ago(90 * 86_400),
    secrets: [{ secretId: `sec_${index}`, hint, createdAt: ago(90 * 86_400) }],
  };
}

function labelOf(index: number) {
  const { keyId = "", name = "", secrets = [] } = keyOf(index);
  return { keyId, name, hint: secrets[0]?.hint ?? "" };
}

const labels = names.map((_, index) => labelOf(index));

/** As the shipped catalogue has them, and a long one. */
const models = [
  ...["model-opus-4.6", "model-sonnet-4.6", "model-haiku-4.5", "gpt-large", "gpt-small", "fable"],
  "a-provider/a-model-with-a-name-of-exactly-sixty-characters-1",
];

/** Of 148 requests, up to 100, 200, … ms. */
const firstEvents = [
  ...[1n, 4n, 12n, 18n, 30n, 24n, 18n, 11n, 9n, 6n],
  ...[5n, 4n, 2n, 1n, 1n, 1n, 0n, 0n, 1n, 0n, 0n],
];

/** Credits in micro-credits, with the tokens that go with them. */
function sumsOf(
  amount: bigint,
  requests = amount / 200_000n + 1n,
): MessageInitShape<typeof UsageSumsSchema> {
  const part = (percent: bigint) => (amount * percent) / 100n;
  const rest = amount - part(18n) - part(34n) - part(16n);
  return {
    usage: {
      input: amount / 300n,
      output: amount / 1_500n,
      thinking: amount / 4_000n,
      cacheWrite5m: amount / 900n,
      cacheWrite1h: amount / 3_000n,
      cacheRead: amount / 120n,
    },
    chargedMicrocredits: amount,
    inputMicrocredits: part(18n),
    outputMicrocredits: part(34n),
    thinkingMicrocredits: part(16n),
    cacheMicrocredits: rest,
    requests,
    completed: requests - requests / 100n - requests / 300n,
    failed: requests / 300n,
    cut: requests / 100n,
    firstEventCounts: firstEvents.map((n) => (n * requests) / 148n),
    cacheSavedNanocredits: amount * 310n - (amount % 7n) * 200n,
  };
}

type UsageRequest = {
  readonly bucket: Bucket;
  readonly groupBy: readonly UsageGroup[];
  readonly keyIds: readonly string[];
  readonly models: readonly string[];
  readonly includeRefusals: boolean;
  readonly includeOutcomes: boolean;
  readonly startAt?: { readonly seconds: bigint } | undefined;
};

/** Credits that were spent in a time, by a rhythm of weeks. */
function spentIn(from: Date, to: Date): number {
  let sum = 0;
  for (let time = from.getTime(); time < Math.min(to.getTime(), now.getTime()); time += 3_600_000) {
    const day = Math.floor(time / dayMs);
    const weekend = [0, 6].includes(new Date(time).getUTCDay()) ? 0.45 : 1;
    sum += ((45 + randomOf(day * 48_271 + 11)() * 90) * weekend) / 24;
  }
  return sum;
}

/** A few use most, and many use little. */
function shares(ids: readonly string[]): number[] {
  const weights = ids.map((_, index) => 1 / (index + 1.6));
  const all = weights.reduce((sum, one) => sum + one, 0);
  return weights.map((weight) => weight / all);
}

/** A busy account: `scale` times 97 credits a day or so. */
function usageAnswer(scale: bigint, keyCount = names.length) {
  return answer(UsageService.method.queryUsage, (request: UsageRequest) => {
    const from = request.startAt ? new Date(Number(request.startAt.seconds) * 1000) : now;
    // Of two groups, each name of the first comes with each of the second.
    const [group, second] = request.groupBy;
    const ids =
      group === UsageGroup.MODEL
        ? models
        : group === UsageGroup.KEY
          ? Array.from({ length: keyCount }, (_, index) => `key_${index}`)
          : [""];
    const others = second === UsageGroup.MODEL ? models : second ? ["key_0", "key_1"] : [""];
    const asked = new Set([...request.keyIds, ...request.models]);
    const shown = asked.size > 0 && group ? ids.filter((id) => asked.has(id)) : ids;
    const starts: Date[] = [];
    if (request.bucket === Bucket.NONE) starts.push(from);
    else if (request.bucket === Bucket.MONTH)
      for (let start = from; start < now; ) {
        starts.push(start);
        start = new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 1));
      }
    else {
      const step = request.bucket === Bucket.HOUR ? 3_600_000 : dayMs;
      for (let time = from.getTime(); time < now.getTime(); time += step)
        starts.push(new Date(time));
    }
    const shareOf = (id: string) => (group ? (shares(ids)[ids.indexOf(id)] ?? 0) : 1);
    const endOf = (start: Date) => {
      if (request.bucket === Bucket.NONE) return now;
      if (request.bucket === Bucket.MONTH)
        return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 1));
      return new Date(start.getTime() + (request.bucket === Bucket.HOUR ? 3_600_000 : dayMs));
    };
    const rows = starts.flatMap((start) => {
      const spent = spentIn(start, endOf(start));
      return shown.flatMap((id) =>
        others.map((other, index) => ({
          startAt: at(start),
          keyId: group === UsageGroup.KEY ? id : second === UsageGroup.KEY ? other : "",
          model: group === UsageGroup.MODEL ? id : second === UsageGroup.MODEL ? other : "",
          family: Family.V1,
          sums: sumsOf(
            BigInt(Math.round((spent * shareOf(id) * 1_000) / (second ? index + 2 : 1))) *
              scale *
              1_000n,
          ),
        })),
      );
    });
    return {
      rows,
      totals: sumsOf(rows.reduce((sum, row) => sum + (row.sums.chargedMicrocredits ?? 0n), 0n)),
      completeUntil: ago(31),
      ...(request.startAt && { startAt: at(from) }),
      endAt: at(now),
      keys: [...new Set(rows.map(({ keyId }) => keyId))]
        .filter((id) => id !== "")
        .map((id) => labelOf(Number(id.slice(4)))),
      ...(request.includeRefusals && { refusals: refused }),
      ...(request.includeOutcomes && { outcomes: failures }),
    };
  });
}

const failures = [
  { outcome: Outcome.CLIENT_LEFT, requests: 41n },
  { outcome: Outcome.PROVIDER_FAILED, requests: 12n },
  { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, requests: 9n },
  { outcome: Outcome.TIME_LIMIT, requests: 2n },
];

/** Refused requests of each day, by reason. */
const refusedByDay = answer(UsageService.method.queryRefusals, ({ startAt: from, bucket }) => {
  const start = from ? Number(from.seconds) * 1000 : now.getTime() - 30 * dayMs;
  const step = bucket === Bucket.HOUR ? 3_600_000 : dayMs;
  const rows = [];
  for (let time = start; time < now.getTime(); time += step)
    for (const [index, { reason }] of refused.rows.entries()) {
      const requests = BigInt(Math.round(randomOf(time / step + index)() * (90 / (index + 1))));
      rows.push({ startAt: at(new Date(time)), reason, requests });
    }
  return { rows, total: 1_296n, ...(from && { startAt: at(new Date(start)) }) };
});

/** Names of 60 characters in three scripts. */
const views = answer(ViewsService.method.listViews, () => ({
  views: [
    { name: "Aufwand je Modell und Woche, für die Besprechung am Montag!!", ofAccount: true },
    {
      name: "週ごとのモデル別利用額を月曜日の会議のために保存した表示設定です"
        .repeat(2)
        .slice(0, 60),
    },
    { name: "الإنفاق حسب النموذج والأسبوع لاجتماع يوم الاثنين في المكتب ا" },
    { name: "Failures of today" },
  ].map((view, index) => ({ ...view, viewId: `view_${index}`, address: "usage?by=model" })),
}));

const noUsage = answer(UsageService.method.queryUsage, () => ({
  ...{ rows: [], totals: {}, completeUntil: ago(31), endAt: at(now), refusals: { total: 0n } },
}));

const refused = {
  rows: [
    { startAt: ago(86_400), reason: Reason.RATE_LIMITED, requests: 1_204n },
    { startAt: ago(86_400), reason: Reason.MONTHLY_CAP_REACHED, requests: 88n },
    { startAt: ago(86_400), reason: Reason.CREDITS_EXHAUSTED, requests: 3n },
    { startAt: ago(86_400), reason: Reason.INTERNAL, requests: 1n },
  ],
  total: 1_296n,
};

const keys = answer(KeysService.method.listKeys, () => ({
  keys: names.map((_, index) => keyOf(index)),
}));

/** 5,000 keys, in pages as they are asked for. */
const manyKeys = answer(KeysService.method.listKeys, ({ pageSize, pageToken, query }) => {
  const start = pageToken === "" ? 0 : Number(pageToken);
  const all = Array.from({ length: 5_000 }, (_, index) => keyOf(index)).filter(
    ({ name = "" }) => query === "" || name.includes(query),
  );
  const end = start + (pageSize || 100);
  return { keys: all.slice(start, end), nextPageToken: end < all.length ? String(end) : "" };
});

const catalogue = answer(InferenceService.method.listModels, () => ({
  models: models.map((id) => ({ modelId: id, displayName: id })),
}));

const manyNames = [
  "Größtes Sprachmodell für Übersetzungen und lange Verträge XL",
  "Большая модель для перевода и разбора длинных договоров, XL",
  "用于翻译和分析超长合同的最大型语言模型专业版本支持图片和工具调用的企业级别产品名称恰好六十个字符长度超大型号的完整名称",
];

/** As many as an operator sells, with long names, prices of the account, steps and conditions. */
const soldModels = (count: number) =>
  answer(InferenceService.method.listModels, () => ({
    models: Array.from({ length: count }, (_, index) => {
      const id = models[index] ?? `vendor/model-${index}`;
      const times = BigInt(1 + (index % 40));
      const [input, output] = [60_000n * times, 300_000n * times];
      const plain = { ...price, input, output, thinking: output, cacheRead: input / 10n };
      const over = { ...plain, input: input * 2n, promptOver: 200_000 };
      const listed = index % 5 === 0;
      return {
        ...{ modelId: id, displayName: manyNames[index % 7] ?? `Model ${index}` },
        aliases:
          index % 4 === 0 ? [`small-${index}`, `fast-and-cheap-for-everything-${index}`] : [],
        ...{ contextTokens: 200_000 + (index % 5) * 200_000, maxOutputTokens: 64_000 },
        price: {
          ...plain,
          ...(listed && { input: (input * 9n) / 10n, note: "list ACME Robotics 4" }),
          ...(index % 3 === 0 && {
            promptAbove: 200_000,
            abovePrice: { ...over, note: "above 200,000 tokens of prompt" },
          }),
        },
        ...(listed && { publicPrice: plain }),
        conditional:
          index % 2 === 0
            ? [
                { speed: "fast", price: { ...over, note: "fast" } },
                { geo: "us", price: { ...plain, note: "geography us" } },
                { tier: "flex", price: { ...plain, note: "tier flex" } },
              ]
            : [],
      };
    }),
  }));

const modelKeys = answer(KeysService.method.listKeys, () => ({
  ...{ keys: [keyOf(0)], liveKeys: 4_998, anyModelKeys: 4_321 },
  modelKeys: Object.fromEntries(models.map((id, index) => [id, 677 - index])),
}));

const usageBase: readonly Answer[] = [keys, catalogue];

const price = {
  ...{ priceVersion: "5f0c2b7d9a41", input: 600_000n, output: 3_000_000n, thinking: 3_000_000n },
  ...{ cacheWrite5m: 750_000n, cacheWrite1h: 1_200_000n, cacheRead: 60_000n },
  webSearch: 2_000_000n,
};

type ReceiptInit = Exclude<MessageInitShape<typeof ReceiptSchema>, Receipt>;

function chargeOf(index: number, of: ReceiptInit = {}): ReceiptInit {
  const random = randomOf((index + 3) * 7_919_321);
  const outcomes = [Outcome.CLIENT_LEFT, Outcome.PROVIDER_BROKE, Outcome.TIME_LIMIT];
  const outcome = index % 9 === 4 ? (outcomes[index % 3] ?? Outcome.COMPLETED) : Outcome.COMPLETED;
  const usage = {
    input: Math.round(random() * 4_000) + 12,
    output: Math.round(random() * 900),
    thinking: index % 3 === 0 ? Math.round(random() * 2_000) : 0,
    cacheWrite5m: index % 4 === 0 ? Math.round(random() * 9_000) : 0,
    cacheWrite1h: 0,
    cacheRead: index % 2 === 0 ? Math.round(random() * 180_000) : 0,
    webSearches: index % 5 === 0 ? 2 : 0,
  };
  const amount = costMicro(price, usage);
  const admitted = now.getTime() - index * 41_000 - 8_000;
  return {
    requestId: `req_0199e1c0a1b27c3d8e4f${String(index).padStart(4, "0")}`,
    ...{ accountId, keyId: `key_${index % names.length}`, family: Family.V1 },
    model: models[index % models.length] ?? "",
    ...{ usage, price, outcome, basis: Basis.REPORTED },
    holdMicrocredits: amount + 900_000n,
    chargedMicrocredits: amount,
    attempts: [
      {
        ...{ provider: "primary", outcome: AttemptOutcome.DELIVERED, status: 200 },
        firstEventAfter: { seconds: 0n, nanos: 400_000_000 + (index % 7) * 70_000_000 },
      },
    ],
    admittedAt: at(new Date(admitted)),
    settledAt: at(new Date(admitted + 1_250 + index * 300)),
    grantedOutputTokens: 32_000,
    ...(index % 3 === 0 && { tags: { team: index % 2 === 0 ? "search" : "research" } }),
    ...of,
  };
}

const charges = answer(UsageService.method.listCharges, () => ({
  charges: Array.from({ length: 50 }, (_, index) => chargeOf(index)),
  nextPageToken: "more",
  searchedTo: ago(50 * 41),
  keys: labels,
}));

const receiptOf = (of: ReceiptInit) =>
  answer(UsageService.method.getReceipt, () => ({ receipt: chargeOf(0, of), key: labelOf(0) }));
const receiptPath = "requests/req_0199e1c0a1b27c3d8e4f0000";

const pools = (free: readonly [bigint, bigint], held: bigint) => [
  answer(UsageService.method.getForecast, () => ({
    forecasts: [
      {
        ...{ family: Family.V1, freeMicrocredits: free[0], heldMicrocredits: held },
        ...{ dailyMicrocredits: 97n * credit, filledToMicrocredits: 10_000n * credit },
        daysLeft: Math.max(0, Number(free[0] / (97n * credit))),
      },
      { family: Family.V2, freeMicrocredits: free[1] },
    ],
  })),
];

const account = answer(AccountsService.method.getAccount, () => ({
  account: {
    ...{ accountId, name: "ACME Robotics", state: AccountState.ACTIVE },
    createdAt: ago(200 * 86_400),
    billingDetails: {
      name: "ACME Robotics GmbH",
      address: "Werkstraße 12\n10115 Berlin\nGermany",
      taxId: "DE 123456789",
    },
  },
}));

type OrderInit = MessageInitShape<typeof OrderSchema>;

function orderOf(of: OrderInit = {}): OrderInit {
  return {
    orderId: "ord_0199e1c0a1b27c3d8e4f",
    ...{
      accountId,
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      packMicrocredits: 1_000n * credit,
    },
    ...{ processor: "btcpay", method: "btcpay:btc", asset: "BTC", network: "bitcoin" },
    ...{ quotedCoins: "0.0000769", usdPerCoin: "65000.00" },
    payTo: "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu",
    ...{ state: OrderState.OPEN, attention: Attention.NONE },
    ...{ seenCoins: "0", settledCoins: "0", missingCoins: "0.0000769" },
    createdBy: toActor("person:per_ana"),
    createdAt: ago(45),
    quotedUntil: at(new Date(now.getTime() + 14.5 * 60_000)),
    watchedUntil: at(new Date(now.getTime() + 7 * dayMs)),
    lookedAt: ago(5),
    ...of,
  };
}

const seenDeposit = {
  ...{ depositId: "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b:0" },
  ...{ asset: "BTC", network: "bitcoin", coins: "0.00004", state: DepositState.SEEN },
  ...{ confirmations: 0, confirmationsNeeded: 1, firstSeenAt: ago(20) },
};
const settledDeposit = {
  ...seenDeposit,
  ...{ state: DepositState.SETTLED, confirmations: 1, settledAt: ago(10) },
  valueMicrodollars: 2_600_000n,
};
const wholeDeposit = { ...settledDeposit, coins: "0.0000769", valueMicrodollars: 4_998_500n };

const orders = {
  open: orderOf(),
  seen: orderOf({
    ...{ state: OrderState.SEEN, seenCoins: "0.00004", missingCoins: "0.0000369" },
    deposits: [seenDeposit],
  }),
  partly: orderOf({
    ...{ state: OrderState.PARTLY_PAID, settledCoins: "0.00004", missingCoins: "0.0000369" },
    deposits: [settledDeposit],
  }),
  paid: orderOf({
    ...{ state: OrderState.PAID, settledCoins: "0.0000769", missingCoins: "0" },
    ...{ deposits: [wholeDeposit], grantedMicrocredits: 1_000n * credit },
    receiptNumber: "R2026-000017",
  }),
  expired: orderOf({
    ...{ state: OrderState.EXPIRED, createdAt: ago(3_600), quotedUntil: ago(2_700) },
  }),
  cancelled: orderOf({ state: OrderState.CANCELLED, createdAt: ago(3_600) }),
  swept: orderOf({
    ...{ state: OrderState.EXPIRED, attention: Attention.SWEPT, quotedUntil: ago(2_700) },
    notice: "The address was emptied meanwhile. The operator looks whether something arrived.",
    createdAt: ago(3_600),
  }),
  attention: orderOf({
    ...{
      orderId: "ord_0199e1c0a1b27c3d8e50",
      state: OrderState.PAID,
      packMicrodollars: 20_000_000n,
    },
    ...{ packMicrocredits: 4_000n * credit, grantedMicrocredits: 14_000n * credit },
    ...{ settledCoins: "0.0015", missingCoins: "0", attention: Attention.OVERPAID },
    notice: "More arrived than is credited without asking. The operator decides about the rest.",
    deposits: [{ ...wholeDeposit, coins: "0.0015", valueMicrodollars: 97_500_000n }],
    ...{ receiptNumber: "R2026-000016", createdAt: ago(86_400) },
  }),
  refunding: orderOf({
    ...{ orderId: "ord_0199e1c0a1b27c3d8e51", state: OrderState.PAID, missingCoins: "0" },
    ...{ settledCoins: "0.0000769", grantedMicrocredits: 600n * credit },
    ...{ refundedMicrodollars: 2_000_000n, receiptNumber: "R2026-000011" },
    deposits: [wholeDeposit],
    refunds: [
      {
        ...{ number: 1, state: RefundState.REFUNDING, refundedMicrodollars: 2_000_000n },
        ...{ refundedMicrocredits: 400n * credit, createdAt: ago(600) },
        reason: "The customer asked for a part of it back, by mail of 22 November.",
      },
    ],
    createdAt: ago(86_400 * 3),
  }),
  simulated: orderOf({
    ...{ simulated: true, processor: "simulated", method: "simulated:usdt" },
    ...{ asset: "USDT", network: "tron", quotedCoins: "5", missingCoins: "5", usdPerCoin: "1.00" },
    payTo: "simulated-usdt-4f0c2b7d9a41e8c3d5f60718",
  }),
  memo: orderOf({
    ...{ asset: "USDC", network: "base", quotedCoins: "2000", missingCoins: "2000" },
    ...{
      packMicrodollars: 2_000_000_000n,
      packMicrocredits: 400_000n * credit,
      usdPerCoin: "1.00",
      memo: "48213377",
    },
    payTo: "0x9858EfFD232B4033E47d90003D41EC34EcaEda94",
    checkoutUrl: "https://pay.example.com/i/KxYz",
  }),
};

const listOrders = (list: readonly OrderInit[]) =>
  answer(PaymentsService.method.listOrders, () => ({ orders: [...list] }));
const order = (of: OrderInit): readonly Answer[] => [
  answer(PaymentsService.method.getOrder, () => ({ order: of })),
  answer(PaymentsService.method.watchOrder, () => [{ order: of }]),
];

const transfers = (scale: bigint) =>
  answer(BillingService.method.listTransfers, () => ({
    transfers: [
      {
        ...{ transferId: "tr_4", accountId, family: Family.V1, kind: TransferKind.CHARGEBACK },
        ...{
          amountMicrocredits: 400n * credit * scale,
          createdAt: ago(600),
          createdBy: toActor("payments"),
        },
        postedAfterMicrocredits: 6_412_080_000n * scale,
        reason: "A payment that had arrived is gone again.",
      },
      {
        ...{ transferId: "tr_3", accountId, family: Family.V1, kind: TransferKind.DEPOSIT },
        ...{ amountMicrocredits: 4_000n * credit * scale, createdAt: ago(86_400) },
        postedAfterMicrocredits: 6_812_080_000n * scale,
        reason: "order ord_0199e1c0a1b27c3d8e50",
      },
      {
        ...{ transferId: "tr_2", accountId, family: Family.V2, kind: TransferKind.BONUS },
        ...{ amountMicrocredits: 200n * credit * scale, createdAt: ago(86_400 * 20) },
        ...{ postedAfterMicrocredits: 200n * credit * scale, reason: "‏קוד הנחה לפתיחה <b>!</b>" },
      },
      {
        ...{ transferId: "tr_1", accountId, family: Family.V1, kind: TransferKind.ADJUSTMENT },
        ...{ amountMicrocredits: -12_500_000n * scale, createdAt: ago(86_400 * 40) },
        ...{ postedAfterMicrocredits: 2_812_080_000n * scale, reason: "" },
      },
    ],
  }));

const noTransfers = answer(BillingService.method.listTransfers, () => ({ transfers: [] }));

const method = (asset: string, network: string, feeNote: string, simulated = false) => ({
  ...{ method: `btcpay:${asset.toLowerCase()}-${network}`, asset, network, feeNote, simulated },
  ...{
    processor: simulated ? "simulated" : "btcpay",
    minPackMicrodollars: network === "ethereum" ? 50_000_000n : 5_000_000n,
  },
});
const methods = (simulated: boolean) =>
  answer(PaymentsService.method.listPaymentMethods, () => ({
    methods: [
      { ...method("BTC", "bitcoin", "", simulated), hasDepositAddress: !simulated },
      method("ETH", "ethereum", "The network's fee can be several dollars.", simulated),
      method("USDT", "tron", "About 1 USD of network fee.", simulated),
      method("USDC", "base", "Less than a cent of network fee.", simulated),
    ],
    packsMicrodollars: [5_000_000n, 20_000_000n, 50_000_000n, 200_000_000n],
    maxPackMicrodollars: 2_000_000_000n,
  }));

const party = (name: string, taxId = "") => ({ name, address: "1 Main Street\nDublin", taxId });
const line = (microdollars: bigint) => ({
  ...{ microcredits: microdollars * 200n, microdollars, occurredAt: ago(86_400) },
});
const documentOf = (isNote: boolean) => ({
  ...{ number: isNote ? "C2026-000003" : "R2026-000017", orderId: "ord_0199e1c0a1b27c3d8e4f" },
  kind: isNote ? DocumentKind.CREDIT_NOTE : DocumentKind.RECEIPT,
  ...{ issuedAt: ago(80_000), accountId, family: Family.V1 },
  seller: party("Gateway Services Ltd", "IE1234567X"),
  buyer: {
    name: "شركة الروبوتات المتحدة & <Söhne>",
    ...{ address: "Werkstraße 12\n10115 Berlin", taxId: "DE 123456789" },
  },
  lines: isNote ? [line(2_000_000n)] : [line(2_600_000n), line(2_398_500n)],
  totalMicrodollars: isNote ? 2_000_000n : 4_998_500n,
  totalMicrocredits: (isNote ? 2_000_000n : 4_998_500n) * 200n,
  receiptNumber: isNote ? "R2026-000017" : "",
});
const documents = (notes: boolean) =>
  answer(PaymentsService.method.getReceiptDocument, () => ({
    receipt: documentOf(false),
    creditNotes: notes ? [documentOf(true)] : [],
    deposits: [settledDeposit, wholeDeposit],
  }));

const { queryUsage, listCharges, getReceipt, getForecast } = UsageService.method;
const { getOrder, getReceiptDocument, listPaymentMethods } = PaymentsService.method;

const creditsBase = (scale: bigint): readonly Answer[] => [
  ...pools([6_412_080_000n * scale, 200n * credit * scale], 41_500_000n * scale),
  listOrders([
    ...[orders.open, orders.attention, orders.refunding, orders.expired],
    { ...orders.partly, orderId: "ord_5", attention: Attention.WRONG_ASSET },
  ]),
  account,
  transfers(scale),
];

const refusedLately = answer(UsageService.method.queryRefusals, () => ({
  rows: [{ reason: Reason.CREDITS_EXHAUSTED, requests: 3n }],
  total: 3n,
}));

export const figureStates: readonly PageStates[] = [
  {
    name: "usage",
    path: "usage",
    states: {
      loading: [...usageBase, pending(queryUsage)],
      empty: [keys, catalogue, noUsage],
      failed: [...usageBase, failing(queryUsage, "report_too_large")],
      full: [...usageBase, charges, refusedByDay, views, usageAnswer(1n)],
      large: [...usageBase, refusedByDay, usageAnswer(100_000n)],
    },
  },
  {
    name: "usage-opened",
    path: "usage?at=2026-11-18&unit=dollars&hide=thinking",
    states: {
      full: [...usageBase, refusedByDay, usageAnswer(1n)],
      "5,000 keys": [catalogue, manyKeys, refusedByDay, usageAnswer(1n, 2_000)],
    },
  },
  {
    name: "usage-by-two",
    path: "usage?by=key&split=model&period=custom&from=2026-11-21T06%3A00&to=2026-11-22T11%3A00",
    states: { full: [...usageBase, refusedByDay, usageAnswer(1n)] },
  },
  {
    name: "usage-by-key",
    path: "usage?by=key&in=tokens",
    states: {
      full: [...usageBase, usageAnswer(1n)],
      "5,000 keys": [catalogue, manyKeys, usageAnswer(1n, 2_000)],
    },
  },
  {
    name: "usage-by-model",
    path: "usage?period=13m&by=model&bucket=day",
    states: { full: [...usageBase, usageAnswer(1n)] },
  },
  {
    name: "usage-custom",
    path: "usage?period=custom&from=2026-11-30&to=2026-11-01",
    states: { wrong: [...usageBase] },
  },
  {
    name: "connect",
    path: "connect?tool=python-openai&key=key_3",
    states: {
      loading: [keys, pending(listCharges)],
      unused: [keys, answer(listCharges, () => ({ charges: [] })), refusedLately],
      failed: [keys, failing(listCharges, "internal"), refusedLately],
      full: [keys, charges, refusedLately],
    },
  },
  {
    name: "models",
    path: "models",
    states: {
      loading: [modelKeys, pending(InferenceService.method.listModels), pending(queryUsage)],
      empty: [modelKeys, soldModels(0), noUsage],
      failed: [modelKeys, failing(InferenceService.method.listModels, "internal"), noUsage],
      partly: [failing(KeysService.method.listKeys, "internal"), soldModels(3), noUsage],
      full: [modelKeys, soldModels(12), usageAnswer(1n)],
      "200 models": [modelKeys, soldModels(200), usageAnswer(1n)],
    },
  },
  {
    name: "models-wrong-call",
    path: "models?in=many&cached=101&as=fast%2F%2F&q=sonnet",
    states: { full: [modelKeys, soldModels(12), usageAnswer(1n)] },
  },
  {
    name: "models-none",
    path: "models?q=nothing-is-so-called",
    states: { none: [modelKeys, soldModels(12), usageAnswer(1n)] },
  },
  {
    name: "try",
    path: "try?model=fable",
    states: {
      loading: [pending(InferenceService.method.listModels)],
      empty: [soldModels(0)],
      failed: [failing(InferenceService.method.listModels, "internal")],
      full: [soldModels(12)],
      "200 models": [soldModels(200)],
    },
  },
  {
    name: "requests",
    path: "requests",
    states: {
      loading: [keys, catalogue, pending(listCharges)],
      empty: [keys, catalogue, answer(listCharges, () => ({ charges: [] }))],
      failed: [keys, catalogue, failing(listCharges, "internal")],
      full: [keys, catalogue, charges],
    },
  },
  {
    name: "requests-filtered",
    path: "requests?outcome=failed&key=key_3",
    states: {
      none: [keys, catalogue, answer(listCharges, () => ({ charges: [] }))],
      searched: [
        ...[keys, catalogue],
        answer(listCharges, () => ({
          charges: [4, 13].map((index) => chargeOf(index)),
          ...{ nextPageToken: "more", searchedTo: ago(86_400 * 3), keys: labels },
        })),
      ],
    },
  },
  {
    name: "receipt",
    path: receiptPath,
    states: {
      loading: [keys, pending(getReceipt)],
      failed: [keys, failing(getReceipt, "not_found")],
      running: [
        keys,
        receiptOf({
          outcome: Outcome.RUNNING,
          basis: Basis.UNSPECIFIED,
          chargedMicrocredits: 0n,
        }),
      ],
      full: [keys, receiptOf({})],
      overrun: [
        keys,
        receiptOf({
          ...{
            outcome: Outcome.CLIENT_LEFT,
            holdMicrocredits: 2_000_000n,
            chargedMicrocredits: 2_000_000n,
          },
          overrunMicrocredits: 16_000_000n,
          reportedUsage: { input: 4_000, output: 2_000, thinking: 2_000, cacheRead: 170_000 },
          attempts: [
            { provider: "primary", outcome: AttemptOutcome.FAILED, status: 529 },
            { provider: "primary", outcome: AttemptOutcome.TIMED_OUT, status: 0 },
            {
              ...{ provider: "fallback", outcome: AttemptOutcome.DELIVERED, status: 200 },
              firstEventAfter: { seconds: 3n, nanos: 100_000_000 },
            },
          ],
        }),
      ],
    },
  },
  {
    name: "credits",
    path: "credits",
    states: {
      loading: [pending(getForecast), account, noTransfers, listOrders([])],
      empty: [...pools([0n, 0n], 0n), account, noTransfers, listOrders([])],
      failed: [failing(getForecast, "database_unavailable"), account, noTransfers, listOrders([])],
      partial: [...creditsBase(1n), pending(BillingService.method.listTransfers)],
      full: creditsBase(1n),
      large: creditsBase(1_560n),
      debt: [...pools([-500n * credit, 0n], 0n), account, transfers(1n), listOrders([])],
    },
  },
  {
    name: "buy",
    path: "credits/buy",
    states: {
      loading: [pending(listPaymentMethods)],
      empty: [answer(listPaymentMethods, () => ({}))],
      failed: [failing(listPaymentMethods, "gateway_unavailable")],
      full: [methods(false)],
      simulated: [methods(true)],
    },
  },
  { name: "buy-pack", path: "credits/buy?pool=v1", states: { full: [methods(true)] } },
  {
    name: "buy-method",
    path: "credits/buy?pool=v2&pack=500",
    states: { full: [methods(false)] },
  },
  {
    name: "order",
    path: "credits/orders/ord_0199e1c0a1b27c3d8e4f",
    states: {
      loading: [pending(getOrder)],
      failed: [failing(getOrder, "not_found")],
      ...Object.fromEntries(Object.entries(orders).map(([name, one]) => [name, order(one)])),
    },
  },
  {
    name: "document",
    path: "credits/orders/ord_0199e1c0a1b27c3d8e4f/receipt",
    states: {
      loading: [pending(getReceiptDocument)],
      failed: [failing(getReceiptDocument, "not_found")],
      full: [documents(false)],
      "credit notes": [documents(true)],
    },
  },
];
