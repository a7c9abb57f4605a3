// Both pools, what came into them, orders, and what waits for a person.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  BillingService,
  type Transfer,
  TransferKind,
} from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import type { BudgetLimits } from "../../../../gen/gateway/common/v1/budget_pb.ts";
import type { Forecast } from "../../../../gen/gateway/common/v1/forecast_pb.ts";
import { AccountRole } from "../../../../gen/gateway/common/v1/roles_pb.ts";
import { Attention, type Order } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { call, invalidate, useCall, usePages } from "../api.ts";
import { credits, dollars, signedCredits } from "../format.ts";
import { BudgetBar, BudgetDialog } from "../parts/budget.tsx";
import { Button, LinkButton } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { notify } from "../parts/messages.ts";
import { OrderTag, packText, paidWith } from "../parts/orders.tsx";
import { Card, Head } from "../parts/page.tsx";
import { isSpent, poolNameOf, poolOf } from "../parts/pools.ts";
import { PromotionForm } from "../parts/promotion.tsx";
import { RunningRequests } from "../parts/running-requests.tsx";
import { Notice, Time } from "../parts/small.tsx";
import { momentOf, Table } from "../parts/table.tsx";
import { changeOf } from "../parts/transfers.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps, useQuery } from "../router.ts";
import { account, can, canBuy } from "../session.ts";
import { words } from "../words.ts";

const pageSize = 20;

export function Credits(_: PageProps): JSX.Element {
  const { accountId } = account.value;
  const pools = useCall(UsageService.method.getForecast, { accountId }, { isLive: true });
  const orders = usePages(
    PaymentsService.method.listOrders,
    { accountId, pageSize },
    (page) => page.orders,
    { isLive: true },
  );
  return (
    <>
      <Head
        title={words.credits.title}
        tools={
          canBuy() && (
            <LinkButton kind="main" href={href("credits/buy")}>
              {words.credits.buy}
            </LinkButton>
          )
        }
      />
      <p class="intro muted">{words.credits.intro}</p>
      <Waiting orders={orders.data?.items ?? []} />
      <View call={pools} skeleton={<Skeleton figures={2} />}>
        {({ forecasts }) => (
          <div class="pools columns">
            {forecasts.map((forecast) => (
              <PoolCard key={forecast.family} forecast={forecast} />
            ))}
          </div>
        )}
      </View>
      <Card
        title={words.credits.orders}
        tools={
          <LinkButton kind="quiet" href={href("settings")}>
            {words.credits.detailsLink}
          </LinkButton>
        }
        flush
      >
        <View
          call={orders}
          skeleton={<Skeleton rows={3} />}
          empty={({ items }) =>
            items.length === 0 ? (
              <p class="card-text muted">{words.credits.ordersNone}</p>
            ) : undefined
          }
        >
          {({ items, isLast }) => (
            <>
              <Orders orders={items} isPart={!isLast} />
              {!isLast && <More onMore={orders.more} />}
            </>
          )}
        </View>
      </Card>
      <Transfers />
      {account.value.role === AccountRole.OWNER && (
        <div class="purchase">
          <Promotion />
        </div>
      )}
    </>
  );
}

/** Orders that wait for somebody, so that nobody has to ask where the money is. */
function Waiting({ orders }: { readonly orders: readonly Order[] }): JSX.Element | null {
  const waiting = orders.filter(
    ({ attention, notice }) => attention !== Attention.NONE || notice !== "",
  );
  if (waiting.length === 0) return null;
  return (
    <section aria-label={words.credits.waiting} class="stack orders-waiting">
      {waiting.map((order) => (
        <Notice
          key={order.orderId}
          tone="warn"
          action={
            <LinkButton href={href(`credits/orders/${order.orderId}`)}>
              {words.credits.look}
            </LinkButton>
          }
        >
          <strong>{words.credits.waitingFor(packText(order))}.</strong> {order.notice}
        </Notice>
      ))}
    </section>
  );
}

function PoolCard({ forecast }: { readonly forecast: Forecast }): JSX.Element {
  const { family, freeMicrocredits: free, heldMicrocredits: held } = forecast;
  const { filledToMicrocredits: filled } = forecast;
  const { name, inText, keys } = poolOf(family);
  const isDebt = free < 0n;
  const [isOpen, setOpen] = useState(false);
  return (
    <section class="card pool stack">
      <div class="body">
        <h2>{name}</h2>
        <p class="faint">{keys}</p>
        <p class="pool-free" data-tone={isSpent(forecast) ? "bad" : undefined}>
          <b>{credits(free)}</b>{" "}
          <span class="muted whole">{words.common.approximately(dollars(free))}</span>
        </p>
        <PoolBar forecast={forecast} />
        <ul class="pool-facts muted">
          <li>
            {held === 0n ? (
              words.credits.heldNone
            ) : (
              <button type="button" class="link" onClick={() => setOpen(true)}>
                {words.credits.held(credits(held))}
              </button>
            )}
          </li>
          {free > 0n && <li>{leftText(forecast)}</li>}
          {filled !== undefined && <li>{words.credits.filledTo(credits(filled))}</li>}
        </ul>
        <PoolBudget forecast={forecast} />
        {isOpen && <RunningRequests family={family} onClose={() => setOpen(false)} />}
        {isDebt && <p class="problem">{words.credits.debt}</p>}
        {canBuy() && (
          <LinkButton href={href("credits/buy", { pool: poolNameOf(family) })}>
            {words.credits.buyFor(inText)}
          </LinkButton>
        )}
      </div>
    </section>
  );
}

/** What may be spent of a pool, and for owners the way to its limits. */
function PoolBudget({ forecast }: { readonly forecast: Forecast }): JSX.Element {
  const { family, budget } = forecast;
  const { name } = poolOf(family);
  const { accountId } = account.value;
  const [isEditing, setEditing] = useState(false);
  const save = async (limits: Partial<BudgetLimits>) => {
    const payer = { payer: { case: "pool" as const, value: true } };
    const request = { accountId, payer, families: [family], limits };
    await call(BillingService.method.setBudget, request);
    invalidate(UsageService.method.getForecast);
    notify(words.budget.saved);
  };
  return (
    <>
      <BudgetBar budget={budget} />
      {can("owner") && (
        <p>
          <button type="button" class="link" onClick={() => setEditing(true)}>
            {words.budget.edit}
          </button>
        </p>
      )}
      {isEditing && (
        <BudgetDialog
          title={words.budget.ofPool(name)}
          hint={words.budget.ofPoolHint}
          limits={budget?.limits}
          save={save}
          onClose={() => setEditing(false)}
        />
      )}
    </>
  );
}

/** Of what the pool had when it was last filled: what is free, and what running requests hold. */
function PoolBar({ forecast }: { readonly forecast: Forecast }): JSX.Element | null {
  const { freeMicrocredits, heldMicrocredits: held, filledToMicrocredits: filled } = forecast;
  if (filled === undefined) return null;
  const free = freeMicrocredits > 0n ? freeMicrocredits : 0n;
  const all = filled > free + held ? filled : free + held;
  const part = (amount: bigint) => ({
    inlineSize: `${all === 0n ? 0 : (Number(amount) / Number(all)) * 100}%`,
  });
  return (
    <span class="pool-bar" aria-hidden="true">
      <i class="pool-part-free" style={part(free)} />
      {held > 0n && <i class="pool-part-held" style={part(held)} />}
    </span>
  );
}

function leftText(forecast: Forecast): string {
  if (forecast.dailyMicrocredits === undefined) return words.credits.leftUnknown;
  if (forecast.daysLeft === undefined) return words.credits.leftUnused;
  return words.credits.left(forecast.daysLeft);
}

type OrdersProps = { readonly orders: readonly Order[]; readonly isPart: boolean };

function Orders({ orders, isPart }: OrdersProps): JSX.Element {
  const { ordersHead: head } = words.credits;
  return (
    <div class="dense">
      <Table
        name="orders"
        caption={words.credits.ordersCaption}
        columns={[
          {
            name: "order",
            head: head.order,
            sortBy: ({ createdAt }) => momentOf(createdAt),
            cell: (order) => (
              <a class="row-link" href={href(`credits/orders/${order.orderId}`)}>
                <Time at={order.createdAt} as="moment" />
              </a>
            ),
          },
          {
            name: "pack",
            head: head.pack,
            sortBy: ({ packMicrocredits: microcredits }) => microcredits,
            cell: packText,
          },
          { name: "state", head: head.state, cell: (order) => <OrderTag order={order} /> },
          { name: "paid", head: head.paidBy, cell: paidWith },
          {
            name: "pool",
            head: head.pool,
            sortBy: ({ family }) => family,
            cell: ({ family }) => poolOf(family).name,
          },
          {
            name: "granted",
            head: head.granted,
            sortBy: ({ grantedMicrocredits }) => grantedMicrocredits,
            end: true,
            cell: ({ grantedMicrocredits }) => credits(grantedMicrocredits),
          },
          {
            name: "receipt",
            head: head.receipt,
            cell: ({ orderId, receiptNumber }) =>
              receiptNumber === "" ? (
                <span class="faint">{words.requests.none}</span>
              ) : (
                <a href={href(`credits/orders/${orderId}/receipt`)}>{receiptNumber}</a>
              ),
          },
        ]}
        rows={orders}
        isPart={isPart}
        keyOf={({ orderId }) => orderId}
      />
    </div>
  );
}

function Transfers(): JSX.Element {
  const { accountId } = account.value;
  const transfers = usePages(
    BillingService.method.listTransfers,
    { accountId, pageSize },
    (page) => page.transfers,
    { isLive: true },
  );
  const { transfersHead: head } = words.credits;
  return (
    <Card
      title={words.credits.transfers}
      about={words.credits.transfersNote}
      tools={
        <LinkButton
          kind="quiet"
          icon="download"
          href={`/console/export/charges.csv?${new URLSearchParams({ account: accountId })}`}
          download
        >
          {words.credits.requestsCsv}
        </LinkButton>
      }
      flush
    >
      <View
        call={transfers}
        skeleton={<Skeleton rows={4} />}
        empty={({ items }) =>
          items.length === 0 ? (
            <p class="card-text muted">{words.credits.transfersNone}</p>
          ) : undefined
        }
      >
        {({ items, isLast }) => (
          <>
            <Table
              name="transfers"
              caption={words.credits.transfersCaption}
              columns={[
                {
                  name: "at",
                  head: head.at,
                  sortBy: ({ createdAt }) => momentOf(createdAt),
                  cell: ({ createdAt }) => <Time at={createdAt} as="moment" />,
                },
                { name: "kind", head: head.kind, sortBy: kindText, cell: kindText },
                {
                  name: "amount",
                  head: head.amount,
                  sortBy: changeOf,
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
                {
                  name: "reason",
                  head: head.reason,
                  cell: ({ reason }) => <Note reason={reason} />,
                },
              ]}
              rows={items}
              isPart={!isLast}
              keyOf={({ transferId }) => transferId}
            />
            {!isLast && <More onMore={transfers.more} />}
          </>
        )}
      </View>
    </Card>
  );
}

function More({ onMore }: { readonly onMore: () => Promise<void> }): JSX.Element {
  return (
    <p class="table-foot row">
      <Button kind="quiet" onClick={onMore}>
        {words.credits.more}
      </Button>
    </p>
  );
}

/** Why credits moved. An order is named by a link to it. */
function Note({ reason }: { readonly reason: string }): JSX.Element {
  const [, orderId] = /^order (ord_\w+)$/.exec(reason) ?? [];
  if (orderId) return <a href={href(`credits/orders/${orderId}`)}>{words.credits.orderNote}</a>;
  return (
    <span class="clipped muted" dir="auto" title={reason}>
      {reason}
    </span>
  );
}

function kindText({ kind }: Transfer): string {
  return textOf(TransferKind, words.credits.kinds, kind);
}

function Promotion(): JSX.Element {
  // A link to a promotion has its code.
  const [query, setQuery] = useQuery({ code: "" });
  return (
    <Card title={words.credits.promotion}>
      <PromotionForm code={query.code} onDone={() => setQuery({ code: "" }, { replace: true })} />
    </Card>
  );
}
