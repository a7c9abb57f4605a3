// Price lists that one person may not put in force alone: those by which a model costs less than
// half of its public price.

import type { JsonValue } from "@bufbuild/protobuf";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import { tokenCategories } from "../base/token-categories.ts";
import {
  type CatalogFile,
  combinationsOf,
  levelsOf,
  offeredBy,
  type PriceTerms,
  searchPriceOf,
} from "../config/catalog.ts";
import {
  type Act,
  type ApprovalLimit,
  askForApproval,
  needsApproval,
} from "../contract/approvals.ts";
import type { Caller } from "../contract/contract.ts";
import type { Runner } from "../postgres/statement.ts";
import type { PriceList } from "./prices.ts";

type Terms = Pick<PriceList, "discountBp" | "models">;

const half = 5_000;
const namedMax = 5;

/**
 * The models of the file of which some price, under some condition and for some length of a prompt,
 * is less than half of the public one. Rounding up never makes a price less.
 */
export function belowHalf(
  models: CatalogFile["models"],
  { discountBp, models: listed }: Terms,
): string[] {
  return models.flatMap(({ id, price }) => {
    const own = listed.get(id);
    const terms = own?.terms ?? price;
    return isBelowHalf(price, terms, own?.discountBp ?? discountBp) ? [id] : [];
  });
}

function isBelowHalf(open: PriceTerms, terms: PriceTerms, discountBp: number): boolean {
  if (searchPriceOf(terms, discountBp) * 2n < searchPriceOf(open)) return true;
  const [one, other] = [offeredBy(open), offeredBy(terms)];
  // A condition that has no public price is compared with the plain one.
  const offered = {
    speed: new Set([...one.speed, ...other.speed]),
    geo: new Set([...one.geo, ...other.geo]),
    tier: new Set([...one.tier, ...other.tier]),
  };
  return combinationsOf(offered).some((facts) => {
    const [before, after] = [levelsOf(open, facts), levelsOf(terms, facts, discountBp)];
    return [...before, ...after].some(({ over }) => {
      const upTo = (level: { readonly over: number }) => level.over <= over;
      const [was, is] = [before.findLast(upTo)?.prices, after.findLast(upTo)?.prices];
      return tokenCategories.some((category) => was && is && is[category] * 2n < was[category]);
    });
  });
}

/** What is asked for: the request is for the function that carries it out. */
type Asked = Pick<Act, "kind" | "subject" | "accountId" | "reason"> & {
  /** A sentence without its end. */
  readonly what: string;
  readonly request: JsonValue;
};

/**
 * Lets a request wait that puts prices in force which one person may not alone. Undefined: the
 * caller may. A discount over a half always waits, because models that come later have it, too.
 */
export async function askUnlessHalf(
  tx: Runner,
  caller: Caller,
  { models, limit }: { readonly models: CatalogFile["models"]; readonly limit: ApprovalLimit },
  terms: Terms,
  asked: Asked,
): Promise<Approval | undefined> {
  if (!needsApproval(caller, limit())) return undefined;
  const below = belowHalf(models, terms);
  if (below.length === 0 && terms.discountBp <= half) return undefined;
  const named = below.slice(0, namedMax).join(", ");
  const more = below.length > namedMax ? ` and ${below.length - namedMax} more` : "";
  const less =
    below.length > 0
      ? `less than half of the public price for ${named}${more}`
      : "less than half of the public price for models that come later";
  const what = `${asked.what}: ${terms.discountBp / 100} % off, and ${less}.`;
  return askForApproval(tx, caller, { ...asked, what, usdMicro: 0n });
}
