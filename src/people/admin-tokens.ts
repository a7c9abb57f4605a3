// Admin tokens: credentials for programs of the operator, each with a name and a scope. A secret is
// `adm-gw2-`, the two characters of the cell and 41 random ones; the database has its SHA-256.
// Tokens in use are cached as sessions are: a call costs no statement, and a revoked token is dead
// on every node within a second.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import { AdminScope, AdminScopeSchema } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type AdminToken,
  AdminTokenSchema,
  AdminTokensService,
  type CreateAdminTokenRequest,
  CreateAdminTokenResponseSchema,
  type ListAdminTokensRequest,
  ListAdminTokensResponseSchema,
  type RevokeAdminTokenRequest,
  RevokeAdminTokenResponseSchema,
} from "../../gen/gateway/people/v1/admin_tokens_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { cellId } from "../base/cells.ts";
import type { Changes } from "../base/change-feed.ts";
import { checkAddresses, type MisplacedUse } from "../base/client-address.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName } from "../base/names.ts";
import { readPage } from "../base/paging.ts";
import { SecretCache } from "../base/secret-cache.ts";
import { createSecretLookup } from "../base/secret-lookup.ts";
import {
  askForApproval,
  type CarryOut,
  memberOf,
  needsApproval,
  personBehind,
} from "../contract/approvals.ts";
import { actorOf, checkAddress, type clientOf } from "../contract/callers.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  type Caller,
  environmentToken,
} from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import { checkStillAdmin, type Parts } from "./parts.ts";
import { digestToken } from "./sessions.ts";
import { type FoundAdminToken, type PeopleStore, tablesOn } from "./store.ts";

const prefix = "adm-gw2-";
/** Two of them name the cell: 62^41 is more than 2^244. */
const randomLength = 43;
const headerForm = /^\s*bearer\s+(adm-gw2-[0-9A-Za-z]{43})\s*$/i;
const prefixForm = /^\s*bearer\s+adm-gw2-/i;

const cacheLimits = { foundMax: 1_000, unknownMax: 10_000, freshMs: 60_000, staleMs: 120_000 };

/** True for a credential that only the admin tokens of this folder can be. */
export function isAdminToken(authorization: string): boolean {
  return prefixForm.test(authorization);
}

export type AdminTokens = {
  /** Identifies the admin token of `authorization: Bearer adm-gw2-…`. */
  readonly authenticate: Authenticate;
  /** Call when a token changed: what is cached of it becomes invalid. */
  forget(tokenId: string): void;
};

/** Called for each call from an address that the list of its token does not allow. */
export type OnMisplaced = (use: MisplacedUse) => void;

/** `changes`: the feed of changed people and tokens. */
export function createAdminTokens({
  store,
  changes,
  onMisplaced,
}: {
  store: PeopleStore;
  changes: Changes;
  onMisplaced?: OnMisplaced | undefined;
}): AdminTokens {
  const cache = new SecretCache<FoundAdminToken>(cacheLimits);
  const lookup = createSecretLookup(store.findAdminTokens, cache);
  return {
    async authenticate(requestHeader, origin) {
      const secret = headerForm.exec(requestHeader.get("authorization") ?? "")?.[1];
      if (secret === undefined) throw new ApiError("invalid_key");
      const digest = digestToken(secret).toString("base64");
      const cached = cache.get(digest);
      // A node that may have missed a change must not trust what it remembers.
      if (!cached || (cached.found && !changes.isCurrent()))
        return callerOf(await lookup.find(digest), { requestHeader, ...origin }, onMisplaced);
      if (cached.isStale) lookup.refresh(digest);
      return callerOf(cached.found, { requestHeader, ...origin }, onMisplaced);
    },
    forget: (tokenId) => cache.invalidate(tokenId),
  };
}

function callerOf(
  found: FoundAdminToken | undefined,
  from: Parameters<typeof clientOf>[0],
  onMisplaced: OnMisplaced | undefined,
): Caller {
  if (!found) throw new ApiError("invalid_key");
  if (found.isRevoked)
    throw new ApiError("revoked_key", { message: "This admin token was revoked." });
  const { name, scope, ownerId: tokenId, personId, isAllowedAt, hint } = found;
  if (isAllowedAt)
    checkAddress(
      isAllowedAt,
      from,
      (address) => onMisplaced?.({ accountId: "", id: tokenId, name, hint, address }),
      "admin token",
    );
  return { kind: "admin", name, scope, tokenId, ...(personId !== null && { personId }) };
}

export async function createAdminToken(
  { store, approvalLimit }: Parts,
  request: CreateAdminTokenRequest,
  call: AuthenticatedCall,
) {
  const { caller, note } = call;
  const { scope } = request;
  const name = checkTokenName(request.name);
  note?.({ name });
  const minted = { id: timeOrderedId("tok_"), secret: cellId(store.cell, prefix, randomLength) };
  const createOnce = onceFor(AdminTokensService.method.createAdminToken, request, call);
  const hint = `${minted.secret.slice(0, prefix.length + 6)}…${minted.secret.slice(-4)}`;
  const allowedAddresses = checkAddresses("allowed_addresses", request.allowedAddresses);
  const made = { tokenId: minted.id, name, scope, hint, allowedAddresses };
  const digest = digestToken(minted.secret);
  const isMoney = scope === AdminScope.MONEY || scope === AdminScope.ALL;
  const waits = isMoney && needsApproval(caller, approvalLimit());
  const { id, secret, approval } = await store.transaction(async (tables) => {
    await checkStillAdmin(tables, caller);
    const personId = personBehind(caller) ?? null;
    const createdBy = actorOf(caller);
    let approval: Approval | undefined;
    const once = await createOnce(tables, minted, async () => {
      if (!waits) return tables.insertAdminToken({ ...made, digest, createdBy, personId });
      approval = await askForApproval(tables, caller, {
        kind: "admin_token",
        subject: name.toLowerCase(),
        accountId: "",
        what: `Makes the admin token "${name}" of the scope ${AdminScopeSchema.value[scope]?.localName}.`,
        reason: "",
        usdMicro: 0n,
        request: {
          ...made,
          allowedAddresses: allowedAddresses.join(" "),
          digest: digest.toString("base64"),
        },
      });
    });
    return { ...once, approval };
  });
  const token = await store.findAdminToken(id);
  return create(CreateAdminTokenResponseSchema, {
    secret,
    ...(token && { token }),
    ...(approval && { approval }),
  });
}

/** Makes an approved token: the secret that its maker has works from then on. */
export function carryOutAdminToken({ publish }: Pick<Parts, "publish">): CarryOut {
  return async (tx, approved) => {
    const tables = tablesOn(tx);
    const scope = Number(approved.request.scope);
    const digest = memberOf(approved, "digest");
    await tables.insertAdminToken({
      tokenId: memberOf(approved, "tokenId"),
      name: memberOf(approved, "name"),
      hint: memberOf(approved, "hint"),
      digest: Buffer.from(digest, "base64"),
      scope: scope === AdminScope.MONEY ? AdminScope.MONEY : AdminScope.ALL,
      allowedAddresses: memberOf(approved, "allowedAddresses").split(" ").filter(Boolean),
      createdBy: approved.requestedBy,
      personId: approved.personId,
    });
    // Whoever tried it before the approval taught the nodes that there is no such secret.
    await tables.insertChange(digest);
    return () => publish(digest);
  };
}

/** Throws `invalid_request` and `name_taken`. */
function checkTokenName(text: string): string {
  const name = checkName("name", text);
  if (name.toLowerCase() === environmentToken.name.toLowerCase())
    throw new ApiError("name_taken", { field: "name" });
  return name;
}

export async function listAdminTokens(
  { store, hasAdminToken }: Parts,
  request: ListAdminTokensRequest,
  call: AuthenticatedCall,
) {
  const { listAdminTokens } = AdminTokensService.method;
  const { entries: tokens, nextPageToken } = await readPage(listAdminTokens, request, call, {
    read: (after, limit) => store.listAdminTokens(after ?? "", limit),
    cursorOf: ({ tokenId }) => tokenId,
  });
  const isListed = hasAdminToken && request.pageToken === "";
  return create(ListAdminTokensResponseSchema, {
    tokens: isListed ? [await describeEnvironment(store), ...tokens] : tokens,
    nextPageToken,
  });
}

/** The token of the environment, as one of them. */
async function describeEnvironment(store: PeopleStore): Promise<AdminToken> {
  const { name } = environmentToken;
  const { usedAt } = await store.run(sql.readAdminTokenUse);
  const listed = { tokenId: name, name, scope: AdminScope.ALL };
  return create(AdminTokenSchema, {
    ...listed,
    ...(usedAt && { lastUsedAt: timestampFromDate(usedAt) }),
  });
}

export async function revokeAdminToken(
  { store, publish }: Parts,
  { tokenId }: RevokeAdminTokenRequest,
  { caller, note }: AuthenticatedCall,
) {
  if (tokenId === environmentToken.name)
    throw invalidField(
      "token_id",
      "is the token of the environment: set another ADMIN_TOKEN and restart the gateway",
    );
  const token = await store.transaction(async (tables) => {
    await checkStillAdmin(tables, caller);
    const revoked = await tables.revokeAdminToken(tokenId);
    if (revoked) await tables.insertChange(tokenId);
    return revoked;
  });
  if (!token)
    throw new ApiError("not_found", { field: "token_id", message: "No such admin token." });
  note?.({ name: token.name });
  publish(tokenId);
  return create(RevokeAdminTokenResponseSchema, { token });
}
