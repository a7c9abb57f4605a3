// Notes of operators about an account.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type AccountNote,
  AccountNoteSchema,
  type CreateAccountNoteRequest,
  CreateAccountNoteResponseSchema,
  type ListAccountNotesRequest,
  ListAccountNotesResponseSchema,
  SupportService,
} from "../../gen/gateway/operations/v1/support_pb.ts";
import * as sql from "../../gen/sql/operations.ts";
import { toActor } from "../base/actors.ts";
import { invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { readPage } from "../base/paging.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { checkAccount, noSuchAccount } from "./store.ts";

/** A note waits for no customer's report: it is written by the connections of requests. */
export type NotesParts = { readonly postgres: Pick<Postgres, "run" | "transaction"> };

export async function addNote(
  { postgres }: NotesParts,
  request: CreateAccountNoteRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = request;
  const text = checkedText(request.text);
  const once = onceFor(SupportService.method.createAccountNote, request, call);
  const made = { id: timeOrderedId("not_"), secret: "" };
  const { id } = await postgres.transaction((tx) =>
    once(tx, made, async () => {
      const note = { accountId, noteId: made.id, by: actorOf(call.caller), text };
      if ((await tx.run(sql.insertNote, note)) === 0) throw noSuchAccount();
    }),
  );
  const note = await postgres.run(sql.findNote, { accountId, noteId: id });
  if (!note) throw new Error("a note that was stored is gone");
  return create(CreateAccountNoteResponseSchema, { note: toNote(note) });
}

export async function listNotes(
  { postgres }: NotesParts,
  request: ListAccountNotesRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = request;
  await checkAccount(postgres, accountId);
  const { listAccountNotes: listNotes } = SupportService.method;
  const { entries, nextPageToken } = await readPage(listNotes, request, call, {
    read: (before, rows) =>
      postgres.run(sql.listNotes, { accountId, before: before ?? null, rows }),
    cursorOf: ({ noteId }) => noteId,
  });
  return create(ListAccountNotesResponseSchema, { notes: entries.map(toNote), nextPageToken });
}

function checkedText(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") throw invalidField("text", "must not be blank");
  if (!trimmed.isWellFormed() || /[^\P{Cc}\n]/u.test(trimmed))
    throw invalidField("text", "must not hold control characters");
  return trimmed;
}

function toNote({ at, by, ...note }: sql.FindNoteRow): AccountNote {
  return create(AccountNoteSchema, {
    ...note,
    createdBy: toActor(by),
    createdAt: timestampFromDate(at),
  });
}
