// Budgets: what a key, a member or a pool may spend, what is left of it, and the dialog for it.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { BillingService } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type Budget,
  type BudgetLimits,
  BudgetLimitsSchema,
  type BudgetWindow,
  BudgetWindow_Name,
} from "../../../../gen/gateway/common/v1/budget_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { call, invalidate } from "../api.ts";
import { clock, count, credits, day, dollars, parseCredits, plainCredits } from "../format.ts";
import { familyName } from "../names.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { utc } from "../zone.ts";
import { useAllPages } from "./all-pages.ts";
import { readCredits, readWhole } from "./bounds.ts";
import { Dialog } from "./dialog.tsx";
import { Form, TextField } from "./form.tsx";
import { notify } from "./messages.ts";
import { Card } from "./page.tsx";
import { Meter } from "./small.tsx";

const names: Readonly<Record<BudgetWindow_Name, keyof typeof words.budget.windows>> = {
  [BudgetWindow_Name.UNSPECIFIED]: "total",
  [BudgetWindow_Name.DAY]: "day",
  [BudgetWindow_Name.WEEK]: "week",
  [BudgetWindow_Name.MONTH]: "month",
  [BudgetWindow_Name.TOTAL]: "total",
};

type Limited = BudgetWindow & { readonly limitMicrocredits: bigint };

/** The windows with a limit: day, week, month, total. */
function limitedOf(budget: Budget | undefined): Limited[] {
  return (budget?.windows ?? []).flatMap((one): Limited[] =>
    one.limitMicrocredits === undefined
      ? []
      : [{ ...one, limitMicrocredits: one.limitMicrocredits }],
  );
}

function shareOf({ spentMicrocredits: spent = 0n, limitMicrocredits: limit }: Limited): number {
  return limit === 0n ? 1 : Number(spent) / Number(limit);
}

function textOf(
  { window, spentMicrocredits: spent = 0n, limitMicrocredits: limit }: Limited,
  text: (spent: string, limit: string, window: string) => string = words.budget.of,
): string {
  return text(credits(spent), whole(limit), words.budget.windows[names[window] ?? "total"]);
}

/** Without a fraction of nothing. */
function whole(micro: bigint): string {
  return credits(micro).replace(/\.00$/, "");
}

function Bar({ of }: { readonly of: Limited }): JSX.Element {
  return <Meter value={Number(of.spentMicrocredits ?? 0n)} max={Number(of.limitMicrocredits)} />;
}

/** One bar: the tightest window. The others are in its tooltip. Nothing without a limit. */
export function BudgetBar({ budget }: { budget: Budget | undefined }): JSX.Element | null {
  const limited = limitedOf(budget).sort((one, other) => shareOf(other) - shareOf(one));
  const [tightest, ...others] = limited;
  if (!tightest) return null;
  return (
    <span title={others.map((one) => textOf(one)).join("\n") || undefined}>
      {textOf(tightest)}
      <Bar of={tightest} />
    </span>
  );
}

/** A bar for each window with a limit, with its reset, and what running requests hold of it. */
export function BudgetBars({ budget }: { budget: Budget | undefined }): JSX.Element {
  const held = budget?.heldMicrocredits ?? 0n;
  const most = budget?.limits?.requestsAtOnce;
  const limited = limitedOf(budget);
  return (
    <div class="budget stack">
      {limited.length === 0 && most === undefined && <p class="muted">{words.budget.none}</p>}
      {limited.map((one) => (
        <div key={one.window}>
          <p class="spread">
            <span>{textOf(one, words.budget.ofCredits)}</span>
            {one.resetsAt && (
              <span class="faint">
                {words.budget.resets(day(one.resetsAt, utc), clock(one.resetsAt, utc))}
              </span>
            )}
          </p>
          <Bar of={one} />
        </div>
      ))}
      {held > 0n && <p class="faint">{words.budget.held(credits(held))}</p>}
      {most !== undefined && (
        <p>{words.budget.running(count(budget?.running ?? 0), count(most))}</p>
      )}
    </div>
  );
}

/** Who has a budget in each pool. */
export type BudgetOwner = {
  readonly case: "personId" | "managementKeyId";
  readonly value: string;
};

export function ofPerson(value: string): BudgetOwner {
  return { case: "personId", value };
}

/** Those of one owner, one for each pool. */
export function budgetsOf(owner: BudgetOwner, budgets: readonly Budget[] = []): Budget[] {
  return budgets.filter(
    ({ payer }) => payer?.payer.case === owner.case && payer.payer.value === owner.value,
  );
}

/** False: it only tells what was spent. */
export function hasLimit({ limits, windows }: Budget): boolean {
  return (
    limits?.requestsAtOnce !== undefined ||
    windows.some(({ limitMicrocredits }) => limitMicrocredits !== undefined)
  );
}

/** The budgets of the account, of whichever members. */
export function useBudgets() {
  const request = { accountId: account.value.accountId, pageSize: 1000 };
  return useAllPages(BillingService.method.listBudgets, request, ({ budgets }) => budgets, {
    isLive: true,
  });
}

/** The limits of a member, as they are now. */
export async function readLimitsOf(personId: string): Promise<BudgetLimits | undefined> {
  const { accountId } = account.value;
  for (let pageToken = ""; ; ) {
    const request = { accountId, pageSize: 1000, pageToken };
    const { budgets, nextPageToken } = await call(BillingService.method.listBudgets, request);
    const found = budgetsOf(ofPerson(personId), budgets).find(hasLimit);
    if (found || nextPageToken === "") return found?.limits;
    pageToken = nextPageToken;
  }
}

/** Replaces the limits of one owner, in both pools. The parts that show budgets ask again. */
export async function setBudget(
  payer: BudgetOwner,
  limits: MessageInitShape<typeof BudgetLimitsSchema>,
): Promise<void> {
  const { accountId } = account.value;
  await call(BillingService.method.setBudget, { accountId, payer: { payer }, limits });
  budgetsChanged();
}

export function budgetsChanged(): void {
  invalidate(BillingService.method.listBudgets, UsageService.method.queryUsage);
  notify(words.budget.saved);
}

/** In a table: a line for each pool, and the way to the limits. */
export function BudgetCell(props: {
  readonly budgets: readonly Budget[];
  readonly onEdit?: (() => void) | undefined;
}): JSX.Element {
  return (
    <>
      {props.budgets.map((budget) => (
        <div key={budget.family} class="budget">
          <span class="faint">{familyName(budget.family)}</span> <BudgetBar budget={budget} />
        </div>
      ))}
      {props.onEdit && (
        <button type="button" class="link" onClick={props.onEdit}>
          {words.budget.edit}
        </button>
      )}
    </>
  );
}

/** What a person may spend, with the bars of each pool. */
export function BudgetCard(props: {
  readonly title: string;
  /** Of which keys. */
  readonly about: string;
  readonly budgets: readonly Budget[];
  readonly tools?: JSX.Element;
}): JSX.Element {
  const { title, about, budgets, tools } = props;
  return (
    <Card title={title} about={about} tools={tools} term="budget">
      {budgets.length === 0 ? (
        <p class="muted">{words.budget.none}</p>
      ) : (
        <div class="pools columns">
          {budgets.map((budget) => (
            <section key={budget.family} class="stack">
              <h3>{words.budget.pool(familyName(budget.family))}</h3>
              <BudgetBars budget={budget} />
            </section>
          ))}
        </div>
      )}
    </Card>
  );
}

const limitFields = [
  ["daily", "dailyMicrocredits"],
  ["weekly", "weeklyMicrocredits"],
  ["monthly", "monthlyMicrocredits"],
  ["total", "totalMicrocredits"],
] as const;

/** Limits in one line. Undefined: there are none. */
export function limitsText(limits: BudgetLimits | undefined): string | undefined {
  const texts = limitFields.flatMap(([name, field]) => {
    const limit = limits?.[field];
    return limit === undefined ? [] : [words.budget.limit[name](whole(limit))];
  });
  const most = limits?.requestsAtOnce;
  if (most !== undefined) texts.push(words.budget.limit.atOnce(count(most)));
  return texts.join(", ") || undefined;
}

/** The fields of limits, in credits. */
export type LimitTexts = {
  readonly daily: string;
  readonly weekly: string;
  readonly monthly: string;
  readonly total: string;
  readonly atOnce: string;
};

const fieldNames = {
  daily: "daily_microcredits",
  weekly: "weekly_microcredits",
  monthly: "monthly_microcredits",
  total: "total_microcredits",
  atOnce: "requests_at_once",
} as const satisfies Record<keyof LimitTexts, string>;

/** A field for credits, with its dollars. */
export function CreditsField(props: {
  readonly name: string;
  readonly label: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
}): JSX.Element {
  const amount = parseCredits(props.value);
  return (
    <TextField
      {...props}
      type="number"
      unit={words.common.credits}
      placeholder={words.keyForm.unlimited}
      {...(amount !== undefined && { hint: words.common.approximately(dollars(amount)) })}
    />
  );
}

function textsOf(limits: BudgetLimits | undefined): LimitTexts {
  const text = (micro: bigint | undefined) => (micro === undefined ? "" : plainCredits(micro));
  return {
    daily: text(limits?.dailyMicrocredits),
    weekly: text(limits?.weeklyMicrocredits),
    monthly: text(limits?.monthlyMicrocredits),
    total: text(limits?.totalMicrocredits),
    atOnce: limits?.requestsAtOnce === undefined ? "" : String(limits.requestsAtOnce),
  };
}

/** Throws a CallError that names a field with a mistake. */
function readTexts({ daily, weekly, monthly, total, atOnce }: LimitTexts) {
  const { field } = BudgetLimitsSchema;
  const limits = {
    dailyMicrocredits: readCredits(daily, field.dailyMicrocredits),
    weeklyMicrocredits: readCredits(weekly, field.weeklyMicrocredits),
    monthlyMicrocredits: readCredits(monthly, field.monthlyMicrocredits),
    totalMicrocredits: readCredits(total, field.totalMicrocredits),
    requestsAtOnce: readWhole(atOnce, field.requestsAtOnce),
  };
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

/** Sets the limits of a member, of a pool, or of new members. */
export function BudgetDialog({
  title,
  hint,
  limits,
  save,
  onClose,
}: {
  readonly title: string;
  readonly hint: string;
  readonly limits: BudgetLimits | undefined;
  readonly save: (limits: Partial<BudgetLimits>) => Promise<void>;
  readonly onClose: () => void;
}): JSX.Element {
  const [texts, setTexts] = useState(() => textsOf(limits));
  const amounts = ["daily", "weekly", "monthly", "total"] as const;
  return (
    <Dialog title={title} onClose={onClose}>
      <Form
        submit={words.common.save}
        fields={Object.values(fieldNames)}
        onCancel={onClose}
        onSubmit={async () => {
          await save(readTexts(texts));
          onClose();
        }}
      >
        <p class="hint">{hint}</p>
        {amounts.map((name) => (
          <CreditsField
            key={name}
            name={fieldNames[name]}
            label={words.budget.fields[name]}
            value={texts[name]}
            onInput={(value) => setTexts({ ...texts, [name]: value })}
          />
        ))}
        <TextField
          name={fieldNames.atOnce}
          label={words.budget.fields.atOnce}
          type="number"
          placeholder={words.keyForm.unlimited}
          value={texts.atOnce}
          onInput={(atOnce) => setTexts({ ...texts, atOnce })}
        />
      </Form>
    </Dialog>
  );
}
