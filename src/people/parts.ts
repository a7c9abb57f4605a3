// What the methods of this folder share.

import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { readMailAddress } from "../base/mail-address.ts";
import type { AuthenticatedCall, Caller, Person } from "../contract/contract.ts";
import type { Guessing } from "./guessing.ts";
import type { Passkeys } from "./passkeys.ts";
import type { PasswordHasher } from "./passwords.ts";
import type { PeopleStore, PeopleTables } from "./store.ts";

export type Parts = {
  readonly store: PeopleStore;
  readonly hasher: PasswordHasher;
  readonly guessing: Guessing;
  readonly passkeys: Passkeys;
  /** Call `notify` after the commit of `insertMail`. Undefined: there is no mail server. */
  readonly outbox: { notify(): void } | undefined;
  /** The address under which people reach the console. */
  readonly publicUrl: () => URL;
  /** True: operators have to sign in with a passkey. */
  readonly passkeyOnly: () => boolean;
  /** Tells every node that a person changed. Call after the commit of `insertChange`. */
  readonly publish: (personId: string) => void;
};

/** The person who calls, on a method that only people may call. */
export function personOf({ caller }: AuthenticatedCall): Person {
  if (caller.kind !== "person") throw new ApiError("not_permitted");
  return caller;
}

/**
 * Locks a person who calls as an operator admin. Throws `not_permitted` if he is one no more, which
 * the node may not know yet: in that second he could make himself one again.
 */
export async function checkStillAdmin(tables: PeopleTables, caller: Caller): Promise<void> {
  if (caller.kind !== "person") return;
  const person = await tables.lockPerson(caller.personId);
  if (person?.operator !== OperatorRole.ADMIN || person.disabledAt)
    throw new ApiError("not_permitted");
}

/** The form in which logins are stored and compared. Throws `invalid_request`. */
export function checkLogin(field: string, text: string): string {
  const login = text.trim().normalize("NFKC").toLowerCase();
  if (!/^[^\s\p{C}]{1,200}$/u.test(login))
    throw invalidField(field, "has to have 1 to 200 characters, and no spaces");
  return login;
}

/** An address that mail can be sent to. Throws `invalid_request`. */
export function checkEmail(field: string, text: string): string {
  const address = readMailAddress(text);
  if (address === undefined) throw invalidField(field, "has to be an e-mail address");
  return address;
}

/** The name of a person or a passkey. Throws `invalid_request`. */
export function checkName(field: string, text: string): string {
  const name = text.trim();
  if (!/^\P{Cc}{0,200}$/u.test(name) || !name.isWellFormed())
    throw invalidField(field, "has to have at most 200 characters, and no control characters");
  return name;
}
