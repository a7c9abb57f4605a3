// Codes that add credits: who made them, how often they were redeemed, and their end.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  CreatePromotionRequestSchema,
  type Promotion,
  PromotionsService,
} from "../../../../gen/gateway/payments/v1/promotions_pb.ts";
import { call, invalidate, usePages } from "../api.ts";
import { count, credits, toDate } from "../format.ts";
import { readCredits, readWhole } from "../parts/bounds.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { CheckField, Form, fieldError, SelectField, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { familyOf, type PoolName, poolOf } from "../parts/pools.ts";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf } from "../parts/table.tsx";
import { Empty } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { isOperatorAdmin } from "../session.ts";
import { words as shared } from "../words.ts";
import { LookOnly, PagedTable } from "./common.tsx";
import { OnceShown } from "./people.tsx";
import { words } from "./words.ts";

const pageSize = 50;

export function Promotions(): JSX.Element {
  const [query, setQuery] = useQuery({ new: "" });
  const [ending, setEnding] = useState<Promotion>();
  const promotions = usePages(
    PromotionsService.method.listPromotions,
    { pageSize },
    (page) => page.promotions,
  );
  const create = isOperatorAdmin() && (
    <Button kind="main" icon="plus" onClick={() => setQuery({ new: "1" }, { replace: true })}>
      {words.promotions.create}
    </Button>
  );
  return (
    <>
      <Head title={words.promotions.title} tools={create} />
      <LookOnly />
      <Card flush>
        <PagedTable
          pages={promotions}
          greyRows={4}
          empty={
            <Empty title={words.promotions.emptyTitle} action={create}>
              {words.promotions.empty}
            </Empty>
          }
          name="promotions"
          caption={words.promotions.caption}
          columns={columnsOf(setEnding)}
          keyOf={({ promotionId: codeId }) => codeId}
        />
      </Card>
      {query.new === "1" && isOperatorAdmin() && (
        <CreateDialog onClose={() => setQuery({ new: "" }, { replace: true })} />
      )}
      {ending && <EndDialog promotion={ending} onClose={() => setEnding(undefined)} />}
    </>
  );
}

const nameOf = ({ name }: Promotion) => name || words.promotions.unnamed;

/** `onStop` is called for the promotion that somebody wants to end. */
function columnsOf(onStop: (promotion: Promotion) => void): readonly Column<Promotion>[] {
  const { head } = words.promotions;
  return [
    {
      name: "name",
      head: head.name,
      sortBy: nameOf,
      cell: (promotion) => (
        <span class="row">
          <bdi>{nameOf(promotion)}</bdi>
          {promotion.needsPurchase && <span class="faint">{words.promotions.needsPurchase}</span>}
        </span>
      ),
    },
    {
      name: "bonus",
      head: head.bonus,
      sortBy: ({ bonusMicrocredits }) => bonusMicrocredits,
      end: true,
      cell: ({ bonusMicrocredits }) => credits(bonusMicrocredits),
    },
    { name: "pool", head: head.pool, cell: ({ family }) => poolOf(family).name },
    {
      name: "used",
      head: head.used,
      sortBy: ({ uses: used }) => used,
      end: true,
      cell: ({ uses: used, maxUses: most }) =>
        most === 0
          ? words.promotions.unlimited(count(used))
          : words.promotions.used(count(used), count(most)),
    },
    {
      name: "ends",
      head: head.ends,
      sortBy: ({ expiresAt: endsAt }) => momentOf(endsAt),
      cell: ({ expiresAt: endsAt }) => (
        <Time at={endsAt} as="moment" otherwise={words.promotions.never} />
      ),
    },
    {
      name: "state",
      head: head.state,
      sortBy: stateOf,
      cell: (promotion) => (
        <Tag {...(isOpen(promotion) && { tone: "good" as const })}>{stateOf(promotion)}</Tag>
      ),
    },
    {
      name: "actions",
      head: head.actions,
      end: true,
      cell: (promotion) =>
        isOperatorAdmin() &&
        isOpen(promotion) && (
          <Button kind="quiet" onClick={() => onStop(promotion)}>
            {words.promotions.stop}
          </Button>
        ),
    },
  ];
}

function stateOf({ stoppedAt, expiresAt: endsAt, maxUses: most, uses: used }: Promotion): string {
  if (stoppedAt) return words.promotions.stopped;
  if (endsAt && toDate(endsAt).getTime() <= Date.now()) return words.promotions.over;
  return most > 0 && used >= most ? words.promotions.usedUp : words.promotions.open;
}

function isOpen(promotion: Promotion): boolean {
  return stateOf(promotion) === words.promotions.open;
}

type EndDialogProps = { readonly promotion: Promotion; readonly onClose: () => void };

function EndDialog({ promotion, onClose }: EndDialogProps): JSX.Element {
  const name = nameOf(promotion);
  const stop = async () => {
    await call(PromotionsService.method.stopPromotion, { promotionId: promotion.promotionId });
    invalidate(PromotionsService.method.listPromotions);
    notify(words.promotions.stoppedDone(name));
    onClose();
  };
  return (
    <Dialog title={words.promotions.stopTitle(name)} onClose={onClose}>
      <p>{words.promotions.stopLead}</p>
      <Form kind="danger" submit={words.promotions.stopButton} onSubmit={stop} onCancel={onClose} />
    </Dialog>
  );
}

const dayMs = 86_400_000;
const pools = ["v1", "v2"] as const satisfies readonly PoolName[];

const noFields = {
  ...{ name: "", code: "", bonus: "", lastDay: "", most: "" },
  needsPurchase: true,
};
type Fields = typeof noFields & { readonly pool: PoolName };

/** Makes a promotion of what was typed. Returns its code. Throws a CallError at a field. */
async function makePromotion(fields: Fields): Promise<string> {
  const { field } = CreatePromotionRequestSchema;
  const bonusMicrocredits = readCredits(fields.bonus, field.bonusMicrocredits);
  if (!bonusMicrocredits) throw fieldError("bonus_microcredits", words.promotions.notAnAmount);
  const { lastDay } = fields;
  const end = lastDay === "" ? undefined : new Date(Date.parse(`${lastDay}T00:00:00Z`) + dayMs);
  const { code, approval } = await call(PromotionsService.method.createPromotion, {
    name: fields.name.trim(),
    code: fields.code.trim(),
    family: familyOf[fields.pool],
    bonusMicrocredits,
    maxUses: readWhole(fields.most, field.maxUses) ?? 0,
    needsPurchase: fields.needsPurchase,
    ...(end && { expiresAt: timestampFromDate(end) }),
  });
  if (approval) notify(words.people.waits);
  invalidate(PromotionsService.method.listPromotions);
  return code;
}

type CreateDialogProps = { readonly onClose: () => void };

function CreateDialog({ onClose }: CreateDialogProps): JSX.Element {
  const [fields, setFields] = useState<Fields>({ ...noFields, pool: "v1" });
  const [made, setMade] = useState<string>();
  const texts = words.promotions;
  if (made !== undefined)
    return (
      <Dialog title={texts.readyTitle(fields.name.trim() || texts.unnamed)} onClose={onClose} wide>
        <OnceShown
          lead={texts.readyLead}
          label={texts.codeLabel}
          text={made}
          done={texts.stored}
          onDone={onClose}
        />
      </Dialog>
    );
  return (
    <Dialog title={texts.formTitle} onClose={onClose}>
      <Form
        submit={texts.submit}
        fields={["name", "code", "family", "bonus_microcredits", "expires_at", "max_uses"]}
        onSubmit={async () => setMade(await makePromotion(fields))}
        onCancel={onClose}
      >
        <PromotionFields fields={fields} onChange={setFields} />
      </Form>
    </Dialog>
  );
}

type PromotionFieldsProps = {
  readonly fields: Fields;
  readonly onChange: (fields: Fields) => void;
};

function PromotionFields({ fields, onChange }: PromotionFieldsProps): JSX.Element {
  const texts = words.promotions;
  const set = (changes: Partial<Fields>) => onChange({ ...fields, ...changes });
  return (
    <>
      <TextField
        name="name"
        label={texts.name}
        hint={texts.nameHint}
        value={fields.name}
        onInput={(name) => set({ name })}
        isFirst
      />
      <TextField
        name="bonus_microcredits"
        label={texts.bonus}
        type="number"
        value={fields.bonus}
        onInput={(bonus) => set({ bonus })}
        unit={shared.common.credits}
      />
      <SelectField
        name="family"
        label={texts.pool}
        value={fields.pool}
        onInput={(pool) => set({ pool })}
        options={pools.map((value) => ({ value, label: poolOf(familyOf[value]).name }))}
      />
      <TextField
        name="code"
        label={texts.code}
        hint={texts.codeHint}
        value={fields.code}
        onInput={(code) => set({ code })}
      />
      <TextField
        name="expires_at"
        label={texts.ends}
        hint={texts.endsHint}
        type="date"
        value={fields.lastDay}
        onInput={(lastDay) => set({ lastDay })}
      />
      <TextField
        name="max_uses"
        label={texts.most}
        hint={texts.mostHint}
        type="number"
        value={fields.most}
        onInput={(most) => set({ most })}
      />
      <CheckField
        name="needs_purchase"
        label={texts.purchase}
        checked={fields.needsPurchase}
        onInput={(needsPurchase) => set({ needsPurchase })}
      />
    </>
  );
}
