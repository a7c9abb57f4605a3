// One search over all that people type: ids, numbers, hashes, addresses, secrets and their hints,
// amounts of a day, names. Each is looked up by an index, so that a search reads a few pages
// however much there is. In an account, names are found by any part of them: there it reads its
// keys and members.

import { createHash } from "node:crypto";
import { create, type DescMethod, getOption } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import {
  type SearchHit,
  SearchHitKind,
  SearchHitSchema,
  type SearchRequest,
  type SearchResponse,
  SearchResponseSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { PaymentsService } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { MembersService } from "../../gen/gateway/people/v1/members_pb.ts";
import * as sql from "../../gen/sql/operations.ts";
import { hintHeadOf } from "../base/cells.ts";
import { invalidField } from "../base/errors.ts";
import { isRequestId } from "../base/ids.ts";
import type { CatalogFile } from "../config/catalog.ts";
import { mayCall, seesEveryAccount } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Reports } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { checkAccount } from "./store.ts";

const hitsMax = 20;
/** A shorter text is only the beginning of a whole name. */
const wordLengthMin = 3;
const hintHead = /^[sm]k-gw2-/;
/** A coin has at most so many. */
const decimalsMax = 30;

export type SearchParts = {
  /** A search delays no request. */
  readonly reports: Pick<Reports, "transaction">;
  /** The running, charged and refused requests with an id, looked up in the transaction `db`. */
  readonly findRequests: (db: Runner, requestId: string) => Promise<readonly FoundRequest[]>;
  /** The configuration file of this moment. */
  readonly file: () => Pick<CatalogFile, "models" | "aliases">;
};

type FoundRequest = {
  readonly kind: "request" | "refusal";
  readonly accountId: string;
  readonly model: string;
  readonly at: Date;
};

type Found = {
  /** One of `kinds`. */
  readonly kind: string;
  readonly id: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly title: string;
  /** Undefined: a model. */
  readonly at: Date | undefined;
  readonly hint?: string;
};

const kinds: Readonly<Record<string, SearchHitKind>> = {
  account: SearchHitKind.ACCOUNT,
  key: SearchHitKind.KEY,
  management_key: SearchHitKind.MANAGEMENT_KEY,
  person: SearchHitKind.PERSON,
  order: SearchHitKind.ORDER,
  payment: SearchHitKind.PAYMENT,
  document: SearchHitKind.DOCUMENT,
  transfer: SearchHitKind.TRANSFER,
  promotion: SearchHitKind.PROMOTION,
  address: SearchHitKind.ADDRESS,
  request: SearchHitKind.REQUEST,
  refusal: SearchHitKind.REFUSAL,
  model: SearchHitKind.MODEL,
};

/** Of what is found by its id alone, what an account has pages of. */
const ofAccounts: ReadonlySet<string> = new Set(["key", "order", "document", "request"]);

/** In an account, some kinds are shown to those alone who may call the method that lists them. */
const listedBy: ReadonlyMap<string, DescMethod> = new Map<string, DescMethod>([
  ["order", PaymentsService.method.listOrders],
  ["document", PaymentsService.method.getReceiptDocument],
  ["person", MembersService.method.listMembers],
]);

export async function search(
  parts: SearchParts,
  { query, allAccounts }: SearchRequest,
  { allowed, caller, accountId }: Pick<AuthenticatedCall, "allowed" | "caller" | "accountId">,
): Promise<SearchResponse> {
  const text = checkedQuery(query);
  if (text === "") throw invalidField("query", "must not be blank");
  const seesAll = seesEveryAccount(allowed, caller);
  const isListed = (kind: string) => {
    const method = listedBy.get(kind);
    return !method || mayCall(getOption(method, callers), caller, accountId);
  };
  const isOwn = ({ kind }: Found) => ofAccounts.has(kind) && isListed(kind);
  const findOwn = async (db: Runner) => {
    // Operators may have invented it.
    await checkAccount(db, accountId);
    return [
      ...(await findExact(db, text, accountId)).filter(isOwn),
      ...(await findInAccount(db, text, accountId, isListed("person"))),
      ...findModels(parts.file(), text),
    ];
  };
  const found = await lookUp(parts, text, async (db) => [
    ...(allAccounts ? [] : await findOwn(db)),
    ...(seesAll ? [...(await findExact(db, text)), ...(await findNames(db, text))] : []),
  ]);
  const isSeen = ({ kind, accountId: owner }: Found) =>
    seesAll || kind === "model" || (owner === accountId && kind !== "refusal");
  const hits = distinct(found.filter(isSeen));
  return create(SearchResponseSchema, {
    hits: hits.slice(0, hitsMax).map(toHit),
    incomplete: hits.length > hitsMax,
  });
}

/** The accounts of what a text is exactly. Throws `invalid_request`. */
export async function accountsOfExact(parts: SearchParts, query: string): Promise<string[]> {
  const text = checkedQuery(query);
  if (text === "") return [];
  const found = await lookUp(parts, text, (db) => findExact(db, text));
  return [...new Set(found.map(({ accountId }) => accountId))];
}

/**
 * The requests with an id, then what `find` finds. The server would rather scan a table from its
 * beginning where it takes a word for one of many names: it may not.
 */
async function lookUp(
  { reports, findRequests }: SearchParts,
  text: string,
  find: (db: Runner) => Promise<Found[]>,
): Promise<Found[]> {
  return reports.transaction(async (db) => {
    await db.run(sql.followIndexes);
    const requests = isRequestId(text) ? await findRequests(db, text) : [];
    const named = await accountNames(db, requests);
    const found = requests.map(({ model, ...request }) => ({
      ...{ ...request, id: text, title: model },
      accountName: named.get(request.accountId) ?? "",
    }));
    return [...found, ...(await find(db))];
  });
}

function checkedQuery(query: string): string {
  if (!query.isWellFormed() || /\p{Cc}/u.test(query))
    throw invalidField("query", "must not hold control characters");
  return query.trim();
}

/**
 * `accountId`: ids and payments of this account alone. Absent: of all. Keys by their hints are
 * those of all in any case.
 */
async function findExact(db: Runner, text: string, accountId?: string): Promise<Found[]> {
  const small = text.toLowerCase();
  const ids = await db.run(sql.searchIds, {
    text,
    small,
    hash: small.replace(/^0x/, ""),
    digest: createHash("sha256").update(text).digest(),
    accountId: accountId ?? null,
  });
  const payments = await findPayments(db, text, accountId);
  return [...ids, ...payments, ...(await findHints(db, text))];
}

async function accountNames(db: Runner, requests: readonly FoundRequest[]) {
  if (requests.length === 0) return new Map<string, string>();
  const accountIds = requests.map(({ accountId }) => accountId);
  const rows = await db.run(sql.readNames, { accountIds });
  return new Map(rows.map(({ accountId, name }) => [accountId, name]));
}

const amountOfDay = /^(\d{1,20}(?:\.\d{1,30})?) ([A-Za-z0-9]{2,12}) (\d{4}-\d{2}-\d{2})$/;

/** What arrived, by an amount, a coin and a UTC day. */
async function findPayments(
  db: Runner,
  text: string,
  accountId: string | undefined,
): Promise<Found[]> {
  const [, coins, asset, day] = amountOfDay.exec(text.replaceAll(/\s+/g, " ")) ?? [];
  if (coins === undefined || asset === undefined || !isDay(day)) return [];
  const [whole = "", fraction = ""] = coins.split(".");
  const significant = fraction.replace(/0+$/, "");
  const atoms = Array.from({ length: decimalsMax + 1 }, (_, decimals) => decimals)
    .filter((decimals) => decimals >= significant.length)
    .map((decimals) => String(BigInt(whole + significant.padEnd(decimals, "0"))));
  const amount = { coins, atoms, asset: asset.toUpperCase(), day };
  return db.run(sql.searchPayments, { ...amount, accountId: accountId ?? null });
}

function isDay(day: string | undefined): day is string {
  const date = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(`${day}T`);
}

// The parts of a hint, as `keys/secret.ts` makes it. The first one had 12 before there were cells.
const firstLength = 14;
const firstLengthMin = 12;
const lastLength = 4;

/** Keys by a hint, the beginning of one, or a whole secret whose digest nobody has. */
async function findHints(db: Runner, text: string): Promise<Found[]> {
  const hint = hintOf(text);
  return hint ? db.run(sql.searchHints, hint) : [];
}

function hintOf(text: string): { readonly first: string; readonly last: string } | undefined {
  if (!hintHead.test(text)) return undefined;
  const [first = "", last] = text.replace("...", "…").split("…");
  const isWhole = last === undefined && first.length > firstLength + lastLength;
  // Two secrets may have the same hint: a whole one is found by its digest. The last characters
  // alone are those of too many.
  if (isWhole || (last !== undefined && first.length < firstLengthMin)) return undefined;
  return { first: hintHeadOf(first), last: (last ?? "").slice(-lastLength) };
}

async function findInAccount(
  db: Runner,
  text: string,
  accountId: string,
  withMembers: boolean,
): Promise<Found[]> {
  const small = text.toLowerCase();
  const { first = null, last = "" } = hintOf(text) ?? {};
  const names = { accountId, small, words: wordsOf(small), withMembers };
  const rows = await db.run(sql.searchAccount, { ...names, first, last });
  const [account] = await db.run(sql.readNames, { accountIds: [accountId] });
  return rows.map((row) => ({ ...row, accountId, accountName: account?.name ?? "" }));
}

/** Models by their ids, aliases and names: first those of which one begins with the text. */
function findModels(
  { models, aliases }: ReturnType<SearchParts["file"]>,
  text: string,
): readonly Found[] {
  const small = text.toLowerCase();
  const words = wordsOf(small);
  return models
    .flatMap(({ id, displayName }) => {
      const others = Object.keys(aliases).filter((alias) => aliases[alias] === id);
      const names = [id, displayName, ...others].map((name) => name.toLowerCase());
      const isFound = words.every((word) => names.some((name) => name.includes(word)));
      const rank = names.some((name) => name.startsWith(small)) ? 0 : 1;
      return isFound ? [{ id, title: displayName || id, rank }] : [];
    })
    .sort((one, other) => one.rank - other.rank)
    .map(({ id, title }) => ({
      ...{ kind: "model", id, title, at: undefined },
      ...{ accountId: "", accountName: "" },
    }));
}

function wordsOf(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}

async function findNames(db: Runner, text: string): Promise<Found[]> {
  const words = wordsOf(text);
  const isLong = words.every((word) => [...word].length >= wordLengthMin);
  return db.run(sql.searchNames, {
    text,
    small: text.toLowerCase(),
    words: isLong ? words.map(beginningOf).join(" & ") : null,
  });
}

/** A term of a tsquery: words that begin so. */
function beginningOf(word: string): string {
  return `'${word.replaceAll(/['\\]/g, "$&$&")}':*`;
}

/** The first of each thing. A person is one in all accounts. */
function distinct(found: readonly Found[]): Found[] {
  const things = new Map<string, Found>();
  for (const one of found) {
    const owner = one.kind === "person" ? "" : one.accountId;
    const key = `${one.kind} ${one.id} ${owner}`;
    if (!things.has(key)) things.set(key, one);
  }
  return [...things.values()];
}

function toHit({ kind, at, ...found }: Found): SearchHit {
  return create(SearchHitSchema, {
    ...found,
    kind: kinds[kind] ?? SearchHitKind.UNSPECIFIED,
    ...(at && { occurredAt: timestampFromDate(at) }),
  });
}
