// The orders of all accounts: found by filters, summed, and as files.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { OrderState } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { useCall, usePages } from "../api.ts";
import { count, credits, dollars, fieldDay } from "../format.ts";
import { centsOf } from "../parts/bounds.ts";
import { LinkButton } from "../parts/button.tsx";
import { exact } from "../parts/decimals.ts";
import {
  ChoiceFilter,
  choiceOf,
  DayFilter,
  Filters,
  optionsOf,
  TextFilter,
} from "../parts/filters.tsx";
import { OrderTag, packText, paidWith, usdText } from "../parts/orders.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { Time } from "../parts/small.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { AccountLink, orderHref, PagedTable, useAccountNames } from "./common.tsx";
import { words } from "./words.ts";

const pageSize = 50;
const dayMs = 86_400_000;
const microdollarsPerDollar = 1_000_000;
/** So many days are shown at first. */
const usualDays = 30;

const states = {
  all: [],
  open: [OrderState.OPEN, OrderState.SEEN],
  partly_paid: [OrderState.PARTLY_PAID],
  paid: [OrderState.PAID],
  ended: [OrderState.EXPIRED, OrderState.CANCELLED, OrderState.CLOSED],
} as const;

const fileStates = {
  all: "",
  open: "open,seen",
  partly_paid: "partly_paid",
  paid: "paid",
  ended: "expired,cancelled,closed",
} as const;

/** A day of the address. Undefined: it is none. */
function dayOf(text: string): Date | undefined {
  const date = new Date(`${text}T00:00:00Z`);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

/** The filters, which are in the address, and the questions that they make. */
function useFilters() {
  const [query, setQuery] = useQuery({
    ...{ state: "all", attention: "", coin: "", processor: "", least: "" },
    from: fieldDay(new Date(Date.now() - (usualDays - 1) * dayMs)),
    to: "",
  });
  const state = choiceOf(query.state, states, "all");
  const from = dayOf(query.from);
  // The last day is part of the range.
  const last = dayOf(query.to);
  const to = last && new Date(last.getTime() + dayMs);
  const least = /^\d{1,9}$/.test(query.least) ? Number(query.least) : 0;
  const coin = query.coin.trim().toUpperCase();
  const filter = {
    states: [...states[state]],
    needsAttention: query.attention !== "",
    asset: coin,
    processor: query.processor.trim(),
    minMicrodollars: BigInt(least * microdollarsPerDollar),
    ...(from && { startAt: timestampFromDate(from) }),
    ...(to && { endAt: timestampFromDate(to) }),
  };
  const range = new URLSearchParams({
    all: "true",
    ...(from && { from: query.from }),
    ...(to && { to: fieldDay(to) }),
  });
  const file = new URLSearchParams(range);
  for (const [name, value] of [
    ["state", fileStates[state]],
    ["attention", filter.needsAttention ? "true" : ""],
    ["processor", filter.processor],
    ["asset", coin],
    ["least_usd", least > 0 ? String(least) : ""],
  ] as const)
    if (value !== "") file.set(name, value);
  return { query, setQuery, state, filter, range, file };
}

export function Orders(): JSX.Element {
  const filters = useFilters();
  const { filter, range, file } = filters;
  const names = useAccountNames();
  const orders = usePages(
    PaymentsService.method.listOrders,
    { allAccounts: true, filter, pageSize },
    (page) => page.orders,
  );
  const { head } = words.orders;
  return (
    <>
      <Head
        title={words.orders.title}
        tools={
          <>
            <LinkButton kind="quiet" href={`/console/export/documents.csv?${range}`}>
              {words.orders.documents}
            </LinkButton>
            <LinkButton kind="quiet" href={`/console/export/transfers.csv?${range}`}>
              {words.orders.transfers}
            </LinkButton>
            <LinkButton href={`/console/export/orders.csv?${file}`}>{words.orders.csv}</LinkButton>
          </>
        }
      />
      <FilterRow {...filters} />
      <Sums filter={filter} />
      <Card flush>
        <PagedTable
          pages={orders}
          greyRows={8}
          empty={words.orders.none}
          name="orders"
          caption={words.orders.caption}
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
                <AccountLink accountId={accountId} name={names.get(accountId)} />
              ),
            },
            { name: "state", head: head.state, cell: (order) => <OrderTag order={order} /> },
            {
              name: "usd",
              head: head.usd,
              end: true,
              cell: (order) => (
                <span
                  title={packText(order)}
                >{`$${usdText(centsOf(order.packMicrodollars))}`}</span>
              ),
            },
            { name: "with", head: head.with, cell: paidWith },
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
    </>
  );
}

function FilterRow(props: ReturnType<typeof useFilters>): JSX.Element {
  const { query, setQuery, state } = props;
  const texts = words.orders.filter;
  return (
    <Filters>
      <DayFilter label={texts.from} value={query.from} onInput={(from) => setQuery({ from })} />
      <DayFilter label={texts.to} value={query.to} onInput={(to) => setQuery({ to })} />
      <ChoiceFilter
        label={texts.state}
        value={state}
        onInput={(next) => setQuery({ state: next })}
        options={optionsOf(texts.states)}
      />
      <ChoiceFilter
        label={texts.attention}
        value={query.attention === "" ? "all" : "waiting"}
        onInput={(next) => setQuery({ attention: next === "all" ? "" : "1" })}
        options={optionsOf(texts.attentions)}
      />
      <TextFilter
        label={texts.coin}
        mode="text"
        value={query.coin}
        onInput={(coin) => setQuery({ coin })}
      />
      <TextFilter
        label={texts.processor}
        mode="text"
        value={query.processor}
        onInput={(processor) => setQuery({ processor })}
      />
      <TextFilter
        label={texts.least}
        value={query.least}
        onInput={(least) => setQuery({ least })}
      />
    </Filters>
  );
}

type SumsProps = { readonly filter: ReturnType<typeof useFilters>["filter"] };

function Sums({ filter }: SumsProps): JSX.Element {
  const found = useCall(PaymentsService.method.listOrders, {
    ...{ allAccounts: true, filter, pageSize: 1, includeSums: true },
  });
  const texts = words.orders.sums;
  return (
    <View call={found} skeleton={<Skeleton figures={4} />}>
      {({ sums }) =>
        sums && (
          <Figures>
            <Figure label={texts.orders} value={count(sums.orders)} />
            <Figure label={texts.ordered} value={`$${exact(sums.orderedMicrodollars)}`} />
            <Figure
              label={texts.granted}
              value={credits(sums.grantedMicrocredits)}
              unit={words.account.credits}
              note={dollars(sums.grantedMicrocredits)}
            />
            <Figure label={texts.refunded} value={`$${exact(sums.refundedMicrodollars)}`} />
          </Figures>
        )
      }
    </View>
  );
}
