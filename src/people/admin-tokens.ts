// Admin tokens: credentials for programs of the operator, each with a name and a scope. A secret is
// `adm-gw2-` and 43 random characters; the database has its SHA-256. Tokens in use are cached as
// sessions are: a call costs no statement, and a revoked token is dead on every node within a
// second.

import { create } from "@bufbuild/protobuf";
import { AdminScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  AdminTokenSchema,
  type CreateAdminTokenRequest,
  CreateAdminTokenResponseSchema,
  type ListAdminTokensRequest,
  ListAdminTokensResponseSchema,
  PeopleService,
  type RevokeAdminTokenRequest,
  RevokeAdminTokenResponseSchema,
} from "../../gen/gateway/people/v1/people_pb.ts";
import type { Changes } from "../base/change-feed.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { randomId, timeOrderedId } from "../base/ids.ts";
import { checkName } from "../base/names.ts";
import { readPage } from "../base/paging.ts";
import { SecretCache } from "../base/secret-cache.ts";
import { createSecretLookup } from "../base/secret-lookup.ts";
import { actorOf } from "../contract/callers.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  type Caller,
  environmentToken,
} from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import { checkStillAdmin, type Parts } from "./parts.ts";
import { digestToken } from "./sessions.ts";
import type { FoundAdminToken, PeopleStore } from "./store.ts";

const prefix = "adm-gw2-";
/** 62^43 is more than 2^256. */
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

/** `changes`: the feed of changed people and tokens. */
export function createAdminTokens({
  store,
  changes,
}: {
  store: PeopleStore;
  changes: Changes;
}): AdminTokens {
  const cache = new SecretCache<FoundAdminToken>(cacheLimits);
  const lookup = createSecretLookup(store.findAdminTokens, cache);
  return {
    async authenticate(requestHeader) {
      const secret = headerForm.exec(requestHeader.get("authorization") ?? "")?.[1];
      if (secret === undefined) throw new ApiError("invalid_key");
      const digest = digestToken(secret).toString("base64");
      const cached = cache.get(digest);
      // A node that may have missed a change must not trust what it remembers.
      if (!cached || (cached.found && !changes.isCurrent()))
        return callerOf(await lookup.find(digest));
      if (cached.isStale) lookup.refresh(digest);
      return callerOf(cached.found);
    },
    forget: (tokenId) => cache.invalidate(tokenId),
  };
}

function callerOf(found: FoundAdminToken | undefined): Caller {
  if (!found) throw new ApiError("invalid_key");
  if (found.isRevoked)
    throw new ApiError("revoked_key", { message: "This admin token was revoked." });
  return { kind: "admin", name: found.name, scope: found.scope, tokenId: found.ownerId };
}

export async function createAdminToken(
  { store }: Parts,
  request: CreateAdminTokenRequest,
  call: AuthenticatedCall,
) {
  const { caller, note } = call;
  const name = checkTokenName(request.name);
  note?.({ name });
  const minted = { id: timeOrderedId("tok_"), secret: randomId(prefix, randomLength) };
  const createOnce = onceFor(PeopleService.method.createAdminToken, request, call);
  const { id, secret } = await store.transaction(async (tables) => {
    await checkStillAdmin(tables, caller);
    return createOnce(tables, minted, () =>
      tables.insertAdminToken({
        tokenId: minted.id,
        digest: digestToken(minted.secret),
        name,
        scope: request.scope,
        hint: `${minted.secret.slice(0, prefix.length + 4)}…${minted.secret.slice(-4)}`,
        createdBy: actorOf(caller),
      }),
    );
  });
  const token = await store.readAdminToken(id);
  return create(CreateAdminTokenResponseSchema, { token, secret });
}

/** Throws `invalid_request` and `name_taken`. */
function checkTokenName(text: string): string {
  const name = checkName("name", text);
  if (!/^[0-9A-Za-z][0-9A-Za-z ._-]{0,99}$/.test(name))
    throw invalidField(
      "name",
      "has to be 1 to 100 letters, digits, spaces, dots, _ and -, and begin with a letter or digit",
    );
  if (name.toLowerCase() === environmentToken.name.toLowerCase())
    throw new ApiError("name_taken", { field: "name" });
  return name;
}

export async function listAdminTokens({ store }: Parts, request: ListAdminTokensRequest) {
  const { entries: tokens, nextPageToken } = await readPage(request, {
    read: (after, limit) => store.listAdminTokens(after ?? "", limit),
    cursorOf: ({ tokenId }) => tokenId,
  });
  const { name } = environmentToken;
  const listed = create(AdminTokenSchema, { tokenId: name, name, scope: AdminScope.ALL });
  return create(ListAdminTokensResponseSchema, {
    tokens: request.pageToken === "" ? [listed, ...tokens] : tokens,
    nextPageToken,
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
