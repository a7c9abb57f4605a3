// The log of administrative acts, in the database.

import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import {
  type AuditEvent,
  type ListAuditEventsRequest,
  ListAuditEventsResponseSchema,
} from "../../gen/gateway/people/v1/people_pb.ts";
import { encodeTimeCursor, parseTimeCursor, readPage, walkPages } from "../base/paging.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Parts } from "./parts.ts";
import type { PeopleStore } from "./store.ts";

export async function listAuditEvents(
  { store }: Parts,
  request: ListAuditEventsRequest,
  { accountId }: AuthenticatedCall,
) {
  const { actor, method, from, to, allAccounts } = request;
  const filter = {
    accountId: allAccounts ? undefined : accountId,
    actor: actor || undefined,
    method: method || undefined,
    from: dateOf(from),
    to: dateOf(to),
  };
  const { entries: events, nextPageToken } = await readPage(request, {
    read: (after, limit) =>
      store.listAuditEvents(
        filter,
        after === undefined ? undefined : parseTimeCursor(after),
        limit,
      ),
    cursorOf: eventCursor,
  });
  return create(ListAuditEventsResponseSchema, { events, nextPageToken });
}

/** All events of an account, in pages, newest first. */
export function walkAuditEvents(
  store: PeopleStore,
  accountId: string,
): AsyncGenerator<AuditEvent[], void> {
  const all = { actor: undefined, method: undefined, from: undefined, to: undefined };
  return walkPages({
    read: (after, limit) => {
      const before = after === undefined ? undefined : parseTimeCursor(after);
      return store.listAuditEvents({ accountId, ...all }, before, limit);
    },
    cursorOf: eventCursor,
  });
}

function eventCursor({ at, eventId }: AuditEvent): string {
  return encodeTimeCursor({ at: at ? timestampDate(at) : new Date(0), id: eventId });
}

function dateOf(time: Timestamp | undefined): Date | undefined {
  return time && timestampDate(time);
}
