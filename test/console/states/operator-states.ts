// The states of the pages of operators.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  AlertChannel,
  AlertKind,
  AlertsService,
  DeliveryState,
} from "../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { ApprovalKind } from "../../../gen/gateway/approvals/v1/approval_pb.ts";
import { AccountState } from "../../../gen/gateway/billing/v1/account_pb.ts";
import { type PoolSchema, TransferKind } from "../../../gen/gateway/billing/v1/billing_pb.ts";
import { Reason } from "../../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../../gen/gateway/common/v1/roles_pb.ts";
import { KeyState, KeysService } from "../../../gen/gateway/keys/v1/keys_pb.ts";
import {
  AccountFilter,
  type AccountSummarySchema,
  LimitsStore,
  ProviderHealth,
  ProviderKind,
  SearchHitKind,
  SetupPart,
  SetupState,
} from "../../../gen/gateway/operations/v1/operations_pb.ts";
import {
  Attention,
  DepositState,
  type OrderSchema,
  OrderState,
  RefundState,
} from "../../../gen/gateway/payments/v1/order_pb.ts";
import { DocumentKind } from "../../../gen/gateway/payments/v1/payments_pb.ts";
import { SalesBucket, SalesGroup } from "../../../gen/gateway/sales/v1/sales_pb.ts";
import { toActor } from "../../../src/base/actors.ts";
import { reasonOf } from "../../../src/base/reasons.ts";
import { serviceTypes } from "../../../src/contract/contract.ts";
import { type Answer, answer, failing, now, type PageStates, pending } from "./answers.ts";

const { method: billing } = serviceTypes.billing;
const { method: operations } = serviceTypes.operations;
const { method: payments } = serviceTypes.payments;
const { method: people } = serviceTypes.people;

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;
const ago = (seconds: number) => timestampFromDate(new Date(now.getTime() - seconds * 1000));
const credit = 1_000_000n;

const sessionOf = (operator: OperatorRole, accounts: boolean): Answer =>
  answer(people.getSession, () => ({
    person: {
      personId: "per_olga",
      login: "olga@gateway.example",
      name: "Olga Marín",
      operatorRole: operator,
    },
    accounts: accounts
      ? [{ accountId: "acct_acme", name: "ACME Robotics", role: AccountRole.OWNER }]
      : [],
    operatorRole: operator,
    sellsCredits: true,
    strongUntil: ago(-600),
  }));
const admin = sessionOf(OperatorRole.ADMIN, true);
const support = sessionOf(OperatorRole.SUPPORT, false);

type SummaryInit = MessageInitShape<typeof AccountSummarySchema>;
/** What differs between them. */
type Summary = {
  pools: MessageInitShape<typeof PoolSchema>[];
  spentMicrocredits: bigint;
  debtMicrocredits: bigint;
  owners: { personId: string; login: string; name: string }[];
  ownerCount: number;
  waitingOrders: number;
  waitingApprovals: number;
};

function summaryOf(
  index: number,
  name: string,
  { status = AccountState.ACTIVE, ...more }: Partial<Summary> & { status?: AccountState } = {},
): SummaryInit {
  const pool = (family: Family, free: bigint) => ({
    ...{ family, postedMicrocredits: free + 12n * credit, heldMicrocredits: 12n * credit },
    freeMicrocredits: free,
  });
  return {
    account: {
      accountId: `acc_0199e1c0a1b27c3d8e4f00${index}`,
      ...{ name, createdAt: ago(index * 3 * day), state: status },
    },
    pools: [
      pool(Family.V1, BigInt(index * 7919) * credit),
      pool(Family.V2, BigInt(index * 211) * credit),
    ],
    spentMicrocredits: BigInt((index * 104_729) % 9000) * credit + 330_000n,
    owners: [{ personId: `per_${index}`, login: `owner${index}@customer.example`, name: "" }],
    ownerCount: 1,
    ...more,
  };
}

/** Real names: long, in other scripts, and with what must stay text. */
const summaries: readonly SummaryInit[] = [
  summaryOf(1, "ACME Robotics", { waitingOrders: 2, waitingApprovals: 1 }),
  summaryOf(2, "a customer whose name has exactly sixty characters, a long one", {
    ownerCount: 5,
    owners: ["ana", "boris.the.very.long.login@subsidiary.customer.example", "cleo"].map(
      (login, index) => ({ personId: `per_x${index}`, login, name: "" }),
    ),
  }),
  summaryOf(3, '<img src="x" onerror="alert(1)"> & Söhne', {
    debtMicrocredits: 1_500n * credit,
    pools: [
      {
        family: Family.V1,
        postedMicrocredits: -1_500n * credit,
        freeMicrocredits: -1_500n * credit,
      },
      { family: Family.V2, postedMicrocredits: 0n, freeMicrocredits: 0n },
    ],
  }),
  summaryOf(4, "شركة الروبوتات المتحدة", { owners: [], ownerCount: 0 }),
  summaryOf(5, "Suspended Ltd", { status: AccountState.SUSPENDED }),
  summaryOf(6, "Closed Ltd", { status: AccountState.CLOSED }),
  summaryOf(7, "Ten million", {
    pools: [
      { family: Family.V1, freeMicrocredits: 10_000_000n * credit, heldMicrocredits: 0n },
      { family: Family.V2, freeMicrocredits: 10_000_000n * credit, heldMicrocredits: 0n },
    ],
    spentMicrocredits: 10_000_000n * credit,
  }),
];
const idOf = (index: number) => `acc_0199e1c0a1b27c3d8e4f00${index}`;

const find = answer(operations.findAccounts, ({ query, filter }) => ({
  accounts: summaries
    .filter(({ account }) => query === "" || account?.accountId === query)
    .filter(
      ({ debtMicrocredits = 0n }) => filter !== AccountFilter.IN_DEBT || debtMicrocredits > 0n,
    ),
  nextPageToken: query === "" && filter === AccountFilter.ALL ? "more" : "",
}));
const findNone = answer(operations.findAccounts, () => ({}));

const listPeople = answer(people.listPeople, ({ query }) => ({
  people: [
    {
      ...{ personId: "per_ana", login: "ana@gateway.example", name: "Ana Bălan" },
      ...{
        operatorRole: OperatorRole.SUPPORT,
        createdAt: ago(300 * day),
        lastSeenAt: ago(2 * hour),
      },
    },
    {
      ...{ personId: "per_bob", login: "bob@gateway.example", name: "<b>Bob</b>" },
      ...{ operatorRole: OperatorRole.ADMIN, createdAt: ago(40 * day), lastSeenAt: ago(2 * day) },
    },
    {
      personId: "per_gone",
      login: "bookkeeping-and-procurement.department@subsidiary.acme-robotics.example",
      ...{ name: "محاسبة", createdAt: ago(9 * day), disabledAt: ago(day) },
    },
    {
      ...{ personId: "per_olga", login: "olga@gateway.example", name: "Olga Marín" },
      ...{ operatorRole: OperatorRole.ADMIN, createdAt: ago(265 * day), lastSeenAt: ago(20) },
    },
  ].filter(({ login }) => login.includes(query)),
}));

const tokens = answer(people.listAdminTokens, () => ({
  tokens: [
    { tokenId: "ADMIN_TOKEN", name: "ADMIN_TOKEN", scope: AdminScope.ALL },
    {
      ...{ tokenId: "tok_1", name: "provisioning", scope: AdminScope.KEYS },
      ...{ hint: "adm-gw2-1AbC…wXyZ", createdBy: toActor("person:per_olga") },
      ...{ createdAt: ago(60 * day), lastUsedAt: ago(3 * minute) },
    },
    {
      ...{ tokenId: "tok_2", name: "old billing export", scope: AdminScope.READ },
      ...{ hint: "adm-gw2-9Qe7…0LmT", createdBy: toActor("person:per_left") },
      ...{ createdAt: ago(200 * day), revokedAt: ago(30 * day) },
    },
  ],
}));

const acts = [
  ["CreateTransfer", "person:per_olga", "ok", { family: "V1", amountMicrocredits: "2000000000" }],
  ["Approve", "person:per_bob", "ok", { approvalId: "apv_1", approved: "transfer" }],
  ["SuspendAccount", "person:per_olga", "ok", {}],
  ["GetAccount", "person:per_ana", "ok", {}],
  ["CreateKey", "token:provisioning", "not_permitted", { keyId: "key_0001", family: "V2" }],
  ["DecideOrder", "person:per_left", "wrong_state", { orderId: "ord_1", choice: "grant" }],
  ["CreateDeposit", "payments", "ok", {}],
  [
    ...(["BeginSweep", "person:per_ana", "ok"] as const),
    {
      sweepId: "swp_0199e1c0a1b27c3d8e4f0000",
      destination: "bc1p5d7rjq7g6rdk2yhzks9smlaqtedr4dekq08ge8ztwac72sfr9rusxg3297",
      reason: "The treasury moves to the new address that both directors signed in October.",
    },
  ],
] as const;
const events = answer(people.listAuditEvents, () => ({
  events: acts.map(([method, actor, outcome, facts], index) => ({
    ...{ eventId: `evt_${index}`, occurredAt: ago(index * 17 * minute), method },
    ...{ succeeded: outcome === "ok", reason: reasonOf(outcome) },
    actor: toActor(actor),
    ...{ accountId: index % 3 === 1 ? "" : idOf(1), address: "203.0.113.7", facts: { ...facts } },
  })),
  nextPageToken: "more",
}));
const noEvents = answer(people.listAuditEvents, () => ({}));

type OrderInit = MessageInitShape<typeof OrderSchema>;
const orderOf = (of: OrderInit): OrderInit => ({
  ...{ orderId: "ord_0199e1c0a1b27c3d8e4f", accountId: idOf(1), family: Family.V1 },
  ...{
    packMicrodollars: 20_000_000n,
    packMicrocredits: 4_000n * credit,
    processor: "btcpay",
    method: "btcpay:btc",
  },
  ...{ asset: "BTC", network: "bitcoin", quotedCoins: "0.00031", usdPerCoin: "64516.13" },
  payTo: "bc1qxy2kgdygjrsqtzq2n0yrf2493p83kkfjhx0wlh",
  ...{ state: OrderState.EXPIRED, attention: Attention.LATE, createdBy: toActor("person:per_1") },
  notice: "Your payment came late. A person looks at it.",
  ...{ createdAt: ago(2 * day), quotedUntil: ago(2 * day - 900), watchedUntil: ago(-5 * day) },
  ...{ seenCoins: "0", settledCoins: "0.00031", missingCoins: "0" },
  deposits: [
    {
      depositId: "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b:0",
      ...{ asset: "BTC", network: "bitcoin", coins: "0.00031", state: DepositState.SETTLED },
      ...{ confirmations: 2, confirmationsNeeded: 2, firstSeenAt: ago(day), settledAt: ago(day) },
    },
  ],
  ...of,
});
const waitingOrder = orderOf({});
const refundedOrder = orderOf({
  ...{ state: OrderState.PAID, attention: Attention.NONE, notice: "" },
  ...{ grantedMicrocredits: 4_000n * credit, refundedMicrodollars: 20_000_000n },
  refunds: [
    {
      ...{ number: 1, state: RefundState.REFUNDING, refundedMicrodollars: 20_000_000n },
      ...{ refundedMicrocredits: 4_000n * credit, reason: "The customer changed his mind." },
      ...{ createdBy: toActor("person:per_olga"), createdAt: ago(3 * hour) },
    },
  ],
});
const getOrder = (order: OrderInit) => answer(payments.getOrder, () => ({ order }));
const listAttention = answer(payments.listAttention, () => ({
  orders: [
    waitingOrder,
    { ...waitingOrder, orderId: "ord_2", attention: Attention.OVERPAID, accountId: idOf(2) },
    orderOf({
      ...{ orderId: "ord_3", attention: Attention.WRONG_ASSET, accountId: "acc_unknown" },
      deposits: [],
    }),
  ],
}));
const noAttention = answer(payments.listAttention, () => ({}));

const approvals = answer(operations.listApprovals, () => ({
  approvals: [
    {
      ...{ approvalId: "apv_1", accountId: idOf(1), kind: ApprovalKind.TRANSFER, subject: "key-1" },
      ...{
        what: "Adds 200,000 credits to the pool v1, as bonus.",
        amountMicrodollars: 1_000_000_000n,
      },
      ...{ reason: "Goodwill for the outage of the 20th.", requestedBy: toActor("person:per_bob") },
      ...{ personId: "per_bob", givenMicrodollars: 480_000_000n, requestedAt: ago(3 * hour) },
    },
    {
      ...{ approvalId: "apv_2", kind: ApprovalKind.OPERATOR, subject: "per_cleo" },
      ...{ what: "Makes cleo an operator admin.", requestedBy: toActor("person:per_olga") },
      ...{ personId: "per_olga", requestedAt: ago(day) },
    },
    {
      ...{ approvalId: "apv_3", accountId: idOf(4), kind: ApprovalKind.DECISION },
      ...{ subject: "ord_0199e1c0a1b27c3d8e4f", what: "Grants 4,000 credits for an order." },
      ...{ reason: "<b>late</b>, but whole", requestedBy: toActor("token:billing-bot") },
      ...{ personId: "per_bob", requestedAt: ago(2 * day) },
    },
  ],
}));
const noApprovals = answer(operations.listApprovals, () => ({}));

const checked = (more: object = {}) =>
  answer(billing.getLastVerification, () => ({
    latest: {
      ...{
        startedAt: ago(5 * hour + 42),
        endedAt: ago(5 * hour),
        startedBy: toActor("verify-ledger"),
      },
      ...more,
    },
    latestCleanAt: ago(29 * hour),
  }));
const violations = checked({
  violationCount: 140,
  violations: ["v1", "v2"].map((family) => ({
    invariant: "posted = transfers - charges",
    subject: `${idOf(1)}/${family}`,
    detail: "posted 6412080000, transfers 20000000000, charges 13587919999",
  })),
});

const account = (status: AccountState) =>
  answer(billing.getAccount, () => ({
    account: {
      ...{
        accountId: idOf(1),
        name: "ACME Robotics <Söhne>",
        state: status,
        createdAt: ago(90 * day),
      },
      stateReason: status === AccountState.SUSPENDED ? "An invoice is open since <May>." : "",
      stateChangedAt: ago(2 * day),
    },
  }));
const keys = answer(KeysService.method.listKeys, () => ({
  ...{ liveKeys: 954, maxLiveKeys: 1_000 },
  keys: ["ci", "مفتاح", "<b>nightly</b> jobs of the whole department"].map((name, index) => ({
    ...{ keyId: `key_${index}`, accountId: idOf(1), family: Family.V1, name },
    state: index === 1 ? KeyState.PAUSED : KeyState.ACTIVE,
    secrets: [{ secretId: `sec_${index}`, hint: `sk-gw2-1Ab${index}d…wXyZ` }],
    ...{ monthSpentMicrocredits: 1_204n * credit, lastUsedAt: ago(index * hour + 60) },
  })),
}));
const members = answer(people.listMembers, () => ({
  members: [
    {
      ...{ personId: "per_1", login: "owner1@customer.example", name: "Ada" },
      ...{ role: AccountRole.OWNER, joinedAt: ago(90 * day), lastSeenAt: ago(hour) },
    },
  ],
}));
const transferOf = (
  index: number,
  kind: TransferKind,
  amount: bigint,
  actor: string,
  reason = "",
) => ({
  ...{
    transferId: `tra_${index}`,
    accountId: idOf(1),
    family: Family.V1,
    kind,
    createdBy: toActor(actor),
    reason,
  },
  ...{ amountMicrocredits: amount * credit, createdAt: ago(index * day + 600) },
  postedAfterMicrocredits: BigInt(9 - index) * 1_000n * credit,
});
const transfers = answer(billing.listTransfers, () => ({
  transfers: [
    transferOf(0, TransferKind.BONUS, 2_000n, "person:per_olga", "Goodwill for the outage."),
    transferOf(1, TransferKind.ADJUSTMENT, -50n, "person:per_bob", "Booked twice"),
    transferOf(2, TransferKind.DEPOSIT, 4_000n, "payments"),
  ],
}));
const orders = answer(payments.listOrders, () => ({ orders: [waitingOrder, refundedOrder] }));
const longText = "x".repeat(120);
const ofAcme = { accountId: idOf(1), accountName: "ACME Robotics", occurredAt: ago(day) };
const hits = answer(operations.search, () => ({
  hits: [
    {
      ...{ kind: SearchHitKind.ACCOUNT, id: idOf(1), ...ofAcme },
      title: "Norddeutsche Gesellschaft für Verkehrstechnik und Logistik",
    },
    { kind: SearchHitKind.ORDER, id: "ord_0199e1c0a1b27c3d8e4f", ...ofAcme },
    {
      ...{ kind: SearchHitKind.PERSON, id: "per_ana", occurredAt: ago(day) },
      title: "ana.with.a.very.long.login@example.com",
    },
    {
      ...{ kind: SearchHitKind.REFUSAL, id: "req_0199e1c0a1b27c3d8e4f", ...ofAcme },
      title: longText,
    },
  ],
  incomplete: true,
}));
const noHits = answer(operations.search, () => ({}));
const notes = answer(operations.listAccountNotes, () => ({
  notes: ["Wrote that it paid.\n<b>It did.</b>", longText].map((text, index) => ({
    ...{
      noteId: `not_${index}`,
      accountId: idOf(1),
      createdAt: ago(index * day),
      createdBy: toActor("person:per_ana"),
    },
    text,
  })),
}));
const noNotes = answer(operations.listAccountNotes, () => ({}));
const promotionUses = answer(operations.listPromotionUses, () => ({
  uses: [
    { promotionId: "pro_1", name: "Autumn", family: Family.V1, bonusMicrocredits: 25_000_000n },
    {
      ...{ promotionId: "pro_2", name: longText, family: Family.V2, bonusMicrocredits: 1_000_000n },
      ...{ orderId: "ord_1", takenBack: true, transferId: "tra_1" },
    },
  ].map((use, index) => ({ ...use, usedAt: ago(index * day) })),
  nextPageToken: "more",
}));
const documents = answer(operations.listDocuments, () => ({
  documents: [DocumentKind.CREDIT_NOTE, DocumentKind.RECEIPT].map((kind, index) => ({
    ...{ kind, number: `R2026-00000${index}`, orderId: "ord_1", issuedAt: ago(index * day) },
  })),
}));
const mails = answer(operations.listMails, () => ({
  mails: [
    ...[
      {
        kind: AlertKind.PAYMENT_CREDITED,
        title: "1000 credits were added to the pool v1.",
        delivery: { personId: "per_ana", state: DeliveryState.SENT },
        address: "a…@customer.example",
      },
      {
        kind: AlertKind.NEW_PLACE,
        title: longText,
        delivery: {
          ...{ personId: "per_bob", state: DeliveryState.FAILED, failures: 3 },
          problem: `The mail server refused the mail: 550 <b…@customer.example> ${longText}`,
        },
        address: `b…@${longText.slice(0, 50)}.example`,
      },
      {
        ...{ kind: AlertKind.DOCUMENT_SENT, title: "The receipt R2026-000001 was sent again." },
        delivery: { personId: "per_left", state: DeliveryState.WAITING },
        address: "",
      },
    ].map(({ address, ...delivery }, index) => ({
      delivery: { ...delivery, alertId: `alert_${index}`, createdAt: ago(index * day + 60) },
      address,
    })),
    {
      delivery: {
        createdAt: ago(9 * day),
        delivery: {
          ...{ state: DeliveryState.FAILED, failures: 1 },
          problem: "The mail server refused the mail: 550 no such user",
        },
      },
      ...{ address: "n…@new.example", invitationId: "lnk_1" },
    },
  ],
  nextPageToken: "more",
}));
const noMails = answer(operations.listMails, () => ({}));
const noUses = answer(operations.listPromotionUses, () => ({}));
const noDocuments = answer(operations.listDocuments, () => ({}));
const refused = answer(billing.queryRefusals, () => ({
  rows: [Reason.CREDITS_EXHAUSTED, Reason.RATE_LIMITED].map((reason) => ({
    reason,
    requests: 12n,
  })),
  total: 24n,
}));
const noneRefused = answer(billing.queryRefusals, () => ({}));
const allOrders = answer(payments.listOrders, () => ({
  orders: [waitingOrder, refundedOrder],
  sums: {
    ...{ orders: 1_000_000n, orderedMicrodollars: 123_456_789_000_000n },
    ...{ grantedMicrocredits: 24_691_357_800_000_000n, refundedMicrodollars: 5_250_000n },
  },
}));
const findRefused = answer(billing.findRequests, () => ({
  refusals: [
    {
      ...{
        requestId: "req_0199e1c0a1b27c3d8e4f",
        accountId: idOf(1),
        keyId: "key_0",
        occurredAt: ago(60),
      },
      ...{ reason: Reason.CREDITS_EXHAUSTED, model: longText },
      facts: { limit_name: "pool_microcredits", limit: "12", remaining: "0" },
    },
  ],
}));

const ofAccount: readonly Answer[] = [
  ...[find, keys, members, transfers, orders, events, listPeople, notes, refused],
  ...[promotionUses, documents, mails],
];
const emptyAccount: readonly Answer[] = [
  find,
  answer(KeysService.method.listKeys, () => ({})),
  answer(people.listMembers, () => ({})),
  answer(billing.listTransfers, () => ({})),
  answer(payments.listOrders, () => ({})),
  noEvents,
  listPeople,
  ...[noNotes, noneRefused, noUses, noDocuments, noMails],
];

const price = (version: string, micro: bigint, input = micro * 1000n) => ({
  ...{ priceVersion: `price_${version}`, input, output: input * 5n, thinking: input * 5n },
  ...{ cacheWrite5m: (input * 5n) / 4n, cacheWrite1h: input * 2n, cacheRead: input / 10n },
});
const catalog = answer(operations.listCatalogModels, () => ({
  configuration: "8d1f0c22ab94",
  models: [
    ...["opus-4.6", "sonnet-4.6", "haiku-4.5"].map((name, index) => ({
      ...{ modelId: `model-${name}`, displayName: name, tier: name.split("-")[0] ?? "" },
      aliases: index === 2 ? ["haiku", "small", "fast-and-cheap-for-everything"] : [],
      ...{ contextTokens: 1_000_000 >> index, maxOutputTokens: 64_000 },
      price: price(`now${index}`, BigInt(700 >> index)),
      conditional: index === 0 ? [{ ...price("fast", 4_200n), note: "fast; geography us" }] : [],
      routes: [
        { provider: "primary", model: `vendor-${name}`, weight: 3, group: 1 },
        { provider: "second", model: name, weight: 1, group: 1 },
      ],
      usable: index !== 1,
      prices: [
        { price: price(`now${index}`, BigInt(700 >> index)), firstUsedAt: ago(20 * day) },
        { price: price(`old${index}`, BigInt(900 >> index)), firstUsedAt: ago(200 * day) },
      ],
    })),
    {
      modelId: "model-gone-3.5",
      prices: [{ price: price("gone", 300n), firstUsedAt: ago(400 * day) }],
    },
  ],
}));

const ownTexts = {
  ...{ input: "3.2", output: "16", thinking: "16", cacheWrite5m: "4", cacheWrite1h: "6.4" },
  ...{ cacheRead: "0.32", webSearch: "" },
};
const priceLists = answer(billing.listPriceLists, () => ({
  priceLists: [
    {
      ...{ priceListId: "plist_1", name: "ACME Robotics", accounts: 3, createdAt: ago(90 * day) },
      version: {
        ...{
          number: 4,
          discountBp: 1_250,
          reason: "agreed for 2027",
          createdBy: toActor("person:per_olga"),
        },
        createdAt: ago(3 * day),
        models: {
          "model-opus-4.6": {
            price: {
              ...ownTexts,
              when: [
                { promptAbove: 200_000, multiply: "2" },
                { speed: "fast", geo: "us", input: "12", output: "60" },
              ],
            },
            discountBp: 0,
          },
          "model-haiku-4.5": { discountBp: 4_000 },
          "model-gone-3.5": { discountBp: 9_000 },
        },
      },
      goneModels: ["model-gone-3.5"],
    },
    {
      ...{ priceListId: "plist_2", name: "عرض <i>all</i>", accounts: 0, createdAt: ago(day) },
      version: {
        number: 1,
        discountBp: 10_000,
        createdBy: toActor("token:billing"),
        createdAt: ago(day),
      },
    },
  ],
}));
const preview = answer(billing.previewPrices, () => ({
  prices: ["opus-4.6", "sonnet-4.6", "haiku-4.5"].map((name, index) => {
    const micro = 700n >> BigInt(index);
    return {
      model: `model-${name}`,
      before: price(`now${index}`, micro),
      after: {
        ...price(`next${index}`, micro, micro * (index === 1 ? 1_000n : 612n)),
        ...(index === 0 && {
          promptAbove: 200_000,
          abovePrice: { ...price("over", micro * 2n), note: "above 200,000 tokens of prompt" },
        }),
      },
      ...(index === 0 && {
        conditionalBefore: [{ ...price("fast", 4_200n), note: "fast; list ACME Robotics 4" }],
        conditionalAfter: [{ ...price("us", 4_400n), note: "fast; geography us; list ACME 5" }],
      }),
    };
  }),
  belowCost: ["model-opus-4.6"],
  belowHalf: ["model-haiku-4.5"],
}));

const dollar = 200n * credit;
const sumsOf = (share: bigint) => ({
  ...{ requests: 18_204n / share, chargedMicrocredits: (412n * dollar) / share },
  costPicodollars: String(301_250_000_000_000n / share),
  overrunMicrocredits: dollar / (40n * share),
  marginMicrodollars: 80_500_000n / share,
});
const monthAgo = (count: number) =>
  timestampFromDate(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - count, 1)));
const uncosted = { uncostedRequests: 1_400n, uncostedMicrocredits: 31n * dollar };
/** `trouble`: some of it has no cost, and the rest is sold below it. */
const salesOf = (trouble: boolean) => [
  answer(operations.querySales, ({ bucket, groupBy }) => ({
    rows:
      bucket === SalesBucket.MONTH
        ? [
            { startAt: monthAgo(1), ...sumsOf(2n) },
            { startAt: monthAgo(0), ...sumsOf(1n) },
          ]
        : bucket === SalesBucket.DAY
          ? Array.from({ length: 22 }, (_, n) => ({
              ...{ startAt: ago((22 - n) * day), ...sumsOf(BigInt(20 + (n % 7))) },
            }))
          : ["opus-4.6", "sonnet-4.6", "a-model-with-a-name-of-exactly-sixty-characters-1"].map(
              (name, n) => ({
                ...sumsOf(BigInt(n + 2)),
                ...(groupBy.includes(SalesGroup.ACCOUNT)
                  ? { accountId: `acct_${n}` }
                  : { model: `model-${name}` }),
                ...(groupBy.includes(SalesGroup.PROVIDER) && { provider: n > 1 ? "" : "primary" }),
                ...(trouble && n > 0 && { ...uncosted, marginMicrodollars: -12_340_000n }),
              }),
            ),
    totals: { ...sumsOf(1n), ...(trouble && { ...uncosted, marginMicrodollars: -4_100_000n }) },
    bonusMicrocredits: 1_200n * credit,
    adjustmentMicrocredits: -50n * credit,
    ...(!trouble && { completeUntil: ago(2 * minute) }),
  })),
  answer(operations.queryRevenue, () => ({
    rows: [
      { startAt: monthAgo(1), netMicrodollars: 390_000_000n },
      { startAt: monthAgo(0), netMicrodollars: 455_000_000n },
    ],
  })),
  answer(operations.queryLiabilities, () => ({
    rows: [{ owedMicrocredits: 91_000n * credit, debtsMicrocredits: 12n * credit }],
  })),
  answer(operations.listProviderBills, () => ({
    bills: [
      { provider: "primary", month: "2026-11", costPicodollars: "288000000000000" },
      {
        ...{ provider: "second", month: "2026-11", costPicodollars: "13250000000000" },
        ...{ billedMicrodollars: 14_020_000n, note: "Invoice 2026-0412, with a credit of 20 USD" },
      },
    ],
  })),
];
const noSales = [
  answer(operations.querySales, () => ({ totals: {} })),
  answer(operations.queryRevenue, () => ({ totals: {} })),
  answer(operations.queryLiabilities, () => ({})),
  answer(operations.listProviderBills, () => ({})),
];

const stateOf = (provider: string, health: ProviderHealth, waitingModels: string[] = []) => ({
  ...{ provider, health, waitingModels, credentialSource: "file /run/secrets/vendor" },
  credentialExpiresAt: ago(-hour),
  ...(health === ProviderHealth.UNUSABLE && {
    lastFailure: {
      ...{ occurredAt: ago(hour), httpStatus: 529 },
      reason: `overloaded_error: ${"no room in the shard, 再試行 ".repeat(19)}`.slice(0, 500),
    },
  }),
});
const providers = answer(operations.listProviders, () => ({
  providers: [
    {
      ...{ name: "primary", kind: ProviderKind.BEDROCK, region: "us-east-1" },
      baseUrl: "https://bedrock-runtime.us-east-1.amazonaws.com",
      ...{ credentialEnv: "VENDOR_API_KEY", credentialHeader: "x-api-key" },
      ...{ headerNames: ["x-team", "x-region"], concurrency: 10_000, queue: 1_000 },
      ...{ queueTimeout: durationFromMs(5_000), connectTimeout: durationFromMs(5_000) },
      ...{ firstByteTimeout: durationFromMs(120_000), idleTimeout: durationFromMs(120_000) },
      totalTimeout: durationFromMs(1_800_000),
      models: ["model-opus-4.6", "model-sonnet-4.6", "model-haiku-4.5"],
      nodes: [
        { nodeId: "node_1", state: stateOf("primary", ProviderHealth.GOOD) },
        {
          nodeId: "node_2",
          state: stateOf("primary", ProviderHealth.UNUSABLE, ["vendor-opus-4.6"]),
        },
      ],
    },
    {
      ...{ name: "second", kind: ProviderKind.SIMULATED, concurrency: 10, queue: 0 },
      ...{ queueTimeout: durationFromMs(0), totalTimeout: durationFromMs(1_800_000) },
    },
  ],
}));

const report = (index: number, more: object = {}) => ({
  ...{ host: `gateway-${index}.internal.example`, pid: 4_000 + index, worker: index },
  ...{ version: "0.1.0", runtimeVersion: "v24.21.0", configuration: "8d1f0c22ab94" },
  ...{ limits: LimitsStore.REDIS, reportedAt: ago(day) },
  providers: [stateOf("primary", ProviderHealth.GOOD), stateOf("second", ProviderHealth.GOOD)],
  ...more,
});
const statusOf = (isTroubled: boolean) =>
  answer(operations.getStatus, () => ({
    nodes: [
      { nodeId: "node_1", startedAt: ago(3 * day), answering: true, report: report(0) },
      {
        ...{
          nodeId: "node_2",
          startedAt: ago(3 * day),
          silentFor: { seconds: isTroubled ? 5n : 0n },
        },
        report: isTroubled
          ? report(1, {
              ...{ limits: LimitsStore.DEGRADED, configuration: "0000000000ab" },
              providers: [
                stateOf("primary", ProviderHealth.UNUSABLE, ["vendor-opus-4.6"]),
                stateOf("second", ProviderHealth.REDUCED),
              ],
            })
          : report(1),
      },
      ...(isTroubled
        ? [
            {
              nodeId: "node_0199e1c0a1b27c3d8e4f",
              startedAt: ago(hour),
              silentFor: { seconds: 40n },
            },
          ]
        : []),
    ],
    database: {
      ...{ version: "18.4", synchronous: !isTroubled, monthsAhead: 3 },
      problem: isTroubled ? "no synchronous standby is connected" : "",
      syncStandbys: isTroubled ? 0 : 2,
    },
    running: {
      ...{ requests: 1_204n, heldMicrocredits: 48_000n * credit },
      ...{ oldestAdmittedAt: ago(4 * minute), firstDeadlineAt: ago(-26 * minute) },
    },
    readAt: ago(0),
  }));
const smallStatus = answer(operations.getStatus, () => ({
  nodes: [{ nodeId: "node_1", startedAt: ago(30), answering: true }],
  database: { version: "18.4", embedded: true, monthsAhead: 3 },
  running: {},
  readAt: ago(0),
}));

const { OPEN, DEFAULT, DONE } = SetupState;
const setupOf = answer(operations.getStatus, () => ({
  setup: [
    { part: SetupPart.REACHABLE, state: OPEN, facts: ["http://localhost:8080"] },
    {
      ...{ part: SetupPart.PROXIES, state: DEFAULT, facts: ["10.0.0.7", "2001:db8::7"] },
      line: "TRUSTED_PROXIES=10.0.0.1,10.0.0.7",
    },
    { part: SetupPart.PROVIDER, state: OPEN },
    { part: SetupPart.MAIL, state: DEFAULT },
    { part: SetupPart.SIGN_UP, state: DONE, facts: ["domains.of-a-company.example", "acme"] },
    { part: SetupPart.PAYMENTS, state: OPEN },
    { part: SetupPart.BACKUP, state: DEFAULT, facts: ["embedded"] },
    { part: SetupPart.LEDGER, state: DONE, facts: ["2026-11-22T13:58:00.123Z"] },
    { part: SetupPart.ALERTS, state: OPEN },
  ],
}));

const promotions = answer(payments.listPromotions, () => ({
  promotions: [
    {
      ...{
        promotionId: "prm_1",
        name: "Hackathon in November",
        family: Family.V1,
        uses: 17,
        maxUses: 50,
      },
      ...{ bonusMicrocredits: 500n * credit, expiresAt: ago(-8 * day), createdAt: ago(3 * day) },
    },
    {
      ...{ promotionId: "prm_2", name: "<i>Welcome</i>", family: Family.V2, uses: 1_204 },
      ...{ bonusMicrocredits: 100n * credit, needsPurchase: true, createdAt: ago(90 * day) },
    },
    {
      ...{ promotionId: "prm_3", name: "", family: Family.V1, uses: 3, maxUses: 3 },
      ...{ bonusMicrocredits: 5n * credit, createdAt: ago(99 * day) },
    },
    {
      ...{ promotionId: "prm_4", name: "عرض", family: Family.V1, uses: 0, stoppedAt: ago(day) },
      ...{ bonusMicrocredits: 5n * credit, createdAt: ago(100 * day) },
    },
  ],
}));

const sweptAddress = `0x${"9858EfFD232B4033E47d90003D41EC34EcaEda94"}`;
const addresses = answer(payments.listDepositAddresses, () => ({
  ...{ network: "base", networks: ["base", "bitcoin"], given: 870n, gapLimit: 1_000 },
  addresses: [1, 2].map((index) => ({
    ...{ address: sweptAddress.replace("98", `0${index}`), accountId: `acc_${index}` },
    ...{ family: Family.V1, createdAt: ago(index * day) },
  })),
  nextPageToken: "2",
}));
const sweeps = answer(payments.listSweeps, () => ({
  sweeps: [
    {
      ...{ sweepId: "swp_2", network: "base", addresses: [sweptAddress], beganAt: ago(600) },
      ...{ until: ago(-day), createdBy: toActor("person:per_ana") },
    },
    {
      ...{ sweepId: "swp_1", network: "base", addresses: [sweptAddress, sweptAddress] },
      ...{ beganAt: ago(9 * day), until: ago(8 * day), endedAt: ago(8 * day), read: true },
      ...{ createdBy: toActor("person:per_ana") },
      payments: ["", "person:per_ana"].map((grantedBy, index) => ({
        ...{ paymentId: `pay_${index}`, address: sweptAddress, asset: "ETH", coins: "0.0021" },
        ...{ occurredAt: ago(9 * day), grantedBy: toActor(grantedBy) },
      })),
    },
  ],
}));

const at = (path: string) => `/console/operator${path}`;
const attention = [admin, find, listPeople, listAttention, approvals];
const quiet = [admin, findNone, listPeople, noAttention, noApprovals];

const alerts = answer(AlertsService.method.listAlerts, () => ({
  settings: {
    rules: [{ kind: AlertKind.PROVIDER_ALARM, channels: [AlertChannel.PAGE, AlertChannel.MAIL] }],
  },
  mails: true,
}));

export const operatorStates: readonly PageStates[] = [
  {
    name: "operator-accounts",
    path: at("/accounts"),
    states: {
      loading: [admin, pending(operations.findAccounts)],
      empty: [admin, findNone],
      failed: [admin, failing(operations.findAccounts, "report_too_large")],
      full: [admin, find],
      "support without an account": [support, find],
    },
  },
  {
    name: "operator-accounts-none",
    path: at("/accounts?q=nobody"),
    states: { full: [admin, findNone] },
  },
  { name: "operator-new-account", path: at("/accounts?new=1"), states: { full: [admin, find] } },
  {
    name: "operator-account",
    path: at(`/accounts/${idOf(1)}`),
    states: {
      // A browser opens six connections, and the next page needs one of them.
      loading: [
        ...[admin, members, orders, listPeople, events, notes, refused, promotionUses, documents],
        mails,
        ...[billing.getAccount, operations.findAccounts, billing.listTransfers].map(pending),
        pending(KeysService.method.listKeys),
      ],
      empty: [admin, account(AccountState.ACTIVE), ...emptyAccount],
      failed: [
        ...[admin, account(AccountState.ACTIVE), find, members, listPeople, orders],
        failing(operations.listPromotionUses, "internal"),
        failing(operations.listDocuments, "internal"),
        failing(operations.listMails, "internal"),
        failing(operations.listAccountNotes, "internal"),
        failing(billing.queryRefusals, "internal"),
        failing(KeysService.method.listKeys, "internal"),
        failing(billing.listTransfers, "database_unavailable"),
        failing(people.listAuditEvents, "internal"),
      ],
      missing: [
        ...[admin, failing(billing.getAccount, "not_found"), findNone, listPeople, noEvents],
      ],
      full: [admin, account(AccountState.ACTIVE), ...ofAccount],
      suspended: [admin, account(AccountState.SUSPENDED), ...ofAccount],
      closed: [admin, account(AccountState.CLOSED), ...emptyAccount],
      support: [support, account(AccountState.ACTIVE), ...ofAccount],
    },
  },
  {
    name: "operator-search",
    path: at("/search?q=acme"),
    states: {
      loading: [admin, pending(operations.search)],
      empty: [admin, noHits],
      failed: [admin, failing(operations.search, "internal")],
      full: [admin, hits],
    },
  },
  {
    name: "operator-search-of-a-hash",
    path: at(`/search?q=${"5e".repeat(32)}`),
    states: { empty: [admin, noHits, addresses], support: [support, noHits] },
  },
  {
    name: "operator-orders",
    path: at("/orders"),
    states: {
      loading: [admin, find, pending(payments.listOrders)],
      empty: [admin, find, answer(payments.listOrders, () => ({ sums: {} }))],
      failed: [admin, find, failing(payments.listOrders, "report_too_large")],
      full: [admin, find, allOrders],
    },
  },
  {
    name: "operator-refusal",
    path: at("/refusals/req_0199e1c0a1b27c3d8e4f"),
    states: {
      empty: [admin, answer(billing.findRequests, () => ({}))],
      full: [admin, findRefused],
    },
  },
  {
    name: "operator-attention",
    path: at("/attention"),
    states: {
      loading: [
        ...[admin, listPeople, pending(operations.findAccounts)],
        ...[payments.listAttention, operations.listApprovals].map(pending),
        pending(billing.getLastVerification),
      ],
      empty: [...quiet, checked()],
      "never checked": [...quiet, answer(billing.getLastVerification, () => ({}))],
      failed: [
        ...[admin, listPeople, failing(operations.findAccounts, "internal")],
        failing(payments.listAttention, "internal"),
        failing(operations.listApprovals, "database_unavailable"),
        failing(billing.getLastVerification, "internal"),
      ],
      full: [...attention, violations],
      "old check": [...attention, checked({ endedAt: ago(3 * day), startedAt: ago(3 * day) })],
      support: [support, find, listPeople, listAttention, approvals, checked()],
    },
  },
  {
    name: "operator-order",
    path: at("/orders/ord_0199e1c0a1b27c3d8e4f"),
    states: {
      loading: [admin, find, listPeople, noApprovals, pending(payments.getOrder)],
      failed: [admin, find, listPeople, noApprovals, failing(payments.getOrder, "internal")],
      missing: [admin, find, listPeople, noApprovals, failing(payments.getOrder, "not_found")],
      full: [admin, find, listPeople, noApprovals, getOrder(waitingOrder)],
      decided: [admin, find, listPeople, approvals, getOrder(waitingOrder)],
      refunding: [admin, find, listPeople, noApprovals, getOrder(refundedOrder)],
      support: [support, find, listPeople, approvals, getOrder(waitingOrder)],
    },
  },
  {
    name: "operator-models",
    path: at("/models"),
    states: {
      loading: [admin, pending(operations.listCatalogModels), pending(operations.listProviders)],
      empty: [
        admin,
        answer(operations.listCatalogModels, () => ({ configuration: "8d1f0c22ab94" })),
        answer(operations.listProviders, () => ({})),
      ],
      failed: [
        admin,
        failing(operations.listCatalogModels, "database_unavailable"),
        failing(operations.listProviders, "internal"),
      ],
      full: [admin, catalog, providers],
    },
  },
  {
    name: "operator-sales",
    path: at("/sales"),
    states: {
      loading: [
        ...[admin, pending(operations.querySales), pending(operations.queryRevenue)],
        ...[pending(operations.queryLiabilities), pending(operations.listProviderBills)],
      ],
      empty: [admin, ...noSales],
      failed: [
        ...[admin, failing(operations.querySales, "database_unavailable")],
        ...[failing(operations.queryRevenue, "report_too_large")],
        ...[failing(operations.queryLiabilities, "internal")],
        failing(operations.listProviderBills, "internal"),
      ],
      full: [admin, ...salesOf(false)],
      troubled: [admin, ...salesOf(true)],
      support: [support, ...salesOf(false)],
    },
  },
  {
    name: "operator-sales-accounts",
    path: at("/sales?by=account&month=2026-10"),
    states: { full: [admin, find, ...salesOf(false)] },
  },
  {
    name: "operator-checklist",
    path: at(""),
    states: {
      loading: [admin, pending(operations.getStatus)],
      failed: [admin, failing(operations.getStatus, "internal")],
      full: [admin, setupOf],
    },
  },
  {
    name: "operator-health",
    path: at("/health"),
    states: {
      loading: [admin, pending(operations.getStatus)],
      failed: [admin, failing(operations.getStatus, "internal")],
      small: [admin, smallStatus],
      full: [admin, statusOf(false), alerts],
      troubled: [admin, statusOf(true)],
    },
  },
  {
    name: "operator-people",
    path: at("/people"),
    states: {
      loading: [admin, pending(people.listPeople), pending(people.listAdminTokens)],
      empty: [admin, answer(people.listPeople, () => ({})), tokens],
      failed: [
        ...[admin, failing(people.listPeople, "internal")],
        failing(people.listAdminTokens, "internal"),
      ],
      full: [admin, listPeople, tokens],
      support: [support, listPeople, tokens],
    },
  },
  {
    name: "operator-people-none",
    path: at("/people?q=zzz"),
    states: { full: [admin, listPeople, tokens] },
  },
  {
    name: "operator-audit",
    path: at("/audit"),
    states: {
      loading: [admin, listPeople, pending(people.listAuditEvents)],
      empty: [admin, listPeople, noEvents],
      failed: [admin, listPeople, failing(people.listAuditEvents, "internal")],
      full: [admin, find, listPeople, events],
    },
  },
  {
    name: "operator-audit-filtered",
    path: at("/audit?actor=person:per_ana&method=GetAccount&from=2026-11-01&to=2026-11-22"),
    states: { none: [admin, find, listPeople, noEvents], full: [admin, find, listPeople, events] },
  },
  {
    name: "operator-price-lists",
    path: at("/prices"),
    states: {
      loading: [admin, listPeople, pending(billing.listPriceLists)],
      empty: [admin, listPeople, answer(billing.listPriceLists, () => ({}))],
      failed: [admin, listPeople, failing(billing.listPriceLists, "internal")],
      full: [admin, listPeople, priceLists],
      support: [support, listPeople, priceLists],
    },
  },
  {
    name: "operator-give-price-list",
    path: at("/prices?give=plist_1"),
    states: { full: [admin, listPeople, priceLists] },
  },
  {
    name: "operator-take-price-list-back",
    path: at("/prices?give=public&account=acct_acme"),
    states: { full: [admin, listPeople, priceLists] },
  },
  {
    name: "operator-price-list",
    path: at("/prices/plist_1"),
    states: {
      loading: [admin, pending(billing.listPriceLists), pending(operations.listCatalogModels)],
      failed: [admin, failing(billing.listPriceLists, "internal"), catalog],
      full: [admin, priceLists, catalog, preview],
      support: [support, priceLists, catalog, preview],
    },
  },
  {
    name: "operator-no-price-list",
    path: at("/prices/plist_0"),
    states: { missing: [admin, priceLists, catalog] },
  },
  {
    name: "operator-new-price-list",
    path: at("/prices/new"),
    states: { full: [admin, priceLists, catalog, preview] },
  },
  {
    name: "operator-promotions",
    path: at("/promotions"),
    states: {
      loading: [admin, pending(payments.listPromotions)],
      empty: [admin, answer(payments.listPromotions, () => ({}))],
      failed: [admin, failing(payments.listPromotions, "internal")],
      full: [admin, promotions],
      support: [support, promotions],
    },
  },
  {
    name: "operator-new-promotion",
    path: at("/promotions?new=1"),
    states: { full: [admin, promotions] },
  },
  {
    name: "operator-addresses",
    path: at("/addresses"),
    states: {
      loading: [
        ...[admin, listPeople, pending(payments.listDepositAddresses)],
        pending(payments.listSweeps),
      ],
      empty: [
        ...[admin, listPeople, answer(payments.listDepositAddresses, () => ({}))],
        answer(payments.listSweeps, () => ({})),
      ],
      failed: [
        ...[admin, listPeople, failing(payments.listDepositAddresses, "internal")],
        failing(payments.listSweeps, "internal"),
      ],
      full: [admin, listPeople, addresses, sweeps],
      support: [support, listPeople, addresses, sweeps],
    },
  },
  {
    name: "operator-new-sweep",
    path: at("/addresses?new=1"),
    states: { full: [admin, listPeople, addresses, sweeps] },
  },
  { name: "operator-nowhere", path: at("/no/such"), states: { full: [admin] } },
  // Nobody but operators hears that there are such pages.
  { name: "operator-of-customers", path: at("/health"), states: { full: [] } },
];
