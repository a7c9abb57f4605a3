// The cost of a charge in the database: the view `charge_sums` adds up what `costsUpTo` computes,
// for prices that are no whole micro-credits.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { cacheSavedNano, costMicro, costsUpTo, type Prices } from "../../src/base/cost.ts";
import { min } from "../../src/base/money.ts";
import { chargedUsage, priceVersion } from "../../src/billing/price.ts";
import { ofCategories, within } from "../support/arbitraries.ts";
import { endingWith, freshLedger, holdRequest, usage } from "../support/ledger.ts";

type Ledger = Awaited<ReturnType<typeof freshLedger>>;

let ledger: Ledger;
beforeAll(async () => {
  ledger = await freshLedger();
});
afterAll(() => ledger.close());

/** The most that a token may cost, as the file of prices has it. */
const nanoMax = 600_000_000n;
const tokensMax = 2 ** 31 - 1;

const anyNano = fc.oneof(fc.bigInt({ min: 0n, max: 9_999n }), within(0n, nanoMax));
const anyTokens = fc.oneof(fc.nat(300), fc.nat(5_000), fc.constantFrom(0, 1, tokensMax));
const anyPrices: fc.Arbitrary<Prices> = fc
  .tuple(ofCategories(anyNano), fc.bigInt({ min: 0n, max: 1_000_000n }))
  .map(([tokens, webSearch]) => ({ ...tokens, webSearch }));
const anyUsage = fc
  .tuple(ofCategories(anyTokens), fc.nat(20))
  .map(([tokens, webSearches]) => usage({ ...tokens, webSearches }));
/** How much of its cost a charge is held. */
const anyShare = fc.constantFrom(0n, 1n, 500n, 999n, 1000n, 2000n);

const never = new AbortController().signal;

test("the view computes the cost of a charge and its parts as the program does, at any price", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(anyPrices, anyUsage, anyShare, fc.nat(600)), { maxLength: 40 }),
      async (cases) => {
        const payer = await ledger.payer(0n);
        const expected = [];
        for (const [index, [prices, used, share, granted]] of cases.entries()) {
          const { priceVersion: version } = await register(prices);
          const charged = chargedUsage(used, granted);
          const upto = costsUpTo(prices, charged);
          const hold = (upto.allMicro * share) / 1000n;
          const over = {
            ...usage({}),
            output: used.output - charged.output,
            thinking: used.thinking - charged.thinking,
          };
          const of = (micro: bigint) => min(micro, hold);
          const amount = of(upto.allMicro);
          expected.push({
            cost: upto.allMicro,
            cost_over: costMicro(prices, over),
            amount_input: of(upto.inputMicro),
            amount_cache: of(upto.withCacheMicro) - of(upto.inputMicro),
            amount_thinking: of(upto.withThinkingMicro) - of(upto.withCacheMicro),
            amount_output: amount - of(upto.withThinkingMicro),
            cache_saved: cacheSavedNano(prices, charged),
          });
          await insertCharge(payer, index, version, { charged, over, hold, amount });
        }
        const rows = await ledger.run(
          `select cost, cost_over, amount_input, amount_cache, amount_thinking, amount_output,
             cache_saved
           from charge_sums where account_id = $1 order by request_id`,
          [payer.accountId],
        );
        expect(rows).toEqual(expected);
      },
    ),
    { numRuns: 30 },
  );
});

test("charges at prices below a micro-credit are rounded up once, and the verifier finds nothing", async () => {
  const fresh = await freshLedger();
  await fc.assert(
    fc.asyncProperty(ofCategories(fc.bigInt({ min: 0n, max: 4_999n })), async (tokens) => {
      const price = priceVersion("model-test", { ...tokens, webSearch: 3n });
      const payer = await fresh.payer(1_000_000n);
      const asked = holdRequest(payer, 7);
      const hold = await fresh.holds.place({ ...asked, price }, never);
      const used = { input: 93, cacheRead: 7, output: 3, thinking: 4 };
      const receipt = await fresh.holds.settle(hold, endingWith(used));
      const nano =
        93n * tokens.input + 7n * tokens.cacheRead + 3n * tokens.output + 4n * tokens.thinking;
      expect(receipt.chargedMicrocredits).toBe((nano + 999n) / 1000n);
      expect(receipt.chargedMicrocredits <= receipt.holdMicrocredits).toBe(true);
      expect(receipt.overrunMicrocredits).toBe(0n);
    }),
    { numRuns: 40 },
  );
  expect(await fresh.store.verifyLedger()).toEqual([]);
  await fresh.close();
});

async function register(prices: Prices) {
  const price = priceVersion("model-test", prices);
  await ledger.store.registerPrice("model-test", price);
  return price;
}

/** Writes a charge, and nothing else. */
async function insertCharge(
  payer: { accountId: string; keyId: string },
  index: number,
  version: string,
  of: {
    charged: ReturnType<typeof usage>;
    over: { output: number; thinking: number };
    hold: bigint;
    amount: bigint;
  },
): Promise<void> {
  const { charged, over, hold, amount } = of;
  const tokens = [charged.input, charged.output, charged.thinking, charged.cacheWrite5m];
  await ledger.run(
    `insert into charges (account_id, request_id, month, family, key_id, model, price_version,
       granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
       admitted_at, settled_at, input, output, thinking, cache_write_5m, cache_write_1h,
       cache_read, web_searches)
     values ($1, 'req_' || lpad($2::text, 8, '0'),
       date_trunc('month', now() at time zone 'utc')::date, 'v1', $3, 'model-test', $4, 0, $5, $6,
       0, $7, $8, 'completed', 'reported', now(), now(), $9, $10, $11, $12, $13, $14, $15)`,
    [
      ...[payer.accountId, index, payer.keyId, version, hold, amount, over.output, over.thinking],
      ...[...tokens, charged.cacheWrite1h, charged.cacheRead, charged.webSearches],
    ],
  );
}
