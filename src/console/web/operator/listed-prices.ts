// What a person types of a price list, and the messages that it is.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  ListedModel,
  ListedModelSchema,
  PriceConditionSchema,
  PriceListVersion,
} from "../../../../gen/gateway/billing/v1/price_lists_pb.ts";
import { byCategory, tokenCategories } from "../../../base/token-categories.ts";
import { fieldError } from "../parts/form.tsx";
import { words } from "./words.ts";

/** How a list prices a model: as all others, with another discount, or by prices of its own. */
export const ways = ["list", "discount", "own"] as const;

/** Texts: prices are US dollars a million tokens, and 1,000 searches. */
export type ModelFields = {
  readonly way: (typeof ways)[number];
  readonly discount: string;
  readonly prices: Readonly<Record<PriceName, string>>;
  /** A condition a line: `prompt_above: 200000, multiply: 2`. */
  readonly when: string;
};
export type PriceName = (typeof priceNames)[number];
export const priceNames = [...tokenCategories, "webSearch"] as const;

export type ListFields = {
  readonly discount: string;
  readonly models: Readonly<Record<string, ModelFields>>;
};

const noPrices = { ...byCategory(() => ""), webSearch: "" };
export const plainModel: ModelFields = { way: "list", discount: "", prices: noPrices, when: "" };

/** The fields of a version. Absent: those of a new list. */
export function fieldsOf(version: PriceListVersion | undefined): ListFields {
  const listed = Object.entries(version?.models ?? {});
  return {
    discount: version ? percentOf(version.discountBp) : "",
    models: Object.fromEntries(listed.map(([id, one]) => [id, modelFieldsOf(one)])),
  };
}

function modelFieldsOf({ price, discountBp }: ListedModel): ModelFields {
  const discount = discountBp === undefined ? "" : percentOf(discountBp);
  if (!price) return { ...plainModel, way: "discount", discount };
  const prices = { ...byCategory((category) => price[category]), webSearch: price.webSearch };
  const when = price.when.map((one) =>
    conditionMembers
      .flatMap((name) => (one[name] ? [`${fileNames[name]}: ${one[name]}`] : []))
      .join(", "),
  );
  return { way: "own", discount, prices, when: when.join("\n") };
}

/** "12.5": a discount in percent. */
export function percentOf(bp: number): string {
  return String(bp / 100);
}

/** What a version says. Throws a CallError at a field. */
export function versionOf({ discount, models }: ListFields) {
  return {
    discountBp: readPercent("discount_bp", discount || "0"),
    models: Object.fromEntries(
      Object.entries(models).flatMap(([id, one]) => {
        const listed = listedOf(id, one);
        return listed ? [[id, listed] as const] : [];
      }),
    ),
  };
}

function listedOf(
  id: string,
  { way, discount, prices, when }: ModelFields,
): MessageInitShape<typeof ListedModelSchema> | undefined {
  if (way === "list") return undefined;
  const at = `models[${id}]`;
  const bp = discount === "" ? {} : { discountBp: readPercent(`${at}.discount_bp`, discount) };
  if (way === "discount") {
    if (discount === "") throw fieldError(`${at}.discount_bp`, words.priceLists.notAPercent);
    return bp;
  }
  const lines = when.split("\n").filter((line) => line.trim() !== "");
  return { ...bp, price: { ...prices, when: lines.map((line) => readCondition(at, line)) } };
}

function readPercent(field: string, text: string): number {
  const [, whole, hundredths = ""] = /^(\d{1,3})(?:\.(\d{1,2}))?$/.exec(text.trim()) ?? [];
  const bp = Number(whole) * 100 + Number(hundredths.padEnd(2, "0"));
  if (whole === undefined || bp > 10_000) throw fieldError(field, words.priceLists.notAPercent);
  return bp;
}

const conditionMembers = [
  ...(["promptAbove", "speed", "geo", "tier", "multiply"] as const),
  ...tokenCategories,
] as const;
type ConditionMember = (typeof conditionMembers)[number];

/** As the configuration file names them. */
const fileNames: Readonly<Record<ConditionMember, string>> = {
  ...{ promptAbove: "prompt_above", speed: "speed", geo: "geo", tier: "tier" },
  ...{ multiply: "multiply", input: "input", output: "output", thinking: "thinking" },
  ...{ cacheWrite5m: "cache_write_5m", cacheWrite1h: "cache_write_1h" },
  cacheRead: "cache_read",
};

function readCondition(at: string, line: string): MessageInitShape<typeof PriceConditionSchema> {
  const condition: Partial<Record<Exclude<ConditionMember, "promptAbove">, string>> = {};
  let promptAbove: number | undefined;
  for (const part of line.split(",")) {
    const [, name, value = ""] = /^\s*(\w+):\s*(\S+)\s*$/.exec(part) ?? [];
    const member = conditionMembers.find((one) => fileNames[one] === name);
    if (member === undefined) throw fieldError(`${at}.when`, words.priceLists.notACondition(part));
    if (member !== "promptAbove") condition[member] = value;
    else if (/^\d{1,8}$/.test(value)) promptAbove = Number(value);
    else throw fieldError(`${at}.when`, words.priceLists.notACondition(part));
  }
  return { ...condition, ...(promptAbove !== undefined && { promptAbove }) };
}
