// The highest prices that the file accepts, for the most tokens that a request can have: whatever
// computes with them has room for the product.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Bucket, UsageGroup } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { costMicro, type Prices } from "../../src/base/cost.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { byCategory, categoryColumns, tokenCategories } from "../../src/base/token-categories.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { chargedPrices } from "../../src/config/price.ts";
import { endingWith, usage } from "../support/ledger.ts";
import { addAll, attemptAt, costsOf, fileWithCost, register } from "../support/sales.ts";
import { freshUsage, stamp } from "../support/usage.ts";

const tokensMax = 2 ** 31 - 1;
const searchesMax = 1_000;
const { max: nanoMax, searchMax } = chargedPrices;

let world: Awaited<ReturnType<typeof freshUsage>>;
beforeAll(async () => {
  world = await freshUsage();
});
afterAll(() => world.close());

const never = new AbortController().signal;
/** The most, or nothing, or anything. */
const upTo = (most: number) => fc.oneof(fc.constant(most), fc.constant(0), fc.nat(most));
const upToBig = (most: bigint) => fc.oneof(fc.constant(most), fc.bigInt(0n, most));

const anyPrices: fc.Arbitrary<Prices> = fc
  .tuple(fc.record(byCategory(() => upToBig(nanoMax))), upToBig(searchMax))
  .map(([tokens, webSearch]) => ({ ...tokens, webSearch }));
const anyUsage = fc
  .tuple(fc.record(byCategory(() => upTo(tokensMax))), upTo(searchesMax))
  .map(([tokens, webSearches]) => usage({ ...tokens, webSearches }));
/** The most that a hold takes, so that the whole is charged; or a part of it. */
const enough = 10n ** 18n;
const anyFunds = fc.constantFrom(enough, 10n ** 9n);

test("the highest prices for the most tokens overflow nowhere", async () => {
  const file = fileWithCost(
    `cost: { input: 100000, output: 100000, thinking: 100000, cache_write_5m: 100000,
      cache_write_1h: 100000, cache_read: 100000, per: { web_search: 100000 } }`,
  );
  await register(world.postgres, file);
  const attempts = [attemptAt(costsOf(file)[0]?.costVersion ?? "")];
  await fc.assert(
    fc.asyncProperty(anyPrices, anyUsage, anyFunds, async (prices, used, funds) => {
      const price = priceVersion("model-test", prices);
      const payer = await world.payer(funds, { cap: 2n ** 53n });
      const hold = await world.holds.place(
        {
          ...{ requestId: newRequestId(), payer, model: "model-test", price, deadlineMs: 60_000 },
          tags: { of: "most" },
          bounds: {
            ...{ input: tokensMax, minInput: 0, mostExpensiveInput: InputCategory.CACHE_WRITE_1H },
            webSearches: funds === enough ? searchesMax : 0,
            ...{ minOutput: 0, maxOutput: tokensMax },
          },
        },
        never,
      );
      const receipt = await world.holds.settle(hold, endingWith(used, attempts));
      const { chargedMicrocredits: amount, overrunMicrocredits: overrun } = receipt;
      // What is charged and what is beyond the grant are rounded up apart.
      expect([0n, 1n]).toContain(amount + overrun - costMicro(prices, used));
      expect(amount <= receipt.holdMicrocredits).toBe(true);
      const request = { accountId: payer.accountId, requestId: hold.requestId };
      expect(await world.store.findCharge(request)).toEqual(receipt);
    }),
    {
      numRuns: 40,
      examples: [
        [
          { ...byCategory(() => nanoMax), webSearch: searchMax },
          usage({ ...byCategory(() => tokensMax), webSearches: searchesMax }),
          enough,
        ],
      ],
    },
  );
  expect(await world.store.verifyLedger()).toEqual([]);
  await addAll(world.postgres);
  const accounts = await world.run<{ account_id: string }>(
    "select distinct account_id from charges",
  );
  for (const { account_id: accountId } of accounts) {
    const scope = { accountId, onlyKey: undefined };
    for (const bucket of [Bucket.HOUR, Bucket.DAY])
      for (const groupBy of [[], [UsageGroup.KEY], [UsageGroup.MODEL]]) {
        const { totals } = await world.query(
          { startAt: stamp(world.daysAgo(1)), bucket, groupBy },
          scope,
        );
        const [sums] = await world.run<{ amount: bigint }>(
          "select sum(amount)::bigint as amount from charges where account_id = $1",
          [accountId],
        );
        expect(totals?.chargedMicrocredits).toBe(sums?.amount);
      }
  }
  const [same] = await world.run<{ sales: bigint; charged: bigint }>(
    `select (select sum(amount + overrun) from sales_daily)::bigint as sales,
       (select sum(amount + overrun) from charges)::bigint as charged`,
  );
  expect(same?.sales).toBe(same?.charged);
});

test("a price above the highest is refused by name", () => {
  const read = (usd: Readonly<Record<string, string>>) => () =>
    readCatalogFile(`
models:
  - id: model-test
    created_at: 2026-02-05T00:00:00Z
    context_tokens: 1000000
    max_output_tokens: 100000
    thinking: none
    price: ${JSON.stringify(usd)}
    routes: [[{ provider: vendor, model: vendors-name }]]
providers: { vendor: { kind: simulated } }
`);
  const highest = Object.fromEntries(
    tokenCategories.map((category) => [categoryColumns[category], "3000"]),
  );
  expect(read(highest)).not.toThrow();
  for (const column of Object.keys(highest))
    expect(read({ ...highest, [column]: "3000.000005" })).toThrow(
      `price.${column}: 3000.000005 USD per million tokens is more than can be billed`,
    );
});
