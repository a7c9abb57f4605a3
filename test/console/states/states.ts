// Every page of the console in each of its states. The tests walk over this list.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { AccountsService } from "../../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AlertsService } from "../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountState } from "../../../gen/gateway/billing/v1/account_pb.ts";
import { BillingService } from "../../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../../gen/gateway/common/v1/roles_pb.ts";
import { InferenceService } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { KeyResult_Outcome, KeyState, KeysService } from "../../../gen/gateway/keys/v1/keys_pb.ts";
import { ManagementKeysService } from "../../../gen/gateway/keys/v1/management_keys_pb.ts";
import {
  OperationsService,
  SearchHitKind,
} from "../../../gen/gateway/operations/v1/operations_pb.ts";
import { MembersService } from "../../../gen/gateway/people/v1/members_pb.ts";
import { ProfileService } from "../../../gen/gateway/people/v1/profile_pb.ts";
import { SignInService } from "../../../gen/gateway/people/v1/sign_in_pb.ts";
import { ViewsService } from "../../../gen/gateway/people/v1/views_pb.ts";
import { UsageService } from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { type Answer, accountId, answer, type PageStates } from "./answers.ts";
import { figureStates } from "./figure-states.ts";
import { operatorStates } from "./operator-states.ts";
import { peopleStates } from "./people-states.ts";

const at = (text: string) => timestampFromDate(new Date(text));

const longModel = "a-provider/a-model-with-a-name-of-exactly-sixty-characters-1";

/** As long as a secret is. */
const secret = `sk-gw2-1${"AbCdEfGhJkMnPqRsTuVwXyZ2345678W0K9xQmM7yBdF"}`;
const managementSecret = `mk-gw2-${"k3Q9".repeat(11)}Zx81Qa`.slice(0, 56);

/** What a state answers unless it says otherwise. */
export const commonAnswers: readonly Answer[] = [
  answer(ProfileService.method.getSession, () => ({
    person: {
      personId: "person_olga",
      login: "olga@acme.example",
      name: "Olga Marín",
      createdAt: at("2026-03-02T08:00:00Z"),
      email: "olga@acme.example",
    },
    accounts: [
      { accountId, name: "ACME Robotics", role: AccountRole.OWNER },
      { accountId: "acct_side", name: "Side project", role: AccountRole.MEMBER },
    ],
    sessionId: "session_1",
    address: "203.0.113.7",
    strongUntil: at("2026-11-22T14:10:00Z"),
    passkeys: [
      {
        passkeyId: "passkey_1",
        name: "MacBook of Olga",
        createdAt: at("2026-03-02T08:00:00Z"),
        lastUsedAt: at("2026-11-22T13:58:00Z"),
      },
    ],
    hasPassword: true,
    sellsCredits: true,
    grpcAddress: "localhost:50051",
    providers: [{ name: "acme", title: "ACME" }],
  })),
  answer(ViewsService.method.listViews, () => ({ views: [] })),
  answer(UsageService.method.queryRefusals, () => ({ rows: [], total: 0n })),
  answer(AccountsService.method.getAccount, () => ({
    account: {
      accountId,
      name: "ACME Robotics",
      createdAt: at("2026-03-02T08:00:00Z"),
      state: AccountState.ACTIVE,
    },
  })),
  answer(BillingService.method.getPools, () => ({
    pools: [
      {
        family: Family.V1,
        postedMicrocredits: 6_460_080_000n,
        heldMicrocredits: 48_000_000n,
        freeMicrocredits: 6_412_080_000n,
      },
      {
        family: Family.V2,
        postedMicrocredits: 1_200_000_000n,
        heldMicrocredits: 0n,
        freeMicrocredits: 1_200_000_000n,
      },
    ],
  })),
  answer(UsageService.method.getForecast, () => ({
    forecasts: [
      {
        family: Family.V1,
        freeMicrocredits: 6_412_080_000n,
        heldMicrocredits: 48_000_000n,
        dailyMicrocredits: 561_000_000n,
        daysLeft: 11.4,
        filledToMicrocredits: 20_000_000_000n,
      },
      { family: Family.V2, freeMicrocredits: 1_200_000_000n, filledToMicrocredits: 1_200_000_000n },
    ],
  })),
  answer(AlertsService.method.listAlerts, () => ({ settings: {} })),
  answer(AlertsService.method.listDeliveries, () => ({})),
  // Nobody is told anything while somebody looks.
  answer(AlertsService.method.watchAlerts, () => [{ newest: {} }]),
  answer(UsageService.method.listRunningRequests, () => ({
    requests: ["model-opus-4.6", longModel].map((model, index) => ({
      requestId: `req_0199e1c0a1b27c3d8e4f000${index}`,
      ...{ accountId, family: Family.V1, keyId: `key_${index}`, model },
      holdMicrocredits: 20_750_000n,
      admittedAt: at(`2026-11-22T14:0${index + 1}:10Z`),
    })),
    keys: [
      { keyId: "key_0", name: "ci", hint: "sk-gw2-1k000…wyy0" },
      { keyId: "key_1", name: "", hint: "sk-gw2-1k001…wyy1" },
    ],
  })),
  // What the palette finds.
  answer(OperationsService.method.search, () => ({
    hits: [
      { kind: SearchHitKind.KEY, id: "key_0", title: "ci", hint: "sk-gw2-1k000…wyy0" },
      {
        ...{ kind: SearchHitKind.KEY, id: "key_1", hint: "sk-gw2-1k001…wyy1" },
        title: "the nightly jobs of the whole research department in Potsdam",
      },
      { kind: SearchHitKind.REQUEST, id: "req_0199e1c0a1b27c3d8e4f0000", title: longModel },
      { kind: SearchHitKind.PERSON, id: "per_1", title: "مریم" },
    ].map((hit) => ({ ...hit, accountId, accountName: "ACME Robotics" })),
    incomplete: true,
  })),
  answer(InferenceService.method.endRequest, () => ({})),
  answer(ManagementKeysService.method.listManagementKeys, () => ({})),
  // Nothing is settled while somebody looks.
  answer(UsageService.method.watchCharges, () => [{}]),
  answer(SignInService.method.beginSignIn, () => ({ passkeyOptionsJson: "{}" })),
  // What dialogs send.
  answer(KeysService.method.createKey, ({ settings }) => ({
    key: { keyId: "key_new", ...(settings && { name: settings.name }) },
    secret,
  })),
  answer(KeysService.method.rotateKey, () => ({ secret })),
  answer(ManagementKeysService.method.createManagementKey, () => ({ secret: managementSecret })),
  answer(KeysService.method.pauseKey, () => ({})),
  answer(KeysService.method.resumeKey, () => ({})),
  // One of each outcome in turn.
  answer(KeysService.method.changeKeys, ({ keys }) => ({
    results: keys.map(({ keyId }, index) => ({
      keyId,
      outcome: outcomes[index % outcomes.length] ?? KeyResult_Outcome.GONE,
      revision: 7,
      key: { keyId, name: `${longModel} ${index}`, state: KeyState.PAUSED },
      message: "An owner has paused this key. Ask an owner of the account to resume it.",
    })),
  })),
  answer(MembersService.method.createInvitation, () => ({
    link: `https://gateway.acme.example/console/welcome#${secret.slice(-40)}`,
  })),
];

const outcomes = [
  KeyResult_Outcome.CHANGED,
  KeyResult_Outcome.ALREADY,
  KeyResult_Outcome.CONFLICT,
  KeyResult_Outcome.NOT_ALLOWED,
  KeyResult_Outcome.GONE,
];

export const allPages: readonly PageStates[] = [
  ...peopleStates,
  ...figureStates,
  ...operatorStates,
];
