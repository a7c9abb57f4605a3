// The states of the pages about people and keys.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  AlertChannel,
  AlertKind,
  type AlertSettingsSchema,
  AlertsService,
  DeliveryState,
  type ListAlertsResponseSchema,
} from "../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountState } from "../../../gen/gateway/billing/v1/account_pb.ts";
import { Outcome } from "../../../gen/gateway/billing/v1/receipt_pb.ts";
import { BudgetSchema, BudgetWindow_Name } from "../../../gen/gateway/common/v1/budget_pb.ts";
import { Reason } from "../../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, ManagementScope } from "../../../gen/gateway/common/v1/roles_pb.ts";
import { InferenceService } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { KeyOrder, type KeySchema, KeyState } from "../../../gen/gateway/keys/v1/keys_pb.ts";
import { MailState } from "../../../gen/gateway/people/v1/members_pb.ts";
import { LinkPurpose } from "../../../gen/gateway/people/v1/sign_in_pb.ts";
import { toActor } from "../../../src/base/actors.ts";
import { serviceTypes } from "../../../src/contract/contract.ts";
import {
  type Answer,
  accountId,
  answer,
  failing,
  now,
  type PageStates,
  pending,
} from "./answers.ts";

const { method: people } = serviceTypes.people;
const { method: keysMethod } = serviceTypes.keys;
const { method: billing } = serviceTypes.billing;

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;
/** So many seconds before the time of the states. */
const ago = (seconds: number) => timestampFromDate(new Date(now.getTime() - seconds * 1000));
const credit = 1_000_000n;

const limits = [50n, 250n, 1_000n, 12_500n].map((one) => one * credit);
const windows = [BudgetWindow_Name.DAY, BudgetWindow_Name.WEEK, BudgetWindow_Name.MONTH];
const ends = ["2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-12-01T00:00:00Z"];

/** Of a person or a management key in a pool: so much of each limit is spent, the day first. */
function budgetOf(value: string, family: Family, shares: readonly number[]) {
  const shown = shares.map((share, index) => {
    const limit = limits[index] ?? 0n;
    const end = ends[index];
    return {
      window: windows[index] ?? BudgetWindow_Name.TOTAL,
      spentMicrocredits: BigInt(Math.round(share * Number(limit))),
      limitMicrocredits: limit,
      ...(end !== undefined && { resetsAt: timestampFromDate(new Date(end)) }),
    };
  });
  const isRunning = family === Family.V1;
  return create(BudgetSchema, {
    payer: {
      payer: value.startsWith("mgk_")
        ? { case: "managementKeyId", value }
        : { case: "personId", value },
    },
    ...{ family, windows: shown },
    ...(isRunning && { limits: { requestsAtOnce: 4 }, running: 2, heldMicrocredits: 3n * credit }),
  });
}

type KeyInit = MessageInitShape<typeof KeySchema>;

function keyOf(index: number, of: KeyInit): KeyInit {
  const digits = String(index).padStart(4, "0");
  return {
    keyId: `key_${digits}`,
    accountId,
    family: Family.V1,
    name: `program ${index}`,
    state: KeyState.ACTIVE,
    secrets: [
      {
        secretId: `secret_${digits}`,
        hint: `sk-gw2-1A${digits}…w${digits}`,
        createdAt: ago(40 * day),
        lastUsedAt: ago(3 * minute),
      },
    ],
    createdAt: ago(40 * day - index),
    lastUsedAt: ago(3 * minute + index * hour),
    monthSpentMicrocredits: BigInt((index * 7919) % 900) * credit + 330_000n,
    monthHeldMicrocredits: 0n,
    monthResetsAt: timestampFromDate(new Date("2026-12-01T00:00:00Z")),
    createdBy: toActor("person:person_olga"),
    managedBy: toActor("person:person_olga"),
    tags: index % 3 === 0 ? {} : { team: "команда 組", job: `nightly jobs ${index}`, env: "ci" },
    daysMicrocredits:
      index % 5 === 0
        ? []
        : Array.from({ length: 30 }, (_, at) => BigInt(((at * 7 + index) % 11) * 100_000)),
    ...of,
  };
}

/** Real names: long, empty, in other scripts, and with what must stay text. */
const someKeys: readonly KeyInit[] = [
  keyOf(1, {
    name: "ci",
    monthSpentMicrocredits: 1_204_900_000n,
    monthlyCapMicrocredits: 2_000n * credit,
    monthHeldMicrocredits: 12n * credit,
    requestsPerMinute: 600,
  }),
  keyOf(2, {
    name: "editor, Ana",
    family: Family.V2,
    createdBy: toActor("person:person_ana"),
    managedBy: toActor("person:person_ana"),
    monthSpentMicrocredits: 921_330_000n,
    monthlyCapMicrocredits: 1_000n * credit,
    allowedModels: ["model-haiku-4.5", "model-sonnet-4.6"],
  }),
  keyOf(3, {
    name: "contractor",
    state: KeyState.PAUSED,
    pausedAt: ago(2 * day),
    createdBy: toActor("person:person_left"),
    monthSpentMicrocredits: 200n * credit,
    monthlyCapMicrocredits: 200n * credit,
  }),
  keyOf(4, {
    name: "<b>nightly</b> & weekly jobs of the whole research department 🧪",
    expiresAt: timestampFromDate(new Date(now.getTime() + 2.5 * day * 1000)),
    createdBy: toActor("mgmt:mgk_1"),
    managedBy: toActor("mgmt:mgk_1"),
    allowedAddresses: ["203.0.113.7", "2001:db8::/32"],
  }),
  keyOf(5, { name: "מפתח לבדיקות", monthSpentMicrocredits: 10_000_000n * credit }),
  keyOf(6, { name: "", monthSpentMicrocredits: 0n, lastUsedAt: undefined }),
  keyOf(7, { name: "old laptop", state: KeyState.EXPIRED, expiresAt: ago(3 * day) }),
  keyOf(8, { name: "leaked", state: KeyState.REVOKED, revokedAt: ago(9 * day) }),
];

const manyKeys = Array.from({ length: 5000 }, (_, index) => keyOf(index, {}));

const spentOf = ({ monthSpentMicrocredits: spent = 0n }: KeyInit) => Number(spent);
const tagKeys = ["env", "job", "team"];
const attention = { unused: 1_204, expiresSoon: 3, nearBudget: 12 };
const groups = [
  "",
  "a",
  "команда 組",
  "the whole research department in Potsdam, and all others",
].map((value, index) => ({
  value,
  keys: 10 ** index,
  monthSpentMicrocredits: BigInt(index) * 1_234_567n * credit,
}));
const listKeys = answer(keysMethod.listKeys, ({ order, pageSize, groupByTag }) => ({
  ...{ tagKeys, attention },
  groups: groupByTag === "" ? [] : groups,
  keys:
    order === KeyOrder.MONTH_SPENT
      ? someKeys.toSorted((a, b) => spentOf(b) - spentOf(a)).slice(0, pageSize)
      : [...someKeys],
}));
const listManyKeys = answer(keysMethod.listKeys, ({ pageSize, pageToken }) => {
  const from = Number(pageToken || "0");
  const to = from + (pageSize || 100);
  return {
    ...{ tagKeys, attention },
    keys: manyKeys.slice(from, to),
    maxLiveKeys: 5_000,
    nextPageToken: to < manyKeys.length ? String(to) : "",
  };
});

const listMembers = answer(people.listMembers, () => ({
  members: [
    {
      personId: "person_ana",
      login: "ana@acme.example",
      name: "Ana Bălan",
      role: AccountRole.MEMBER,
      joinedAt: ago(200 * day),
      lastSeenAt: ago(2 * hour),
    },
    {
      personId: "person_olga",
      login: "olga@acme.example",
      name: "Olga Marín",
      role: AccountRole.OWNER,
      joinedAt: ago(265 * day),
      lastSeenAt: ago(20),
    },
    {
      personId: "person_long",
      login: "bookkeeping-and-procurement.department@subsidiary.acme-robotics.example",
      name: "محاسبة",
      role: AccountRole.VIEWER,
      joinedAt: ago(3 * day),
    },
  ],
}));
const listInvitations = answer(people.listInvitations, () => ({
  invitations: [
    {
      invitationId: "invitation_1",
      role: AccountRole.MEMBER,
      email: "kim@acme.example",
      createdAt: ago(hour),
      expiresAt: timestampFromDate(new Date(now.getTime() + 7 * day * 1000)),
      createdBy: toActor("person:person_olga"),
      mailState: MailState.SENT,
    },
    {
      invitationId: "invitation_2",
      role: AccountRole.OWNER,
      email: "wrong@nowhere.example",
      createdAt: ago(day),
      expiresAt: timestampFromDate(new Date(now.getTime() + 6 * day * 1000)),
      createdBy: toActor("person:person_olga"),
      mailState: MailState.FAILED,
      mailProblem: "The mail server refused the address.",
    },
    {
      invitationId: "invitation_3",
      role: AccountRole.VIEWER,
      createdAt: ago(2 * day),
      expiresAt: timestampFromDate(new Date(now.getTime() + 5 * day * 1000)),
      createdBy: toActor("person:person_olga"),
    },
  ],
}));

/** As the shipped catalogue has them. */
const models = ["model-opus-4.6", "model-sonnet-4.6", "model-haiku-4.5"];

const usage = answer(billing.queryUsage, ({ keyIds }) => ({
  rows: Array.from({ length: 30 }, (_, index) =>
    models.map((model, at) => ({
      startAt: timestampFromDate(new Date(Date.UTC(2026, 9, 24 + index))),
      model,
      sums: {
        chargedMicrocredits:
          BigInt(((index * 37 + at * 53) % 60) + 4) * (keyIds.length > 0 ? 300_000n : credit),
        requests: BigInt((index * 31 + at * 7) % 400),
      },
    })),
  ).flat(),
  startAt: timestampFromDate(new Date("2026-10-24T00:00:00Z")),
  endAt: timestampFromDate(now),
  completeUntil: timestampFromDate(new Date("2026-11-22T14:02:00Z")),
}));
const noUsage = answer(billing.queryUsage, () => ({ rows: [] }));

const budgetsOfVic = [
  budgetOf("person_vic", Family.V1, [0.97, 1]),
  budgetOf("person_vic", Family.V2, [0.2]),
];
const memberUsage = answer(billing.queryUsage, () => ({
  rows: ["person_ana", "person_long", "person_vic"].flatMap((personId, at) =>
    someKeys.slice(0, 6).map(({ keyId = "" }, index) => ({
      keyId,
      member: toActor(`person:${personId}`),
      sums: {
        chargedMicrocredits: BigInt((index * 37 + at * 53) % 60) * 7_330_000n,
        requests: BigInt((index * 31 + at * 7) % 400),
      },
    })),
  ),
  keys: someKeys.map(({ keyId = "", name = "", secrets = [] }) => ({
    ...{ keyId, name, hint: secrets[0]?.hint ?? "" },
  })),
  ownBudgets: budgetsOfVic,
}));
const listBudgets = answer(billing.listBudgets, () => ({
  budgets: [
    budgetOf("person_ana", Family.V1, [0.24, 0.81, 0.38, 0.07]),
    budgetOf("person_ana", Family.V2, [0.007]),
    budgetOf("person_long", Family.V1, [1.02]),
    ...budgetsOfVic,
    budgetOf("mgk_1", Family.V1, [0.6, 0.92, 0.31]),
  ],
  defaultMemberLimits: {
    ...{ dailyMicrocredits: 50n * credit, monthlyMicrocredits: 1_000n * credit },
    ...{ requestsAtOnce: 4 },
  },
}));

const outcomes = [Outcome.COMPLETED, Outcome.COMPLETED, Outcome.CLIENT_LEFT, Outcome.COMPLETED];
const charges = answer(billing.listCharges, () => ({
  charges: Array.from({ length: 10 }, (_, index) => ({
    requestId: `req_0199e1c0a1b27c3d8e4f_${index}`,
    accountId,
    keyId: `key_000${(index % 5) + 1}`,
    family: Family.V1,
    model: models[index % 3] ?? "",
    usage: { input: 1200 * (index + 1), output: 310 + index, cacheRead: 18_000 },
    chargedMicrocredits: BigInt(index * 13_337 + 4_200),
    outcome: index === 4 ? Outcome.PROVIDER_BROKE : (outcomes[index % 4] ?? Outcome.COMPLETED),
    admittedAt: ago(20 + index * 95),
    settledAt: ago(15 + index * 95),
  })),
  keys: someKeys.map(({ keyId = "", name = "", secrets = [] }) => ({
    keyId,
    name,
    hint: secrets[0]?.hint ?? "",
  })),
}));
const noCharges = answer(billing.listCharges, () => ({ charges: [] }));

const catalogue = answer(InferenceService.method.listModels, () => ({
  models: models.map((id, index) => ({
    modelId: id,
    displayName: id,
    price: { input: 1_000_000n / BigInt(index + 1), output: 5_000_000n / BigInt(index + 1) },
  })),
}));

const aKey: KeyInit = keyOf(1, {
  name: "ci",
  monthSpentMicrocredits: 1_204_900_000n,
  monthlyCapMicrocredits: 2_000n * credit,
  budget: budgetOf("", Family.V1, [0.9, 0.7, 1.2]),
  monthHeldMicrocredits: 12n * credit,
  requestsPerMinute: 600,
  secrets: [
    {
      secretId: "secret_new",
      hint: "sk-gw2-1AbCd…wXyZ",
      createdAt: ago(26 * minute),
      lastUsedAt: ago(3 * minute),
    },
    {
      secretId: "secret_old",
      hint: "sk-gw2-1Qe7p…0LmT",
      createdAt: ago(40 * day),
      expiresAt: timestampFromDate(new Date(now.getTime() + 23.5 * hour * 1000)),
      lastUsedAt: ago(2 * hour),
    },
    {
      secretId: "secret_dead",
      hint: "sk-gw2-1Zr4k…9hVa",
      createdAt: ago(90 * day),
      revokedAt: ago(41 * day),
    },
  ],
});
const longName = "the nightly jobs of the whole research department in Potsdam";
const getKey = (key: KeyInit = aKey) => answer(keysMethod.getKey, () => ({ key }));

const acts = answer(people.listAuditEvents, () => ({
  events: [
    ["RotateKey", "person:person_olga", 26 * minute],
    ["UpdateKey", "person:person_ana", 3 * day],
    ["CreateKey", "token:provisioning", 40 * day],
  ].map(([method, actor, seconds], index) => ({
    eventId: `event_${index}`,
    occurredAt: ago(Number(seconds)),
    method: String(method),
    actor: toActor(String(actor)),
    ...(index === 1 ? { reason: Reason.NOT_PERMITTED } : { succeeded: true }),
    address: "203.0.113.7",
    facts: { keyId: "key_0001" },
  })),
}));

const sessions = answer(people.listSessions, () => ({
  sessions: [
    {
      sessionId: "session_1",
      createdAt: ago(3 * hour),
      lastUsedAt: ago(20),
      address: "203.0.113.7",
      agent: "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
      current: true,
    },
    {
      sessionId: "session_2",
      createdAt: ago(5 * day),
      lastUsedAt: ago(2 * day),
      address: "2001:db8::17",
      agent:
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    },
  ],
}));

const providers = answer(people.beginSignIn, () => ({
  passkeyOptionsJson: "{}",
  providers: [{ name: "acme", title: "ACME" }],
  signUp: true,
}));
const stranger = failing(people.getSession, "missing_key");
const role = (
  role: AccountRole,
  of: { readonly state?: AccountState; readonly stateReason?: string; readonly name?: string } = {},
): Answer =>
  answer(people.getSession, () => ({
    person: { personId: "person_vic", login: "vic@acme.example", name: "Vic" },
    accounts: [{ accountId, name: "ACME Robotics", role, ...of }],
    hasPassword: true,
    sellsCredits: true,
  }));

const link = (purpose: LinkPurpose, needsPasskey = false) => [
  stranger,
  providers,
  answer(people.beginPasskey, () => ({
    passkeyOptionsJson: "{}",
    link: {
      purpose,
      accountName: "ACME Robotics",
      role: purpose === LinkPurpose.INVITATION ? AccountRole.MEMBER : AccountRole.OWNER,
      login: "kim@acme.example",
      needsPasskey,
    },
  })),
];

const forecast = (free: bigint, daysLeft?: number) => [
  answer(billing.getForecast, () => ({
    forecasts: [
      {
        family: Family.V1,
        freeMicrocredits: free,
        filledToMicrocredits: 5_000n * credit,
        ...(daysLeft !== undefined && { daysLeft }),
      },
      {
        family: Family.V2,
        freeMicrocredits: 1_200n * credit,
        filledToMicrocredits: 1_200n * credit,
      },
    ],
  })),
];

const whole = [listKeys, listMembers, listInvitations, usage, charges, catalogue, acts, sessions];
const alertsOf = (more: MessageInitShape<typeof ListAlertsResponseSchema>) =>
  answer(AlertsService.method.listAlerts, () => more);
const alertSettings: MessageInitShape<typeof AlertSettingsSchema> = {
  belowMicrocredits: 500n * credit,
  belowDays: 3,
  percents: [50, 80, 100],
  rules: [AlertKind.CREDITS_LOW, AlertKind.CAP_REACHED].map((kind) => ({
    kind,
    channels: [AlertChannel.PAGE],
  })),
  webhookUrl: "https://hooks.acme.example/gateway",
};
const listManagementKeys = answer(keysMethod.listManagementKeys, () => ({
  managementKeys: [
    {
      ...{ managementKeyId: "mgk_1", name: "deploy-bot", maxKeys: 100, liveKeys: 12 },
      scopes: [ManagementScope.READ, ManagementScope.KEYS],
      childLimits: { requestsPerMinute: 60, monthlyCapMicrocredits: 500n * credit },
      allowedAddresses: ["203.0.113.0/24", "2001:db8::/32"],
      secrets: [{ hint: "mk-gw2-k3Q9k…81Qa", lastUsedAt: ago(3 * minute) }],
    },
    {
      ...{ managementKeyId: "mgk_2", name: longName, maxKeys: 1_000, liveKeys: 0 },
      scopes: [ManagementScope.ALL_KEYS, ManagementScope.BUY],
      secrets: [{ hint: "mk-gw2-Zz01z…0aBc" }],
    },
    {
      ...{ managementKeyId: "mgk_3", name: "old platform", maxKeys: 10, liveKeys: 3 },
      scopes: [ManagementScope.KEYS],
      secrets: [{ hint: "mk-gw2-Old01…dead", lastUsedAt: ago(80 * day) }],
      revokedAt: ago(70 * day),
    },
  ],
}));
const settings = [
  ...whole,
  listBudgets,
  providers,
  listManagementKeys,
  alertsOf({ settings: alertSettings, mails: true }),
];
const alerts = alertsOf({
  alerts: [
    {
      alertId: "credits_low/acct_acme/v1-3-days/tra_1",
      title: "The credits of the pool v1 last for less than 3 days.",
      occurredAt: ago(hour),
    },
    {
      alertId: "cap_reached/acct_acme/key_0001-80-of-1000/2026-11",
      title: "The key “nightly build” has spent 80 % of the limit of 1000 credits for 2026-11.",
      occurredAt: ago(day),
    },
  ],
});

const { listAlerts, listDeliveries } = AlertsService.method;
const alertOf = (kind: AlertKind, age: number, facts: Readonly<Record<string, string>>) => ({
  ...{ kind, accountId, occurredAt: ago(age), alertId: `${kind}/${age}`, facts },
});
const everyAlert = alertsOf({
  alerts: [
    {
      ...alertOf(AlertKind.PAYMENT_CREDITED, 60, { microcredits: "1000000000", family: "v1" }),
      orderId: "ord_1",
    },
    {
      ...alertOf(AlertKind.CAP_REACHED, hour, {
        ...{ of: "key", key: longName, percent: "80", cap_microcredits: "1000000000" },
      }),
      ...{ keyId: "key_0001", dismissedAt: ago(minute) },
    },
    alertOf(AlertKind.NEW_PLACE, day, {
      ...{ login: "<b>ana</b>@acme.example", address: "2001:db8:1234:5678:9abc:def0:1234:5678" },
    }),
    alertOf(AlertKind.WEBHOOK_OFF, 2 * day, { host: `${"hooks.".repeat(12)}example` }),
  ],
});
const deliveries = answer(listDeliveries, () => ({
  deliveries: [
    {
      kind: AlertKind.PAYMENT_CREDITED,
      delivery: { state: DeliveryState.SENT, personId: "person_olga" },
    },
    {
      kind: AlertKind.KEY_MISPLACED,
      delivery: {
        ...{ state: DeliveryState.FAILED, failures: 6 },
        problem: "The address of the host is not a public one",
      },
    },
    {
      kind: AlertKind.CREDITS_LOW,
      delivery: { state: DeliveryState.WAITING, failures: 1, problem: "No answer within 5 s" },
    },
  ].map((one, index) => ({
    ...{ ...one, alertId: `alert_${index}`, createdAt: ago(index * day + 60) },
  })),
}));

export const peopleStates: readonly PageStates[] = [
  {
    name: "sign-in",
    path: "/console/sign-in",
    states: {
      loading: [stranger, pending(people.beginSignIn)],
      full: [stranger, providers],
      plain: [stranger],
    },
  },
  {
    name: "sign-up",
    path: "/console/sign-up",
    states: { full: [stranger, providers], closed: [stranger] },
  },
  {
    name: "link",
    path: "/console/welcome#token",
    states: {
      loading: [stranger, pending(people.beginPasskey)],
      failed: [stranger, failing(people.beginPasskey, "not_found")],
      owner: link(LinkPurpose.OWNER, true),
      invitation: link(LinkPurpose.INVITATION),
      "invitation of a signed-in person": link(LinkPurpose.INVITATION).slice(1),
      recovery: link(LinkPurpose.RECOVERY),
      "sign-up": link(LinkPurpose.SIGN_UP),
    },
  },
  { name: "start", path: "start", states: { full: whole } },
  {
    name: "overview",
    path: "",
    states: {
      loading: [
        pending(billing.getForecast),
        pending(billing.queryUsage),
        pending(keysMethod.listKeys),
        pending(billing.listCharges),
      ],
      empty: [answer(keysMethod.listKeys, () => ({})), noUsage, noCharges],
      unused: [listKeys, noUsage, noCharges],
      failed: [
        failing(billing.getForecast, "database_unavailable"),
        failing(billing.queryUsage, "report_too_large"),
        failing(keysMethod.listKeys, "internal"),
        failing(billing.listCharges, "internal"),
      ],
      full: whole,
      "running low": [...forecast(480n * credit, 2.2), ...whole],
      "nothing left": [...forecast(0n), ...whole],
      "own budget": [role(AccountRole.MEMBER), memberUsage, ...whole],
      suspended: [
        role(AccountRole.OWNER, {
          state: AccountState.SUSPENDED,
          stateReason: "We could not reach you about an invoice.",
        }),
        ...whole,
      ],
      viewer: [role(AccountRole.VIEWER), alerts, ...whole],
      alerts: [alerts, ...whole],
    },
  },
  {
    name: "keys",
    path: "keys?status=all",
    states: {
      loading: [pending(keysMethod.listKeys)],
      empty: [answer(keysMethod.listKeys, () => ({}))],
      failed: [failing(keysMethod.listKeys, "internal")],
      full: whole,
      many: [listManyKeys, listMembers, listInvitations],
      viewer: [role(AccountRole.VIEWER), ...whole],
    },
  },
  { name: "keys-filtered", path: "keys?q=nothing-like-it", states: { full: whole } },
  {
    name: "keys-groups",
    path: "keys?group=team",
    states: {
      loading: [pending(keysMethod.listKeys)],
      empty: [answer(keysMethod.listKeys, () => ({}))],
      full: whole,
    },
  },
  { name: "key-form", path: "keys?new=1", states: { full: whole } },
  {
    name: "key",
    path: "keys/key_0001",
    states: {
      loading: [pending(keysMethod.getKey)],
      failed: [failing(keysMethod.getKey, "internal")],
      missing: [failing(keysMethod.getKey, "not_found")],
      unused: [
        getKey(keyOf(6, { name: "", monthSpentMicrocredits: 0n, lastUsedAt: undefined })),
        listMembers,
        listInvitations,
        noUsage,
        noCharges,
        answer(people.listAuditEvents, () => ({})),
      ],
      full: [getKey(), ...whole],
      revoked: [getKey(keyOf(8, { state: KeyState.REVOKED, revokedAt: ago(day) })), ...whole],
      "long names": [getKey({ ...aKey, name: longName }), ...whole],
      viewer: [role(AccountRole.VIEWER), getKey(), ...whole],
    },
  },
  {
    name: "members",
    path: "members",
    states: {
      loading: [pending(people.listMembers)],
      failed: [failing(people.listMembers, "internal")],
      full: [memberUsage, listBudgets, ...whole],
      unused: whole,
      viewer: [role(AccountRole.VIEWER)],
    },
  },
  {
    name: "member",
    path: "members/person_ana",
    states: {
      loading: [listMembers, pending(billing.queryUsage)],
      failed: [listMembers, failing(billing.queryUsage, "report_too_large")],
      full: [memberUsage, listBudgets, ...whole],
      unused: [noUsage, ...whole],
      "another member": [role(AccountRole.MEMBER), memberUsage, listBudgets],
    },
  },
  {
    name: "member-own",
    path: "members/person_vic",
    states: { full: [role(AccountRole.MEMBER), memberUsage, listBudgets, ...whole] },
  },
  {
    name: "settings",
    path: "settings",
    states: {
      loading: [pending(people.listSessions), pending(billing.getAccount)],
      failed: [failing(people.listSessions, "internal")],
      full: settings,
      "long names": [role(AccountRole.OWNER, { name: longName }), ...settings],
      viewer: [role(AccountRole.VIEWER), ...settings],
      "no alerts": [alertsOf({ settings: {} }), ...settings],
    },
  },
  {
    name: "alerts",
    path: "alerts",
    states: {
      loading: [pending(listAlerts), pending(listDeliveries)],
      empty: [alertsOf({}), answer(listDeliveries, () => ({}))],
      failed: [
        failing(listAlerts, "database_unavailable"),
        failing(listDeliveries, "database_unavailable"),
      ],
      full: [everyAlert, deliveries],
      member: [role(AccountRole.MEMBER), everyAlert],
      viewer: [role(AccountRole.VIEWER), everyAlert],
    },
  },
  { name: "nowhere", path: "no/such/page", states: { full: [] } },
  { name: "foreign", path: "/console/acct_other/keys", states: { full: [] } },
  { name: "try-viewer", path: "try", states: { viewer: [role(AccountRole.VIEWER)] } },
];
