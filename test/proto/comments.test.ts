// Comments in the protos: they are the reference of the API.

import { expect, test } from "vitest";
import { comments } from "../../gen/comments.ts";
import { ourEnums, ourFields, ourMessages, ourMethods, shortName } from "../support/protos.ts";

const methodOf = new Set(ourMethods.flatMap(({ input, output }) => [input, output]));

/** How many have no comment yet. It may only shrink. */
const bare = { messages: 61, fields: 568, enums: 16, values: 41 };

test("messages, fields and enums have comments, but for those of methods, which say it", () => {
  const found = {
    messages: ourMessages.filter((one) => !methodOf.has(one) && !comments[one.typeName]).length,
    fields: ourFields.filter(({ parent, name }) => !comments[`${parent.typeName}.${name}`]).length,
    enums: ourEnums.filter(({ typeName }) => !comments[typeName]).length,
    values: ourEnums.flatMap(({ typeName, values }) =>
      values.filter(({ name, number }) => number !== 0 && !comments[`${typeName}.${name}`]),
    ).length,
  };
  expect(found).toEqual(bare);
});

/** Methods that name no error. */
const withoutErrors: readonly string[] = [
  ...["BeginSignIn", "CountTokens", "CreateAccount", "ExportDocuments", "Generate", "GetSession"],
  ...["GetStatus", "GetLastVerification", "ListAccounts", "ListAdminTokens", "ListApprovals"],
  ...["ListAttention", "ListAuditEvents", "ListCatalogModels", "ListManagementKeys", "ListModels"],
  ...["ListPaymentMethods", "ListPeople", "ListPriceLists", "ListPromotions", "ListProviders"],
  ...["ListRunningRequests", "ListSessions", "ListSweeps", "ListTransfers", "ResendNotice"],
  ...["SignOut", "VerifyLedger"],
];

test("a method says which errors it has of its own", () => {
  const found = ourMethods.filter(
    ({ parent, name }) => !/Errors?:/.test(comments[`${parent.typeName}.${name}`] ?? ""),
  );
  expect(found.map(({ name }) => name).sort()).toEqual(withoutErrors.toSorted());
});

/** Names of two types. */
const shared = ["Receipt"];

test("no type has the name of another one", () => {
  const names = [...ourMessages, ...ourEnums].map(shortName);
  const twice = names.filter((name, index) => names.indexOf(name) !== index);
  expect(twice.sort()).toEqual(shared);
});
