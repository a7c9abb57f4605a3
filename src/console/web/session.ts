// Who is here, and which account is on screen.

import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { computed, signal } from "@preact/signals";
import { AccountState } from "../../../gen/gateway/billing/v1/account_pb.ts";
import { AccountRole, OperatorRole } from "../../../gen/gateway/common/v1/roles_pb.ts";
import {
  type GetSessionResponse,
  ProfileService,
} from "../../../gen/gateway/people/v1/profile_pb.ts";
import { UsageService } from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { type CallSettings, call, forgetAll, keepAnswer } from "./api.ts";
import { segments } from "./router.ts";

/** The session of this browser. Undefined: nobody is signed in, or it is not known yet. */
export const currentSession = signal<GetSessionResponse | undefined>(undefined);

/** The session, on pages that only signed-in people see. Throws elsewhere. */
export const session = computed((): GetSessionResponse => {
  const known = currentSession.value;
  if (!known) throw new Error("nobody is signed in");
  return known;
});

/**
 * Asks who is here, and what every page about the account on screen shows. Throws a CallError:
 * INVALID_SESSION or MISSING_KEY if nobody is.
 */
export async function loadSession(
  settings: CallSettings = { asks: false },
): Promise<GetSessionResponse> {
  const [first = ""] = segments();
  const shownAccountId = withoutAccount.includes(first)
    ? (localStorage.getItem(lastAccount) ?? "")
    : first;
  const answer = await call(ProfileService.method.getSession, { shownAccountId }, settings);
  const before = currentSession.value;
  // Somebody else signed in: nothing that was shown to the other one may stay.
  if (before && before.person?.personId !== answer.person?.personId) forgetAll();
  const { accountId = "", forecasts = [] } = answer.shownAccount ?? {};
  const isOther = before?.shownAccount?.accountId !== accountId;
  // Later, they are read together with the other figures on screen.
  if (forecasts.length > 0 && isOther)
    keepAnswer(UsageService.method.getForecast, { accountId }, { forecasts });
  currentSession.value = answer;
  return answer;
}

/** What an address begins with that names no account. */
const withoutAccount: readonly string[] = ["", "welcome", "sign-in", "sign-up"];

/** Asks again who is here, after something about them changed. What fails then is asked again. */
export function refreshSession(): void {
  loadSession({ isByItself: true }).catch(() => undefined);
}

export type AccountOnScreen = {
  readonly accountId: string;
  readonly name: string;
  readonly role: AccountRole;
  /** Undefined: an operator looks at an account of others. */
  readonly createdAt?: Timestamp | undefined;
};

/** When the account on screen was made, if that is known. */
export function bornAt(): Date | undefined {
  const { createdAt } = account.value;
  return createdAt && timestampDate(createdAt);
}

/** The account of the address. Of an account in which the person has no part: its id alone. */
export const account = computed((): AccountOnScreen => {
  const accountId = segments()[0] ?? "";
  const own = currentSession.value?.accounts.find((one) => one.accountId === accountId);
  return own ?? { accountId, name: accountId, role: AccountRole.UNSPECIFIED };
});

/** True: the person may see the account on screen. */
export const isAccountKnown = computed(
  () => account.value.role !== AccountRole.UNSPECIFIED || isOperator(),
);

const roles = {
  viewer: AccountRole.VIEWER,
  member: AccountRole.MEMBER,
  owner: AccountRole.OWNER,
} as const;

/** True: the person may change what operators change. Others of them only look. */
export function isOperatorAdmin(): boolean {
  return currentSession.value?.operatorRole === OperatorRole.ADMIN;
}

/** Whether the person has at least this role in the account on screen. Operator admins have all. */
export function can(role: keyof typeof roles): boolean {
  const { operatorRole: operator = OperatorRole.UNSPECIFIED } = currentSession.value ?? {};
  if (operator === OperatorRole.ADMIN) return true;
  if (operator === OperatorRole.SUPPORT && role === "viewer") return true;
  return account.value.role >= roles[role];
}

/** True: the person may spend what the account has. Operators look at accounts of others. */
export function isMember(): boolean {
  return account.value.role >= AccountRole.MEMBER;
}

/** True: the person sees every account, and the pages of operators. */
export function isOperator(): boolean {
  return (
    (currentSession.value?.operatorRole ?? OperatorRole.UNSPECIFIED) !== OperatorRole.UNSPECIFIED
  );
}

/** The first part of the addresses of operators, in the place of an account. */
export const operatorPart = "operator";

const lastAccount = "gateway-last-account";

/** The account that the person looked at last, or the first one. Undefined: there is none. */
export function preferredAccount(): string | undefined {
  const accounts = currentSession.value?.accounts ?? [];
  const kept = localStorage.getItem(lastAccount);
  return (accounts.find(({ accountId }) => accountId === kept) ?? accounts[0])?.accountId;
}

export function rememberAccount(accountId: string): void {
  if (localStorage.getItem(lastAccount) !== accountId) localStorage.setItem(lastAccount, accountId);
}

/** Credits are sold here, and this person may buy some. */
export function canBuy(): boolean {
  return session.value.sellsCredits && mayBuy();
}

/** Operators look, and book credits in their own way. Who is suspended cannot spend any. */
export function mayBuy(): boolean {
  const { accountId } = account.value;
  const own = session.value.accounts.find((one) => one.accountId === accountId);
  return isMember() && own?.state !== AccountState.SUSPENDED && own?.state !== AccountState.CLOSED;
}
