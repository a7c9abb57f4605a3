// Lists of single charges: which ones a request asks for, and their pages.

import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  type ChargeFilter,
  type ListChargesRequest,
  type ListChargesResponse,
  ListChargesResponseSchema,
  UsageService,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { actorText } from "../base/actors.ts";
import {
  askedPage,
  encodeTimeCursor,
  parseTimeCursor,
  readTimeRange,
  type TimeCursor,
} from "../base/paging.ts";
import { checkTags, noTags } from "../base/tags.ts";
import { actorToFind } from "../contract/callers.ts";
import { keptFrom } from "./archived.ts";
import { outcomeName } from "./rows.ts";
import type { ChargeQuery, LedgerStore } from "./store.ts";
import type { Scope } from "./usage.ts";

/**
 * How many charges a page looks at, so that a filter that nothing matches takes a tenth of a second
 * and not the time to read a year.
 */
const looksMax = 20_000;

// No charge lies outside.
const firstTime = new Date(0);
const afterAll: TimeCursor = { at: new Date("9999-12-31T23:59:59.999Z"), id: "" };

/** One page of charges. Throws `invalid_request`. */
export async function listCharges(
  store: Pick<LedgerStore, "listCharges" | "readArchivedMonths">,
  request: ListChargesRequest,
  scope: Scope,
): Promise<ListChargesResponse> {
  const { filter } = request;
  const range = readTimeRange(request, new Date());
  const chosen = chosenCharges(filter, scope);
  const page = askedPage(UsageService.method.listCharges, request, scope);
  if (!chosen) return create(ListChargesResponseSchema);

  const end = range.to ? { at: range.to, id: "" } : afterAll;
  const found = await store.listCharges(
    {
      ...chosen,
      accountId: scope.accountId,
      from: range.from ?? firstTime,
      before: page.after === undefined ? end : parseTimeCursor(page.after),
    },
    // One more than the page holds shows whether another page follows.
    { looks: looksMax, rows: page.size + 1 },
  );
  const matching = found.flatMap(({ charge, isMatch }) => (isMatch ? [charge] : []));
  const charges = matching.slice(0, page.size);
  const isFull = matching.length > page.size;
  const last = isFull ? charges.at(-1) : found.find(({ isLast }) => isLast)?.charge;
  const archivedBefore = last ? undefined : await keptFrom(store, { ...scope, ...chosen });
  const isShort = archivedBefore && (range.from ?? firstTime) < archivedBefore;
  return create(ListChargesResponseSchema, {
    charges,
    ...(isShort && { archivedBefore: timestampFromDate(archivedBefore) }),
    ...(last && {
      nextPageToken: page.tokenOf(encodeTimeCursor(cursorOf(last))),
      ...(last.admittedAt && { searchedTo: last.admittedAt }),
    }),
  });
}

type ChosenCharges = Pick<
  ChargeQuery,
  "keyId" | "model" | "outcomes" | "minAmountMicro" | "tags" | "madeBy"
>;

/**
 * What a filter chooses, for a caller who may be confined to one key. Undefined: nothing, since it
 * names another key. Throws `invalid_request`.
 */
export function chosenCharges(
  filter: ChargeFilter | undefined,
  { onlyKey }: Scope,
): ChosenCharges | undefined {
  const {
    keyId = "",
    model = "",
    outcomes = [],
    minChargedMicrocredits: minAmountMicrocredits = 0n,
  } = filter ?? {};
  const tags = checkTags(filter?.tags ?? noTags, "filter.tags");
  if (onlyKey !== undefined && keyId !== "" && keyId !== onlyKey) return undefined;
  return {
    keyId: onlyKey ?? (keyId === "" ? undefined : keyId),
    model,
    outcomes: [...new Set(outcomes)].map(outcomeName),
    minAmountMicro: minAmountMicrocredits,
    tags,
    madeBy: actorToFind("filter.made_by", filter?.madeBy),
  };
}

/** True if these charges include this one. */
export function isChosen(chosen: ChosenCharges | undefined, charge: Receipt): boolean {
  if (!chosen) return false;
  const { keyId, model, outcomes, minAmountMicro, tags, madeBy } = chosen;
  return (
    (keyId === undefined || charge.keyId === keyId) &&
    (model === "" || charge.model === model) &&
    (outcomes.length === 0 || outcomes.includes(outcomeName(charge.outcome))) &&
    charge.chargedMicrocredits >= minAmountMicro &&
    (madeBy === "" || actorText(charge.madeBy) === madeBy) &&
    Object.entries(tags).every(([key, value]) => charge.tags[key] === value)
  );
}

function cursorOf({ admittedAt, requestId }: Receipt): TimeCursor {
  if (!admittedAt) throw new Error("a charge without its time of admission");
  return { at: timestampDate(admittedAt), id: requestId };
}
