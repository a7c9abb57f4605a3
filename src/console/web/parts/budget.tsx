// Budgets: what a key, a member or a pool may spend, what is left of it, and the dialog for it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  type Budget,
  type BudgetLimits,
  BudgetLimitsSchema,
  type BudgetWindow,
  BudgetWindow_Name,
} from "../../../../gen/gateway/common/v1/budget_pb.ts";
import { count, credits, dollars, moment, parseCredits, plainCredits } from "../format.ts";
import { words } from "../words.ts";
import { readCredits, readWhole } from "./bounds.ts";
import { Dialog } from "./dialog.tsx";
import { Form, TextField } from "./form.tsx";
import { Meter } from "./small.tsx";

const names: Readonly<Record<BudgetWindow_Name, keyof typeof words.budget.windows>> = {
  [BudgetWindow_Name.UNSPECIFIED]: "total",
  [BudgetWindow_Name.DAY]: "day",
  [BudgetWindow_Name.WEEK]: "week",
  [BudgetWindow_Name.MONTH]: "month",
  [BudgetWindow_Name.TOTAL]: "total",
};

type Limited = BudgetWindow & { readonly limitMicrocredits: bigint };

/** The windows with a limit, the tightest first. */
function limitedOf(budget: Budget | undefined): Limited[] {
  const shareOf = ({ spentMicrocredits: spent = 0n, limitMicrocredits: limit }: Limited) =>
    limit === 0n ? 1 : Number(spent) / Number(limit);
  return (budget?.windows ?? [])
    .flatMap((one): Limited[] =>
      one.limitMicrocredits === undefined
        ? []
        : [{ ...one, limitMicrocredits: one.limitMicrocredits }],
    )
    .sort((one, other) => shareOf(other) - shareOf(one));
}

function textOf({ window, spentMicrocredits: spent = 0n, limitMicrocredits: limit }: Limited) {
  const whole = (micro: bigint) => credits(micro).replace(/\.00$/, "");
  return words.budget.of(
    credits(spent),
    whole(limit),
    words.budget.windows[names[window] ?? "total"],
  );
}

/** One bar: the tightest window. The others are in its tooltip. Nothing without a limit. */
export function BudgetBar({ budget }: { budget: Budget | undefined }): JSX.Element | null {
  const [tightest, ...others] = limitedOf(budget);
  if (!tightest) return null;
  const { spentMicrocredits: spent = 0n, limitMicrocredits: limit } = tightest;
  return (
    <span title={others.map(textOf).join("\n") || undefined}>
      {textOf(tightest)}
      <Meter value={Number(spent)} max={Number(limit)} />
    </span>
  );
}

/** A bar for each window with a limit, with its reset, and what running requests hold of it. */
export function BudgetBars({ budget }: { budget: Budget | undefined }): JSX.Element {
  const held = budget?.heldMicrocredits ?? 0n;
  const most = budget?.limits?.requestsAtOnce;
  const limited = limitedOf(budget);
  return (
    <div class="stack">
      {limited.length === 0 && most === undefined && <p class="muted">{words.budget.none}</p>}
      {limited.map((one) => (
        <p key={one.window}>
          {textOf(one)}{" "}
          {one.resetsAt && <span class="faint">{words.budget.resets(moment(one.resetsAt))}</span>}
          <Meter value={Number(one.spentMicrocredits ?? 0n)} max={Number(one.limitMicrocredits)} />
        </p>
      ))}
      {held > 0n && <p class="faint">{words.budget.held(credits(held))}</p>}
      {most !== undefined && (
        <p>{words.budget.running(count(budget?.running ?? 0), count(most))}</p>
      )}
    </div>
  );
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
