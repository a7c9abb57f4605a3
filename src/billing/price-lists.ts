// Price lists of customers: the methods of PriceListsService, and the lists in force.

import { create, type JsonObject } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import {
  type CreatePriceListRequest,
  CreatePriceListResponseSchema,
  type CreatePriceListVersionRequest,
  CreatePriceListVersionResponseSchema,
  type ListedModel,
  ListedModelSchema,
  type ListPriceListsRequest,
  ListPriceListsResponseSchema,
  type PreviewPricesRequest,
  PreviewPricesResponseSchema,
  type PriceCondition,
  PriceConditionSchema,
  type PriceList as PriceListMessage,
  PriceListSchema,
  PriceListsService,
  type PriceTerms as PriceTermsMessage,
  PriceTermsSchema,
  type SetAccountPriceListRequest,
  SetAccountPriceListResponseSchema,
} from "../../gen/gateway/billing/v1/price_lists_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { toActor } from "../base/actors.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName } from "../base/names.ts";
import { readPage, wholeList } from "../base/paging.ts";
import { byCategory, categoryColumns, tokenCategories } from "../base/token-categories.ts";
import {
  type CatalogFile,
  findLosses,
  type PriceTerms,
  problemOfStep,
  readTerms,
  writeTerms,
} from "../config/catalog.ts";
import { type ApprovalLimit, type CarryOut, memberOf } from "../contract/approvals.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import { isUniqueViolation, type Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";
import { type AccountParts, lockAccount } from "./accounts.ts";
import { askUnlessHalf, belowHalf } from "./price-approvals.ts";
import { PriceBook, type PriceList, PriceLists } from "./prices.ts";
import { toAccount } from "./rows.ts";

const listsMax = 200;

export type PriceListParts = {
  readonly transaction: Postgres["transaction"];
  readonly reports: Runner;
  readonly keys: AccountParts["keys"];
  readonly lists: PriceLists;
  readonly approvalLimit: ApprovalLimit;
  /** The models of the configuration file of this moment. */
  readonly file: () => Pick<CatalogFile, "models" | "priceMultipliers">;
};

/** Reads the newest version of every list. `known`: those that were read before. */
export async function readLists(
  db: Runner,
  known: (priceListId: string, n: number) => PriceList | undefined = () => undefined,
): Promise<PriceList[]> {
  const rows = await db.run(sql.readListsInForce);
  return rows.map((row) => known(row.priceListId, row.n) ?? toList(row));
}

function toList(row: sql.ReadListsInForceRow): PriceList {
  return { ...row, models: readModels(row.models) };
}

const noFactors = {};

/** What is stored was right when it was stored, and states every price. */
function readModels(stored: Json): PriceList["models"] {
  const models = Object.entries(Object(stored)).map(([id, one]) => {
    const { price, discount_bp: discountBp } = Object(one);
    const terms = price === undefined ? undefined : readTerms(price, noFactors);
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
  const outcome = await parts.transaction(async (tx) => {
    await checkNew(tx, name);
    const asked = {
      ...{ kind: "price_list" as const, subject: name, accountId: "", reason },
      what: `Makes the price list ${name}`,
      request: { name, ...version },
    };
    const approval = await ask(parts, tx, call, version, asked);
    if (approval) return { approval };
    return storeList(parts, tx, { ...version, name, reason, madeBy: actorOf(call.caller) });
  });
  return create(CreatePriceListResponseSchema, await answerOf(parts, version, outcome, call));
}

export async function createPriceListVersion(
  parts: PriceListParts,
  request: CreatePriceListVersionRequest,
  call: AuthenticatedCall,
) {
  const { priceListId, after } = request;
  const reason = readReason(request.reason, call);
  const version = readVersion(parts, request);
  const outcome = await parts.transaction(async (tx) => {
    const { name } = await lockNewest(tx, priceListId, after);
    // Who has the list gets the version with it: the approval is for these accounts.
    const { accounts, digest } = await tx.run(sql.readAccountsOfList, { priceListId });
    const whose = accounts === 1 ? "which 1 account has" : `which ${accounts} accounts have`;
    const asked = {
      ...{ kind: "price_list" as const, subject: priceListId, accountId: "", reason },
      what: `Adds version ${after + 1} to the price list ${name}, ${whose}`,
      request: { priceListId, after, accounts: digest, ...version },
    };
    const approval = await ask(parts, tx, call, version, asked);
    if (approval) return { approval };
    const made = { priceListId, n: after + 1, ...version, reason, madeBy: actorOf(call.caller) };
    return storeVersion(parts, tx, made);
  });
  return create(
    CreatePriceListVersionResponseSchema,
    await answerOf(parts, version, outcome, call),
  );
}

/** Makes an approved price list, or adds an approved version. */
export function carryOutPriceList(parts: PriceListParts): CarryOut {
  return async (tx, approved) => {
    const { requestedBy: madeBy, reason } = approved;
    const { after, discountBp, models } = approved.request;
    const version = { discountBp: Number(discountBp), models: Object(models), reason, madeBy };
    const priceListId = memberOf(approved, "priceListId");
    if (priceListId === "") {
      const name = memberOf(approved, "name");
      await checkNew(tx, name);
      const { changed } = await storeList(parts, tx, { ...version, name });
      return () => parts.keys.publish(changed);
    }
    await lockNewest(tx, priceListId, Number(after));
    const { digest } = await tx.run(sql.readAccountsOfList, { priceListId });
    if (digest !== memberOf(approved, "accounts"))
      throw new ApiError("wrong_state", { message: "Other accounts have the list by now." });
    const made = { ...version, priceListId, n: Number(after) + 1 };
    const { changed } = await storeVersion(parts, tx, made);
    return () => parts.keys.publish(changed);
  };
}

type Made = Version & { readonly reason: string; readonly madeBy: string };

/** Throws `limit_reached`, and `invalid_request` for the name of another list. */
async function checkNew(tx: Runner, name: string): Promise<void> {
  const { lists, named } = await tx.run(sql.countPriceLists, { name });
  if (named > 0) throw nameIsTaken();
  if (lists >= listsMax)
    throw new ApiError("limit_reached", {
      message: `There are ${listsMax} price lists, the most.`,
    });
}

function nameIsTaken(): ApiError {
  return invalidField("name", "is the name of another price list");
}

async function storeList(
  { keys }: PriceListParts,
  tx: Runner,
  { name, ...version }: Made & { readonly name: string },
) {
  const priceListId = timeOrderedId("plist_");
  const list = { priceListId, name, madeBy: version.madeBy };
  await tx.run(sql.insertPriceList, list).catch((error: unknown) => {
    // Another request of this moment was faster.
    throw isUniqueViolation(error) ? nameIsTaken() : error;
  });
  await insertVersion(tx, { priceListId, n: 1, ...version });
  return { priceListId, changed: await keys.announceChange(tx, priceListId) };
}

/** Locks a list. Throws `wrong_state` unless `n` is its newest version. */
async function lockNewest(tx: Runner, priceListId: string, n: number) {
  const list = await tx.run(sql.lockPriceList, { priceListId });
  if (!list) throw noSuchList();
  const { newest } = await tx.run(sql.readNewestVersion, { priceListId });
  if (newest !== n)
    throw new ApiError("wrong_state", {
      message: `Version ${newest} is the newest: somebody has changed the list.`,
    });
  return list;
}

async function storeVersion(
  { keys }: PriceListParts,
  tx: Runner,
  version: Made & { readonly priceListId: string; readonly n: number },
) {
  const { priceListId } = version;
  await insertVersion(tx, version);
  return { priceListId, changed: await keys.announceChange(tx, priceListId) };
}

/** Lets a version wait, if one person may not make it. Undefined: the caller may. */
function ask(
  { file, approvalLimit: limit }: PriceListParts,
  tx: Runner,
  { caller }: AuthenticatedCall,
  { discountBp, models }: Version,
  asked: Parameters<typeof askUnlessHalf>[4],
) {
  const terms = { discountBp, models: readModels(models) };
  return askUnlessHalf(tx, caller, { models: file().models, limit }, terms, asked);
}

export async function listPriceLists(
  { reports, file }: PriceListParts,
  request: ListPriceListsRequest,
  call: AuthenticatedCall,
) {
  const list = wholeList(await reports.run(sql.readPriceLists), ({ priceListId }) => priceListId);
  const page = await readPage(PriceListsService.method.listPriceLists, request, call, list);
  return create(ListPriceListsResponseSchema, {
    priceLists: page.entries.map((row) => toMessage(row, file())),
    nextPageToken: page.nextPageToken,
  });
}

export async function setAccountPriceList(
  parts: PriceListParts,
  request: SetAccountPriceListRequest,
  call: AuthenticatedCall,
) {
  const reason = readReason(request.reason, call);
  const { accountId, priceListId } = request;
  const { account, approval, keyIds } = await parts.transaction(async (tx) => {
    const open = await lockOpenAccount(tx, accountId);
    const approval =
      priceListId === ""
        ? undefined
        : await askToGive(parts, tx, call, { accountId, priceListId, reason });
    if (approval) return { account: open, approval, keyIds: [] };
    return { approval, ...(await give(parts, tx, accountId, priceListId)) };
  });
  parts.keys.publish(keyIds);
  call.note?.({ priceListId: priceListId === "" ? "public" : priceListId });
  return create(SetAccountPriceListResponseSchema, {
    account: toAccount(account),
    ...(approval && { approval }),
  });
}

/** Gives an account an approved price list, unless the list has another version by now. */
export function carryOutAccountPriceList(parts: PriceListParts): CarryOut {
  return async (tx, approved) => {
    const accountId = memberOf(approved, "accountId");
    const priceListId = memberOf(approved, "priceListId");
    await lockOpenAccount(tx, accountId);
    await lockNewest(tx, priceListId, Number(approved.request.n));
    const { keyIds } = await give(parts, tx, accountId, priceListId);
    return () => parts.keys.publish(keyIds);
  };
}

async function lockOpenAccount(tx: Runner, accountId: string) {
  const account = await lockAccount(tx, accountId);
  if (account.status === "closed") throw new ApiError("account_closed");
  return account;
}

/**
 * One approval of a list does not serve for every account: who made it would give it to his own.
 * Undefined: the caller may give it.
 */
async function askToGive(
  { file, approvalLimit: limit }: PriceListParts,
  tx: Runner,
  { caller }: AuthenticatedCall,
  {
    accountId,
    priceListId,
    reason,
  }: Readonly<Record<"accountId" | "priceListId" | "reason", string>>,
) {
  if (!(await tx.run(sql.lockPriceList, { priceListId }))) throw noSuchList();
  const list = (await readLists(tx)).find(isNamed(priceListId));
  if (!list) throw new Error("a price list has at least one version");
  return askUnlessHalf(tx, caller, { models: file().models, limit }, list, {
    ...{ kind: "account_price_list", subject: accountId, accountId, reason },
    what: `Gives the account version ${list.n} of the price list ${list.name}`,
    request: { accountId, priceListId, n: list.n },
  });
}

async function give({ keys }: PriceListParts, tx: Runner, accountId: string, priceListId: string) {
  const listed = { accountId, priceListId: priceListId === "" ? null : priceListId };
  const account = await tx.run(sql.setPriceList, listed);
  return { account, keyIds: await keys.announce(tx, accountId) };
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
  const listed = id || undefined;
  const book = new PriceBook((model) => entries.find(({ id }) => id === model)?.price, lists);
  return create(PreviewPricesResponseSchema, {
    prices: entries.flatMap(({ id: model }) => {
      const [one, other] = [book.priceOf(model, {}, listed), book.priceOf(model, {}, "after")];
      if (!one || !other) return [];
      const conditionalBefore = book.conditional(model, listed).map(({ price }) => price);
      const conditionalAfter = book.conditional(model, "after").map(({ price }) => price);
      return [{ model, before: one, after: other, conditionalBefore, conditionalAfter }];
    }),
    belowCost: belowCost(parts, { discountBp, models: readModels(models) }),
    belowHalf: belowHalf(entries, { discountBp, models: readModels(models) }),
  });
}

const isNamed = (id: string) => (list: PriceList) => list.priceListId === id;

function noSuchList(): ApiError {
  return new ApiError("not_found", { message: "No such price list.", field: "price_list_id" });
}

type Outcome =
  | { readonly approval: Approval }
  | { readonly priceListId: string; readonly changed: readonly string[] };

/** What became of a version: it is in force on every node within a second, or it waits. */
async function answerOf(
  parts: PriceListParts,
  { discountBp, models }: Version,
  outcome: Outcome,
  { note }: AuthenticatedCall,
) {
  const below = belowCost(parts, { discountBp, models: readModels(models) });
  if ("approval" in outcome) return { approval: outcome.approval, belowCost: below };
  const { priceListId, changed } = outcome;
  parts.keys.publish(changed);
  note?.({ priceListId });
  const rows = await parts.reports.run(sql.readPriceLists);
  const row = rows.find((one) => one.priceListId === priceListId);
  if (!row) throw new Error("a price list that was stored is gone");
  return { priceList: toMessage(row, parts.file()), belowCost: below };
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

/** So many are named at once: the status of a gRPC call has room for few kilobytes. */
const shownProblems = 10;

type Version = { readonly discountBp: number; readonly models: JsonObject };

/** What a version says, as it is stored. Throws `invalid_request` with every problem of prices. */
function readVersion(
  { file }: PriceListParts,
  { discountBp, models }: Pick<CreatePriceListRequest, "discountBp" | "models">,
): Version {
  const { models: entries, priceMultipliers } = file();
  const problems: ApiError[] = [];
  const stored = Object.entries(models).flatMap(([id, { price, discountBp: bp }]) => {
    const at = `models[${id}]`;
    const refuse = (field: string, fault: string) => {
      problems.push(invalidField(field, fault));
      return [];
    };
    const entry = entries.find((one) => one.id === id);
    if (!entry) return refuse(at, "is no model of the catalogue");
    if (price === undefined && bp === undefined) return refuse(at, "needs a price or discount_bp");
    const terms = price && readTerms(fileOf(price), priceMultipliers);
    if (Array.isArray(terms)) return refuse(`${at}.price`, terms.join("; "));
    const step = terms && problemOfStep(terms, entry.contextTokens);
    if (step !== undefined) return refuse(`${at}.price`, step);
    // Prices of its own without one of web searches keep the public one: none is free unsaid.
    const own = terms && { price: writeTerms({ ...publicSearch(entry), ...terms }) };
    return [[id, { ...own, ...(bp !== undefined && { discount_bp: bp }) }] as const];
  });
  const [first, second] = problems;
  if (first && second) {
    const shown = problems.slice(0, shownProblems).map(({ message }) => message);
    const others = problems.length - shown.length;
    const more = others > 0 ? [`and ${others} more problems`] : [];
    throw invalidField("models", [...shown, ...more].join("; "));
  }
  if (first) throw first;
  return { discountBp, models: JSON.parse(JSON.stringify(Object.fromEntries(stored))) };
}

function publicSearch({ price: { webSearch } }: CatalogFile["models"][number]) {
  return webSearch === undefined ? {} : { webSearch };
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
    createdAt: timestampFromDate(row.listMadeAt),
    version: {
      ...{
        number: n,
        discountBp,
        reason,
        createdBy: toActor(madeBy),
        createdAt: timestampFromDate(row.madeAt),
      },
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
