// What operators and owners have withdrawn, by the audit lines of logs: keys, secrets and admin
// tokens that were revoked, accounts that are suspended, people who are disabled. A restored ledger
// has them as they were before.

import { create, type DescMethod, getOption } from "@bufbuild/protobuf";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { AccountsService } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { KeyState, KeysService, type Secret } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { AdminTokensService } from "../../gen/gateway/people/v1/admin_tokens_pb.ts";
import { PeopleService, PersonSettingsSchema } from "../../gen/gateway/people/v1/people_pb.ts";
import { toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { budgetsOfKeys, createBilling } from "../billing/billing.ts";
import { closedPeople } from "../config/catalog.ts";
import { createKeys } from "../keys/keys.ts";
import { createPeople } from "../people/people.ts";
import type { Postgres } from "../postgres/postgres.ts";

const kinds = {
  RevokeKey: { subject: "keyId", name: "key", done: "revoked" },
  RevokeSecret: { subject: "secretId", name: "secret", done: "revoked" },
  RevokeAdminToken: { subject: "tokenId", name: "admin token", done: "revoked" },
  SuspendAccount: { subject: "accountId", name: "account", done: "suspended" },
  ResumeAccount: { subject: "accountId", name: "account", done: "resumed" },
  UpdatePerson: { subject: "personId", name: "person", done: "disabled" },
} as const;
type Method = keyof typeof kinds;

/** The last word of the logs on one subject. */
export type Act = {
  readonly method: Method;
  readonly id: string;
  /** Of a secret. */
  readonly keyId: string;
  /** False: it was given back. */
  readonly withdraws: boolean;
  readonly timeMs: number;
};

/** Reads one line of a log. Undefined for every line that withdraws and gives back nothing. */
export function parseAuditLine(text: string): Act | undefined {
  if (!text.includes('"audit"')) return undefined;
  let line: Readonly<Record<string, unknown>>;
  try {
    line = Object(JSON.parse(text));
  } catch {
    return undefined;
  }
  const method = isMethod(line.method) ? line.method : undefined;
  if (line.msg !== "audit" || line.outcome !== "ok" || method === undefined) return undefined;
  const withdraws =
    method === "UpdatePerson" ? line.disabled === "true" : method !== "ResumeAccount";
  const id = line[kinds[method].subject];
  // A person whose role was changed is not meant here.
  if (typeof id !== "string" || (method === "UpdatePerson" && line.disabled === undefined))
    return undefined;
  const keyId = typeof line.keyId === "string" ? line.keyId : "";
  return { method, id, keyId, withdraws, timeMs: new Date(Number(line.time)).getTime() };
}

const isMethod = (name: unknown): name is Method => typeof name === "string" && name in kinds;

/** What the logs say last of each subject, in the order of time. */
function lastWords(acts: readonly Act[]): Act[] {
  const last = new Map<string, Act>();
  for (const act of [...acts].sort((one, other) => one.timeMs - other.timeMs))
    last.set(act.id, act);
  return [...last.values()];
}

/**
 * Prints what was withdrawn and is in use again, and with `applies` withdraws it again. Returns how
 * much of it is in use at the end. What the ledger does not have is left out: it was made later.
 */
export async function withdrawAgain(
  acts: readonly Act[],
  { postgres, log, applies }: { postgres: Postgres; log: Log; applies: boolean },
): Promise<number> {
  const services = createServices(postgres, log);
  let inUse = 0;
  for (const act of lastWords(acts).filter(({ withdraws }) => withdraws)) {
    if (!(await isInUse(services, act))) continue;
    const { done, name: kind } = kinds[act.method];
    const name = `${kind} ${act.id}`;
    if (!applies) {
      console.log(`to be ${done} with --apply: ${name}`);
      inUse++;
      continue;
    }
    try {
      await withdraw(services, act);
      console.log(`${done}: ${name}`);
    } catch (error) {
      console.log(`NOT ${done}: ${name}: ${toApiError(error).message}`);
      inUse++;
    }
  }
  return inUse;
}

type Services = ReturnType<typeof createServices>;

function createServices(postgres: Postgres, log: Log) {
  const keys = createKeys({
    budgets: budgetsOfKeys,
    postgres,
    adminToken: "",
    resolveModel: () => undefined,
    log,
  });
  const people = createPeople({
    postgres,
    publicUrl: () => new URL("http://localhost"),
    keys: keys.managed,
    settings: closedPeople,
    env: {},
    ensureAccount: async () => {},
    forecastsOf: async () => [],
    log,
  });
  const billing = createBilling({
    postgres,
    priceOf: () => undefined,
    log,
    keys: keys.ofAccount,
    members: people.ofAccount,
  });
  return { keys: keys.service, people: people.service, billing: billing.service };
}

function callOf(method: DescMethod, accountId = "") {
  return {
    signal: new AbortController().signal,
    requestHeader: new Headers(),
    caller: { kind: "internal", service: "reconcile" } as const,
    allowed: getOption(method, callers),
    accountId,
  };
}

/** False also for what the ledger does not have. */
async function isInUse({ keys, people, billing }: Services, act: Act): Promise<boolean> {
  const { method, id, keyId } = act;
  try {
    switch (method) {
      case "RevokeKey":
      case "RevokeSecret": {
        const request = { $typeName: "gateway.keys.v1.GetKeyRequest" as const, keyId };
        const { key } = await keys.getKey(request, callOf(KeysService.method.getKey));
        if (key?.state !== KeyState.ACTIVE) return false;
        const isOpen = (secret: Secret) => secret.secretId === id && secret.revokedAt === undefined;
        return method === "RevokeKey" || key.secrets.some(isOpen);
      }
      case "RevokeAdminToken": {
        const call = callOf(AdminTokensService.method.listAdminTokens);
        const request = {
          $typeName: "gateway.people.v1.ListAdminTokensRequest",
          pageSize: 0,
        } as const;
        const token = await findInPages(async (pageToken) => {
          const page = await people.listAdminTokens({ ...request, pageToken }, call);
          return { found: page.tokens.find(({ tokenId }) => tokenId === id), ...page };
        });
        return token !== undefined && token.revokedAt === undefined;
      }
      case "SuspendAccount":
      case "ResumeAccount": {
        const { account } = await billing.getAccount(
          { $typeName: "gateway.accounts.v1.GetAccountRequest", accountId: id },
          callOf(AccountsService.method.getAccount, id),
        );
        return account?.state === AccountState.ACTIVE;
      }
      case "UpdatePerson": {
        const call = callOf(PeopleService.method.listPeople);
        const $typeName = "gateway.people.v1.ListPeopleRequest" as const;
        const request = { $typeName, query: "", pageSize: 1000 };
        const person = await findInPages(async (pageToken) => {
          const page = await people.listPeople({ ...request, pageToken }, call);
          return { found: page.people.find(({ personId }) => personId === id), ...page };
        });
        return person !== undefined && person.disabledAt === undefined;
      }
    }
  } catch (error) {
    if (toApiError(error).reason === "not_found") return false;
    throw error;
  }
}

/** What the first page with it has found. */
async function findInPages<T>(
  read: (pageToken: string) => Promise<{ found: T | undefined; nextPageToken: string }>,
): Promise<T | undefined> {
  let page = await read("");
  while (page.found === undefined && page.nextPageToken !== "")
    page = await read(page.nextPageToken);
  return page.found;
}

async function withdraw({ keys, people, billing }: Services, act: Act): Promise<void> {
  const { method, id, keyId } = act;
  if (method === "RevokeKey")
    await keys.revokeKey(
      { $typeName: "gateway.keys.v1.RevokeKeyRequest", keyId },
      callOf(KeysService.method.revokeKey),
    );
  else if (method === "RevokeSecret")
    await keys.revokeSecret(
      { $typeName: "gateway.keys.v1.RevokeSecretRequest", keyId, secretId: id },
      callOf(KeysService.method.revokeSecret),
    );
  else if (method === "RevokeAdminToken")
    await people.revokeAdminToken(
      { $typeName: "gateway.people.v1.RevokeAdminTokenRequest", tokenId: id },
      callOf(AdminTokensService.method.revokeAdminToken),
    );
  else if (method === "UpdatePerson")
    await people.updatePerson(
      {
        $typeName: "gateway.people.v1.UpdatePersonRequest",
        personId: id,
        settings: create(PersonSettingsSchema, { disabled: true }),
        updateMask: create(FieldMaskSchema, { paths: ["disabled"] }),
        // What was revoked with them is an act of its own.
        keys: KeyAction.PAUSE,
        keysToPersonId: "",
      },
      callOf(PeopleService.method.updatePerson),
    );
  else
    await billing.suspendAccount(
      {
        $typeName: "gateway.accounts.v1.SuspendAccountRequest",
        accountId: id,
        reason: "suspended again after a restore",
      },
      callOf(AccountsService.method.suspendAccount, id),
    );
}
