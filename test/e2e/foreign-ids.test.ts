// Ids of another account look exactly like ids that do not exist: every method, every kind of
// caller, every binding, over real services. Made from the protos, so that a new method is covered.

import { create, type DescMethod, type Message, toJson } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyStatus, KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createBilling } from "../../src/billing/billing.ts";
import type { Caller, CallHeaders, Person } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import {
  apiErrorOf,
  type Bindings,
  bindingNames,
  callAll,
  methods,
  startBindings,
} from "../support/bindings.ts";
import { createNodeKeys, keysClient } from "../support/keys.ts";
import { endingWith, freshLedger, holdRequest, log, price } from "../support/ledger.ts";
import { leastRequest } from "../support/samples/messages.ts";
import { emptyAnswers, scriptedServices } from "../support/scripted-services.ts";

/** What a request can name, in one account. */
type Ids = { account_id: string; key_id: string; secret_id: string; request_id: string };

const callers = new Map<string, Caller>();
let bindings: Bindings;
let own: Ids;
let foreign: Ids;
const invented: Ids = {
  account_id: "acc_0123456789abcdef",
  key_id: "key_0123456789abcdef",
  secret_id: "sec_0123456789abcdef",
  request_id: "req_0123456789abcdef",
};

const stack = new AsyncDisposableStack();
let client: ReturnType<typeof keysClient>;
beforeAll(async () => {
  const ledger = stack.adopt(await freshLedger(), (one) => one.close());
  const keys = createNodeKeys(ledger.postgres);
  client = keysClient(keys);
  const priceOf = () => price;
  const billing = createBilling({ postgres: ledger.postgres, priceOf, log, onLost: () => {} });
  await billing.start();
  stack.defer(() => billing.stop());

  async function open(): Promise<Ids> {
    const payer = await ledger.payer(1_000_000_000n);
    const { key } = await client.createKey({ accountId: payer.accountId, name: "kept" });
    const keyId = key?.keyId ?? "";
    const hold = await ledger.holds.place(holdRequest({ ...payer, keyId }, 10), stop);
    await ledger.holds.settle(hold, endingWith({ output: 1 }));
    return {
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
    ...{ kind: "person", personId: "per_1", sessionId: "ses_1" },
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
    billing: intercept(BillingService, billing.service, parts),
    keys: intercept(KeysService, keys.service, parts),
  };
  bindings = stack.adopt(await startBindings(services, authenticate), (one) => one.close());
});
afterAll(() => stack.disposeAsync());
const stop = new AbortController().signal;

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
const naming = methods.filter(
  (desc) => desc.methodKind === "unary" && requestWith(desc, invented) !== undefined,
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
            expect(JSON.stringify(seen), name).not.toContain(foreign.account_id);
            expect(JSON.stringify(seen), name).not.toContain(foreign.key_id);
            expect(JSON.stringify(seen), name).not.toContain(foreign.request_id);
          } else expect(seen, name).toEqual(absent);
        }
      }
    });
  }
}

test("the same requests with the caller's own ids are answered", async () => {
  const readable = [
    "GetAccount",
    "GetPools",
    "GetReceipt",
    "ListCharges",
    "QueryUsage",
    "QueryErrors",
    "GetForecast",
    "GetKey",
  ];
  for (const desc of naming.filter(({ name }) => readable.includes(name))) {
    expect(await outcomeOf("local", desc, "viewer", own), desc.name).toHaveProperty("answer");
    answered++;
  }
  expect(answered).toBe(readable.length);
});

test("nothing of the other account has changed", async () => {
  const { key } = await client.getKey(foreign.key_id);
  expect([key?.status, key?.name]).toEqual([KeyStatus.ACTIVE, "kept"]);
  expect(key?.secrets).toHaveLength(1);
  expect(key?.secrets[0]?.revokedAt).toBeUndefined();
});
