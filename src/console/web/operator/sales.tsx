// What the installation earns: one month, or the last year, with the period before; by day, model,
// provider or account; what is owed, and what providers billed.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  type ProviderBill,
  type QueryLiabilitiesResponse,
  type QuerySalesResponse,
  type Sales,
  SalesBucket,
  SalesGroup,
  SalesService,
} from "../../../../gen/gateway/sales/v1/sales_pb.ts";
import { call, invalidate, together, useCall, usePages } from "../api.ts";
import {
  count,
  credits,
  dollars,
  fieldDay,
  moment,
  parseDollars,
  percent,
  toDate,
} from "../format.ts";
import { Bars } from "../parts/bars.tsx";
import { Button, LinkButton } from "../parts/button.tsx";
import { Segments } from "../parts/choices.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ChoiceFilter, choiceOf, Filters, optionsOf } from "../parts/filters.tsx";
import { Form, fieldError, TextField } from "../parts/form.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { Notice } from "../parts/small.tsx";
import type { Column } from "../parts/table.tsx";
import { barsOf } from "../parts/timeline.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { isOperatorAdmin } from "../session.ts";
import { utc } from "../zone.ts";
import { AccountLink, ListTable, LookOnly, PagedTable, useAccountNames } from "./common.tsx";
import { words } from "./words.ts";

const { querySales, queryRevenue, queryLiabilities, listProviderBills, setProviderBill } =
  SalesService.method;
const monthsShown = 13;
const dayMs = 86_400_000;

type Range = { readonly from: Date; readonly to: Date };
type Asked = { readonly range: Range; readonly before: Range };

const monthStart = (month: string, add = 0) => {
  const start = new Date(`${month}-01T00:00:00Z`);
  start.setUTCMonth(start.getUTCMonth() + add);
  return start;
};
const monthOf = (at: Date) => fieldDay(at).slice(0, "2026-11".length);
const between = ({ from, to }: Range) => ({
  startAt: timestampFromDate(from),
  endAt: timestampFromDate(to),
});

/** This month and those before it, the newest first. */
function lastMonths(): string[] {
  const current = monthOf(new Date());
  return Array.from({ length: monthsShown }, (_, n) => monthOf(monthStart(current, -n)));
}

/** Micro-dollars, which are 200 micro-credits each. */
const usd = (micro: bigint) => dollars(micro * 200n);
const costMicro = ({ costPicodollars: cost }: Pick<Sales, "costPicodollars">) =>
  BigInt(cost || "0") / 1_000_000n;

export function SalesPage(): JSX.Element {
  const months = lastMonths();
  const [query, setQuery] = useQuery({ month: "", by: "model" });
  const month = months.includes(query.month) ? query.month : (months[0] ?? "");
  const asked = {
    range: { from: monthStart(month), to: monthStart(month, 1) },
    before: { from: monthStart(month, -1), to: monthStart(month) },
  };
  const by = choiceOf(query.by, words.sales.bys, "model");
  return (
    <>
      <Head title={words.sales.title} tools={<Files range={asked.range} />} />
      <p class="intro muted">{words.sales.intro}</p>
      <LookOnly />
      <Filters>
        <ChoiceFilter
          label={words.sales.month}
          value={month}
          onInput={(value) => setQuery({ month: value })}
          options={months.map((value) => ({ value, label: value }))}
        />
      </Filters>
      <Overview asked={asked} />
      <Rows range={asked.range} by={by} onBy={(value) => setQuery({ by: value })} />
      <Bills range={asked.range} month={month} />
    </>
  );
}

function Files({ range }: { readonly range: Range }): JSX.Element {
  const query = `from=${fieldDay(range.from)}&to=${fieldDay(range.to)}`;
  return (
    <>
      {(["sales", "revenue", "liabilities"] as const).map((name) => (
        <LinkButton key={name} kind="quiet" href={`/console/export/${name}.csv?${query}`}>
          {words.sales.files[name]}
        </LinkButton>
      ))}
    </>
  );
}

function Overview({ asked: { range, before } }: { readonly asked: Asked }): JSX.Element {
  const both = { ...between({ from: before.from, to: range.to }), bucket: SalesBucket.MONTH };
  const days = useCall(querySales, { ...between(range), bucket: SalesBucket.DAY });
  const months = useCall(querySales, both);
  const paid = useCall(queryRevenue, both);
  const tomorrow = new Date(Math.ceil((Date.now() + 1) / dayMs) * dayMs);
  const end = range.to < tomorrow ? range.to : tomorrow;
  const lastDay = between({ from: new Date(end.getTime() - dayMs), to: end });
  // A browser has six calls at a time: what is below waits for the first ones.
  const owed = useCall(queryLiabilities, days.data && lastDay);
  const earlier = monthIn(before);
  return (
    <View call={together(days, months, paid)} skeleton={<Skeleton figures={4} chart />}>
      {([sales, ofMonths, revenue]) => (
        <>
          <SalesFigures
            now={sales}
            then={ofMonths.rows.find(earlier)}
            paid={revenue.rows.find(monthIn(range))?.netMicrodollars ?? 0n}
            paidThen={revenue.rows.find(earlier)?.netMicrodollars ?? 0n}
          />
          <Beside sales={sales} liabilities={owed.data} />
          <Uncosted range={range} requests={sales.totals?.uncostedRequests ?? 0n} />
          <Card title={words.sales.byDay}>
            <DayBars rows={sales.rows} range={range} />
          </Card>
        </>
      )}
    </View>
  );
}

/** Whether a row is of the month of a range. */
const monthIn =
  ({ from: start }: Range) =>
  ({ startAt }: Pick<Sales, "startAt">) =>
    startAt !== undefined && toDate(startAt).getTime() === start.getTime();

type SalesFiguresProps = {
  readonly now: QuerySalesResponse;
  /** Absent: nothing was charged then. */
  readonly then: Sales | undefined;
  /** Micro-dollars. */
  readonly paid: bigint;
  readonly paidThen: bigint;
};

function SalesFigures({ now: { totals }, then, paid, paidThen }: SalesFiguresProps) {
  if (!totals) return null;
  const { figures, before } = words.sales;
  const margin = totals.marginMicrodollars;
  const charged = totals.chargedMicrocredits;
  const costed = charged - totals.uncostedMicrocredits;
  const share = charged === 0n ? 1 : Number(costed) / Number(charged);
  return (
    <Figures>
      <Figure label={figures.paid} value={usd(paid)} note={before(usd(paidThen))} />
      <Figure
        label={figures.used}
        value={dollars(charged)}
        note={before(dollars(then?.chargedMicrocredits ?? 0n))}
      />
      <Figure
        label={figures.cost}
        value={usd(costMicro(totals))}
        note={before(usd(then ? costMicro(then) : 0n))}
      />
      <Figure
        label={figures.margin}
        value={usd(margin)}
        {...(margin < 0n && { tone: "bad" as const })}
        note={
          share < 1
            ? words.sales.ofUse(percent(share))
            : before(usd(then?.marginMicrodollars ?? 0n))
        }
      />
    </Figures>
  );
}

type BesideProps = {
  readonly sales: QuerySalesResponse;
  /** Absent: they are not read yet. */
  readonly liabilities: QueryLiabilitiesResponse | undefined;
};

/** Sentences: what was given away, what is owed, and how new the sums are. */
function Beside({ sales, liabilities }: BesideProps): JSX.Element {
  const { bonusMicrocredits: bonus, adjustmentMicrocredits: adjusted, completeUntil } = sales;
  const rows = liabilities?.rows ?? [];
  const owed = rows.reduce((sum, row) => sum + row.owedMicrocredits, 0n);
  const debts = rows.reduce((sum, row) => sum + row.debtsMicrocredits, 0n);
  return (
    <p class="intro muted">
      {words.sales.gifts(credits(bonus), credits(adjusted))}{" "}
      {liabilities && words.sales.owed(dollars(owed), credits(owed), credits(debts))}{" "}
      {completeUntil
        ? words.sales.completeUntil(moment(completeUntil, utc))
        : words.sales.incomplete}
    </p>
  );
}

type DayBarsProps = { readonly rows: readonly Sales[]; readonly range: Range };

function DayBars({ rows, range }: DayBarsProps): JSX.Element {
  const timed = rows.flatMap(({ startAt: from, chargedMicrocredits }) =>
    from ? [{ from: toDate(from), values: [chargedMicrocredits] }] : [],
  );
  const bars = barsOf(timed, { ...range, span: "day", series: 1 });
  return (
    <Bars
      label={words.sales.bars}
      series={[{ id: "used", name: words.sales.figures.used, colour: "cat-output" }]}
      bars={bars}
      span="day"
      format={dollars}
      formatTick={dollars}
      leastTick={2_000_000n}
    />
  );
}

type By = keyof typeof words.sales.bys;
const groups: Readonly<Record<By, SalesGroup[]>> = {
  model: [SalesGroup.MODEL],
  provider: [SalesGroup.MODEL, SalesGroup.PROVIDER],
  account: [SalesGroup.ACCOUNT],
};

type RowsProps = {
  readonly range: Range;
  readonly by: By;
  readonly onBy: (by: By) => void;
};

function Rows({ range, by, onBy }: RowsProps): JSX.Element {
  const pages = usePages(
    querySales,
    { ...between(range), groupBy: groups[by], pageSize: 200 },
    (page) => page.rows,
  );
  const names = useAccountNames(by === "account");
  return (
    <Card
      flush
      title={words.sales.table}
      tools={
        <Segments
          label={words.sales.by}
          value={by}
          onInput={onBy}
          options={optionsOf(words.sales.bys)}
        />
      }
    >
      <PagedTable
        pages={pages}
        greyRows={4}
        empty={words.sales.empty}
        name="sales"
        isList
        caption={words.sales.caption}
        columns={columnsOf(by, names)}
        keyOf={({ accountId, model, provider }) => `${accountId} ${provider} ${model}`}
      />
    </Card>
  );
}

/** What the file lacks, with the line for it. */
function Uncosted({ range, requests }: { readonly range: Range; readonly requests: bigint }) {
  const isWanted = requests > 0n;
  const { data } = useCall(
    querySales,
    isWanted ? { ...between(range), groupBy: groups.provider } : undefined,
  );
  const missing = (data?.rows ?? []).filter(({ uncostedRequests }) => uncostedRequests > 0n);
  if (missing.length === 0) return null;
  return (
    <Notice tone="warn">
      {words.sales.uncosted(
        missing.slice(0, 5).map(({ provider, model }) => `${provider || words.none}/${model}`),
        missing.length,
      )}{" "}
      <code>{words.sales.costLine}</code>
    </Notice>
  );
}

function columnsOf(by: By, names: ReadonlyMap<string, string>): readonly Column<Sales>[] {
  const { head } = words.sales;
  const nameOf = ({ accountId, model, provider }: Sales) => {
    if (by === "account") return names.get(accountId) ?? accountId;
    return by === "provider" ? `${provider || words.none}/${model}` : model;
  };
  const figure = (name: keyof typeof head, of: (row: Sales) => bigint, text = usd) => ({
    name,
    head: head[name],
    end: true,
    sortBy: of,
    cell: (row: Sales) => text(of(row)),
  });
  return [
    {
      name: "name",
      head: words.sales.bys[by],
      sortBy: nameOf,
      cell: (row) =>
        by === "account" ? (
          <AccountLink accountId={row.accountId} name={nameOf(row)} />
        ) : (
          <span class="sentence">{nameOf(row)}</span>
        ),
    },
    figure("requests", ({ requests }) => requests, count),
    figure("used", ({ chargedMicrocredits }) => chargedMicrocredits, dollars),
    figure("cost", costMicro),
    figure("margin", ({ marginMicrodollars }) => marginMicrodollars),
    figure("overrun", ({ overrunMicrocredits }) => overrunMicrocredits, dollars),
  ];
}

type BillsProps = { readonly range: Range; readonly month: string };

function Bills({ range, month }: BillsProps): JSX.Element {
  const bills = useCall(listProviderBills, between(range));
  const [typed, setTyped] = useState<ProviderBill>();
  const { billsHead: head } = words.sales;
  const columns: readonly Column<ProviderBill>[] = [
    { name: "provider", head: head.provider, sortBy: ({ provider }) => provider, cell: providerOf },
    {
      name: "cost",
      head: head.cost,
      end: true,
      sortBy: costMicro,
      cell: (one) => usd(costMicro(one)),
    },
    {
      name: "billed",
      head: head.billed,
      end: true,
      sortBy: ({ billedMicrodollars }) => billedMicrodollars,
      cell: ({ billedMicrodollars: billed }) => (billed === undefined ? words.none : usd(billed)),
    },
    { name: "note", head: head.note, cell: ({ note }) => <span class="sentence">{note}</span> },
    {
      name: "actions",
      head: head.actions,
      end: true,
      cell: (bill) =>
        isOperatorAdmin() && (
          <Button kind="quiet" onClick={() => setTyped(bill)}>
            {words.sales.setBill}
          </Button>
        ),
    },
  ];
  return (
    <Card flush title={words.sales.bills} about={words.sales.billsAbout}>
      <ListTable
        call={bills}
        rowsOf={(answer) => answer.bills}
        greyRows={2}
        empty={words.sales.billsEmpty}
        name="bills"
        isList
        caption={words.sales.billsCaption}
        columns={columns}
        keyOf={({ provider }) => provider}
      />
      {typed && <BillDialog bill={typed} month={month} onClose={() => setTyped(undefined)} />}
    </Card>
  );
}

const providerOf = ({ provider }: ProviderBill) => provider;

type BillDialogProps = {
  readonly bill: ProviderBill;
  readonly month: string;
  readonly onClose: () => void;
};

function BillDialog({ bill, month, onClose }: BillDialogProps): JSX.Element {
  const { provider } = bill;
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState(bill.note);
  const save = async () => {
    const billed = parseDollars(amount);
    if (billed === undefined) throw fieldError("billed_microdollars", words.sales.notAnAmount);
    await call(setProviderBill, { provider, month, billedMicrodollars: billed, note });
    invalidate(listProviderBills);
    onClose();
  };
  return (
    <Dialog title={words.sales.billTitle(provider, month)} onClose={onClose}>
      <Form
        submit={words.sales.saveBill}
        fields={["billed_microdollars", "note"]}
        onSubmit={save}
        onCancel={onClose}
      >
        <TextField
          name="billed_microdollars"
          label={words.sales.billed}
          type="number"
          value={amount}
          onInput={setAmount}
          unit="USD"
          isFirst
        />
        <TextField name="note" label={words.sales.note} value={note} onInput={setNote} />
      </Form>
    </Dialog>
  );
}
