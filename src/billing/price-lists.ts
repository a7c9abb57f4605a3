// Price lists of customers: the methods of BillingService about them, and the lists in force.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type AddPriceListVersionRequest,
  AddPriceListVersionResponseSchema,
  type CreatePriceListRequest,
  CreatePriceListResponseSchema,
  type ListedModel,
  ListedModelSchema,
  ListPriceListsResponseSchema,
  type PreviewPricesRequest,
  PreviewPricesResponseSchema,
  type PriceCondition,
  PriceConditionSchema,
  type PriceList as PriceListMessage,
  PriceListSchema,
  type PriceTerms as PriceTermsMessage,
  PriceTermsSchema,
  type SetAccountPriceListRequest,
  SetAccountPriceListResponseSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName } from "../base/names.ts";
import { byCategory, categoryColumns, tokenCategories } from "../base/token-categories.ts";
import {
  type CatalogFile,
  findLosses,
  type PriceTerms,
  readTerms,
  writeTerms,
} from "../config/catalog.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import { isUniqueViolation, type Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";
import { type AccountParts, lockAccount } from "./accounts.ts";
import { PriceBook, type PriceList, PriceLists } from "./prices.ts";
import { toAccount } from "./rows.ts";

const listsMax = 200;
const modelsMax = 100;
const discountMax = 10_000;

export type PriceListParts = {
  readonly transaction: Postgres["transaction"];
  readonly reports: Runner;
  readonly keys: AccountParts["keys"];
  readonly lists: PriceLists;
  /** The models of the configuration file of this moment. */
  readonly file: () => Pick<CatalogFile, "models" | "priceMultipliers">;
};

/** Reads the newest version of every list. */
export async function readLists(db: Runner): Promise<PriceList[]> {
  return (await db.run(sql.readPriceLists)).map(toList);
}

function toList(row: sql.ReadPriceListsRow): PriceList {
  return { ...row, models: readModels(row.models) };
}

/** What is stored was right when it was stored, and states every price. */
function readModels(stored: Json): PriceList["models"] {
  const models = Object.entries(Object(stored)).map(([id, one]) => {
    const { price, discount_bp: discountBp } = Object(one);
    const terms = price === undefined ? undefined : readTerms(price, {});
    if (Array.isArray(terms)) throw new Error(`a stored price of ${id}: ${terms.join("; ")}`);
    return [id, { terms, ...(typeof discountBp === "number" && { discountBp }) }] as const;
  });
  return new Map(models);
}

export async function createPriceList(
  parts: PriceListParts,
  request: CreatePriceListRequest,
  call: AuthenticatedCall,
) {
  const name = checkName("name", request.name);
  const reason = readReason(request.reason, call);
  const version = readVersion(parts, request);
  const priceListId = timeOrderedId("plist_");
  const madeBy = actorOf(call.caller);
  const store = async (tx: Runner) => {
    const { lists } = await tx.run(sql.countPriceLists);
    if (lists >= listsMax)
      throw new ApiError("limit_reached", {
        message: `There are ${listsMax} price lists, the most.`,
      });
    await tx.run(sql.insertPriceList, { priceListId, name, madeBy });
    await insertVersion(tx, { priceListId, n: 1, ...version, reason, madeBy });
    return parts.keys.announceChange(tx, priceListId);
  };
  const changed = await parts.transaction(store).catch((error: unknown) => {
    if (isUniqueViolation(error)) throw invalidField("name", "is the name of another price list");
    throw error;
  });
  parts.keys.publish(changed);
  call.note?.({ priceListId });
  return create(CreatePriceListResponseSchema, await answerOf(parts, priceListId));
}

export async function addPriceListVersion(
  parts: PriceListParts,
  request: AddPriceListVersionRequest,
  call: AuthenticatedCall,
) {
  const { priceListId, after } = request;
  const reason = readReason(request.reason, call);
  const version = readVersion(parts, request);
  const madeBy = actorOf(call.caller);
  const changed = await parts.transaction(async (tx) => {
    const list = await tx.run(sql.lockPriceList, { priceListId });
    if (!list) throw noSuchList();
    if (list.newest !== after)
      throw new ApiError("wrong_state", {
        message: `Version ${list.newest} is the newest: somebody has changed the list.`,
      });
    await insertVersion(tx, { priceListId, n: after + 1, ...version, reason, madeBy });
    return parts.keys.announceChange(tx, priceListId);
  });
  parts.keys.publish(changed);
  return create(AddPriceListVersionResponseSchema, await answerOf(parts, priceListId));
}

export async function listPriceLists({ reports, file }: PriceListParts) {
  const rows = await reports.run(sql.readPriceLists);
  return create(ListPriceListsResponseSchema, {
    priceLists: rows.map((row) => toMessage(row, file())),
  });
}

export async function setAccountPriceList(
  { transaction, keys }: PriceListParts,
  request: SetAccountPriceListRequest,
  call: AuthenticatedCall,
) {
  readReason(request.reason, call);
  const { accountId } = request;
  const priceListId = request.priceListId === "" ? null : request.priceListId;
  const { account, keyIds } = await transaction(async (tx) => {
    const { status } = await lockAccount(tx, accountId);
    if (status === "closed") throw new ApiError("account_closed");
    if (priceListId !== null && !(await tx.run(sql.lockPriceList, { priceListId })))
      throw noSuchList();
    const account = await tx.run(sql.setPriceList, { accountId, priceListId });
    return { account, keyIds: await keys.announce(tx, accountId) };
  });
  keys.publish(keyIds);
  return create(SetAccountPriceListResponseSchema, { account: toAccount(account) });
}

/** The price list of an account. Undefined: the public prices. */
export async function findPriceList(db: Runner, accountId: string): Promise<string | undefined> {
  return (await db.run(sql.findPriceList, { accountId }))?.priceListId ?? undefined;
}

export async function previewPrices(parts: PriceListParts, request: PreviewPricesRequest) {
  const { discountBp, models } = readVersion(parts, request);
  const id = request.priceListId;
  const before = id === "" ? undefined : (await readLists(parts.reports)).find(isNamed(id));
  if (id !== "" && !before) throw noSuchList();
  const name = before?.name ?? "preview";
  const after = { priceListId: "after", name, n: (before?.n ?? 0) + 1, discountBp, models };
  const lists = new PriceLists();
  lists.replace([...(before ? [before] : []), { ...after, models: readModels(models) }]);
  const { models: entries } = parts.file();
  const book = new PriceBook((model) => entries.find(({ id }) => id === model)?.price, lists);
  return create(PreviewPricesResponseSchema, {
    prices: entries.flatMap(({ id: model }) => {
      const [one, other] = [
        book.priceOf(model, {}, id || undefined),
        book.priceOf(model, {}, "after"),
      ];
      return one && other ? [{ model, before: one, after: other }] : [];
    }),
    belowCost: belowCost(parts, { discountBp, models: readModels(models) }),
  });
}

const isNamed = (id: string) => (list: PriceList) => list.priceListId === id;

function noSuchList(): ApiError {
  return new ApiError("not_found", { message: "No such price list.", field: "price_list_id" });
}

async function answerOf(parts: PriceListParts, priceListId: string) {
  const rows = await parts.reports.run(sql.readPriceLists);
  const row = rows.find((one) => one.priceListId === priceListId);
  if (!row) throw new Error("a price list that was stored is gone");
  return { priceList: toMessage(row, parts.file()), belowCost: belowCost(parts, toList(row)) };
}

/** The models of the file that cost less by these prices than the operator pays. */
function belowCost(
  { file }: PriceListParts,
  { discountBp, models }: Pick<PriceList, "discountBp" | "models">,
): string[] {
  const sold = file().models.map(({ id, price, routes }) => {
    const own = models.get(id);
    return {
      ...{ id, routes },
      price: own?.terms ?? price,
      discountBp: own?.discountBp ?? discountBp,
    };
  });
  return [...new Set(findLosses(sold).map(({ model }) => model))];
}

type Version = { readonly discountBp: number; readonly models: Readonly<Record<string, unknown>> };

/** What a version says, as it is stored. Throws `invalid_request` with every problem of prices. */
function readVersion(
  { file }: PriceListParts,
  { discountBp, models }: Pick<CreatePriceListRequest, "discountBp" | "models">,
): Version {
  checkDiscount("discount_bp", discountBp);
  const given = Object.entries(models);
  if (given.length > modelsMax) throw invalidField("models", `has more than ${modelsMax} models`);
  const { models: entries, priceMultipliers } = file();
  const stored = given.map(([id, { price, discountBp: bp }]) => {
    const at = `models[${id}]`;
    const entry = entries.find((one) => one.id === id);
    if (!entry) throw invalidField(at, "is no model of the catalogue");
    if (bp !== undefined) checkDiscount(`${at}.discount_bp`, bp);
    if (price === undefined && bp === undefined)
      throw invalidField(at, "needs a price or discount_bp");
    const terms = price && readTerms(fileOf(price), priceMultipliers);
    if (Array.isArray(terms)) throw invalidField(`${at}.price`, terms.join("; "));
    return [
      id,
      { ...(terms && { price: writeTerms(terms) }), ...(bp !== undefined && { discount_bp: bp }) },
    ];
  });
  return { discountBp, models: Object.fromEntries(stored) };
}

function checkDiscount(field: string, bp: number): void {
  if (bp > discountMax) throw invalidField(field, `is at most ${discountMax}`);
}

function insertVersion(
  tx: Runner,
  {
    models,
    ...version
  }: Version & {
    readonly priceListId: string;
    readonly n: number;
    readonly reason: string;
    readonly madeBy: string;
  },
) {
  return tx.run(sql.insertPriceListVersion, { ...version, models: JSON.stringify(models) });
}

/** A price as a file has it: a text that is empty is not there. */
function fileOf(terms: PriceTermsMessage): Readonly<Record<string, unknown>> {
  return {
    ...pricesIn(terms),
    ...(terms.webSearch !== "" && { per: { web_search: terms.webSearch } }),
    ...(terms.when.length > 0 && { when: terms.when.map(conditionIn) }),
  };
}

function conditionIn(condition: PriceCondition): Readonly<Record<string, unknown>> {
  const { promptAbove, speed, geo, tier, multiply } = condition;
  return {
    ...(promptAbove !== undefined && { prompt_above: String(promptAbove) }),
    ...withoutEmpty({ speed, geo, tier, multiply }),
    ...pricesIn(condition),
  };
}

function pricesIn(of: PriceTermsMessage | PriceCondition): Readonly<Record<string, unknown>> {
  return withoutEmpty(
    Object.fromEntries(
      tokenCategories.map((category) => [categoryColumns[category], of[category]]),
    ),
  );
}

function withoutEmpty(texts: Readonly<Record<string, string>>) {
  return Object.fromEntries(Object.entries(texts).filter(([, text]) => text !== ""));
}

function toMessage(
  row: sql.ReadPriceListsRow,
  { models: entries }: Pick<CatalogFile, "models">,
): PriceListMessage {
  const { priceListId, name, n, discountBp, reason, madeBy } = row;
  const models = readModels(row.models);
  return create(PriceListSchema, {
    ...{ priceListId, name, accounts: row.accounts },
    madeAt: timestampFromDate(row.listMadeAt),
    version: {
      ...{ n, discountBp, reason, madeBy, madeAt: timestampFromDate(row.madeAt) },
      models: Object.fromEntries([...models].map(([id, one]) => [id, toListed(one)])),
    },
    goneModels: [...models.keys()].filter((id) => !entries.some((entry) => entry.id === id)),
  });
}

function toListed({
  terms,
  discountBp,
}: {
  terms?: PriceTerms | undefined;
  discountBp?: number | undefined;
}): ListedModel {
  return create(ListedModelSchema, {
    ...(terms && { price: toTerms(terms) }),
    ...(discountBp !== undefined && { discountBp }),
  });
}

function toTerms(terms: PriceTerms): PriceTermsMessage {
  const written = Object(writeTerms(terms));
  return create(PriceTermsSchema, {
    ...pricesOut(written),
    webSearch: String(written.per?.web_search ?? ""),
    when: (terms.when ?? []).map(({ promptAbove, speed = "", geo = "", tier = "" }, index) => {
      const { multiply = "", ...prices } = Object(written.when[index]);
      return create(PriceConditionSchema, {
        ...{ ...pricesOut(prices), speed, geo, tier, multiply: String(multiply) },
        ...(promptAbove !== undefined && { promptAbove }),
      });
    }),
  });
}

/** Prices as a file has them, by the names of messages. */
function pricesOut(written: object) {
  const texts = new Map<string, unknown>(Object.entries(written));
  return byCategory((category) => String(texts.get(categoryColumns[category]) ?? ""));
}
