// Signing up: an address is confirmed by a link, and only then is there a person. So nobody has a
// password for the address of another, and nothing but the confirmation is mailed to it.

import { create } from "@bufbuild/protobuf";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type ConfirmEmailRequest,
  ConfirmEmailResponseSchema,
  type SignUpRequest,
  SignUpResponseSchema,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { networkOf } from "../base/client-address.ts";
import { ApiError } from "../base/errors.ts";
import { domainOf } from "../base/mail-address.ts";
import { checkOptionalName } from "../base/names.ts";
import type { SignUp } from "../config/catalog.ts";
import { clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall, Membership } from "../contract/contract.ts";
import { confirmNewEmail, mailsPerDayMax } from "./emails.ts";
import { digestOf } from "./guessing.ts";
import {
  checkFree,
  checkWayIn,
  findLink,
  mailLink,
  makeLink,
  noSuchLink,
  redeem,
} from "./links.ts";
import { checkEmail, type Parts } from "./parts.ts";
import { rolesByName } from "./store.ts";

export async function signUp(parts: Parts, { email }: SignUpRequest, call: AuthenticatedCall) {
  const { store, guessing, outbox, publicUrl } = parts;
  const address = checkEmail("email", email);
  checkSignUp(parts.signUp(), address);
  if (!outbox) throw new ApiError("sign_up_closed");
  await guessing.count("sign-up", clientOf(call).address);
  await store.transaction(async (tables) => {
    // Locks the address, so that requests at the same time are counted one by one.
    await tables.countAttempts([{ kind: "login", digest: digestOf("sign-up", address) }]);
    // The answer is the same: it tells nothing about the address.
    const { made } = await tables.run(sql.countMails, { address, kind: "sign_up" });
    if (made >= mailsPerDayMax) return;
    const { link } = await makeLink(tables, publicUrl(), {
      purpose: "sign_up",
      login: address,
      email: address,
      madeBy: "anyone",
    });
    await mailLink(tables, "sign_up", link, address, {});
  });
  outbox.notify();
  return create(SignUpResponseSchema);
}

export async function confirmEmail(
  parts: Parts,
  request: ConfirmEmailRequest,
  call: AuthenticatedCall,
) {
  const link = await findLink(parts, request.token);
  const { personId, purpose, login } = link;
  if (purpose === "email") return confirmNewEmail(parts, link, request, call);
  if (purpose !== "sign_up") throw noSuchLink();
  checkSignUp(parts.signUp(), login);
  const name = checkOptionalName("name", request.name);
  // Before an account is made for nobody.
  await checkFree(parts.store, login, "token");
  const { wayIn, forgive } = await checkWayIn(parts, request, link, call);
  const owner = { personId, name: name || login, email: login };
  const member = await findAccount(parts, parts.signUp(), owner, call);
  const grant = await redeem(parts, link, { logins: [login], name, wayIn, member }, call);
  await forgive();
  const person = await parts.store.findPerson(personId);
  return create(ConfirmEmailResponseSchema, { grant, person });
}

/** `address` undefined: none is confirmed. Throws `sign_up_closed`. */
export function checkSignUp({ mode, domains }: SignUp, address: string | undefined): void {
  if (mode === "open") return;
  if (mode === "domains" && address !== undefined && domains.includes(domainOf(address))) return;
  throw new ApiError("sign_up_closed");
}

/** Accounts that the people of a network get in a day. */
const accountsPerDayMax = 10;

/**
 * What a new person joins: the configured account, or an account of his own, which is made. Throws
 * `sign_up_closed`.
 */
export async function findAccount(
  { store, ensureAccount, log }: Parts,
  { join }: SignUp,
  { personId, name, email }: { personId: string; name: string; email: string | undefined },
  call: AuthenticatedCall,
): Promise<Membership> {
  if (!join) {
    if (email === undefined)
      throw new ApiError("sign_up_closed", {
        message:
          "Your provider has not confirmed your address: nobody gets an account without one.",
      });
    // By the id of the person, so that a repetition makes no second one.
    const accountId = personId.replace("per_", "acc_");
    const network = digestOf("sign-ups", networkOf(clientOf(call).address));
    await store.transaction(async (tables) => {
      // Locks the network, so that accounts at the same time are counted one by one.
      await tables.countAttempts([{ kind: "login", digest: network }]);
      const { made } = await tables.run(sql.countSignUps, { network });
      if (made >= accountsPerDayMax)
        throw new ApiError("sign_up_closed", {
          message: "Too many accounts were made from your network today. Try again tomorrow.",
        });
      await tables.run(sql.insertSignUp, { accountId, network });
    });
    await ensureAccount(accountId, name);
    return { accountId, role: AccountRole.OWNER };
  }
  const { accountId } = join;
  if (!(await store.run(sql.findAccount, { accountId }))) {
    log.error(
      { code: "sign_up_account_missing", accountId },
      "the account that new people join does not exist",
    );
    throw new ApiError("gateway_unavailable", {
      message: "The account that new people join does not exist. Tell the operator.",
    });
  }
  return { accountId, role: rolesByName[join.role] };
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** create the account that `sign_up` names, or correct the configuration file */
    sign_up_account_missing: true;
  }
}
