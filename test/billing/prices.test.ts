// Prices with steps and conditions: the hold covers the dearest that can apply, and the charge is
// tokens by one stored version.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { costMicro, promptOf, stepOf } from "../../src/base/cost.ts";
import { callMicro, usageOf } from "../../src/base/model-facts.ts";
import { byCategory } from "../../src/base/token-categories.ts";
import { maxHoldMicro, sizeHold } from "../../src/billing/hold-size.ts";
import { stepsOf } from "../../src/billing/price.ts";
import { PriceBook, type PriceList, PriceLists } from "../../src/billing/prices.ts";
import type { PriceFacts, PriceTerms } from "../../src/config/catalog.ts";
import { levelsOf } from "../../src/config/catalog.ts";
import { anyFacts, anyTerms } from "../support/arbitraries.ts";
import { exposeGc } from "../support/garbage.ts";
import { endingWith, freshLedger, usage } from "../support/ledger.ts";

type Ledger = Awaited<ReturnType<typeof freshLedger>>;

let ledger: Ledger;
beforeAll(async () => {
  ledger = await freshLedger();
});
afterAll(() => ledger.close());

const never = new AbortController().signal;
const plain = byCategory(
  (category) => ({ input: 10_001n, output: 50_003n })[String(category)] ?? 7n,
);

function priceOf(terms: PriceTerms, facts: PriceFacts = {}): Price {
  const price = new PriceBook(() => terms).priceOf("model-test", facts);
  if (!price) throw new Error("no price");
  return price;
}

/** Prompts on both sides of each step of `anyTerms`, in every category. */
const anyPrompt = fc
  .tuple(
    fc.oneof(fc.constantFrom(0, 99, 100, 101, 999, 1_000, 1_001, 199_999, 200_000, 200_001)),
    fc.nat(3),
    fc.nat(500),
    fc.nat(500),
  )
  .map(([prompt, at, output, thinking]): Usage => {
    const rest = Math.floor(prompt / 3);
    const names = ["input", "cacheRead", "cacheWrite5m", "cacheWrite1h"] as const;
    const first = names[at] ?? "input";
    const second = names[(at + 1) % 4] ?? "input";
    return usage({ [first]: prompt - rest, [second]: rest, output, thinking });
  });

test("the version of a prompt is the one that its conditions and its length demand", () => {
  fc.assert(
    fc.property(anyTerms, anyFacts, anyPrompt, (terms, facts, used) => {
      const step = stepOf(priceOf(terms, facts), promptOf(used));
      const level = levelsOf(terms, facts).findLast(({ over }) => promptOf(used) > over);
      const expected = (level ?? levelsOf(terms, facts)[0])?.prices;
      expect(step).toMatchObject({ ...expected });
      expect(step.promptOver ?? 0).toBe(level?.over ?? 0);
    }),
  );
});

test("no usage within the bounds of a hold costs more than it, whatever step it reaches", () => {
  const mostExpensiveInput = InputCategory.CACHE_WRITE_1H;
  fc.assert(
    fc.property(anyTerms, anyFacts, anyPrompt, fc.nat(300), (terms, facts, used, spare) => {
      const price = priceOf(terms, facts);
      const bounds = {
        input: promptOf(used) + spare,
        ...{ mostExpensiveInput, webSearches: 0, minOutput: 0 },
        maxOutput: used.output + used.thinking,
      };
      const cost = costMicro(stepOf(price, promptOf(used)), used);
      expect(maxHoldMicro(price, bounds) >= cost).toBe(true);
      const grant = sizeHold(price, bounds, { posted: 10n ** 15n, poolHeld: 0n });
      expect(grant).toMatchObject({ kind: "granted", output: bounds.maxOutput });
      expect(grant.kind === "granted" && grant.amountMicro >= cost).toBe(true);
      // The least that it may use is never above the most.
      const least = { ...bounds, minInput: promptOf(used) };
      expect(sizeHold(price, least, { posted: 10n ** 15n, poolHeld: 0n }).kind).toBe("granted");
    }),
  );
});

test("the ids of versions differ wherever prices, steps or notes do", () => {
  fc.assert(
    fc.property(anyTerms, anyFacts, (terms, facts) => {
      const steps = stepsOf(priceOf(terms, facts));
      expect(new Set(steps.map(({ priceVersion }) => priceVersion)).size).toBe(steps.length);
      const content = ({ priceVersion: _, ...rest }: Price) =>
        JSON.stringify(rest, (__, value) => (typeof value === "bigint" ? String(value) : value));
      const [one, other] = [priceOf(terms, facts), priceOf(terms, { ...facts, speed: "fast" })];
      expect(one.priceVersion === other.priceVersion).toBe(content(one) === content(other));
    }),
  );
});

const stepped = (): PriceTerms => ({
  ...plain,
  webSearch: 3n,
  when: [
    { promptAbove: 400_000, prices: byCategory((category) => plain[category] * 3n) },
    { promptAbove: 200_000, prices: byCategory((category) => plain[category] * 2n) },
    { speed: "fast", multiply: 60_000n },
    { tier: "flex", multiply: 5_000n },
  ],
});

async function charge(
  price: Price,
  used: Parameters<typeof usage>[0],
  appliedPrice?: Price,
  { reread = false, maxOutput = 10 } = {},
) {
  const payer = await ledger.payer(10n ** 12n);
  const hold = await ledger.holds.place(
    {
      ...{ requestId: `req_${crypto.randomUUID()}`, payer, model: "model-test", price },
      bounds: {
        ...{ input: 900_000, mostExpensiveInput: InputCategory.CACHE_WRITE_1H, webSearches: 0 },
        ...{ minOutput: maxOutput, maxOutput },
      },
      deadlineMs: 60_000,
    },
    never,
  );
  const request = { accountId: payer.accountId, requestId: hold.requestId };
  const stored = reread ? (await ledger.store.findHold(request))?.hold : hold;
  if (!stored) throw new Error("no hold");
  const ending = { ...endingWith(used), appliedPrice };
  const receipt = await ledger.holds.settle(stored, ending);
  const found = await ledger.store.findCharge(request);
  expect(found?.price).toEqual(receipt.price);
  expect(receipt.chargedMicrocredits <= receipt.holdMicrocredits).toBe(true);
  return receipt;
}

for (const [prompt, times, note] of [
  [199_999, 1n, ""],
  [200_000, 1n, ""],
  [200_001, 2n, "above 200,000 tokens of prompt"],
  [400_000, 2n, "above 200,000 tokens of prompt"],
  [400_001, 3n, "above 400,000 tokens of prompt"],
] as const)
  for (const reread of [false, true])
    test(`a prompt of ${prompt} tokens is charged ${times} times the plain price, ${reread ? "also by another process" : "all of it"}`, async () => {
      const price = priceOf(stepped());
      const used = { input: prompt - 20_000, cacheRead: 20_000, output: 10 };
      const receipt = await charge(price, used, undefined, { reread });
      const nano =
        BigInt(prompt - 20_000) * plain.input + 20_000n * plain.cacheRead + 10n * plain.output;
      expect(receipt.chargedMicrocredits).toBe((nano * times + 999n) / 1000n);
      expect(receipt.price).toMatchObject({ input: plain.input * times, note });
    });

test("what the console says that a call will cost is what its receipt says", async () => {
  const anyCall = fc.record({
    // On both sides of each step of `anyTerms`.
    input: fc.constantFrom(0, 1, 7, 99, 100, 101, 999, 1_000, 1_001, 199_999, 200_000, 200_001),
    output: fc.integer({ min: 1, max: 3_000 }),
    cachedPercent: fc.oneof(fc.integer({ min: 0, max: 100 }), fc.constantFrom(0, 33, 80, 100)),
  });
  await fc.assert(
    fc.asyncProperty(anyTerms, anyFacts, anyCall, async (terms, facts, call) => {
      const price = priceOf(terms, facts);
      const receipt = await charge(price, usageOf(call), undefined, {
        maxOutput: call.output,
      });
      expect(callMicro(price, call)).toBe(receipt.chargedMicrocredits);
      expect(promptOf(usageOf(call))).toBe(call.input);
    }),
    { numRuns: 80 },
  );
});

test("a provider that applied a dearer condition changes nothing, and a cheaper one lowers", async () => {
  const terms = stepped();
  const [base, fast, flex] = [{}, { speed: "fast" }, { tier: "flex" }].map((facts) =>
    priceOf(terms, facts),
  );
  if (!base || !fast || !flex) throw new Error("no price");
  const used = { input: 200_001, output: 10 };
  const dearer = await charge(base, used, fast);
  expect(dearer.price?.priceVersion).toBe(base.abovePrice?.priceVersion);
  const cheaper = await charge(fast, used, base);
  expect(cheaper.price?.priceVersion).toBe(base.abovePrice?.priceVersion);
  expect(cheaper.chargedMicrocredits).toBe(dearer.chargedMicrocredits);
  const halved = await charge(base, used, flex);
  expect(halved.price?.note).toBe("tier flex; above 200,000 tokens of prompt");
  expect(halved.chargedMicrocredits * 2n >= dearer.chargedMicrocredits).toBe(true);
  expect(halved.chargedMicrocredits < dearer.chargedMicrocredits).toBe(true);
});

test("the verifier finds nothing in these charges, and a version of another length", async () => {
  expect(await ledger.store.verifyLedger()).toEqual([]);
  const steps = await ledger.run<{ price_version: string; input: string }>(
    "select price_version, input from price_versions where note = 'above 200,000 tokens of prompt'",
  );
  expect(steps).toHaveLength(1);
  await ledger.run("alter table charges disable trigger user");
  // Of a short prompt, with its amounts as the dearer version would have them.
  await ledger.run(
    `update charges set price_version = $1, amount = 2 * amount
     where input = 180000 and request_id = (
       select min(request_id) from charges where input = 180000)`,
    [steps[0]?.price_version],
  );
  const found = await ledger.store.verifyLedger();
  expect(found.map(({ invariant }) => invariant)).toContain("price is of the length of the prompt");
});

test("the verifier finds 100,000 charges right whose prompts are around each step, and a wrong one", async () => {
  const price = priceOf(stepped());
  for (const step of stepsOf(price)) await ledger.store.registerPrice("model-test", step);
  const all = fc.sample(anyAround, { numRuns: 100_000, seed: 7 });
  const accountId = "acc_around";
  for (let from = 0; from < all.length; from += 10_000) {
    const some = all.slice(from, from + 10_000);
    const versions = some.map((used) => stepOf(price, promptOf(used)));
    const amounts = some.map((used, index) => costMicro(versions[index] ?? price, used));
    const columns = ["input", "output", "thinking", "cacheWrite5m", "cacheWrite1h", "cacheRead"];
    const counts = columns.map((name) => some.map((used) => Object(used)[name]));
    await ledger.run(
      `insert into charges (account_id, request_id, month, family, key_id, model, price_version,
         granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
         admitted_at, settled_at, input, output, thinking, cache_write_5m, cache_write_1h,
         cache_read, web_searches)
       select $1, 'req_' || lpad((n + $2)::text, 12, '0'),
         date_trunc('month', now() at time zone 'utc')::date, 'v1', 'key_around', 'model-test',
         price_version, 1000000, amount, amount, 0, 0, 0, 'completed', 'reported', now(), now(),
         input, output, thinking, cache_write_5m, cache_write_1h, cache_read, 0
       from unnest($3::text[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[], $9::int[],
         $10::int[]) with ordinality as u (price_version, amount, input, output, thinking,
         cache_write_5m, cache_write_1h, cache_read, n)`,
      [
        ...[accountId, from, versions.map(({ priceVersion }) => priceVersion)],
        ...[amounts.map(String), ...counts],
      ],
    );
  }
  const ofPrices = ["charge = tokens x price", "price is of the length of the prompt"];
  const wrong = async () =>
    (await ledger.store.verifyLedger())
      .filter(({ subject }) => subject.startsWith(`${accountId}/`))
      .map(({ invariant }) => invariant)
      .filter((one) => ofPrices.includes(one));
  expect(await wrong()).toEqual([]);
  // One token less in the step of 200,001 belongs to the step below it.
  await ledger.run("alter table charges disable trigger user");
  const { length } = await ledger.run(
    `update charges set input = input - 1 where account_id = $1 and request_id = (
       select min(request_id) from charges
       where account_id = $1 and input > 0
         and input + cache_read + cache_write_5m + cache_write_1h = 200001)
     returning 1`,
    [accountId],
  );
  expect(length).toBe(1);
  expect(new Set(await wrong())).toEqual(new Set(ofPrices));
}, 300_000);

/** Usages whose prompts are at a step, beside it, or anywhere, in all categories. */
const anyAround = fc
  .tuple(
    fc.oneof(
      fc.constantFrom(199_999, 200_000, 200_001, 399_999, 400_000, 400_001),
      fc.integer({ min: 150_000, max: 450_000 }),
    ),
    fc.array(fc.nat(100), { minLength: 3, maxLength: 3 }),
    fc.nat(9_000),
    fc.nat(9_000),
  )
  .map(([prompt, percents, output, thinking]) => {
    let rest = prompt;
    const [cacheRead = 0, cacheWrite5m = 0, cacheWrite1h = 0] = percents.map((percent) => {
      const part = Math.floor((rest * percent) / 100);
      rest -= part;
      return part;
    });
    return usage({ input: rest, cacheRead, cacheWrite5m, cacheWrite1h, output, thinking });
  });

test("the versions of 200 lists of 20 models take less than 500 bytes each, which is 2 MB", async () => {
  const models = Array.from({ length: 20 }, (_, index) => `vendor/model-of-a-long-name-${index}`);
  const lists = Array.from({ length: 200 }, (_, index) => ({
    ...{ priceListId: `plist_${index}`, name: `Customer ${index}`, n: 1, discountBp: index + 1 },
    models: new Map(),
  }));
  const inForce = new PriceLists();
  inForce.replace(lists);
  const terms: PriceTerms = { ...plain, webSearch: 3n };
  const book = new PriceBook(() => terms, inForce);
  const collect = exposeGc();
  // What tests of before have left goes in several collections.
  const usedBytes = () => {
    let [last, bytes] = [Number.POSITIVE_INFINITY, process.memoryUsage().heapUsed];
    while (bytes < last) {
      last = bytes;
      collect();
      bytes = process.memoryUsage().heapUsed;
    }
    return bytes;
  };
  const before = usedBytes();
  for (const { priceListId } of lists)
    for (const model of models) book.priceOf(model, {}, priceListId);
  const bytes = usedBytes() - before;
  expect(book.priceOf(models[0] ?? "", {}, "plist_0")?.note).toBe("list Customer 0 1");
  expect(bytes / (lists.length * models.length)).toBeLessThan(500);
  expect(bytes / (lists.length * models.length)).toBeGreaterThan(100);
});

test("a request waits for a read that runs, after a change, and known versions stay", async () => {
  const versions = [1, 2, 3].map((n) => ({
    ...{ priceListId: "plist_1", name: "Acme", n, discountBp: 100 * n },
    models: new Map(),
  }));
  const reads: PromiseWithResolvers<readonly PriceList[]>[] = [];
  const known: unknown[] = [];
  const lists = new PriceLists();
  lists.readBy((isKnown) => {
    known.push(isKnown("plist_1", 1)?.n);
    const reading = Promise.withResolvers<readonly PriceList[]>();
    reads.push(reading);
    return reading.promise;
  });
  const answer = (read: number, version: number) =>
    reads[read]?.resolve(versions.slice(version - 1, version));
  const first = lists.read();
  answer(0, 1);
  await first;
  expect(lists.ensure("plist_1")).toBeUndefined();

  lists.change("plist_1");
  const waiting = lists.ensure("plist_1");
  expect(waiting).toBeDefined();
  // Told again while it is read: what this read finds may be old.
  lists.change("plist_1");
  const second = lists.ensure("plist_1");
  answer(1, 2);
  await waiting;
  expect(lists.get("plist_1")?.n).toBe(2);
  await vi.waitFor(() => expect(reads).toHaveLength(3));
  expect(lists.ensure("plist_1")).toBeDefined();
  answer(2, 3);
  await second;
  expect(lists.get("plist_1")?.n).toBe(3);
  expect(lists.ensure("plist_1")).toBeUndefined();
  expect(known).toEqual([undefined, 1, undefined]);

  lists.change("plist_1");
  const failing = expect(lists.ensure("plist_1")).rejects.toThrow("away");
  reads[3]?.reject(new Error("away"));
  await failing;
  expect(lists.get("plist_1")?.n).toBe(3);
});
