import fc from "fast-check";
import { Client } from "pg";
import { expect, expectTypeOf, onTestFinished, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  PriceSchema,
  UsageSchema,
  UsageTotalSchema,
} from "../../gen/gateway/common/v1/usage_pb.ts";
import type { PriceVersionsRow } from "../../gen/sql/tables.ts";
import {
  byCategory,
  categoryColumns,
  sideOf,
  type TokenCategory,
  tokenCategories,
  type UsageCount,
} from "../../src/base/token-categories.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { families } from "../../src/postgres/families.ts";
import { readFiles, readSchema } from "../../src/postgres/generate.ts";
import { freshDatabase } from "../support/database.ts";
import { endingWith, freshLedger, holdRequest, pricesOf } from "../support/ledger.ts";

/** What a price has beside its prices. */
const terms = ["prompt_above", "above_price", "prompt_over", "note"];

for (const schema of [UsageSchema, UsageTotalSchema, PriceSchema]) {
  test(`${schema.name} has a field for each token category, named like its column`, () => {
    const others = ["price_version", "web_search", "web_searches", ...terms];
    const fields = schema.fields.filter(({ name }) => !others.includes(name));
    const named = fields.map(({ localName, name }) => [localName, name]);
    expect(named.sort()).toEqual(Object.entries(categoryColumns).sort());
  });
}

test("a price has a column for each token category", () => {
  type Terms = "promptAbove" | "abovePrice" | "promptOver" | "note";
  type Column = Exclude<keyof PriceVersionsRow, Terms | "priceVersion" | "model" | "createdAt">;
  expectTypeOf<Column>().toEqualTypeOf<TokenCategory | "webSearch">();
  expect(Object.keys(categoryColumns)).toEqual([...tokenCategories]);
});

test("the generator names every statement that lacks a new category", async () => {
  const database = await freshDatabase();
  const client = new Client({ connectionString: database.url });
  onTestFinished(async () => {
    await client.end();
    await database.drop();
  });
  await client.connect();
  const category = [...(families.category ?? []), "web_input"];
  const schema = await readSchema(client, { ...families, category });
  const named: string[] = [];
  for (const { folder, blocks } of readFiles())
    for (const block of blocks)
      await schema.render(folder, block).catch(({ message }: Error) => {
        expect(message).toMatch(/has the family category without web_input: add it/);
        named.push(`${folder}/${block.name}`);
      });
  const ofBilling = [
    ...["RefuseCharged", "ReadUsedRequests", "ReadOldRequests", "TryWrites"],
    ...["FindCharge", "FindCharges", "FindSettled", "ListCharges", "ListKeyCharges"],
    ...["ExportCharges", "ExportKeyCharges"],
    ...["SettleHolds", "SettleHold", "FindHolds", "FindRunning", "ListRunningOf", "FindOrphans"],
    ...["CheckpointHolds", "RegisterPrice", "ListPrices"],
    ...["WriteDay", "AddToDay", "WriteTags", "AddTagSums", "FoldValues", "StoreTagSums"],
    ...["SumUsage", "ListUsage", "QueryUsage", "QueryTags", "CompareDay", "VerifyDays"],
    ...["VerifySales", "VerifySalesMonth", "VerifySalesTotals"],
  ];
  const ofHistory = ["InsertClosedSums", "CompareClosedSums", "CompareClosing"];
  expect(named).toEqual([
    ...ofBilling.map((name) => `billing/${name}`),
    ...ofHistory.map((name) => `history/${name}`),
    ...["QuerySales", "RegisterCost"].map((name) => `sales/${name}`),
  ]);
});

test("a token of a category, or a search, is charged in one part, at its price", async () => {
  const ledger = await freshLedger();
  onTestFinished(() => ledger.close());
  const metered = [...tokenCategories, "webSearches"] as const;
  const anyPrices = fc.tuple(
    ...metered.map((one) => fc.bigInt(1n, 1_000n).map((micro) => [one, micro] as const)),
  );
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...metered), anyPrices, async (one, entries) => {
      const prices = new Map<TokenCategory | UsageCount, bigint>(entries);
      const priceOf = (of: TokenCategory | UsageCount) => prices.get(of) ?? 0n;
      const micro = { ...byCategory(priceOf), webSearch: priceOf("webSearches") };
      const price = priceVersion("model-test", pricesOf(micro));
      const payer = await ledger.payer(1_000_000n);
      const asked = holdRequest(payer, 1);
      const mostExpensiveInput = InputCategory.CACHE_WRITE_1H;
      const bounds = { ...asked.bounds, mostExpensiveInput, webSearches: 1 };
      const hold = await ledger.holds.place({ ...asked, price, bounds }, never);
      await ledger.holds.settle(hold, endingWith({ [one]: 1 }));
      const parts =
        "amount_input as input, amount_output as output, amount_cache as cache, amount_thinking as thinking";
      const none = { input: 0n, output: 0n, cache: 0n, thinking: 0n };
      const side = one === "webSearches" ? "input" : sideOf[one];
      const expected = { ...none, [side]: priceOf(one) };
      for (const table of ["charge_sums", "usage_hourly"])
        expect(
          await ledger.run(`select ${parts} from ${table} where account_id = $1`, [
            payer.accountId,
          ]),
        ).toEqual([expected]);
    }),
    { numRuns: 30 },
  );
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

const never = new AbortController().signal;
