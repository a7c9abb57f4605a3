// The price lists of customers: what each says, a new version with its preview, and who gets it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AccountsService } from "../../../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  type PreviewPricesResponse,
  type PriceList,
  PriceListsService,
  type PricePreview,
} from "../../../../gen/gateway/billing/v1/price_lists_pb.ts";
import type { Actor } from "../../../../gen/gateway/common/v1/actor_pb.ts";
import { OperationsService } from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { priceRules } from "../../../base/model-facts.ts";
import { type TokenCategory, tokenCategories } from "../../../base/token-categories.ts";
import { call, invalidate, useCall } from "../api.ts";
import { count, perMillion } from "../format.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { Form, SelectField, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf, Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { go, hrefOf, useQuery } from "../router.ts";
import { isOperatorAdmin, operatorPart } from "../session.ts";
import { type Act, ActDialog } from "./act.tsx";
import { ListTable, LookOnly, usePeopleNames } from "./common.tsx";
import {
  fieldsOf,
  type ListFields,
  type ModelFields,
  percentOf,
  plainModel,
  priceNames,
  versionOf,
  ways,
} from "./listed-prices.ts";
import { words } from "./words.ts";

const part = "prices";
/** In the address, in place of the id of a list. */
const publicPrices = "public";
/** Where an account loses its list. */
export const takeBackHref = (account: string) =>
  hrefOf(operatorPart, part, { give: publicPrices, account });
const listHref = (id: string) => hrefOf(operatorPart, `${part}/${id}`);
const {
  createPriceListVersion: addPriceListVersion,
  createPriceList,
  listPriceLists,
} = PriceListsService.method;
const { previewPrices, setAccountPriceList } = PriceListsService.method;

export function PriceLists(): JSX.Element {
  const [query, setQuery] = useQuery({ give: "", account: "" });
  const lists = useCall(listPriceLists, {});
  const nameOf = usePeopleNames();
  const isAdmin = isOperatorAdmin();
  const make = isAdmin && (
    <LinkButton kind="main" icon="plus" href={listHref("new")}>
      {words.priceLists.make}
    </LinkButton>
  );
  const tools = isAdmin && (
    <>
      <Button onClick={() => give(publicPrices)}>{words.priceLists.takeBack}</Button>
      {make}
    </>
  );
  const give = (priceListId: string) =>
    setQuery({ give: priceListId, account: "" }, { replace: true });
  const given = lists.data?.priceLists.find(({ priceListId }) => priceListId === query.give);
  return (
    <>
      <Head title={words.priceLists.title} tools={tools} />
      <p class="intro muted">{words.priceLists.intro}</p>
      <LookOnly />
      <Card flush>
        <ListTable
          call={lists}
          rowsOf={({ priceLists }) => priceLists}
          greyRows={4}
          empty={
            <Empty title={words.priceLists.emptyTitle} action={make}>
              {words.priceLists.empty}
            </Empty>
          }
          name="price-lists"
          caption={words.priceLists.caption}
          columns={columnsOf(nameOf, isAdmin ? give : undefined)}
          keyOf={({ priceListId }) => priceListId}
        />
      </Card>
      {isAdmin && (given || query.give === publicPrices) && (
        <GiveDialog list={given} accountId={query.account} onClose={() => give("")} />
      )}
    </>
  );
}

function columnsOf(
  nameOf: (actor: Actor | undefined) => string,
  give: ((priceListId: string) => void) | undefined,
): readonly Column<PriceList>[] {
  const { head } = words.priceLists;
  return [
    {
      name: "name",
      head: head.name,
      sortBy: ({ name }) => name,
      cell: ({ priceListId, name }) => (
        <a class="row-link clipped" href={listHref(priceListId)} title={priceListId}>
          <bdi>{name}</bdi>
        </a>
      ),
    },
    {
      name: "discount",
      head: head.discount,
      sortBy: ({ version }) => version?.discountBp ?? 0,
      end: true,
      cell: ({ version }) => `${percentOf(version?.discountBp ?? 0)} %`,
    },
    {
      name: "own",
      head: head.own,
      end: true,
      sortBy: ({ version }) => Object.keys(version?.models ?? {}).length,
      cell: ({ version, goneModels }) => (
        <span class="row">
          {count(Object.keys(version?.models ?? {}).length)}
          {goneModels.length > 0 && (
            <Tag tone="warn">{words.priceLists.gone(goneModels.length)}</Tag>
          )}
        </span>
      ),
    },
    {
      name: "accounts",
      head: head.accounts,
      end: true,
      sortBy: ({ accounts }) => accounts,
      cell: ({ accounts }) => count(accounts),
    },
    { name: "version", head: head.version, end: true, cell: ({ version }) => version?.number ?? 0 },
    {
      name: "since",
      head: head.since,
      sortBy: ({ version }) => momentOf(version?.createdAt),
      cell: ({ version }) => <Time at={version?.createdAt} as="moment" />,
    },
    {
      name: "by",
      head: head.by,
      cell: ({ version }) => <bdi title={version?.reason}>{nameOf(version?.createdBy)}</bdi>,
    },
    {
      name: "actions",
      head: head.actions,
      end: true,
      cell: ({ priceListId }) =>
        give && (
          <Button kind="quiet" onClick={() => give(priceListId)}>
            {words.priceLists.give}
          </Button>
        ),
    },
  ];
}

type GiveDialogProps = {
  /** Undefined: the public prices, in place of the list that the account has. */
  readonly list: PriceList | undefined;
  /** Empty: still to be typed. */
  readonly accountId: string;
  readonly onClose: () => void;
};

function GiveDialog({ list, onClose, ...given }: GiveDialogProps): JSX.Element {
  const { priceListId = "", name = "" } = list ?? {};
  const [accountId, setAccountId] = useState(given.accountId);
  const texts = words.priceLists;
  const give = async ({ reason }: Act) => {
    const { account, approval } = await call(setAccountPriceList, {
      ...{ accountId: accountId.trim(), priceListId, reason },
    });
    invalidate(listPriceLists, AccountsService.method.getAccount);
    const whose = account?.name ?? "";
    const done = list ? texts.given(name, whose) : texts.takenBack(whose);
    notify(approval ? words.people.waits : done);
  };
  return (
    <ActDialog
      title={list ? texts.giveTitle(name) : texts.takeBackTitle}
      submit={list ? texts.give : texts.takeBack}
      fields={["account_id"]}
      onAct={give}
      onClose={onClose}
    >
      <p>{list ? texts.giveLead : texts.takeBackLead}</p>
      <TextField
        name="account_id"
        label={texts.account}
        hint={texts.accountHint}
        value={accountId}
        onInput={setAccountId}
        isFirst
      />
    </ActDialog>
  );
}

/** A list, or a new one at the address `new`. */
export function PriceListPage({ params }: { readonly params: Readonly<Record<string, string>> }) {
  const { priceListId = "" } = params;
  const isNew = priceListId === "new";
  const lists = useCall(listPriceLists, {});
  const back = { href: hrefOf(operatorPart, part), label: words.priceLists.title };
  const list = lists.data?.priceLists.find((one) => one.priceListId === priceListId);
  const title = isNew ? words.priceLists.make : (list?.name ?? words.priceLists.title);
  return (
    <>
      <Head
        title={title}
        back={back}
        detail={
          list?.version && (
            <span class="faint">{words.priceLists.detail(list.version.number, list.accounts)}</span>
          )
        }
      />
      <LookOnly />
      <View
        call={lists}
        skeleton={<Skeleton rows={6} />}
        empty={() => (isNew || list ? undefined : <Empty>{words.priceLists.noSuch}</Empty>)}
      >
        {() => <Version key={list?.version?.number ?? 0} list={list} />}
      </View>
    </>
  );
}

type Shown = { readonly fields: ListFields; readonly answer: PreviewPricesResponse };

/** The form of a version, and what it would change. */
function Version({ list }: { readonly list: PriceList | undefined }): JSX.Element {
  const catalog = useCall(OperationsService.method.listCatalogModels, {});
  const [fields, setFields] = useState(() => fieldsOf(list?.version));
  const [shown, setShown] = useState<Shown>();
  const [isActing, setActing] = useState(false);
  const texts = words.priceLists;
  const ids = (catalog.data?.models ?? []).flatMap(({ modelId: id, price }) => (price ? [id] : []));
  const kept = { ...fields, models: ofCatalogue(fields.models, ids) };
  const preview = async () => {
    const version = versionOf(kept);
    const answer = await call(previewPrices, { priceListId: list?.priceListId ?? "", ...version });
    setShown({ fields: kept, answer });
  };
  const set = (changes: Partial<ListFields>) => setFields({ ...fields, ...changes });
  const setModel = (id: string, changes: Partial<ModelFields>) =>
    set({ models: { ...fields.models, [id]: { ...modelOf(fields, id), ...changes } } });
  // What was typed since is not what is shown.
  const isCurrent = shown !== undefined && JSON.stringify(shown.fields) === JSON.stringify(kept);
  const names = ids.flatMap((id) =>
    ["discount_bp", "when", "price"].map((name) => `models[${id}].${name}`),
  );
  return (
    <>
      <Card title={texts.formTitle} about={texts.formAbout}>
        <Form submit={texts.preview} fields={["discount_bp", ...names]} onSubmit={preview}>
          <TextField
            name="discount_bp"
            label={texts.discount}
            hint={texts.discountHint}
            value={fields.discount}
            onInput={(discount) => set({ discount })}
            unit="%"
          />
          {ids.map((id) => (
            <ModelPart
              key={id}
              id={id}
              fields={modelOf(fields, id)}
              onChange={(changes) => setModel(id, changes)}
            />
          ))}
          {list && list.goneModels.length > 0 && (
            <p class="muted">{texts.goneNote(list.goneModels.join(", "))}</p>
          )}
        </Form>
      </Card>
      {shown && (
        <Card
          title={texts.previewTitle}
          about={isCurrent ? texts.previewAbout : texts.previewOld}
          tools={
            isOperatorAdmin() && (
              <Button kind="main" disabled={!isCurrent} onClick={() => setActing(true)}>
                {list ? texts.add : texts.makeShort}
              </Button>
            )
          }
          flush
        >
          <Preview answer={shown.answer} />
        </Card>
      )}
      {isActing && <StoreDialog list={list} fields={kept} onClose={() => setActing(false)} />}
    </>
  );
}

const modelOf = ({ models }: ListFields, id: string) => models[id] ?? plainModel;

/** Without the models that left the file. */
function ofCatalogue(models: ListFields["models"], ids: readonly string[]): ListFields["models"] {
  return Object.fromEntries(Object.entries(models).filter(([id]) => ids.includes(id)));
}

type ModelPartProps = {
  readonly id: string;
  readonly fields: ModelFields;
  readonly onChange: (changes: Partial<ModelFields>) => void;
};

function ModelPart({ id, fields, onChange }: ModelPartProps): JSX.Element {
  const { way, discount, prices, when } = fields;
  const texts = words.priceLists;
  const at = `models[${id}]`;
  return (
    <div class="stack">
      <SelectField
        name={`${at}.price`}
        label={texts.way(id)}
        value={way}
        onInput={(next) => onChange({ way: next })}
        options={ways.map((value) => ({ value, label: texts.ways[value] }))}
      />
      {way !== "list" && (
        <TextField
          name={`${at}.discount_bp`}
          label={texts.discountOf(id)}
          {...(way === "own" && { hint: texts.ownDiscountHint })}
          value={discount}
          onInput={(text) => onChange({ discount: text })}
          unit="%"
        />
      )}
      {way === "own" &&
        priceNames.map((name) => (
          <TextField
            key={name}
            name={`${at}.${name}`}
            label={texts.priceOf(texts.prices[name], id)}
            value={prices[name]}
            onInput={(text) => onChange({ prices: { ...prices, [name]: text } })}
            unit="USD"
          />
        ))}
      {way === "own" && (
        <TextField
          name={`${at}.when`}
          label={texts.when(id)}
          hint={texts.whenHint}
          lines={2}
          value={when}
          onInput={(text) => onChange({ when: text })}
        />
      )}
    </div>
  );
}

function Preview({ answer }: { readonly answer: PreviewPricesResponse }): JSX.Element {
  const { prices, belowCost, belowHalf } = answer;
  const texts = words.priceLists;
  const columns: readonly Column<PricePreview>[] = [
    {
      name: "model",
      head: words.models.head.model,
      sortBy: ({ model }) => model,
      cell: (one) => (
        <>
          <span class="key-name" title={one.model}>
            <span class="name">{one.model}</span>
            {belowCost.includes(one.model) && <Tag tone="bad">{texts.belowCost}</Tag>}
            {belowHalf.includes(one.model) && <Tag tone="warn">{texts.belowHalf}</Tag>}
          </span>
          <ChangedRules preview={one} />
        </>
      ),
    },
    ...tokenCategories.map((category) => ({
      name: category,
      head: texts.prices[category],
      end: true,
      sortBy: ({ after }: PricePreview) => after?.[category] ?? 0n,
      cell: (one: PricePreview) => <Changed preview={one} category={category} />,
    })),
  ];
  return (
    <div class="dense tight">
      <Table
        caption={texts.previewCaption}
        columns={columns}
        rows={prices}
        keyOf={({ model }) => model}
      />
    </div>
  );
}

type ChangedProps = { readonly preview: PricePreview; readonly category: TokenCategory };

function Changed({ preview, category }: ChangedProps): JSX.Element {
  const { before, after } = preview;
  const [was, is] = [before, after].map((price) => perMillion(price?.[category] ?? 0n));
  if (was === is) return <>{is}</>;
  return (
    <span class="row">
      <s class="faint">{was}</s> {is}
    </span>
  );
}

/** What longer prompts, other conditions and searches cost after it, and what goes with it. */
function ChangedRules({ preview }: { readonly preview: PricePreview }): JSX.Element {
  const { before, after, conditionalBefore, conditionalAfter } = preview;
  const old = before && { price: before, conditional: conditionalBefore };
  const next = after && { price: after, conditional: conditionalAfter };
  const was = old ? priceRules(old, next) : [];
  const is = next ? priceRules(next, old) : [];
  return (
    <>
      {was
        .filter((rule) => !is.includes(rule))
        .map((rule) => (
          <s key={rule} class="faint sentence">
            {rule}
          </s>
        ))}
      {is.map((rule) => (
        <span key={rule} class="sentence">
          {rule}
        </span>
      ))}
    </>
  );
}

type StoreDialogProps = {
  readonly list: PriceList | undefined;
  readonly fields: ListFields;
  readonly onClose: () => void;
};

function StoreDialog({ list, fields, onClose }: StoreDialogProps): JSX.Element {
  const [name, setName] = useState("");
  const texts = words.priceLists;
  const store = async ({ reason }: Act) => {
    const version = { ...versionOf(fields), reason };
    const { priceListId = "" } = list ?? {};
    const { priceList, approval } = list
      ? await call(addPriceListVersion, {
          priceListId,
          after: list.version?.number ?? 0,
          ...version,
        })
      : await call(createPriceList, { name: name.trim(), ...version });
    invalidate(listPriceLists);
    if (approval) notify(words.people.waits);
    else notify(texts.stored(priceList?.name ?? "", priceList?.version?.number ?? 0));
    go(hrefOf(operatorPart, part));
  };
  return (
    <ActDialog
      title={list ? texts.addTitle(list.name) : texts.make}
      submit={list ? texts.add : texts.makeShort}
      fields={list ? [] : ["name"]}
      onAct={store}
      onClose={onClose}
      onDone={() => {}}
    >
      <p>{list ? texts.addLead(list.accounts) : texts.makeLead}</p>
      {!list && (
        <TextField
          name="name"
          label={texts.name}
          hint={texts.nameHint}
          value={name}
          onInput={setName}
          isFirst
        />
      )}
    </ActDialog>
  );
}
