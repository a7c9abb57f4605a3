import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type AuditEvent, AuditService } from "../../../../gen/gateway/audit/v1/audit_pb.ts";
import {
  type Key,
  KeyState,
  KeysService,
  type Secret,
} from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { reasonName } from "../../../base/reasons.ts";
import { call, useCall, usePages } from "../api.ts";
import { count, credits, day, dollars, moment, relative, toDate } from "../format.ts";
import { familyName } from "../names.ts";
import { useOperatorPages } from "../operators.tsx";
import { useActorNames } from "../parts/actors.ts";
import { actText } from "../parts/acts.ts";
import { BudgetBars } from "../parts/budget.tsx";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Form } from "../parts/form.tsx";
import {
  EditKeyDialog,
  keysChanged,
  nameOfKey,
  pauseKey,
  RevokeKeyDialog,
  RotateKeyDialog,
  resumeKey,
} from "../parts/key-dialogs.tsx";
import { KeyTags, mayManage, mayResume } from "../parts/key-tags.tsx";
import { NewestRequests } from "../parts/newest-requests.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { useSeen } from "../parts/seen.ts";
import { Facts, Meter, Notice, Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf, Table } from "../parts/table.tsx";
import { tagsText } from "../parts/tags.ts";
import { Term } from "../parts/term.tsx";
import { DayBars, timedRows, useLastDays } from "../parts/usage-bars.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps } from "../router.ts";
import { account, can, isOperator, session } from "../session.ts";
import { words } from "../words.ts";

export function KeyPage({ params }: PageProps): JSX.Element {
  const keyId = params.keyId ?? "";
  const found = useCall(KeysService.method.getKey, { keyId }, { isLive: true });
  const back = { href: href("keys"), label: words.key.back };
  const key = found.data?.key;
  // A key of another account has an address of its own there.
  const isElsewhere = key !== undefined && key.accountId !== account.value.accountId;
  if (isElsewhere || (found.error?.reason === "not_found" && !key))
    return (
      <>
        <Head title={words.key.missingTitle} back={back} />
        <Card>
          <Empty>{words.key.missing}</Empty>
        </Card>
      </>
    );
  return (
    <>
      {!key && <Head title={words.keys.key} back={back} />}
      <View call={found} skeleton={<Skeleton figures={4} chart />}>
        {(data) => data.key && <KeyContent apiKey={data.key} back={back} />}
      </View>
    </>
  );
}

type ContentProps = { apiKey: Key; back: { href: string; label: string } };
type OpenDialog = "edit" | "rotate" | "revoke";

function KeyContent({ apiKey, back }: ContentProps): JSX.Element {
  const [dialog, setDialog] = useState<OpenDialog>();
  const close = () => setDialog(undefined);
  const { state: status, keyId } = apiKey;
  const isRevoked = status === KeyState.REVOKED;
  const tools = mayManage(apiKey) && !isRevoked && (
    <>
      <Button onClick={() => setDialog("edit")}>{words.key.edit}</Button>
      {apiKey.pausedAt && mayResume(apiKey) && (
        <Button onClick={() => resumeKey(apiKey)}>{words.keys.resume}</Button>
      )}
      {/* An owner makes the pause of a member his own. */}
      {(!apiKey.pausedAt || (can("owner") && !apiKey.pausedByOwner)) && (
        <Button onClick={() => pauseKey(apiKey)}>
          {apiKey.pausedAt ? words.keys.keepPaused : words.keys.pause}
        </Button>
      )}
      <Button onClick={() => setDialog("revoke")}>{words.key.revoke}</Button>
      <Button kind="main" onClick={() => setDialog("rotate")}>
        {words.key.rotate}
      </Button>
    </>
  );
  return (
    <>
      <Head
        title={nameOfKey(apiKey)}
        back={back}
        detail={
          <span class="row">
            <KeyTags apiKey={apiKey} />
            <Tag>{familyName(apiKey.family)}</Tag>
            <Term of="family" word={familyName(apiKey.family)} />
            <code class="hint">{apiKey.secrets[0]?.hint}</code>
          </span>
        }
        tools={tools}
      />
      {apiKey.pausedByOwner && !mayResume(apiKey) && <Notice>{words.key.pausedByOwner}</Notice>}
      {apiKey.allowedAddresses.length > 0 && <AddressNotice />}
      <KeyFigures apiKey={apiKey} />
      <Usage keyId={keyId} />
      <div class="two columns">
        <Limits apiKey={apiKey} />
        <Secrets apiKey={apiKey} />
      </div>
      <NewestRequests keyId={keyId} />
      {can("owner") && <AuditEvents keyId={keyId} />}
      {dialog === "edit" && <EditKeyDialog apiKey={apiKey} onClose={close} />}
      {dialog === "rotate" && <RotateKeyDialog apiKey={apiKey} onClose={close} />}
      {dialog === "revoke" && <RevokeKeyDialog apiKey={apiKey} onClose={close} />}
    </>
  );
}

/**
 * What keeps a list of addresses from its clients: a proxy that the operator has not named. Only
 * operators see which peers look like one, since some are clients who make the header up.
 */
function AddressNotice(): JSX.Element | null {
  const operators = useOperatorPages(isOperator());
  const { address } = session.value;
  const seen = address === "" ? null : <Notice>{words.key.seenAt(address)}</Notice>;
  return operators ? <operators.UnnamedProxies>{seen}</operators.UnnamedProxies> : seen;
}

function KeyFigures({ apiKey }: { apiKey: Key }): JSX.Element {
  const { monthSpentMicrocredits: spent, monthlyCapMicrocredits: cap } = apiKey;
  const share = cap === undefined ? 0 : Number(spent) / Math.max(Number(cap), 1);
  return (
    <Figures>
      <Figure
        label={words.key.spent}
        value={credits(spent)}
        {...(share >= 1 ? { tone: "bad" } : share >= 0.8 ? { tone: "warn" } : {})}
        note={
          cap === undefined ? (
            words.common.approximately(dollars(spent))
          ) : (
            <>
              {words.key.ofCap(credits(cap))}
              <Meter value={Number(spent)} max={Number(cap)} />
            </>
          )
        }
      />
      <Figure
        label={words.key.held}
        value={credits(apiKey.monthHeldMicrocredits)}
        note={words.key.heldNote}
      />
      <Figure
        label={words.key.perMinute}
        value={apiKey.requestsPerMinute === undefined ? "–" : count(apiKey.requestsPerMinute)}
        note={apiKey.requestsPerMinute === undefined ? words.keyForm.unlimited : undefined}
      />
      <Figure
        label={words.key.lastUsed}
        value={<Time at={apiKey.lastUsedAt} />}
        note={apiKey.lastUsedAt && moment(apiKey.lastUsedAt)}
      />
    </Figures>
  );
}

function Usage({ keyId }: { keyId: string }): JSX.Element {
  const usage = useLastDays({ keyId });
  return (
    <Card title={words.key.usage}>
      <View
        call={usage}
        skeleton={<Skeleton chart />}
        empty={({ rows }) =>
          rows.length > 0 ? undefined : <p class="muted">{words.key.noRequests}</p>
        }
      >
        {({ rows }) => <DayBars rows={timedRows(rows)} />}
      </View>
    </Card>
  );
}

function Limits({ apiKey }: { apiKey: Key }): JSX.Element {
  const nameOfActor = useActorNames([apiKey.createdBy, apiKey.managedBy]);
  const { allowedModels, expiresAt, createdAt } = apiKey;
  return (
    <Card title={words.key.facts}>
      <BudgetBars budget={apiKey.budget} />
      <Facts>
        {[
          [
            words.key.perMinute,
            apiKey.requestsPerMinute === undefined
              ? words.keyForm.unlimited
              : count(apiKey.requestsPerMinute),
          ],
          [
            words.key.models,
            allowedModels.length === 0 ? words.key.allModels : allowedModels.join(", "),
          ],
          [
            words.key.expires,
            <Time key="expires" at={expiresAt} as="moment" otherwise={words.key.neverExpires} />,
          ],
          [
            words.key.addresses,
            apiKey.allowedAddresses.length === 0
              ? words.key.everywhere
              : apiKey.allowedAddresses.join(", "),
          ],
          Object.keys(apiKey.tags).length > 0
            ? [words.keyForm.tags, tagsText(apiKey.tags)]
            : undefined,
          [words.key.reader, apiKey.accountReader ? words.key.yes : words.key.no],
          [
            words.key.created,
            createdAt && words.key.createdBy(day(createdAt), nameOfActor(apiKey.createdBy)),
          ],
          [words.key.managedBy, nameOfActor(apiKey.managedBy)],
          [
            words.key.id,
            <code key="id" class="mono">
              {apiKey.keyId}
            </code>,
          ],
        ]}
      </Facts>
    </Card>
  );
}

const hourMs = 3_600_000;

function isValid({ revokedAt, expiresAt }: Secret): boolean {
  return !revokedAt && (!expiresAt || toDate(expiresAt).getTime() > Date.now());
}

function Secrets({ apiKey }: { apiKey: Key }): JSX.Element {
  const [ending, setEnding] = useState<Secret>();
  // A key that has ended ends its secrets.
  const isOver = apiKey.state === KeyState.REVOKED || apiKey.state === KeyState.EXPIRED;
  const valid = isOver ? [] : apiKey.secrets.filter(isValid);
  // The last one is ended with the key.
  const mayEnd = (secret: Secret) =>
    mayManage(apiKey) && valid.length > 1 && valid.includes(secret) && secret !== valid[0];
  // It looks as if nobody needs it any more.
  const isIdle = ({ lastUsedAt, createdAt }: Secret) => {
    const at = lastUsedAt ?? createdAt;
    return at !== undefined && Date.now() - toDate(at).getTime() > hourMs;
  };
  const columns: readonly Column<Secret>[] = [
    {
      name: "secret",
      head: words.key.secret,
      cell: ({ hint }) => <code class="mono">{hint}</code>,
    },
    {
      name: "state",
      head: words.key.secretState,
      cell: (secret) =>
        !valid.includes(secret) ? (
          <Tag>{words.key.ended}</Tag>
        ) : secret.expiresAt ? (
          <Tag tone="warn">{words.key.validUntil(relative(secret.expiresAt))}</Tag>
        ) : (
          <Tag tone="good">{words.key.valid}</Tag>
        ),
    },
    {
      name: "used",
      head: words.key.lastUsed,
      end: true,
      cell: ({ lastUsedAt }) => <Time at={lastUsedAt} />,
    },
    {
      name: "actions",
      head: <span class="visually-hidden">{words.keys.actions}</span>,
      end: true,
      cell: (secret) =>
        mayEnd(secret) && (
          <Button kind={isIdle(secret) ? "plain" : "quiet"} onClick={() => setEnding(secret)}>
            {words.key.endNow}
          </Button>
        ),
    },
  ];
  const end = async () => {
    const { keyId } = apiKey;
    await call(KeysService.method.revokeSecret, { keyId, secretId: ending?.secretId ?? "" });
    keysChanged();
    setEnding(undefined);
  };
  return (
    <Card flush title={words.key.secrets} about={words.key.secretsAbout}>
      <div class="dense tight">
        <Table
          caption={words.key.secrets}
          columns={columns}
          rows={apiKey.secrets}
          keyOf={({ secretId }) => secretId}
        />
      </div>
      {ending && (
        <Dialog title={words.key.endTitle(ending.hint)} onClose={() => setEnding(undefined)}>
          <p>
            {ending.lastUsedAt
              ? words.key.endText(relative(ending.lastUsedAt))
              : words.key.endNever}
          </p>
          <Form
            kind="danger"
            submit={words.key.endButton}
            onSubmit={end}
            onCancel={() => setEnding(undefined)}
          />
        </Dialog>
      )}
    </Card>
  );
}

function AuditEvents({ keyId }: { keyId: string }): JSX.Element {
  const { accountId } = account.value;
  const [place, isSeen] = useSeen();
  // An act on many keys has the ids of all: a page stays small.
  const request = { accountId, keyId, pageSize: 50 };
  const events = usePages(
    AuditService.method.listAuditEvents,
    isSeen ? request : undefined,
    (answer) => answer.events,
  );
  const nameOfActor = useActorNames(events.data?.items.map(({ actor }) => actor));
  const columns: readonly Column<AuditEvent>[] = [
    {
      name: "at",
      head: words.overview.time,
      sortBy: ({ occurredAt: at }) => momentOf(at),
      cell: ({ occurredAt: at }) => <Time at={at} />,
    },
    {
      name: "method",
      head: words.key.act,
      sortBy: ({ method }) => actText(method),
      cell: ({ method, succeeded, reason }) => (
        <>
          {actText(method)}{" "}
          {!succeeded && <Tag tone="bad">{words.key.refused(reasonName(reason))}</Tag>}
        </>
      ),
    },
    {
      name: "actor",
      head: words.members.by,
      sortBy: ({ actor }) => nameOfActor(actor),
      cell: ({ actor }) => nameOfActor(actor),
    },
    {
      name: "address",
      head: words.settings.address,
      sortBy: ({ address }) => address,
      cell: ({ address }) => address,
    },
  ];
  return (
    <Card flush place={place} title={words.key.audit} note={words.key.auditAbout}>
      <View call={events} skeleton={<Skeleton rows={3} />}>
        {({ items, isLast }) =>
          items.length === 0 ? (
            <p class="card-text muted">{words.key.noAudit}</p>
          ) : (
            <>
              <Table
                caption={words.key.audit}
                columns={columns}
                rows={items}
                keyOf={({ eventId }) => eventId}
              />
              {!isLast && (
                <div class="table-foot">
                  <Button onClick={events.more}>{words.common.more}</Button>
                </div>
              )}
            </>
          )
        }
      </View>
    </Card>
  );
}
