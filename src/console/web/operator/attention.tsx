// What waits for a person: orders, approvals, debts, and the last check of the ledger.

import type { JSX } from "preact";
import { ApprovalsService } from "../../../../gen/gateway/approvals/v1/approvals_pb.ts";
import { Part } from "../../../../gen/gateway/common/v1/actor_pb.ts";
import {
  AccountFilter,
  OperationsService,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { type Order, Attention as Reason } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { PaymentDeskService } from "../../../../gen/gateway/payments/v1/payment_desk_pb.ts";
import {
  type Verification,
  VerificationService,
} from "../../../../gen/gateway/verification/v1/verification_pb.ts";
import { call, useCall, usePages } from "../api.ts";
import { credits, dollars, duration, relative, toDate } from "../format.ts";
import { NewestAlerts } from "../parts/alerts.tsx";
import { Button, LinkButton } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { notify } from "../parts/messages.ts";
import { paidWith } from "../parts/orders.tsx";
import { Card, Head } from "../parts/page.tsx";
import { Notice, Time } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { isOperatorAdmin } from "../session.ts";
import { ApprovalActions } from "./approvals.tsx";
import {
  AccountLink,
  LookOnly,
  Owners,
  orderHref,
  PagedTable,
  Quoted,
  usePeopleNames,
  useWaitingAccounts,
} from "./common.tsx";
import { words } from "./words.ts";

const pageSize = 50;

export function Attention(): JSX.Element {
  return (
    <>
      <Head title={words.attention.title} />
      <p class="intro muted">{words.attention.intro}</p>
      <LookOnly />
      <OrdersCard />
      <ApprovalsCard />
      <DebtsCard />
      <LedgerCard />
      <NewestAlerts ofOperators />
    </>
  );
}

function OrdersCard(): JSX.Element {
  const accounts = useWaitingAccounts();
  const orders = usePages(
    PaymentDeskService.method.listAttention,
    { pageSize },
    (page) => page.orders,
  );
  const { ordersHead: head, reasons } = words.attention;
  return (
    <Card title={words.attention.orders} about={words.attention.ordersAbout} flush>
      <PagedTable
        pages={orders}
        greyRows={3}
        empty={words.attention.ordersNone}
        caption={words.attention.ordersCaption}
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
          {
            name: "account",
            head: head.account,
            cell: ({ accountId }) => (
              <AccountLink accountId={accountId} name={accounts.get(accountId)?.account?.name} />
            ),
          },
          {
            name: "why",
            head: head.why,
            cell: ({ attention }) => textOf(Reason, reasons, attention),
          },
          { name: "arrived", head: head.arrived, cell: arrivedText },
          {
            name: "decision",
            head: head.decision,
            cell: ({ orderId }) => (
              <LinkButton href={orderHref(orderId)}>{words.attention.look}</LinkButton>
            ),
          },
        ]}
        keyOf={({ orderId }) => orderId}
      />
    </Card>
  );
}

/** The newest deposit, or what was ordered. */
function arrivedText(order: Order): string {
  const deposit = order.deposits.at(-1);
  return deposit ? `${deposit.coins} ${deposit.asset}` : paidWith(order);
}

function ApprovalsCard(): JSX.Element {
  const accounts = useWaitingAccounts();
  const nameOf = usePeopleNames();
  const approvals = usePages(
    ApprovalsService.method.listApprovals,
    { pageSize },
    (page) => page.approvals,
  );
  const { approvalsHead: head } = words.attention;
  return (
    <Card title={words.attention.approvals} about={words.attention.approvalsAbout} flush>
      <PagedTable
        pages={approvals}
        greyRows={2}
        empty={words.attention.approvalsNone}
        caption={words.attention.approvalsCaption}
        columns={[
          {
            name: "at",
            head: head.at,
            cell: ({ requestedAt }) => <Time at={requestedAt} />,
          },
          {
            name: "account",
            head: head.account,
            cell: ({ accountId }) =>
              accountId !== "" && (
                <AccountLink accountId={accountId} name={accounts.get(accountId)?.account?.name} />
              ),
          },
          {
            name: "what",
            head: head.what,
            cell: ({ what }) => <bdi class="sentence">{what}</bdi>,
          },
          {
            name: "by",
            head: head.by,
            cell: ({ requestedBy, givenMicrodollars }) => (
              <span class="sentence">
                <bdi>{nameOf(requestedBy)}</bdi>{" "}
                {givenMicrodollars > 0n && (
                  <span class="faint">
                    {words.attention.given(dollars(givenMicrodollars * 200n))}
                  </span>
                )}
              </span>
            ),
          },
          {
            name: "reason",
            head: head.reason,
            cell: ({ reason }) => <Quoted text={reason} />,
          },
          {
            name: "actions",
            head: head.actions,
            end: true,
            cell: (approval) => <ApprovalActions approval={approval} />,
          },
        ]}
        keyOf={({ approvalId }) => approvalId}
      />
    </Card>
  );
}

function DebtsCard(): JSX.Element {
  const accounts = usePages(
    OperationsService.method.findAccounts,
    { filter: AccountFilter.IN_DEBT, pageSize },
    (page) => page.accounts,
  );
  const { debtsHead: head } = words.attention;
  return (
    <Card title={words.attention.debts} about={words.attention.debtsAbout} flush>
      <PagedTable
        pages={accounts}
        greyRows={2}
        empty={words.attention.debtsNone}
        caption={words.attention.debtsCaption}
        columns={[
          {
            name: "account",
            head: head.account,
            cell: ({ account }) => (
              <AccountLink accountId={account?.accountId ?? ""} name={account?.name} />
            ),
          },
          { name: "owners", head: head.owners, cell: (one) => <Owners {...one} /> },
          {
            name: "debt",
            head: head.debt,
            end: true,
            cell: ({ debtMicrocredits }) => credits(debtMicrocredits),
          },
        ]}
        keyOf={({ account }) => account?.accountId ?? ""}
      />
    </Card>
  );
}

const verifyEveryMs = 36 * 3_600_000;

function LedgerCard(): JSX.Element {
  const found = useCall(VerificationService.method.getLastVerification, {}, { isLive: true });
  const verify = async () => {
    await call(VerificationService.method.verifyLedger, {});
    found.refresh();
    notify(words.attention.verified);
  };
  return (
    <Card
      title={words.attention.ledger}
      about={words.attention.ledgerAbout}
      tools={isOperatorAdmin() && <Button onClick={verify}>{words.attention.verify}</Button>}
    >
      <View call={found} skeleton={<Skeleton rows={1} />}>
        {({ latest, latestCleanAt }) =>
          latest ? (
            <VerificationText latest={latest} cleanAt={latestCleanAt && relative(latestCleanAt)} />
          ) : (
            <Notice tone="warn">{words.attention.ledgerNever}</Notice>
          )
        }
      </View>
    </Card>
  );
}

type VerificationTextProps = {
  readonly latest: Verification;
  readonly cleanAt: string | undefined;
};

function VerificationText({ latest, cleanAt }: VerificationTextProps): JSX.Element {
  const nameOf = usePeopleNames();
  const { startedAt, endedAt, startedBy, violationCount, violations } = latest;
  const texts = words.attention;
  const end = endedAt ? toDate(endedAt) : new Date();
  const took = end.getTime() - (startedAt ? toDate(startedAt) : end).getTime();
  const when = relative(end);
  const isOld = Date.now() - end.getTime() > verifyEveryMs;
  const by = startedBy?.kind.value === Part.VERIFY_LEDGER ? texts.command : nameOf(startedBy);
  const { violationsHead: head } = texts;
  return (
    <div class="stack">
      {violationCount > 0 ? (
        <Notice tone="bad">
          {texts.ledgerBad(violationCount, when)} {cleanAt && texts.ledgerCleanAt(cleanAt)}
        </Notice>
      ) : (
        <Notice tone={isOld ? "warn" : "good"}>
          {isOld ? texts.ledgerOld(when) : texts.ledgerClean(when)}
        </Notice>
      )}
      <p class="faint">{texts.ledgerBy(by, duration(took))}</p>
      {violations.length > 0 && (
        <Table
          caption={texts.violations}
          columns={[
            {
              name: "invariant",
              head: head.invariant,
              sortBy: ({ invariant }) => invariant,
              cell: ({ invariant }) => invariant,
            },
            {
              name: "subject",
              head: head.subject,
              sortBy: ({ subject }) => subject,
              cell: ({ subject }) => <code>{subject}</code>,
            },
            {
              name: "detail",
              head: head.detail,
              cell: ({ detail }) => <span class="sentence">{detail}</span>,
            },
          ]}
          rows={violations}
          keyOf={({ invariant, subject }) => `${invariant} ${subject}`}
        />
      )}
      {violations.length < violationCount && (
        <p class="faint">{texts.violationsMore(violationCount - violations.length)}</p>
      )}
    </div>
  );
}
