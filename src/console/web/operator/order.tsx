// One order, as operators see it: what arrived, why it waits, and what can be decided.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApprovalsService } from "../../../../gen/gateway/approvals/v1/approvals_pb.ts";
import {
  Attention,
  DepositState,
  type Order,
  OrderState,
  RefundState,
} from "../../../../gen/gateway/payments/v1/order_pb.ts";
import {
  type DecideOrderRequestSchema,
  GrantRate,
  PaymentDeskService,
} from "../../../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { credits, parseDollars } from "../format.ts";
import { centsOf } from "../parts/bounds.ts";
import { Button, Copy } from "../parts/button.tsx";
import { exact, groupDigits } from "../parts/decimals.ts";
import { Dialog } from "../parts/dialog.tsx";
import { textOf } from "../parts/enum-names.ts";
import { ChoiceField, Form, fieldError, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { OrderEvents } from "../parts/order-events.tsx";
import { Deposits, Refunds, refundText } from "../parts/order-tables.tsx";
import { OrderTag, packText, paidWith, usdText } from "../parts/orders.tsx";
import { Card, Head } from "../parts/page.tsx";
import { PlayPayment } from "../parts/play-payment.tsx";
import { poolOf } from "../parts/pools.ts";
import { Facts, Notice, Time } from "../parts/small.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { hrefOf, type PageProps } from "../router.ts";
import { isOperatorAdmin, operatorPart } from "../session.ts";
import { words as shared } from "../words.ts";
import { type Act, ActDialog } from "./act.tsx";
import { ApprovalActions } from "./approvals.tsx";
import { AccountLink, LookOnly, usePeopleNames, useWaitingAccounts } from "./common.tsx";
import { transfersChanged } from "./transfer.tsx";
import { words } from "./words.ts";

export function OrderPage({ params }: PageProps): JSX.Element {
  const { orderId = "" } = params;
  const found = useCall(PaymentsService.method.getOrder, { orderId }, { isLive: true });
  const order = found.data?.order;
  const back = { href: hrefOf(operatorPart, "attention"), label: words.order.back };
  if (found.error?.reason === "not_found")
    return (
      <>
        <Head title={words.order.missingTitle} back={back} />
        <Card>
          <Empty>{words.order.missing}</Empty>
        </Card>
      </>
    );
  return (
    <>
      <Head
        title={order ? words.order.title(credits(order.packMicrocredits)) : words.order.facts.order}
        back={back}
        detail={order && <OrderTag order={order} />}
      />
      <LookOnly />
      <View call={found} skeleton={<Skeleton rows={8} />}>
        {() => order && <Whole order={order} />}
      </View>
    </>
  );
}

type OfOrder = { readonly order: Order };

function Whole({ order }: OfOrder): JSX.Element {
  return (
    <div class="order">
      <Waiting order={order} />
      <PlayPayment order={order} />
      <OpenRefund order={order} />
      <Deposits order={order} />
      <OrderEvents order={order} />
      <OrderFacts order={order} />
      <Refunds refunds={order.refunds} />
    </div>
  );
}

/** Why it waits, what was decided, and what can be. */
function Waiting({ order }: OfOrder): JSX.Element {
  const [open, setOpen] = useState<"decide" | "refund" | "void">();
  const nameOf = usePeopleNames();
  const { attention, notice, orderId } = order;
  const { listApprovals } = ApprovalsService.method;
  const { data } = useCall(listApprovals, { pageSize: 1000 });
  const approvals = (data?.approvals ?? []).filter(({ subject }) => subject === orderId);
  const close = () => setOpen(undefined);
  const waits = attention !== Attention.NONE;
  const mayReopen = order.state === OrderState.EXPIRED || order.state === OrderState.CANCELLED;
  const mayRefund = order.deposits.some(({ state }) => state === DepositState.SETTLED);
  return (
    <Card>
      <div class="stack">
        {waits ? (
          <Notice tone="warn">
            {words.order.why(textOf(Attention, words.attention.reasons, attention))}{" "}
            {notice !== "" && <span class="muted">{words.order.customerReads(notice)}</span>}
          </Notice>
        ) : (
          <p class="muted">{words.order.nothingWaits}</p>
        )}
        {approvals.map((approval) => (
          <Notice key={approval.approvalId} action={<ApprovalActions approval={approval} />}>
            <bdi>{`${nameOf(approval.requestedBy)}: ${approval.what} ${approval.reason}`}</bdi>
          </Notice>
        ))}
        {isOperatorAdmin() && (
          <div class="row">
            {(waits || mayReopen) && (
              <Button
                kind={approvals.length > 0 ? "plain" : "main"}
                onClick={() => setOpen("decide")}
              >
                {words.order.decide}
              </Button>
            )}
            {mayRefund && <Button onClick={() => setOpen("refund")}>{words.order.refund}</Button>}
            {order.state === OrderState.OPEN && (
              <Button onClick={() => setOpen("void")}>{words.order.void}</Button>
            )}
          </div>
        )}
      </div>
      {open === "decide" && <DecideDialog order={order} onClose={close} />}
      {open === "refund" && <RefundDialog order={order} onClose={close} />}
      {open === "void" && <VoidDialog order={order} onClose={close} />}
    </Card>
  );
}

function orderChanged(): void {
  const { getOrder, listOrders } = PaymentsService.method;
  const { listAttention } = PaymentDeskService.method;
  invalidate(getOrder, listOrders, listAttention);
  transfersChanged();
}

type DialogProps = OfOrder & { readonly onClose: () => void };

function VoidDialog({ order, onClose }: DialogProps): JSX.Element {
  const cancel = async ({ reason }: Act) => {
    const { orderId } = order;
    await call(PaymentsService.method.cancelOrder, { orderId, reason }).finally(orderChanged);
    notify(words.order.voided);
  };
  return (
    <ActDialog
      title={words.order.voidTitle}
      kind="danger"
      submit={words.order.void}
      onAct={cancel}
      onClose={onClose}
    >
      <p>{words.order.voidLead}</p>
    </ActDialog>
  );
}

type Choice = keyof typeof words.order.choices;

function DecideDialog({ order, onClose }: DialogProps): JSX.Element {
  const waits = order.attention !== Attention.NONE;
  const mayReopen = order.state === OrderState.EXPIRED || order.state === OrderState.CANCELLED;
  const choices: readonly Choice[] = [
    ...(waits ? (["quote", "market", "amount", "close"] as const) : []),
    ...(mayReopen ? (["reopen"] as const) : []),
  ];
  const [choice, setChoice] = useState<Choice>(waits ? "amount" : "reopen");
  const [amount, setAmount] = useState("");
  const send = async (act: Act) => {
    const { approval } = await call(PaymentDeskService.method.decideOrder, {
      ...{ orderId: order.orderId, ...act, choice: choiceOf(choice, amount) },
    }).finally(orderChanged);
    notify(approval ? words.order.waits : words.order.done);
  };
  return (
    <ActDialog
      title={words.order.decideTitle}
      submit={words.order.submit}
      fields={["choice", "rate", granted]}
      onAct={send}
      onClose={onClose}
    >
      <ChoiceField
        name="rate"
        label={words.order.choice}
        value={choice}
        onInput={setChoice}
        options={choices.map((value) => ({ value, ...words.order.choices[value] }))}
      />
      {choice === "amount" && <DollarsField name={granted} value={amount} onInput={setAmount} />}
    </ActDialog>
  );
}

// The fields of the two requests that have an amount.
const granted = "granted_microdollars";
const refunded = "amount_microdollars";

type DollarsFieldProps = {
  readonly name: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
};

function DollarsField({ name, value, onInput }: DollarsFieldProps): JSX.Element {
  return (
    <TextField
      name={name}
      label={words.order.amount}
      type="number"
      value={value}
      onInput={onInput}
    />
  );
}

type Decided = NonNullable<MessageInitShape<typeof DecideOrderRequestSchema>["choice"]>;

/** Throws a CallError for an amount that is none. */
function choiceOf(choice: Choice, amount: string): Decided {
  switch (choice) {
    case "close":
      return { case: "close", value: {} };
    case "reopen":
      return { case: "reopen", value: {} };
    case "amount":
      return {
        case: "grant",
        value: { what: { case: "grantedMicrodollars", value: dollarsOf(granted, amount) } },
      };
    case "quote":
      return { case: "grant", value: { what: { case: "rate", value: GrantRate.QUOTE } } };
    case "market":
      return { case: "grant", value: { what: { case: "rate", value: GrantRate.MARKET } } };
  }
}

function dollarsOf(field: string, text: string): bigint {
  const micro = parseDollars(text);
  if (micro === undefined || micro === 0n) throw fieldError(field, words.order.notAnAmount);
  return micro;
}

function RefundDialog({ order, onClose }: DialogProps): JSX.Element {
  const unvalued = order.deposits.filter(
    ({ state, valueMicrodollars }) =>
      state === DepositState.SETTLED && valueMicrodollars === undefined,
  );
  const [what, setWhat] = useState("");
  const [amount, setAmount] = useState("");
  const begin = async (act: Act) => {
    const { approval } = await call(PaymentDeskService.method.beginRefund, {
      ...{ orderId: order.orderId, ...act },
      what:
        what === ""
          ? { case: "amountMicrodollars", value: dollarsOf(refunded, amount) }
          : { case: "depositId", value: what },
    }).finally(orderChanged);
    notify(approval ? words.order.waits : words.order.refundBegun);
  };
  return (
    <ActDialog
      title={words.order.refundTitle}
      kind="danger"
      submit={words.order.refundSubmit}
      fields={["deposit_id", refunded]}
      onAct={begin}
      onClose={onClose}
    >
      <p>{words.order.refundLead}</p>
      {unvalued.length > 0 && (
        <ChoiceField
          name="deposit_id"
          label={words.order.refundWhat}
          value={what}
          onInput={setWhat}
          options={[
            { value: "", label: words.order.refundAmount, hint: words.order.refundAmountHint },
            ...unvalued.map(({ depositId, coins, asset }) => ({
              value: depositId,
              label: words.order.refundDeposit(`${coins} ${asset}`),
              hint: words.order.refundDepositHint,
            })),
          ]}
        />
      )}
      {what === "" && <DollarsField name={refunded} value={amount} onInput={setAmount} />}
    </ActDialog>
  );
}

/** The refund whose coins somebody has to send. */
function OpenRefund({ order }: OfOrder): JSX.Element | null {
  const [isOpen, setOpen] = useState(false);
  const refund = order.refunds.find(({ state }) => state === RefundState.REFUNDING);
  if (!refund) return null;
  const { orderId } = order;
  const giveUp = async () => {
    await call(PaymentDeskService.method.cancelRefund, { orderId }).finally(orderChanged);
    notify(words.order.cancelledRefund);
  };
  return (
    <Notice
      tone="warn"
      action={
        isOperatorAdmin() && (
          <>
            <Button kind="quiet" onClick={giveUp}>
              {words.order.cancelRefund}
            </Button>
            <Button kind="main" onClick={() => setOpen(true)}>
              {words.order.complete}
            </Button>
          </>
        )
      }
    >
      {words.order.refundToSend(
        refund.refundedMicrodollars === 0n ? words.order.wholeDeposit : refundText(refund),
      )}
      {isOpen && <CompleteDialog order={order} onClose={() => setOpen(false)} />}
    </Notice>
  );
}

function CompleteDialog({ order, onClose }: DialogProps): JSX.Element {
  const [transaction, setTransaction] = useState("");
  const complete = async () => {
    const request = { orderId: order.orderId, transaction: transaction.trim() };
    await call(PaymentDeskService.method.completeRefund, request).finally(orderChanged);
    notify(words.order.completed);
    onClose();
  };
  return (
    <Dialog title={words.order.completeTitle} onClose={onClose}>
      <Form
        submit={words.order.complete}
        fields={["transaction"]}
        onSubmit={complete}
        onCancel={onClose}
      >
        <TextField
          name="transaction"
          label={words.order.transaction}
          value={transaction}
          onInput={setTransaction}
          isFirst
        />
      </Form>
    </Dialog>
  );
}

function OrderFacts({ order }: OfOrder): JSX.Element {
  const { facts } = words.order;
  const accounts = useWaitingAccounts();
  const nameOf = usePeopleNames();
  const { accountId, asset } = order;
  return (
    <Card>
      <Facts>
        {[
          [
            facts.account,
            <AccountLink
              key="account"
              accountId={accountId}
              name={accounts.get(accountId)?.account?.name}
            />,
          ],
          [
            facts.pack,
            `${packText(order)}, $${usdText(centsOf(order.packMicrodollars))}, ${poolOf(order.family).name}`,
          ],
          [facts.paidWith, paidWith(order)],
          [facts.rate, shared.purchase.rateOf(asset, groupDigits(order.usdPerCoin))],
          [facts.quoted, `${groupDigits(order.quotedCoins)} ${asset}`],
          [facts.seen, `${groupDigits(order.seenCoins)} ${asset}`],
          [facts.settled, `${groupDigits(order.settledCoins)} ${asset}`],
          [facts.granted, credits(order.grantedMicrocredits)],
          [facts.refunded, `$${exact(order.refundedMicrodollars)}`],
          [facts.made, <Time key="made" at={order.createdAt} as="moment" />],
          [facts.by, <bdi key="by">{nameOf(order.createdBy)}</bdi>],
          [facts.watched, <Time key="watched" at={order.watchedUntil} as="moment" />],
          [facts.payTo, <code key="to">{order.payTo}</code>],
          [
            facts.order,
            <span key="id" class="id">
              <code>{order.orderId}</code> <Copy text={order.orderId} isSmall />
            </span>,
          ],
        ]}
      </Facts>
    </Card>
  );
}
