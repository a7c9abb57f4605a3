// What operators note about an account, what runs in it, and why its requests were refused.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { SupportService } from "../../../../gen/gateway/operations/v1/support_pb.ts";
import { Bucket, RefusalGroup, UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { call, invalidate, useCall, usePages } from "../api.ts";
import { count, credits } from "../format.ts";
import { Form, fieldError, TextField } from "../parts/form.tsx";
import { Card } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { Time } from "../parts/small.tsx";
import { hrefOf } from "../router.ts";
import { ListTable, PagedTable, usePeopleNames } from "./common.tsx";
import { words } from "./words.ts";

const pageSize = 20;
const refusedDays = 30;
const dayMs = 86_400_000;

type OfAccount = { readonly accountId: string };

export function NotesCard({ accountId }: OfAccount): JSX.Element {
  const nameOf = usePeopleNames();
  const [text, setText] = useState("");
  const [idempotencyKey, setKey] = useState(() => crypto.randomUUID());
  const notes = usePages(
    SupportService.method.listAccountNotes,
    { accountId, pageSize },
    (page) => page.notes,
  );
  const add = async () => {
    if (text.trim() === "") throw fieldError("text", words.notes.missing);
    await call(SupportService.method.createAccountNote, { accountId, text, idempotencyKey });
    setText("");
    setKey(crypto.randomUUID());
    invalidate(SupportService.method.listAccountNotes);
  };
  const { head } = words.notes;
  return (
    <Card title={words.notes.title} about={words.notes.about} flush>
      <div class="card-text">
        <Form submit={words.notes.add} fields={["text"]} onSubmit={add}>
          <TextField
            name="text"
            label={words.notes.text}
            lines={2}
            value={text}
            onInput={setText}
          />
        </Form>
      </div>
      <PagedTable
        pages={notes}
        greyRows={2}
        empty={words.notes.none}
        caption={words.notes.caption}
        columns={[
          { name: "at", head: head.at, cell: ({ createdAt: at }) => <Time at={at} as="moment" /> },
          { name: "by", head: head.by, cell: ({ createdBy: by }) => <bdi>{nameOf(by)}</bdi> },
          {
            name: "text",
            head: head.text,
            cell: (note) => (
              <bdi class="note-text" dir="auto">
                {note.text}
              </bdi>
            ),
          },
        ]}
        keyOf={({ noteId }) => noteId}
      />
    </Card>
  );
}

/** The beginning of a UTC day: the same question for a whole day. */
function daysAgo(days: number): Date {
  const today = Math.floor(Date.now() / dayMs) * dayMs;
  return new Date(today - days * dayMs);
}

export function RefusalsCard({ accountId }: OfAccount): JSX.Element {
  const found = useCall(UsageService.method.queryRefusals, {
    ...{ accountId, bucket: Bucket.NONE, groupBy: [RefusalGroup.REASON] },
    startAt: timestampFromDate(daysAgo(refusedDays - 1)),
  });
  const { head } = words.refusals;
  return (
    <Card title={words.refusals.title} note={words.refusals.note} flush>
      <ListTable
        call={found}
        rowsOf={({ rows }) => [...rows].sort((a, b) => Number(b.requests - a.requests))}
        greyRows={2}
        empty={words.refusals.none}
        caption={words.refusals.title}
        columns={[
          {
            name: "reason",
            head: head.reason,
            cell: ({ reason }) => refusalOf(reason).label,
          },
          {
            name: "count",
            head: head.count,
            end: true,
            cell: ({ requests }) => count(requests),
          },
        ]}
        keyOf={({ reason }) => String(reason)}
      />
    </Card>
  );
}

/** The requests that hold credits now. */
export function RunningCard({ accountId }: OfAccount): JSX.Element {
  const found = useCall(UsageService.method.listRunningRequests, { accountId }, { isLive: true });
  const { head } = words.running;
  return (
    <Card title={words.running.title} flush>
      <ListTable
        call={found}
        rowsOf={({ requests }) => requests}
        greyRows={2}
        empty={words.running.none}
        caption={words.running.title}
        columns={[
          {
            name: "at",
            head: head.at,
            cell: ({ admittedAt, requestId }) => (
              <a class="row-link" href={hrefOf(accountId, `requests/${requestId}`)}>
                <Time at={admittedAt} as="moment" />
              </a>
            ),
          },
          {
            name: "model",
            head: head.model,
            cell: ({ model }) => (
              <bdi class="clipped" title={model}>
                {model}
              </bdi>
            ),
          },
          {
            name: "held",
            head: head.held,
            end: true,
            cell: ({ holdMicrocredits }) => credits(holdMicrocredits),
          },
        ]}
        keyOf={({ requestId }) => requestId}
      />
    </Card>
  );
}
