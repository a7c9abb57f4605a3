// The log of administrative acts, in the database.

import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type AuditEvent,
  AuditEventSchema,
  AuditService,
  type ListAuditEventsRequest,
  ListAuditEventsResponseSchema,
} from "../../gen/gateway/audit/v1/audit_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { SupportService } from "../../gen/gateway/operations/v1/support_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { toActor } from "../base/actors.ts";
import { encodeTimeCursor, parseTimeCursor, readPage, walkPages } from "../base/paging.ts";
import { reasonOf } from "../base/reasons.ts";
import { actorToFind } from "../contract/callers.ts";
import type { AuthenticatedCall, Caller } from "../contract/contract.ts";
import type { Runner } from "../postgres/statement.ts";
import type { Parts } from "./parts.ts";
import { readFacts } from "./store.ts";

/** Operators keep notes about an account to themselves: its members learn of no act on them. */
const actsOnNotes = [
  SupportService.method.createAccountNote,
  SupportService.method.listAccountNotes,
].map(({ name }) => name);

export async function listAuditEvents(
  { store }: Parts,
  request: ListAuditEventsRequest,
  call: AuthenticatedCall,
) {
  const { accountId, caller } = call;
  const withReasons =
    caller.kind === "admin" ||
    (caller.kind === "person" && caller.operator !== OperatorRole.UNSPECIFIED);
  const { actor, method, keyId, startAt: from, endAt: to, allAccounts } = request;
  const filter = {
    accountId: allAccounts ? null : accountId,
    actor: actorToFind("actor", actor) || null,
    method: method || null,
    keyId: keyId || null,
    hidden: isMember(caller) ? actsOnNotes : [],
    from: dateOf(from),
    to: dateOf(to),
    withReasons,
  };
  const { listAuditEvents } = AuditService.method;
  const { entries: events, nextPageToken } = await readPage(listAuditEvents, request, call, {
    read: (after, rows) => readEvents(store, filter, after, rows),
    cursorOf: eventCursor,
  });
  return create(ListAuditEventsResponseSchema, { events, nextPageToken });
}

/** The events of an account that its owners may see, in pages, newest first. */
export function walkAuditEvents(
  store: Runner,
  accountId: string,
): AsyncGenerator<AuditEvent[], void> {
  const any = { actor: null, method: null, keyId: null, from: null, to: null };
  const filter = { ...any, accountId, hidden: actsOnNotes, withReasons: false };
  return walkPages({
    read: (after, rows) => readEvents(store, filter, after, rows),
    cursorOf: eventCursor,
  });
}

/** Null: any. */
type Filter = {
  readonly accountId: string | null;
  readonly actor: string | null;
  readonly method: string | null;
  readonly keyId: string | null;
  /** Methods that are left out. */
  readonly hidden: readonly string[];
  readonly from: Date | null;
  readonly to: Date | null;
  /** Why operators acted: a word among them. What a customer is to read stands elsewhere. */
  readonly withReasons: boolean;
};

/** True for a person who is no operator. */
function isMember(caller: Caller): boolean {
  return caller.kind === "person" && caller.operator === OperatorRole.UNSPECIFIED;
}

async function readEvents(
  store: Runner,
  { withReasons, ...filter }: Filter,
  after: string | undefined,
  rows: number,
): Promise<AuditEvent[]> {
  const { at: before = null, id: beforeId = null } =
    after === undefined ? {} : parseTimeCursor(after);
  const events = await store.run(sql.listAuditEvents, { ...filter, before, beforeId, rows });
  return events.map(({ at, facts: stored, actor, outcome, ...event }) => {
    const { reason = "", ...others } = readFacts(stored);
    const facts = withReasons && reason !== "" ? { ...others, reason } : others;
    return create(AuditEventSchema, {
      ...event,
      actor: toActor(actor),
      succeeded: outcome === "ok",
      reason: reasonOf(outcome),
      occurredAt: timestampFromDate(at),
      facts,
    });
  });
}

function eventCursor({ occurredAt: at, eventId }: AuditEvent): string {
  return encodeTimeCursor({ at: at ? timestampDate(at) : new Date(0), id: eventId });
}

function dateOf(time: Timestamp | undefined): Date | null {
  return time ? timestampDate(time) : null;
}
