// What the owners of an account set: its name, whom its documents name, the limits of its members.

import { create } from "@bufbuild/protobuf";
import {
  AccountSettingsSchema,
  AccountsService,
  type CreateAccountRequest,
  type UpdateAccountRequest,
  UpdateAccountResponseSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import type { BillingDetails } from "../../gen/gateway/billing/v1/account_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName, checkOptionalName, checkText } from "../base/names.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import { readMask } from "../contract/update-mask.ts";
import { lockOpenAccount } from "./accounts.ts";
import {
  type BudgetParts,
  limitFacts,
  limitMembers,
  readDefaultLimits,
  setDefaultLimits,
} from "./budgets.ts";
import { toAccount } from "./rows.ts";

const rule = {
  type: AccountSettingsSchema,
  changeable: ["name", "billing_details", "default_member_limits"],
  values: "settings.",
};

/** Makes an account with its first settings. Returns its id. */
export async function createAccount(
  { transaction }: Pick<BudgetParts, "transaction">,
  request: CreateAccountRequest,
  call: AuthenticatedCall,
): Promise<string> {
  const { settings } = request;
  const name = checkName("settings.name", settings?.name ?? "");
  const details = settings?.billingDetails && checkDetails(settings.billingDetails);
  const limits = readDefaultLimits(settings?.defaultMemberLimits).stored;
  const once = onceFor(AccountsService.method.createAccount, request, call);
  const accountId = timeOrderedId("acc_");
  const made = await transaction((tx) =>
    once(tx, { id: accountId, secret: "" }, async () => {
      await tx.run(sql.insertAccount, { accountId, name });
      if (details) await tx.run(sql.setBillingDetails, { accountId, ...details });
      if (limits !== null) await tx.run(sql.setDefaultLimits, { accountId, limits });
    }),
  );
  return made.id;
}

/** Changes the settings of the mask in one transaction; after it, its members get their limits. */
export async function updateAccount(
  parts: BudgetParts,
  { settings, updateMask }: UpdateAccountRequest,
  call: AuthenticatedCall,
) {
  const { accountId, note } = call;
  const paths = readMask(rule, settings, updateMask);
  const name = paths.includes("name")
    ? checkName("settings.name", settings?.name ?? "")
    : undefined;
  const details = paths.includes("billing_details")
    ? checkDetails(settings?.billingDetails)
    : undefined;
  const limits = paths.includes("default_member_limits")
    ? readDefaultLimits(settings?.defaultMemberLimits)
    : undefined;
  const { account, personIds } = await parts.transaction(async (tx) => {
    const { account: before } = await lockOpenAccount(tx, accountId);
    const limited = limits ? await setDefaultLimits(tx, parts, call, limits) : [];
    let row = before;
    if (name !== undefined) row = await tx.run(sql.renameAccount, { accountId, name });
    if (details) row = await tx.run(sql.setBillingDetails, { accountId, ...details });
    return { account: row, personIds: limited };
  });
  if (limits) await limitMembers(parts, accountId, personIds);
  note?.({ settings: paths.join(" "), ...(limits && limitFacts(limits.limits)) });
  return create(UpdateAccountResponseSchema, { account: toAccount(account) });
}

function checkDetails(details: BillingDetails | undefined) {
  return {
    name: checkOptionalName("settings.billing_details.name", details?.name ?? ""),
    address: checkText("settings.billing_details.address", details?.address ?? ""),
    taxId: checkText("settings.billing_details.tax_id", details?.taxId ?? ""),
  };
}
