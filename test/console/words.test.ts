// Every value of an enum that the console shows has its words, and no figure of the services is
// written among them.

import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { AlertKind } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { AdminScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { LimitsStore, ProviderHealth } from "../../gen/gateway/operations/v1/operations_pb.ts";
import {
  Attention,
  DepositState,
  OrderState,
  RefundState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { words as operatorWords } from "../../src/console/web/operator/words.ts";
import { checklistWords } from "../../src/console/web/operator/words-checklist.ts";
import { actText, factName } from "../../src/console/web/parts/acts.ts";
import { words } from "../../src/console/web/words.ts";
import { alertWords } from "../../src/console/web/words-alerts.ts";
import { allServices } from "../../src/contract/contract.ts";

const { account, accounts, attention, health, people } = operatorWords;
const { receipt, credits, purchase } = words;

test.for<[string, object, object]>([
  ["ends of requests", Outcome, receipt.outcomes],
  ["counts of tokens", Basis, receipt.bases],
  ["transfers", TransferKind, credits.kinds],
  ["orders", OrderState, purchase.states],
  ["deposits", DepositState, purchase.depositStates],
  ["refunds", RefundState, purchase.refundStates],
  ["reasons to look", Attention, attention.reasons],
  ["accounts", AccountState, accounts.statuses],
  ["keys", KeyState, account.keyStatuses],
  ["scopes", AdminScope, people.scopes],
  ["limits", LimitsStore, health.limits],
  ["the health of providers", ProviderHealth, health.providerHealth],
])("all %s have words", ([, values, texts]) => {
  const names = Object.keys(values).filter((name) => Number.isNaN(Number(name)));
  expect(Object.keys(texts)).toEqual(expect.arrayContaining(names));
});

test("all kinds of alerts have words", () => {
  const kinds = Object.keys(AlertKind).filter((name) => Number.isNaN(Number(name)));
  expect(["UNSPECIFIED", ...Object.keys(alertWords.kinds)]).toEqual(kinds);
});

test("an act of the audit log is a sentence in the past", () => {
  const methods = allServices.flatMap(({ methods }) => methods);
  // A first word without a verb of ours stays as the method has it.
  const wordsOf = (name: string) =>
    name
      .split(/(?=[A-Z])/)
      .join(" ")
      .toLowerCase();
  const isBare = (name: string) => actText(name) === wordsOf(name) && !name.startsWith("Set");
  const bare = methods.map(({ name }) => name).filter(isBare);
  expect(bare).toEqual(["Generate", "CountTokens"]);
  expect(
    Object.fromEntries(
      [
        ...[
          "CreateKey",
          "CreateAdminToken",
          "RevokeIdentity",
          "CreateInvitation",
          "SetPassword",
          "SignUp",
        ],
        ...[
          "ListMembers",
          "ListPeople",
          "ListCatalogModels",
          "GetPools",
          "UpdateAccount",
          "GetStatus",
        ],
      ].map((name) => [name, actText(name)]),
    ),
  ).toEqual({
    CreateKey: "made a key",
    CreateAdminToken: "made an admin token",
    RevokeIdentity: "revoked an identity",
    CreateInvitation: "made an invitation",
    SetPassword: "set password",
    SignUp: "signed up",
    ListMembers: "looked at the list of members",
    ListPeople: "looked at the people",
    ListCatalogModels: "looked at the list of catalog models",
    GetPools: "looked at pools",
    UpdateAccount: "changed an account",
    GetStatus: "looked at status",
  });
});

test("a fact of the audit log loses its unit, not its name", () => {
  const names = ["oldMonthlyCapMicrocredits", "keyId", "family", "id", "microcredits"];
  expect(names.map(factName)).toEqual(["old monthly cap", "key", "family", "id", "microcredits"]);
});

/** Figures of the page itself: the ranges, and the overlaps of secrets, that it offers. */
const own = /overlaps: .*|"(?:7|30) days"|"the (?:7|30) days before"|"(?:The last|Spent,) 30 days"/;

/** Figures that a service decides, in the texts of a file. */
function findCopied(text: string): string[] {
  const units =
    "hours?|days?|minutes?|seconds?|characters|credits?|USD|dollars?|cents?|people|keys";
  return text
    .split("\n")
    .filter((line) => !/^\s*(\/\/|\/?\*)/.test(line))
    .map((line) => line.replace(own, ""))
    .flatMap((line) => line.match(new RegExp(`\\b\\d[\\d,.]* (?:${units})\\b`, "g")) ?? []);
}

test("the texts have no figures of the services, which come from them or from a shared file", () => {
  const web = join(import.meta.dirname, "../../src/console/web");
  const files = globSync("**/words*.ts", { cwd: web });
  expect(files.length).toBeGreaterThan(2);
  const found = files.flatMap((file) => findCopied(readFileSync(join(web, file), "utf8")));
  // "1 credit is …" names a unit, and the figure behind it is shared.
  expect(found.filter((one) => !/^1 (credit|dollar)$/.test(one))).toEqual([]);
  expect(findCopied("  lead: `It works once, for 24 hours.`,")).toEqual(["24 hours"]);
});

test("each part of the file that the checklist gives to paste is in order", () => {
  const files = Object.values(checklistWords.parts).flatMap(({ lines }) => {
    const text = lines?.("TRUSTED_PROXIES=10.0.0.1") ?? "";
    return text.startsWith("# in the configuration file") ? [text] : [];
  });
  expect(files.length).toBeGreaterThanOrEqual(3);
  for (const text of files) expect(() => readCatalogFile(text)).not.toThrow();
});
