// A facade forgets what it knows of a payer when a call through it may have changed that.

import { create, type DescMethod, getOption } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { audited } from "../../gen/gateway/common/v1/options_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type Core, implement, serviceTypes } from "../../src/contract/contract.ts";
import type { PayerChange } from "../../src/http/key-load.ts";
import { watchChanges } from "../../src/server/payer-changes.ts";

const ofAccount = { accountId: "acc_1" };
/** What is in the answer of a method. */
const answers: Readonly<Record<string, Record<string, unknown>>> = {
  createTransfer: { transfer: ofAccount },
  changeKeys: { results: [{ keyId: "key_1" }] },
  moveCredits: { transfers: [ofAccount, ofAccount] },
  resumeAccount: { account: ofAccount },
  setAccountPriceList: { account: ofAccount },
  setBudget: ofAccount,
  resetBudget: ofAccount,
  updateAccount: { account: ofAccount },
};

/** After these, an error of before may hold no longer. */
const reported: Readonly<Record<string, PayerChange>> = {
  createTransfer: { kind: "transfer", accountId: "acc_1" },
  moveCredits: { kind: "transfer", accountId: "acc_1" },
  resumeAccount: { kind: "transfer", accountId: "acc_1" },
  setAccountPriceList: { kind: "transfer", accountId: "acc_1" },
  setBudget: { kind: "budget", accountId: "acc_1" },
  resetBudget: { kind: "budget", accountId: "acc_1" },
  updateAccount: { kind: "budget", accountId: "acc_1" },
  changeKeys: { kind: "key", keyId: "key_1" },
  updateKey: { kind: "key", keyId: "key_1" },
  pauseKey: { kind: "key", keyId: "key_1" },
  resumeKey: { kind: "key", keyId: "key_1" },
  rotateKey: { kind: "key", keyId: "key_1" },
  revokeKey: { kind: "key", keyId: "key_1" },
  revokeSecret: { kind: "key", keyId: "key_1" },
};

/** These end no error of a key: they make something, take something away, or change words. */
const others = [
  ...["createAccount", "closeAccount", "suspendAccount"],
  ...["createKey", "createManagementKey", "updateManagementKey", "rotateManagementKey"],
  ...["revokeManagementKey", "exportAccount", "settleHold"],
  // What is known of credits is forgotten within a second: that a list costs less is soon met.
  ...["createPriceList", "createPriceListVersion"],
];
/** Answers each call. */
const answering =
  ({ localName, output }: DescMethod) =>
  async () =>
    create(output, answers[localName] ?? { key: { keyId: "key_1" } });
const core: Core = {
  alerts: implement(AlertsService, answering),
  billing: implement(serviceTypes.billing, answering),
  inference: implement(InferenceService, answering),
  keys: implement(serviceTypes.keys, answering),
  operations: implement(serviceTypes.operations, answering),
  payments: implement(serviceTypes.payments, answering),
  people: implement(serviceTypes.people, answering),
};

test("each change of a key, its limits or its credits is reported when it is answered", async () => {
  const watched = watchChanges(core);
  let changes: PayerChange[] = [];
  watched.onPayerChange((change) => void changes.push(change));
  const found: Record<string, PayerChange[]> = {};
  for (const [service, client] of [
    [serviceTypes.billing, watched.core.billing],
    [serviceTypes.keys, watched.core.keys],
  ] as const)
    for (const method of service.methods) {
      const name = method.localName;
      changes = [];
      await Reflect.get(client, name)({});
      if (changes.length > 0 || (getOption(method, audited) && !others.includes(name)))
        found[name] = changes;
    }
  expect(found).toEqual(
    Object.fromEntries(Object.entries(reported).map(([name, one]) => [name, [one]])),
  );
});

test("a call that fails reports nothing", async () => {
  const failing = async () => Promise.reject(new Error("away"));
  const watched = watchChanges({ ...core, keys: { ...core.keys, resumeKey: failing } });
  const changes: PayerChange[] = [];
  watched.onPayerChange((change) => void changes.push(change));
  await expect(watched.core.keys.resumeKey({ keyId: "key_1" })).rejects.toThrow("away");
  expect(changes).toEqual([]);
});
