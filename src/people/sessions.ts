// Sessions: the credential of a signed-in person. A token is the cell and 244 random bits; the
// database has its SHA-256. A session ends twelve hours after its last use and thirty days after
// the sign-in.
//
// Sessions in use are cached, so that a call costs no statement. Each minute a cached session is
// read again, which records its use. A change of its person drops it on every node within a second.

import { hash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { type SessionGrant, SessionGrantSchema } from "../../gen/gateway/people/v1/person_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { cellToken } from "../base/cells.ts";
import type { Changes } from "../base/change-feed.ts";
import { ApiError } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { SecretCache } from "../base/secret-cache.ts";
import { createSecretLookup } from "../base/secret-lookup.ts";
import { strongMinutes } from "../base/shown-figures.ts";
import { type Client, dropsOperatorRole } from "../contract/callers.ts";
import type { Authenticate, Caller, CallHeaders } from "../contract/contract.ts";
import type { FoundSession, PeopleStore, PeopleTables, SignInMethod } from "./store.ts";

const hourMs = 3_600_000;
/** A session that is not used for this long ends. */
export const idleMsMax = 12 * hourMs;
const lifetimeMs = 30 * 24 * hourMs;
export const strongMs = strongMinutes * 60_000;

const cacheLimits = {
  foundMax: 20_000,
  unknownMax: 10_000,
  freshMs: 60_000,
  staleMs: 120_000,
} as const;

export type Sessions = {
  readonly authenticate: Authenticate;
  /** Call when a person changed: the cached sessions become invalid. */
  forget(personId: string): void;
};

/**
 * `passkeyOnly`: true if a session that a password began has no operator role. `changes`: the feed
 * of changed people.
 */
export function createSessions(parts: {
  store: PeopleStore;
  changes: Changes;
  passkeyOnly: () => boolean;
}): Sessions {
  const { store, changes, passkeyOnly } = parts;
  const cache = new SecretCache<FoundSession>(cacheLimits);
  const findAll = (digests: readonly string[]) => store.findSessions(digests, idleMsMax);
  const lookup = createSecretLookup(findAll, cache);

  const callerOf = (found: FoundSession | undefined, headers: CallHeaders): Caller => {
    if (!found) throw new ApiError("invalid_session");
    const { ownerId: personId, sessionId, memberships, strongUntil, method } = found;
    const isPlain = (method === "password" && passkeyOnly()) || dropsOperatorRole(headers);
    const operator = isPlain ? OperatorRole.UNSPECIFIED : found.operator;
    return { kind: "person", personId, sessionId, memberships, operator, strongUntil };
  };

  return {
    async authenticate(requestHeader) {
      const token = sessionToken(requestHeader);
      if (token === undefined) throw new ApiError("invalid_session");
      const digest = digestToken(token).toString("base64");
      const cached = cache.get(digest);
      // A node that may have missed a change must not trust what it remembers.
      if (!cached || cached.isExpired || (cached.found && !changes.isCurrent()))
        return callerOf(await lookup.find(digest), requestHeader);
      if (cached.isStale) lookup.refresh(digest);
      return callerOf(cached.found, requestHeader);
    },
    forget: (personId) => cache.invalidate(personId),
  };
}

/** True for any text of the scheme, also for one that cannot be a session. */
export function isSession(authorization: string): boolean {
  return /^\s*session(\s|$)/i.test(authorization);
}

/** The token of `authorization: Session …`. Undefined: it is not one of ours. */
function sessionToken(requestHeader: CallHeaders): string | undefined {
  const header = requestHeader.get("authorization") ?? "";
  return /^\s*session\s+([\w-]{43})\s*$/i.exec(header)?.[1];
}

/** SHA-256, as the tables of sessions and links store it. */
export function digestToken(token: string): Buffer {
  return hash("sha256", token, "buffer");
}

type SessionProof = {
  readonly passkeyId?: string | undefined;
  readonly confirmedMs?: number | undefined;
};

/** Open ones of a person. The oldest end. */
const sessionsMax = 50;

/**
 * Begins a session. The grant holds its token, which nothing else keeps. `passkeyId`: of the
 * passkey that proved who the person is. `confirmedMs`: how long the methods marked `strong` need
 * no confirmation.
 */
export async function beginSession(
  tables: PeopleTables,
  personId: string,
  method: SignInMethod,
  { address, agent }: Client,
  { passkeyId, confirmedMs = strongMs }: SessionProof = {},
): Promise<SessionGrant> {
  const token = cellToken(tables.cell);
  const { endsAt } = await tables.run(sql.insertSession, {
    digest: digestToken(token),
    sessionId: timeOrderedId("ses_"),
    personId,
    method,
    passkeyId: passkeyId ?? null,
    lifetimeMs,
    strongMs: confirmedMs,
    address,
    agent,
  });
  const ended = await tables.run(sql.endOldest, { personId, kept: sessionsMax });
  // Other nodes know them.
  if (ended > 0) await tables.insertChange(personId);
  return create(SessionGrantSchema, { token, expiresAt: timestampFromDate(endsAt) });
}
