// An order: what to send where, what was seen so far, and what went wrong. It follows along by one
// stream, which also makes the gateway look more often.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import {
  DepositState,
  type Order,
  OrderState,
  RefundState,
} from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { type Call, call, invalidate, type StreamState, useCall, useStream } from "../api.ts";
import { clock, credits, toDate } from "../format.ts";
import { centsOf } from "../parts/bounds.ts";
import { Button, Copy, LinkButton } from "../parts/button.tsx";
import { addDecimals, countdown, groupDigits, isZero } from "../parts/decimals.ts";
import { Dialog } from "../parts/dialog.tsx";
import { Form } from "../parts/form.tsx";
import { OrderEvents } from "../parts/order-events.tsx";
import { Deposits, Refunds, refundText } from "../parts/order-tables.tsx";
import { networkName, OrderTag, usdText } from "../parts/orders.tsx";
import { Card, Head } from "../parts/page.tsx";
import { PlayPayment } from "../parts/play-payment.tsx";
import { poolNameOf, poolOf, poolsChanged } from "../parts/pools.ts";
import { Qr } from "../parts/qr.tsx";
import { Facts, Notice, Time } from "../parts/small.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps } from "../router.ts";
import { canBuy, mayBuy } from "../session.ts";
import { words } from "../words.ts";

/** An order as it changes. */
export function useWatchedOrder(orderId: string): {
  readonly found: Call<Order>;
  readonly stream: StreamState;
} {
  const first = useCall(PaymentsService.method.getOrder, { orderId });
  const [newest, setNewest] = useState<Order>();
  const order = newest?.orderId === orderId ? newest : first.data?.order;
  // Of a closed order, the stream ends at once.
  const isWatched = order !== undefined && order.state !== OrderState.CLOSED;
  const stream = useStream(
    PaymentsService.method.watchOrder,
    isWatched ? { orderId } : undefined,
    ({ order: next }) => {
      if (!next) return;
      setNewest(next);
      // Other pages show them, too.
      invalidate(PaymentsService.method.listOrders);
      if (next.grantedMicrocredits !== order?.grantedMicrocredits) poolsChanged();
    },
  );
  return { found: { ...first, data: order }, stream };
}

export function OrderPage({ params }: PageProps): JSX.Element {
  const { found, stream } = useWatchedOrder(params.orderId ?? "");
  const order = found.data;
  return (
    <>
      <Head
        title={
          order
            ? words.purchase.orderTitle(credits(order.packMicrocredits))
            : words.purchase.anOrder
        }
        back={{ href: href("credits"), label: words.purchase.back }}
        detail={
          order && (
            <span class="row">
              {words.purchase.forPool(
                usdText(centsOf(order.packMicrodollars)),
                poolOf(order.family).inText,
              )}
              <OrderTag order={order} />
            </span>
          )
        }
      />
      <View call={found} skeleton={<Skeleton rows={8} />} missing={words.purchase.missing}>
        {(shown) => <Whole order={shown} stream={stream} />}
      </View>
    </>
  );
}

type WatchedProps = { readonly order: Order; readonly stream: StreamState };

function Whole({ order, stream }: WatchedProps): JSX.Element {
  return (
    <div class="order">
      {order.simulated && <Notice tone="warn">{words.purchase.simulated}</Notice>}
      <Payment order={order} stream={stream} />
      <PlayPayment order={order} />
      <OrderActions order={order} />
      <Deposits order={order} />
      <Refunds refunds={order.refunds} />
      <OrderEvents order={order} />
      <OrderFacts order={order} />
    </div>
  );
}

/** What was seen so far, what went wrong, and what to send. */
export function Payment({ order, stream }: WatchedProps): JSX.Element {
  const now = useNow();
  const problem = problemOf(order, now);
  return (
    <>
      <Seen order={order} stream={stream} now={now} />
      {problem && (
        <Notice tone="warn" action={problem.action}>
          {problem.text}
        </Notice>
      )}
      {needsPayment(order, now) && <Pay order={order} now={now} />}
    </>
  );
}

function OrderActions({ order }: { readonly order: Order }): JSX.Element {
  const [isCancelling, setCancelling] = useState(false);
  return (
    <div class="row order-actions">
      {order.receiptNumber !== "" && (
        <LinkButton href={href(`credits/orders/${order.orderId}/receipt`)}>
          {words.purchase.receipt} {order.receiptNumber}
        </LinkButton>
      )}
      {order.state === OrderState.PAID && (
        <LinkButton kind="main" href={href("credits")}>
          {words.purchase.toCredits}
        </LinkButton>
      )}
      {order.state === OrderState.OPEN && mayBuy() && (
        <Button kind="quiet" onClick={() => setCancelling(true)}>
          {words.purchase.cancel}
        </Button>
      )}
      {isCancelling && <CancelDialog order={order} onClose={() => setCancelling(false)} />}
    </div>
  );
}

function OrderFacts({ order }: { readonly order: Order }): JSX.Element {
  const { facts, rateOf } = words.purchase;
  return (
    <Card>
      <Facts>
        {[
          [facts.by, poolOf(order.family).name],
          [facts.made, <Time key="made" at={order.createdAt} as="moment" />],
          [facts.rate, rateOf(order.asset, groupDigits(order.usdPerCoin))],
          [facts.watched, <Time key="until" at={order.watchedUntil} as="day" />],
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

/** True while it makes sense to send something to the address. */
function needsPayment(
  { state, quotedUntil, missingCoins: missingAmount }: Order,
  now: Date,
): boolean {
  const isQuoted = quotedUntil !== undefined && toDate(quotedUntil) > now;
  const isWaiting =
    state === OrderState.OPEN || state === OrderState.SEEN || state === OrderState.PARTLY_PAID;
  return isWaiting && isQuoted && !isZero(missingAmount);
}

/** The line that changes: what was seen so far. */
function Seen({
  order,
  stream,
  now,
}: {
  readonly order: Order;
  readonly stream: StreamState;
  readonly now: Date;
}): JSX.Element {
  const { lookedAt, lookedNever, stream: streams } = words.purchase;
  const isOver = order.state === OrderState.PAID || order.state === OrderState.CLOSED;
  return (
    <section class="card order-seen" data-state={order.state}>
      <div class="body stack">
        <p class="seen-line" role="status">
          {seenText(order)}
        </p>
        {!isOver && (
          <p class="faint">
            {order.lookedAt ? lookedAt(ago(toDate(order.lookedAt), now)) : lookedNever}{" "}
            {stream === "waiting" && streams.waiting}{" "}
            {order.state === OrderState.OPEN && words.purchase.seen.leave}
          </p>
        )}
      </div>
    </section>
  );
}

function seenText(order: Order): string {
  const { seen, states } = words.purchase;
  const {
    asset,
    quotedCoins: quotedAmount,
    seenCoins: seenAmount,
    settledCoins: settledAmount,
    missingCoins: missingAmount,
    family,
    state,
  } = order;
  const waiting = order.deposits.filter((one) => one.state === DepositState.SEEN);
  if (state === OrderState.PAID)
    return seen.paid(credits(order.grantedMicrocredits), poolOf(family).inText);
  if (waiting.length > 0) {
    const [slowest] = [...waiting].sort((a, b) => a.confirmations - b.confirmations);
    const known = isZero(settledAmount) ? seenAmount : addDecimals(seenAmount, settledAmount);
    const confirmed = slowest
      ? ` ${seen.confirmations(slowest.confirmations, slowest.confirmationsNeeded)}`
      : "";
    return isZero(known)
      ? `${states.SEEN}.${confirmed}`
      : `${seen.seen(known, quotedAmount, asset)}${confirmed}`;
  }
  if (!isZero(settledAmount)) return seen.partly(settledAmount, missingAmount, asset);
  if (order.deposits.some((one) => one.state === DepositState.SETTLED)) return seen.other;
  return state === OrderState.CANCELLED || state === OrderState.CLOSED
    ? seen.nothingAtAll
    : seen.nothing;
}

/** What went wrong, in one paragraph, and the one thing to do about it. */
function problemOf(
  order: Order,
  now: Date,
): { readonly text: string; readonly action?: JSX.Element } | undefined {
  const { wrong, again } = words.purchase;
  const {
    state,
    notice,
    grantedMicrocredits: granted,
    packMicrocredits: microcredits,
    quotedUntil,
  } = order;
  const buyAgain = canBuy() ? (
    <LinkButton
      href={href("credits/buy", {
        pool: poolNameOf(order.family),
        pack: String(centsOf(order.packMicrodollars)),
      })}
    >
      {again}
    </LinkButton>
  ) : undefined;
  const withAgain = (text: string) => ({ text, ...(buyAgain && { action: buyAgain }) });
  if (notice !== "") return { text: notice };
  const refund = order.refunds.find((one) => one.state === RefundState.REFUNDING);
  if (refund) return { text: wrong.refunding(refundText(refund)) };
  const isQuoted = quotedUntil !== undefined && toDate(quotedUntil) > now;
  switch (state) {
    case OrderState.PARTLY_PAID:
      if (granted > 0n) return { text: wrong.partlyOver(credits(granted)) };
      return isQuoted ? { text: wrong.partlyOpen(clock(quotedUntil)) } : { text: wrong.partlyDust };
    case OrderState.SEEN:
      return isQuoted ? undefined : { text: wrong.lateSeen };
    case OrderState.EXPIRED:
      return withAgain(wrong.expired);
    case OrderState.CANCELLED:
      return withAgain(wrong.cancelled);
    case OrderState.CLOSED:
      return granted > 0n ? undefined : withAgain(wrong.closed);
    case OrderState.PAID:
      return granted > microcredits ? { text: wrong.overpaid(credits(granted)) } : undefined;
    default:
      return undefined;
  }
}

/** What to send, where, and until when. */
function Pay({ order, now }: { readonly order: Order; readonly now: Date }): JSX.Element {
  const {
    asset,
    network,
    payTo,
    memo,
    checkoutUrl,
    quotedUntil,
    missingCoins: missingAmount,
    state,
  } = order;
  const isRest = state !== OrderState.OPEN;
  const until = quotedUntil && toDate(quotedUntil);
  const isInvoice = network.includes("lightning");
  const pay = words.purchase;
  return (
    <section class="card pay">
      <div class="body columns">
        <div class="pay-code">
          <Qr text={payText(order)} label={pay.qr(asset, payTo)} />
        </div>
        <div class="pay-facts">
          <p class="label">{isRest ? pay.amountMissing : pay.amount}</p>
          <p class="pay-amount">
            <b>{groupDigits(missingAmount)}</b> <span>{asset}</span>
            <Copy text={missingAmount} label={pay.copyAmount} isSmall />
          </p>
          <p class="label">{isInvoice ? pay.invoice : pay.address}</p>
          <p class="pay-address">
            <code>{payTo}</code>
            <Copy text={payTo} label={pay.copyAddress} isSmall />
          </p>
          {memo !== "" && (
            <>
              <p class="label">{pay.memo}</p>
              <p class="pay-address">
                <code>{memo}</code>
                <Copy text={memo} label={pay.copyMemo} isSmall />
              </p>
              <p class="problem pay-memo">{pay.memoNote}</p>
            </>
          )}
          {until && (
            <p class="pay-time">
              <span role="timer">{pay.countdown(countdown(until, now))}</span>{" "}
              <span class="faint">{pay.until(clock(until))}</span>
            </p>
          )}
          <ul class="pay-notes muted">
            <li>{pay.onlyNetwork(asset, networkName(network))}</li>
            <li>{pay.exchangeFee}</li>
          </ul>
          {checkoutUrl.startsWith("https://") && (
            <LinkButton href={checkoutUrl}>{pay.checkout}</LinkButton>
          )}
        </div>
      </div>
    </section>
  );
}

/** What a wallet reads. Only of bitcoin do all wallets understand an amount. */
function payText({ asset, network, payTo, missingCoins: missingAmount, simulated }: Order): string {
  const isPlain = simulated || asset !== "BTC" || network !== "bitcoin";
  return isPlain ? payTo : `bitcoin:${payTo}?amount=${missingAmount}`;
}

/** Moves on every second. */
function useNow(): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

function ago(at: Date, now: Date): string {
  const seconds = Math.max(0, Math.round((now.getTime() - at.getTime()) / 1000));
  return words.purchase.secondsAgo(seconds);
}

function CancelDialog({
  order,
  onClose,
}: {
  readonly order: Order;
  readonly onClose: () => void;
}): JSX.Element {
  const { orderId } = order;
  const cancel = async () => {
    await call(PaymentsService.method.cancelOrder, { orderId });
    const { getOrder, listOrders } = PaymentsService.method;
    invalidate(getOrder, listOrders);
    onClose();
  };
  return (
    <Dialog title={words.purchase.cancelTitle} onClose={onClose}>
      <p>{words.purchase.cancelText}</p>
      <Form
        submit={words.purchase.cancel}
        kind="danger"
        onSubmit={cancel}
        onCancel={onClose}
        cancel={words.purchase.keep}
      />
    </Dialog>
  );
}
