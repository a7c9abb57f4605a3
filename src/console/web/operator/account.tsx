// One account, as operators see it: what it has, who is in it, what was booked, and what can be
// done about it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AccountsService } from "../../../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AuditService } from "../../../../gen/gateway/audit/v1/audit_pb.ts";
import { type Account, AccountState } from "../../../../gen/gateway/billing/v1/account_pb.ts";
import { BillingService, TransferKind } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { PriceListsService } from "../../../../gen/gateway/billing/v1/price_lists_pb.ts";
import type { Budget } from "../../../../gen/gateway/common/v1/budget_pb.ts";
import { KeyState, KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import {
  type AccountSummary,
  OperationsService,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { SupportService } from "../../../../gen/gateway/operations/v1/support_pb.ts";
import { DocumentKind, PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { MembersService } from "../../../../gen/gateway/people/v1/members_pb.ts";
import { call, invalidate, useCall, usePages } from "../api.ts";
import { credits, day, dollars, relative, signedCredits } from "../format.ts";
import { familyName, roleName } from "../names.ts";
import { BudgetBars, hasLimit } from "../parts/budget.tsx";
import { Button, Copy, LinkButton } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { notify } from "../parts/messages.ts";
import { OrderTag, packText } from "../parts/orders.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { poolOf } from "../parts/pools.ts";
import { KeyName, Notice, nearMax, Tag, Time } from "../parts/small.tsx";
import { changeOf } from "../parts/transfers.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { hrefOf, type PageProps } from "../router.ts";
import { isOperatorAdmin, operatorPart } from "../session.ts";
import { words as shared } from "../words.ts";
import { StatusTag, WaitingTags } from "./accounts.tsx";
import { type Act, ActDialog } from "./act.tsx";
import { useEventColumns } from "./audit.tsx";
import {
  ListTable,
  LookOnly,
  Nothing,
  orderHref,
  PagedTable,
  Quoted,
  usePeopleNames,
} from "./common.tsx";
import { DocumentDialog, MailsCard } from "./mails.tsx";
import { NotesCard, RefusalsCard, RunningCard } from "./notes.tsx";
import { takeBackHref } from "./price-lists.tsx";
import { MoveDialog, TransferDialog } from "./transfer.tsx";
import { words } from "./words.ts";

const pageSize = 20;

export function AccountPage({ params }: PageProps): JSX.Element {
  const { accountId = "" } = params;
  const found = useCall(AccountsService.method.getAccount, { accountId });
  const account = found.data?.account;
  if (found.error?.reason === "not_found")
    return (
      <>
        <Head
          title={words.account.missingTitle}
          back={{ href: hrefOf(operatorPart, ""), label: words.account.back }}
        />
        <Card>
          <Empty>{words.account.missing}</Empty>
        </Card>
      </>
    );
  return (
    <>
      <Head
        title={account?.name ?? words.audit.account}
        back={{ href: hrefOf(operatorPart, ""), label: words.account.back }}
        detail={
          <span class="row">
            <code>{accountId}</code>
            <Copy text={accountId} label={words.copyId} isSmall />
            <StatusTag status={account?.state ?? AccountState.UNSPECIFIED} />
          </span>
        }
        tools={account && <Tools account={account} />}
      />
      <p class="intro muted">{words.account.looked}</p>
      <LookOnly />
      {/* The figures below hold the place for both. */}
      <View call={found} skeleton={<Skeleton />}>
        {() =>
          account && (
            <>
              <StatusNotice account={account} />
              <PriceListNotice account={account} />
            </>
          )
        }
      </View>
      <Overview accountId={accountId} />
      <div class="two of-tables columns">
        <div>
          <KeysCard accountId={accountId} />
          <MembersCard accountId={accountId} />
          <RunningCard accountId={accountId} />
          <RefusalsCard accountId={accountId} />
          <BudgetsCard accountId={accountId} />
          <PromotionsCard accountId={accountId} />
          <DocumentsCard accountId={accountId} />
        </div>
        <div>
          <NotesCard accountId={accountId} />
          <OrdersCard accountId={accountId} />
        </div>
      </div>
      <MailsCard accountId={accountId} />
      <TransfersCard accountId={accountId} />
      <EventsCard accountId={accountId} />
    </>
  );
}

type OfAccount = { readonly accountId: string };

function Tools({ account }: { readonly account: Account }): JSX.Element {
  const { accountId, state: status } = account;
  const [open, setOpen] = useState<"transfer" | "move" | "suspend" | "resume">();
  const close = () => setOpen(undefined);
  return (
    <>
      <LinkButton kind="quiet" href={hrefOf(accountId, "")}>
        {words.account.asCustomer}
      </LinkButton>
      {isOperatorAdmin() && status === AccountState.ACTIVE && (
        <Button onClick={() => setOpen("suspend")}>{words.account.suspend}</Button>
      )}
      {isOperatorAdmin() && status === AccountState.SUSPENDED && (
        <Button onClick={() => setOpen("resume")}>{words.account.resume}</Button>
      )}
      {isOperatorAdmin() && status !== AccountState.CLOSED && (
        <Button onClick={() => setOpen("move")}>{words.move.open}</Button>
      )}
      {isOperatorAdmin() && (
        <Button kind="main" onClick={() => setOpen("transfer")}>
          {words.account.transfer}
        </Button>
      )}
      {open === "transfer" && <TransferDialog account={account} onClose={close} />}
      {open === "move" && <MoveDialog account={account} onClose={close} />}
      {open === "suspend" && <SuspendDialog account={account} onClose={close} />}
      {open === "resume" && <ResumeDialog account={account} onClose={close} />}
    </>
  );
}

function accountChanged(): void {
  invalidate(AccountsService.method.getAccount, OperationsService.method.findAccounts);
  invalidate(AuditService.method.listAuditEvents);
}

type DialogProps = { readonly account: Account; readonly onClose: () => void };

function SuspendDialog({ account, onClose }: DialogProps): JSX.Element {
  const { accountId, name } = account;
  const suspend = async ({ reason }: Act) => {
    await call(AccountsService.method.suspendAccount, { accountId, reason });
    accountChanged();
    notify(words.account.suspended(name));
  };
  return (
    <ActDialog
      title={words.account.suspendTitle(name)}
      kind="danger"
      submit={words.account.suspendButton}
      reasonLabel={words.account.suspendReason}
      onAct={suspend}
      onClose={onClose}
    >
      <p>{words.account.suspendLead}</p>
    </ActDialog>
  );
}

function ResumeDialog({ account, onClose }: DialogProps): JSX.Element {
  const { accountId, name } = account;
  const resume = async ({ reason }: Act) => {
    await call(AccountsService.method.resumeAccount, { accountId, reason });
    accountChanged();
    notify(words.account.resumed(name));
  };
  return (
    <ActDialog
      title={words.account.resumeTitle(name)}
      submit={words.account.resume}
      onAct={resume}
      onClose={onClose}
    >
      <p>{words.account.resumeLead}</p>
    </ActDialog>
  );
}

/** Which prices the account pays, where they are not those of everybody. */
function PriceListNotice({ account }: { readonly account: Account }): JSX.Element | null {
  const { priceListId, priceListAt } = account;
  const has = priceListId !== "";
  const { data } = useCall(PriceListsService.method.listPriceLists, has ? {} : undefined);
  const list = data?.priceLists.find((one) => one.priceListId === priceListId);
  if (!has || !list?.version) return null;
  const when = priceListAt ? day(priceListAt) : "";
  const takeBack = isOperatorAdmin() && (
    <LinkButton href={takeBackHref(account.accountId)}>{words.priceLists.takeBack}</LinkButton>
  );
  return (
    <Notice action={takeBack}>
      {words.account.priceList(list.name, list.version.number, when)}
    </Notice>
  );
}

function StatusNotice({ account }: { readonly account: Account }): JSX.Element | null {
  const { state: status, stateReason: statusReason, stateChangedAt: at } = account;
  const when = at ? relative(at) : "";
  const texts = words.account.status;
  if (status === AccountState.SUSPENDED)
    return <Notice tone="warn">{texts.suspended(when, statusReason)}</Notice>;
  if (status === AccountState.CLOSED) return <Notice tone="bad">{texts.closed(when)}</Notice>;
  return null;
}

function Overview({ accountId }: OfAccount): JSX.Element {
  const found = useCall(OperationsService.method.findAccounts, { query: accountId, pageSize });
  const pick = (accounts: readonly AccountSummary[]) =>
    accounts.find(({ account }) => account?.accountId === accountId);
  return (
    <View call={found} skeleton={<Skeleton figures={4} />}>
      {({ accounts }) => {
        const summary = pick(accounts);
        if (!summary) return null;
        const isWaiting =
          summary.waitingOrders + summary.waitingApprovals > 0 || summary.debtMicrocredits > 0n;
        return (
          <Figures>
            {summary.pools.map(
              ({ family, freeMicrocredits: free, heldMicrocredits: held = 0n }) => (
                <Figure
                  key={family}
                  label={words.account.free(familyName(family))}
                  value={credits(free)}
                  unit={words.account.credits}
                  {...(free < 0n && { tone: "bad" as const })}
                  note={
                    free < 0n
                      ? words.account.owes(credits(-free))
                      : `${shared.common.approximately(dollars(free))}, ${words.account.held(credits(held))}`
                  }
                />
              ),
            )}
            <Figure
              label={words.account.spent}
              value={credits(summary.spentMicrocredits)}
              unit={words.account.credits}
              note={shared.common.approximately(dollars(summary.spentMicrocredits))}
            />
            <Figure
              label={words.account.waiting}
              value={isWaiting ? <WaitingTags {...summary} /> : words.account.waitingNone}
              note={
                isWaiting && (
                  <a href={hrefOf(operatorPart, "attention")}>{words.account.toAttention}</a>
                )
              }
            />
          </Figures>
        );
      }}
    </View>
  );
}

const keysShown = 10;

function KeysCard({ accountId }: OfAccount): JSX.Element {
  const keys = useCall(KeysService.method.listKeys, { accountId, pageSize: keysShown });
  const { keysHead: head, keyStatuses } = words.account;
  return (
    <Card
      title={words.account.keys}
      note={nearMax(keys.data?.liveKeys, keys.data?.maxLiveKeys)}
      tools={
        <LinkButton kind="quiet" href={hrefOf(accountId, "keys", { status: "all" })}>
          {words.account.allKeys}
        </LinkButton>
      }
      flush
    >
      <ListTable
        call={keys}
        rowsOf={(answer) => answer.keys}
        greyRows={4}
        empty={words.account.keysNone}
        caption={words.account.keysCaption}
        columns={[
          {
            name: "key",
            head: head.key,
            cell: (key) => (
              <KeyName
                name={key.name}
                hint={key.secrets[0]?.hint}
                href={hrefOf(accountId, `keys/${key.keyId}`)}
              />
            ),
          },
          {
            name: "status",
            head: head.status,
            cell: ({ state: status }) => textOf(KeyState, keyStatuses, status),
          },
          {
            name: "month",
            head: head.month,
            end: true,
            cell: ({ monthSpentMicrocredits = 0n }) => credits(monthSpentMicrocredits),
          },
          {
            name: "used",
            head: head.used,
            cell: ({ lastUsedAt }) => <Time at={lastUsedAt} />,
          },
        ]}
        keyOf={({ keyId }) => keyId}
      />
    </Card>
  );
}

function MembersCard({ accountId }: OfAccount): JSX.Element {
  const request = isOperatorAdmin() ? { accountId } : undefined;
  const members = useCall(MembersService.method.listMembers, request);
  const { membersHead: head } = words.account;
  return (
    <Card
      title={words.account.members}
      tools={
        request && (
          <LinkButton kind="quiet" href={hrefOf(accountId, "members")}>
            {words.account.allMembers}
          </LinkButton>
        )
      }
      flush
    >
      {request ? (
        <ListTable
          call={members}
          rowsOf={(answer) => answer.members}
          greyRows={3}
          empty={words.account.membersNone}
          caption={words.account.membersCaption}
          columns={[
            {
              name: "person",
              head: head.person,
              cell: ({ name, login }) => (
                <span class="key-name" title={login}>
                  <bdi class="name">{name || login}</bdi>
                  {name && <span class="faint">{login}</span>}
                </span>
              ),
            },
            {
              name: "role",
              head: head.role,
              cell: ({ role }) => shared.shell.roles[roleName(role)],
            },
            {
              name: "seen",
              head: head.seen,
              cell: ({ lastSeenAt }) => <Time at={lastSeenAt} />,
            },
          ]}
          keyOf={({ personId }) => personId}
        />
      ) : (
        <Nothing>{words.account.membersAdmins}</Nothing>
      )}
    </Card>
  );
}

type FileLinkProps = OfAccount & { readonly name: "orders" | "documents" | "transfers" };

/** All of them as a file. */
function FileLink({ name, accountId }: FileLinkProps): JSX.Element {
  const to = `/console/export/${name}.csv?${new URLSearchParams({ account: accountId })}`;
  return (
    <LinkButton kind="quiet" href={to}>
      {words.account.files[name]}
    </LinkButton>
  );
}

function TransfersCard({ accountId }: OfAccount): JSX.Element {
  const nameOf = usePeopleNames();
  const transfers = usePages(
    BillingService.method.listTransfers,
    { accountId, pageSize },
    (page) => page.transfers,
  );
  const { transfersHead: head } = words.account;
  return (
    <Card
      title={words.account.transfers}
      tools={<FileLink name="transfers" accountId={accountId} />}
      flush
    >
      <PagedTable
        pages={transfers}
        greyRows={4}
        empty={words.account.transfersNone}
        caption={words.account.transfersCaption}
        columns={[
          {
            name: "at",
            head: head.at,
            cell: ({ createdAt }) => <Time at={createdAt} as="moment" />,
          },
          {
            name: "kind",
            head: head.kind,
            cell: ({ kind }) => textOf(TransferKind, shared.credits.kinds, kind),
          },
          {
            name: "amount",
            head: head.amount,
            end: true,
            cell: (transfer) => signedCredits(changeOf(transfer)),
          },
          {
            name: "after",
            head: head.after,
            end: true,
            cell: ({ postedAfterMicrocredits }) => credits(postedAfterMicrocredits),
          },
          { name: "pool", head: head.pool, cell: ({ family }) => poolOf(family).name },
          { name: "by", head: head.by, cell: ({ createdBy: actor }) => <bdi>{nameOf(actor)}</bdi> },
          {
            name: "reason",
            head: head.reason,
            cell: ({ reason }) => <Quoted text={reason} />,
          },
        ]}
        keyOf={({ transferId }) => transferId}
      />
    </Card>
  );
}

function OrdersCard({ accountId }: OfAccount): JSX.Element {
  const orders = usePages(
    PaymentsService.method.listOrders,
    { accountId, pageSize },
    (page) => page.orders,
  );
  const { ordersHead: head } = words.account;
  return (
    <Card
      title={words.account.orders}
      tools={<FileLink name="orders" accountId={accountId} />}
      flush
    >
      <PagedTable
        pages={orders}
        greyRows={2}
        empty={words.account.ordersNone}
        caption={words.account.ordersCaption}
        columns={[
          {
            name: "order",
            head: head.order,
            cell: ({ orderId, createdAt }) => (
              <a class="row-link" href={orderHref(orderId)}>
                <Time at={createdAt} as="moment" />
              </a>
            ),
          },
          { name: "state", head: head.state, cell: (order) => <OrderTag order={order} /> },
          { name: "pack", head: head.pack, cell: packText },
          {
            name: "granted",
            head: head.granted,
            end: true,
            cell: ({ grantedMicrocredits }) => credits(grantedMicrocredits),
          },
          {
            name: "receipt",
            head: head.receipt,
            cell: ({ receiptNumber }) => receiptNumber || words.none,
          },
        ]}
        keyOf={({ orderId }) => orderId}
      />
    </Card>
  );
}

/** In a page, of which those without a limit are left out. */
const budgetsMax = 1_000;

/** The limits of the pools and of those who spend them, and what is left. */
function BudgetsCard({ accountId }: OfAccount): JSX.Element {
  const pages = usePages(
    BillingService.method.listBudgets,
    { accountId, pageSize: budgetsMax },
    ({ budgets }) => budgets.filter(hasLimit),
  );
  const nameOf = usePeopleNames();
  const { budgetsHead: head, wholePool } = words.account;
  const payerOf = ({ payer }: Budget): JSX.Element => {
    const { case: kind, value } = payer?.payer ?? {};
    if (kind === "personId")
      return <bdi>{nameOf({ kind: { case: kind, value: String(value) } })}</bdi>;
    return kind === "managementKeyId" ? <code>{value}</code> : <span>{wholePool}</span>;
  };
  return (
    <Card title={words.account.budgets} flush>
      <PagedTable
        pages={pages}
        greyRows={2}
        empty={words.account.budgetsNone}
        caption={words.account.budgetsCaption}
        columns={[
          { name: "payer", head: head.payer, cell: payerOf },
          { name: "pool", head: head.pool, cell: ({ family }) => familyName(family) },
          { name: "limits", head: head.limits, cell: (budget) => <BudgetBars budget={budget} /> },
        ]}
        keyOf={({ payer, family }) => `${payer?.payer.case} ${payer?.payer.value} ${family}`}
      />
    </Card>
  );
}

function PromotionsCard({ accountId }: OfAccount): JSX.Element {
  const pages = usePages(
    SupportService.method.listPromotionUses,
    { accountId, pageSize },
    ({ uses }) => uses,
  );
  const { promotionsHead: head, takenBack, notPosted } = words.account;
  return (
    <Card title={words.account.promotions} flush>
      <PagedTable
        pages={pages}
        greyRows={2}
        empty={words.account.promotionsNone}
        caption={words.account.promotionsCaption}
        columns={[
          {
            name: "name",
            head: head.name,
            cell: ({ name, orderId, takenBack: isTakenBack, transferId }) => (
              <span class="row">
                <bdi class="clipped" title={name}>
                  {orderId === "" ? (
                    name || words.promotions.unnamed
                  ) : (
                    <a href={orderHref(orderId)}>{name || words.promotions.unnamed}</a>
                  )}
                </bdi>
                {isTakenBack && <Tag tone="warn">{takenBack}</Tag>}
                {transferId === "" && <Tag>{notPosted}</Tag>}
              </span>
            ),
          },
          {
            name: "bonus",
            head: head.bonus,
            end: true,
            cell: ({ bonusMicrocredits }) => credits(bonusMicrocredits),
          },
          { name: "at", head: head.at, cell: ({ usedAt }) => <Time at={usedAt} as="day" /> },
        ]}
        keyOf={({ promotionId: codeId }) => codeId}
      />
    </Card>
  );
}

function DocumentsCard({ accountId }: OfAccount): JSX.Element {
  const pages = usePages(
    SupportService.method.listDocuments,
    { accountId, pageSize },
    ({ documents }) => documents,
  );
  const [mailed, setMailed] = useState<string>();
  const { documentsHead: head, documentKinds } = words.account;
  return (
    <Card
      title={words.account.documents}
      tools={<FileLink name="documents" accountId={accountId} />}
      flush
    >
      <PagedTable
        pages={pages}
        greyRows={2}
        empty={words.account.documentsNone}
        caption={words.account.documentsCaption}
        columns={[
          {
            name: "number",
            head: head.number,
            cell: ({ number, orderId }) => (
              <a class="row-link" href={orderHref(orderId)}>
                {number}
              </a>
            ),
          },
          {
            name: "kind",
            head: head.kind,
            cell: ({ kind }) => textOf(DocumentKind, documentKinds, kind),
          },
          {
            name: "at",
            head: head.at,
            cell: ({ issuedAt }) => <Time at={issuedAt} as="day" isUtc />,
          },
          {
            name: "again",
            head: <span class="visually-hidden">{words.mails.mailIt}</span>,
            end: true,
            cell: ({ number }) => (
              <Button kind="quiet" onClick={() => setMailed(number)}>
                {words.mails.mailIt}
              </Button>
            ),
          },
        ]}
        keyOf={({ number }) => number}
      />
      {mailed !== undefined && (
        <DocumentDialog
          accountId={accountId}
          number={mailed}
          onClose={() => setMailed(undefined)}
        />
      )}
    </Card>
  );
}

function EventsCard({ accountId }: OfAccount): JSX.Element {
  const found = useCall(AuditService.method.listAuditEvents, { accountId, pageSize });
  const columns = useEventColumns();
  return (
    <Card
      title={words.account.audit}
      tools={
        <LinkButton kind="quiet" href={hrefOf(operatorPart, "audit", { account: accountId })}>
          {words.account.allAudit}
        </LinkButton>
      }
      flush
    >
      <ListTable
        call={found}
        rowsOf={({ events }) => events}
        greyRows={4}
        empty={words.account.auditNone}
        caption={words.account.audit}
        columns={columns}
        keyOf={({ eventId }) => eventId}
      />
    </Card>
  );
}
