// What the methods of this folder share.

import type { Forecast } from "../../gen/gateway/common/v1/forecast_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { readMailAddress } from "../base/mail-address.ts";
import type { SignUp } from "../config/catalog.ts";
import type { ApprovalLimit } from "../contract/approvals.ts";
import type { AuthenticatedCall, Caller, Person } from "../contract/contract.ts";
import type { Runner } from "../postgres/statement.ts";
import type { Challenges } from "./challenges.ts";
import type { Flows } from "./flows.ts";
import type { Guessing } from "./guessing.ts";
import type { OidcProvider } from "./oidc.ts";
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
  /** True: operators have to sign in with a passkey, or at a provider of OIDC. */
  readonly passkeyOnly: () => boolean;
  readonly challenges: Challenges;
  readonly flows: Flows;
  /** By name. */
  readonly oidc: () => ReadonlyMap<string, OidcProvider>;
  /** Who signs up with a password or a passkey. */
  readonly signUp: () => SignUp;
  /** Creates an account with this id, unless it exists. */
  readonly ensureAccount: (accountId: string, name: string) => Promise<void>;
  /** True: there is a way to pay for credits. */
  readonly sellsCredits: () => boolean;
  /** As `GetSessionResponse.grpc_address`. */
  readonly grpcAddress: () => string;
  readonly forecastsOf: (accountId: string) => Promise<readonly Forecast[]>;
  readonly log: Log;
  /** Tells every node that a person or token changed. Call after the commit of `insertChange`. */
  readonly publish: (subjectId: string) => void;
  readonly keys: ManagedKeys;
  readonly approvalLimit: ApprovalLimit;
  /** True if the environment gives an admin token. */
  readonly hasAdminToken: boolean;
};

/** The keys of a person who leaves an account or is shut out: another service has them. */
export type ManagedKeys = {
  /**
   * Those that are not revoked, of all accounts, and the management keys that he can still use,
   * because he has seen a secret.
   */
  list(tx: Runner, personId: string): Promise<readonly ManagedKey[]>;
  /** Gives all of an account to another person there. `to` undefined: to its owners alone. */
  handOver(tx: Runner, manager: Membership, to: string | undefined): Promise<void>;
  /** Announces that those of an account changed, because their manager did. */
  announce(tx: Runner, manager: Membership): Promise<void>;
  /** Pauses those of an account. Returns the ids for `publish`. */
  pause(tx: Runner, manager: Membership): Promise<readonly string[]>;
  /** Revokes them for good in the same way. */
  revoke(tx: Runner, manager: Membership): Promise<readonly string[]>;
  /**
   * Ends the secrets of management keys of an account that he has seen: they have the rights of an
   * owner. Returns the ids of these management keys for `publish`.
   */
  endSecrets(tx: Runner, manager: Membership): Promise<readonly string[]>;
  /** Call after the commit. */
  publish(keyIds: readonly string[]): void;
};

export type ManagedKey = {
  readonly keyId: string;
  readonly accountId: string;
  readonly name: string;
  /** Of its newest secret. */
  readonly hint: string;
  readonly paused: boolean;
};

/** A person in an account. */
type Membership = { readonly accountId: string; readonly personId: string };

/** The person who calls, on a method that only people may call. */
export function personOf({ caller }: AuthenticatedCall): Person {
  if (caller.kind !== "person") throw new ApiError("not_permitted");
  return caller;
}

/**
 * Locks a person who calls as an operator admin, or an admin token. Throws `not_permitted` if he is
 * one no more, or it is revoked, which the node may not know yet: in that second he could make
 * himself one again.
 */
export async function checkStillAdmin(tables: PeopleTables, caller: Caller): Promise<void> {
  if (caller.kind === "admin" && caller.tokenId !== undefined) {
    const token = await tables.run(sql.lockAdminToken, { tokenId: caller.tokenId });
    if (!token) throw new ApiError("not_permitted");
  }
  if (caller.kind !== "person") return;
  const person = await tables.lockPerson(caller.personId);
  if (person?.operatorRole !== OperatorRole.ADMIN || person.disabledAt)
    throw new ApiError("not_permitted");
}

/** The form in which logins are stored and compared. Throws `invalid_request`. */
export function checkLogin(field: string, text: string): string {
  const login = text.trim().normalize("NFKC").toLowerCase();
  if (!/^[^\s\p{C}]{1,200}$/u.test(login))
    throw invalidField(field, "has to have 1 to 200 characters, and no spaces");
  return login;
}

/**
 * Throws `last_one` if the person, who is locked, could not sign in any more. An identity at a
 * provider that is not configured is no way in.
 */
export async function keepWayIn({ oidc }: Parts, tables: Runner, personId: string): Promise<void> {
  const issuers = [...oidc().values()].map(({ settings }) => settings.issuer.href);
  if ((await tables.run(sql.countWaysIn, { personId, issuers })).ways > 0) return;
  throw new ApiError("last_one", {
    message: "This is your last way to sign in. Add another one first.",
  });
}

/** An address that mail can be sent to. Throws `invalid_request`. */
export function checkEmail(field: string, text: string): string {
  const address = readMailAddress(text);
  if (address === undefined) throw invalidField(field, "has to be an e-mail address");
  return address;
}
