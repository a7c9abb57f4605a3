// Ids of another account look exactly like ids that do not exist: every method, every kind of
// caller, every binding, over real services. Made from the protos, so that a new method is covered.

import { create, type DescMethod, type Message, toJson } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyState, KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { CreateOrderRequestSchema } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { createAlerts } from "../../src/alerts/alerts.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createBilling } from "../../src/billing/billing.ts";
import { publicAlerts } from "../../src/config/catalog.ts";
import {
  type Caller,
  type CallHeaders,
  environmentToken,
  localClient,
  type Person,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createPayments } from "../../src/payments/payments.ts";
import { createPeople } from "../../src/people/people.ts";
import {
  apiErrorOf,
  type Bindings,
  bindingNames,
  callAll,
  methods,
  startBindings,
} from "../support/bindings.ts";
import { callBy } from "../support/calls.ts";
import { contentKey } from "../support/content-key.ts";
import { createNodeKeys, keysClient } from "../support/keys.ts";
import { endingWith, freshLedger, holdRequest, log, price } from "../support/ledger.ts";
import { leastRequest } from "../support/samples/messages.ts";
import { emptyAnswers, scriptedServices } from "../support/scripted-services.ts";

/** What a request can name, in one account. */
type Ids = {
  account_id: string;
  key_id: string;
  secret_id: string;
  request_id: string;
  order_id: string;
  decision_id: string;
  alert_id: string;
  person_id: string;
  keys_to_person_id: string;
  session_id: string;
  passkey_id: string;
  identity_id: string;
  invitation_id: string;
};

const callers = new Map<string, Caller>();
let bindings: Bindings;
let own: Ids;
let foreign: Ids;
const invented: Ids = {
  account_id: "acc_0123456789abcdef",
  key_id: "key_0123456789abcdef",
  secret_id: "sec_0123456789abcdef",
  request_id: "req_0123456789abcdef",
  order_id: "ord_0123456789abcdef",
  decision_id: "dec_0123456789abcdef",
  alert_id: "key_created/acc_0123456789abcdef/key_0123456789abcdef/1",
  ...peopleIds("0123456789abcdef"),
};

/** What the tables of people have of one account, all with the same end. */
function peopleIds(end: string) {
  return {
    person_id: `per_${end}`,
    keys_to_person_id: `per_${end}`,
    session_id: `ses_${end}`,
    passkey_id: `pky_${end}`,
    identity_id: `idn_${end}`,
    invitation_id: `lnk_${end}`,
  };
}

const stack = new AsyncDisposableStack();
let client: ReturnType<typeof keysClient>;
beforeAll(async () => {
  const ledger = stack.adopt(await freshLedger(), (one) => one.close());
  const keys = createNodeKeys(ledger.postgres);
  client = keysClient(keys);
  const priceOf = () => price;
  const { postgres } = ledger;
  const billing = createBilling({ postgres, priceOf, log });
  await billing.start();
  stack.defer(() => billing.stop());
  const publicUrl = () => new URL("http://localhost:8080");
  const people = createPeople({ postgres, publicUrl, keys: keys.managed, log });
  const payments = createPayments({
    postgres,
    publicUrl,
    settings: undefined,
    env: {},
    log,
    billing: localClient(
      serviceTypes.billing,
      intercept(serviceTypes.billing, billing.service, { authenticate: nobody, log }),
    ),
    // The same wrong code again and again is no guess here.
    guesses: { check: async () => {}, count: async () => {} },
  });
  const alerts = createAlerts({
    postgres,
    publicUrl,
    mailer: undefined,
    config: publicAlerts,
    contentKeys: [Buffer.from(contentKey, "base64")],
    log,
    sources: {
      billing: billing.figures,
      listKeyEvents: keys.listEvents,
      listNewPlaces: people.forAlerts.listNewPlaces,
      listLogins: people.forAlerts.listLogins,
      listWaitingOrders: payments.listWaiting,
      listUnreadChains: async () => [],
      listBypasses: async () => [],
      payments: payments.forAlerts,
      listMisplaced: () => [],
      modelConditions: () => [],
      ledgerProblem: () => undefined,
    },
    listRecipients: people.forAlerts.listRecipients,
    post: async () => expect.unreachable("nobody has a webhook"),
  });
  run = ledger.run;

  /** A person of an account, with whatever belongs to a person, and an invitation of his. */
  async function addPerson(accountId: string, end: string) {
    const ids = peopleIds(end);
    const { person_id, session_id, passkey_id, identity_id, invitation_id } = ids;
    await run("insert into people (person_id, login) values ($1, $1)", [person_id]);
    await run("insert into members (account_id, person_id, role) values ($1, $2, 'owner')", [
      ...[accountId, person_id],
    ]);
    await run(
      `insert into sessions (digest, session_id, person_id, method, ends_at, strong_until, address,
         agent) values ($1, $2, $3, 'passkey', now() + interval '1 day', now(), '', '')`,
      [Buffer.from(session_id), session_id, person_id],
    );
    await run(
      `insert into passkeys (credential_id, passkey_id, person_id, public_key, counter, name)
         values ($1, $1, $2, '', 0, '')`,
      [passkey_id, person_id],
    );
    await run(
      `insert into identities (issuer, subject, identity_id, person_id)
         values ('https://issuer.example.com', $1, $1, $2)`,
      [identity_id, person_id],
    );
    await run(
      `insert into links (digest, link_id, purpose, person_id, account_id, role, made_by, ends_at)
         values ($1, $2, 'invitation', 'per_new', $3, 'viewer', $4, now() + interval '1 day')`,
      [Buffer.from(invitation_id), invitation_id, accountId, `person:${person_id}`],
    );
    return ids;
  }

  /** An order of an account, with a decision about it. */
  async function addOrder(accountId: string) {
    const { order } = await payments.service.createOrder(
      create(CreateOrderRequestSchema, {
        family: Family.V1,
        packMicrodollars: 5_000_000n,
        method: "simulated:usdt",
        idempotencyKey: "1",
      }),
      callBy(environmentToken, { accountId }),
    );
    const order_id = order?.orderId ?? "";
    const decision_id = order_id.replace("ord_", "dec_");
    await run(
      `insert into payment_decisions (decision_id, order_id, kind, facts, reason, decided_by)
         values ($1, $2, 'close', '{}', '', 'person:per_operator')`,
      [decision_id, order_id],
    );
    return { order_id, decision_id };
  }

  /** An alert of an account. */
  async function addAlert(accountId: string) {
    const alert_id = `key_created/${accountId}/key_1/1`;
    await run(
      `insert into alerts (alert_id, account_id, kind, facts, on_page)
         values ($1, $2, 'key_created', '{}', true)`,
      [alert_id, accountId],
    );
    return { alert_id };
  }

  async function open(): Promise<Ids> {
    const payer = await ledger.payer(1_000_000_000n);
    const { key } = await client.createKey({
      accountId: payer.accountId,
      settings: { name: "kept" },
    });
    const keyId = key?.keyId ?? "";
    const hold = await ledger.holds.place(holdRequest({ ...payer, keyId }, 10), stop);
    await ledger.holds.settle(hold, endingWith({ output: 1 }));
    return {
      ...(await addPerson(payer.accountId, payer.accountId.slice(4))),
      ...(await addOrder(payer.accountId)),
      ...(await addAlert(payer.accountId)),
      account_id: payer.accountId,
      key_id: keyId,
      secret_id: key?.secrets[0]?.secretId ?? "",
      request_id: hold.requestId,
    };
  }
  own = await open();
  foreign = await open();

  const { key } = await client.getKey(own.key_id);
  const secret = key?.secrets[0];
  if (!key || !secret) return expect.unreachable("the key has a secret");
  const person = (role: AccountRole): Person => ({
    kind: "person",
    personId: own.person_id,
    sessionId: own.session_id,
    memberships: [{ accountId: own.account_id, role }],
    operator: OperatorRole.UNSPECIFIED,
    strongUntil: new Date("2100-01-01T00:00:00Z"),
  });
  callers.set("key", { kind: "key", key, secret });
  callers.set("account reader", { kind: "key", key: { ...key, accountReader: true }, secret });
  callers.set("viewer", person(AccountRole.VIEWER));
  callers.set("member", person(AccountRole.MEMBER));
  callers.set("owner", person(AccountRole.OWNER));
  const authenticate = async (headers: CallHeaders) => {
    const caller = callers.get(headers.get("authorization") ?? "");
    if (!caller) throw new ApiError("invalid_key");
    return caller;
  };
  const parts = { authenticate, log };
  const services = {
    ...scriptedServices(emptyAnswers()),
    billing: intercept(serviceTypes.billing, billing.service, parts),
    keys: intercept(serviceTypes.keys, keys.service, parts),
    people: intercept(serviceTypes.people, people.service, parts),
    payments: intercept(serviceTypes.payments, payments.service, parts),
    alerts: intercept(AlertsService, alerts.service, parts),
  };
  bindings = stack.adopt(await startBindings(services, authenticate), (one) => one.close());
});
afterAll(() => stack.disposeAsync());
const stop = new AbortController().signal;
const nobody = async (): Promise<Caller> => ({ kind: "anyone" });
let run: <Row>(text: string, values?: unknown[]) => Promise<Row[]>;

/** The least request with these ids, also inside its messages. Undefined: it names none. */
function requestWith(desc: DescMethod, ids: Ids): Message | undefined {
  const request = leastRequest(desc.input);
  // The least mask names nothing, and would be refused before the key is looked at.
  if (desc === KeysService.method.updateKey)
    Reflect.set(request, "updateMask", create(FieldMaskSchema, { paths: ["name"] }));
  return setIds(reflect(desc.input, request, false), ids) ? request : undefined;
}

function setIds(message: ReturnType<typeof reflect>, ids: Ids): boolean {
  let isNamed = false;
  for (const field of message.fields) {
    const id = Object.entries(ids).find(([name]) => name === field.name)?.[1];
    if (id !== undefined) message.set(field, id);
    const isInside =
      field.fieldKind === "message" && message.isSet(field) && setIds(message.get(field), ids);
    isNamed ||= id !== undefined || isInside;
  }
  return isNamed;
}

type Outcome = { readonly answer: unknown } | { readonly error: unknown };

async function outcomeOf(
  binding: (typeof bindingNames)[number],
  desc: DescMethod,
  caller: string,
  ids: Ids,
): Promise<Outcome> {
  const request = requestWith(desc, ids);
  const found = methods.find((one) => one === desc);
  if (!request || !found) return expect.unreachable();
  try {
    const answers = await callAll(bindings[binding], found, request, {
      headers: { authorization: caller },
    });
    return { answer: answers.map((one) => toJson(desc.output, one)) };
  } catch (error) {
    const { reason, message, facts } = apiErrorOf(error);
    return { error: { reason, message, facts } };
  }
}

const kinds = ["key", "account reader", "viewer", "member", "owner"];
// The other streams begin with an account.
const naming = methods.filter(
  (desc) =>
    (desc.methodKind === "unary" || desc.name === "WatchOrder") &&
    requestWith(desc, invented) !== undefined,
);
let answered = 0;

for (const binding of bindingNames) {
  for (const desc of naming) {
    test(`${desc.name} over ${binding} tells nothing of other accounts`, async () => {
      for (const caller of kinds) {
        // Everything of the other account; and its ids within the caller's own account.
        for (const within of [{}, { account_id: own.account_id }]) {
          const name = `${caller} ${JSON.stringify(within)}`;
          const seen = await outcomeOf(binding, desc, caller, { ...foreign, ...within });
          const absent = await outcomeOf(binding, desc, caller, { ...invented, ...within });
          // A list or a new key of the caller's own account answers in both cases.
          if ("answer" in seen && "answer" in absent) {
            for (const id of Object.values(foreign))
              expect(JSON.stringify(seen), name).not.toContain(id);
          } else expect(seen, name).toEqual(absent);
        }
      }
    });
  }
}

test("the same requests with the caller's own ids are answered", async () => {
  const readable = [
    "GetOrder",
    "ListOrders",
    "GetAccount",
    "GetPools",
    "GetReceipt",
    "ListCharges",
    "QueryUsage",
    "QueryRefusals",
    "GetForecast",
    "GetKey",
    "ListAlerts",
  ];
  for (const desc of naming.filter(({ name }) => readable.includes(name))) {
    expect(await outcomeOf("local", desc, "viewer", own), desc.name).toHaveProperty("answer");
    answered++;
  }
  expect(answered).toBe(readable.length);
  for (const desc of naming.filter(({ name }) => ["ListMembers", "ListAuditEvents"].includes(name)))
    expect(await outcomeOf("local", desc, "owner", own), desc.name).toHaveProperty("answer");
});

test("nothing of the other account has changed", async () => {
  const { key } = await client.getKey(foreign.key_id);
  expect([key?.state, key?.name]).toEqual([KeyState.ACTIVE, "kept"]);
  expect(key?.secrets).toHaveLength(1);
  expect(key?.secrets[0]?.revokedAt).toBeUndefined();
  const { person_id, session_id, invitation_id, order_id, alert_id } = foreign;
  const [left] = await run(
    `select
       (select count(*)::integer from members where person_id = $1 and role = 'owner') as members,
       (select count(*)::integer from passkeys where person_id = $1) as passkeys,
       (select count(*)::integer from identities where person_id = $1) as identities,
       (select count(*)::integer from sessions where session_id = $2 and ended_at is null)
         as sessions,
       (select count(*)::integer from links where link_id = $3 and used_at is null) as links,
       (select login from people where person_id = $1) as login,
       (select state from payment_orders where order_id = $4) as "order",
       (select dismissed_at from alerts where alert_id = $5) as dismissed`,
    [person_id, session_id, invitation_id, order_id, alert_id],
  );
  expect(left).toEqual({
    members: 1,
    passkeys: 1,
    identities: 1,
    sessions: 1,
    links: 1,
    login: person_id,
    order: "open",
    dismissed: null,
  });
});
