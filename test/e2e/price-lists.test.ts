// Price lists of customers: two gateways on one ledger charge by the version of each hold, and show
// what an account pays.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { costMicro } from "../../src/base/cost.ts";
import { createLog } from "../../src/base/log.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { startGateway } from "../../src/server/gateway.ts";
import { defaultCatalogWithoutPauses } from "../support/catalog.ts";
import { contentKey } from "../support/content-key.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { errorOf } from "../support/keys.ts";

const reason = "agreed with Acme";
const text = defaultCatalogWithoutPauses();
const cheaper = text.replace(
  "price: { input: 0.70, output: 3.50 }",
  "price: { input: 0.70, output: 3.50, when: [{ prompt_above: 1000, multiply: 2 }, { speed: fast, multiply: 6 }], per: { web_search: 10.00 } }",
);
const catalog = readCatalogFile(cheaper);

const stack = new AsyncDisposableStack();
let gateway: TestGateway;
let addresses: string[];

beforeAll(async () => {
  gateway = stack.adopt(await startTestGateway({ catalog }), (one) => one.stop());
  const dataDir = stack.adopt(await mkdtemp(join(tmpdir(), "gateway-data-")), (path) =>
    rm(path, { recursive: true, force: true }),
  );
  const env = {
    ...{ DATABASE_URL: gateway.databaseUrl, ADMIN_TOKEN: gateway.adminToken, SEED: "false" },
    ...{ PORT: "0", GRPC_PORT: "0", DATA_DIR: dataDir, CONTENT_KEY: contentKey },
  };
  const parts = { config: readConfig(env), catalog, env, log: createLog("silent") };
  const other = stack.adopt(await startGateway(parts), (one) => one.stop());
  addresses = [gateway.address, other.httpAddress ?? ""];
});
afterAll(() => stack.disposeAsync());

const billing = () => gateway.admin.core.billing;
const inference = () => gateway.admin.core.inference;
const call = () => gateway.admin.call;

function ask(address: string, content: string, more: object = {}) {
  return fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      ...{ model: "model-haiku-4.5", max_tokens: 20 },
      messages: [{ role: "user", content }],
      ...more,
    }),
  });
}

async function receiptOf(requestId: string) {
  const { accountId } = gateway;
  const { receipt } = await billing().getReceipt({ requestId, accountId }, call());
  if (!receipt?.price || !receipt.usage) throw new Error("no receipt");
  return { ...receipt, price: receipt.price, usage: receipt.usage };
}

async function receiptAt(address: string, content = "Hello", more: object = {}) {
  const answer = await ask(address, content, more);
  expect(answer.status, await answer.clone().text()).toBe(200);
  await answer.text();
  return receiptOf(answer.headers.get("request-id") ?? "");
}

async function newList(name: string, terms: object) {
  const { priceList } = await billing().createPriceList({ name, reason, ...terms }, call());
  if (!priceList) throw new Error("no list");
  return priceList;
}

async function give(priceListId: string) {
  const { accountId } = gateway;
  const { account } = await billing().setAccountPriceList(
    { accountId, priceListId, reason },
    call(),
  );
  expect(account?.priceListId).toBe(priceListId);
}

/** Waits, for a second as `expect.poll` does, until haiku has this price at both gateways. */
async function noteEverywhere(note: string) {
  for (const address of addresses)
    await expect.poll(async () => (await receiptAt(address)).price.note).toBe(note);
}

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => "",
    (error: unknown) => String(error),
  );

test("a list counts on every node within a second, and 500 requests during its change are charged by their holds", async () => {
  const list = await newList("Acme", { discountBp: 1_000 });
  await give(list.priceListId);
  await noteEverywhere("list Acme 1");
  const { price } = await receiptAt(addresses[0] ?? "");
  expect(price).toMatchObject({ input: 126_000n, output: 630_000n });

  // These run while the list changes.
  const running = await Promise.all(
    addresses.map((address) =>
      ask(address, "[[simulate tokens=20 token_ms=100]]", { stream: true }),
    ),
  );
  const held = await Promise.all(
    running.map((answer) => receiptOf(answer.headers.get("request-id") ?? "")),
  );
  const requests = Array.from({ length: 500 }, (_, index) => index);
  const seen: Awaited<ReturnType<typeof receiptAt>>[] = [];
  const worker = async () => {
    for (let index = requests.pop(); index !== undefined; index = requests.pop()) {
      if (index === 250)
        await billing().createPriceListVersion(
          { priceListId: list.priceListId, after: 1, discountBp: 5_000, reason },
          call(),
        );
      seen.push(await receiptAt(addresses[index % 2] ?? "", "x".repeat((index % 3) * 3_000)));
    }
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  await noteEverywhere("list Acme 2");
  for (const [index, answer] of running.entries()) {
    await answer.text();
    const ended = await receiptOf(answer.headers.get("request-id") ?? "");
    expect(ended.price).toEqual(held[index]?.price);
    expect(ended.price.note).toBe("list Acme 1");
  }
  expect(seen).toHaveLength(500);
  const notes = new Set(seen.map((one) => one.price.note));
  for (const one of seen) {
    expect(one.price.note).toMatch(/^(above 1,000 tokens of prompt; )?list Acme [12]$/);
    expect(one.chargedMicrocredits).toBe(costMicro(one.price, one.usage));
    expect(one.chargedMicrocredits <= one.holdMicrocredits).toBe(true);
  }
  expect(notes.size).toBeGreaterThanOrEqual(2);
});

test("discounts of 0 and of all, and prices of a model's own with conditions", async () => {
  const none = await newList("None", { discountBp: 0 });
  await give(none.priceListId);
  await noteEverywhere("");
  const all = await newList("All", { discountBp: 10_000 });
  await give(all.priceListId);
  await noteEverywhere("list All 1");
  const free = await receiptAt(addresses[1] ?? "");
  expect(free).toMatchObject({ chargedMicrocredits: 0n, holdMicrocredits: 0n });
  const own = await newList("Own", {
    discountBp: 5_000,
    models: {
      "model-haiku-4.5": {
        price: {
          ...{ input: "0.5", output: "2" },
          when: [
            { speed: "fast", multiply: "3" },
            { promptAbove: 500, multiply: "1.5" },
          ],
        },
        discountBp: 0,
      },
    },
  });
  await give(own.priceListId);
  await noteEverywhere("list Own 1");
  const [first = ""] = addresses;
  expect((await receiptAt(first, "Hello", { speed: "fast" })).price).toMatchObject({
    ...{ input: 300_000n, output: 1_200_000n, note: "fast; list Own 1" },
  });
  expect((await receiptAt(first, "y".repeat(9_000))).price).toMatchObject({
    ...{ input: 150_000n, note: "above 500 tokens of prompt; list Own 1", promptOver: 500 },
  });
  const info = await fetch(`${first}/v1/models/info`, { headers: { "x-api-key": gateway.v1 } });
  const { data } = Object(await info.json());
  const haiku = data.find(({ id }: { id: string }) => id === "model-haiku-4.5");
  expect(haiku).toMatchObject({
    pricing: {
      ...{ usd: { input: "0.50" }, note: "list Own 1", above_prompt_tokens: 500 },
      above: { usd: { input: "0.75" } },
    },
    public_pricing: { usd: { input: "0.70" }, above_prompt_tokens: 1_000 },
    conditional_pricing: [{ speed: "fast", pricing: { usd: { input: "1.50" } } }],
  });
  const { accountId } = gateway;
  const { models } = await inference().listModels({ pricesOf: accountId }, call());
  expect(models.find(({ modelId: id }) => id === "model-haiku-4.5")?.price?.note).toBe(
    "list Own 1",
  );
  const publicly = await inference().listModels({}, call());
  expect(publicly.models.find(({ modelId: id }) => id === "model-haiku-4.5")?.price?.note).toBe("");
  await give("");
  await noteEverywhere("");
});

test("a calling service gets the prices of the key's account", async () => {
  const list = await newList("Callers", { discountBp: 2_500 });
  await give(list.priceListId);
  await noteEverywhere("list Callers 1");
  const { price } = await receiptAt(addresses[0] ?? "");
  const { accountId } = gateway;
  const { charges } = await billing().listCharges({ accountId, pageSize: 1 }, call());
  const request = {
    ...{ requestId: `req_${"a".repeat(20)}`, keyId: charges[0]?.keyId ?? "" },
    ...{
      model: "model-haiku-4.5",
      maxInputTokens: 10,
      mostExpensiveInput: InputCategory.PLAIN,
      minOutputTokens: 1,
      maxOutputTokens: 1,
      nonce: "12345678",
    },
  };
  const placed = await billing().placeHold(request, call());
  expect(placed.price).toMatchObject({ priceVersion: price.priceVersion, note: "list Callers 1" });
  await billing().settleHold(
    {
      accountId,
      requestId: request.requestId,
      usage: { input: 10 },
      outcome: Outcome.COMPLETED,
      basis: Basis.REPORTED,
    },
    call(),
  );
  const refused = { ...request, requestId: `req_${"b".repeat(20)}`, tier: "flex" };
  expect(await refusal(billing().placeHold(refused, call()))).toContain("has no price");
  await give("");
});

test("a change that no feed tells of counts after 30 seconds, and one that is told at once", async () => {
  const list = await newList("Untold", { discountBp: 1_000 });
  await give(list.priceListId);
  await noteEverywhere("list Untold 1");
  const client = new Client({ connectionString: gateway.databaseUrl });
  await client.connect();
  await client.query(
    `insert into price_list_versions (price_list_id, n, discount_bp, models, reason, made_by)
     values ($1, 2, 2000, '{}', 'untold', 'test')`,
    [list.priceListId],
  );
  await client.end();
  const [first = ""] = addresses;
  expect((await receiptAt(first)).price.note).toBe("list Untold 1");
  const now = Date.now();
  const clock = vi.spyOn(Date, "now").mockImplementation(() => now + 30_001);
  // The first request after them, on each node.
  for (const address of addresses)
    expect((await receiptAt(address)).price.note).toBe("list Untold 2");
  clock.mockRestore();
  await give("");
  await noteEverywhere("");
});

test("a reload that fails halfway leaves every price what it was", async () => {
  const list = await newList("Whole", { discountBp: 1_000 });
  await give(list.priceListId);
  await noteEverywhere("list Whole 1");
  const [first = ""] = addresses;
  const info = async () =>
    (await fetch(`${first}/v1/models/info`, { headers: { "x-api-key": gateway.v1 } })).text();
  const [before, infoBefore] = [await receiptAt(first), await info()];
  const dearer = cheaper.replace("input: 0.70, output: 3.50", "input: 7.00, output: 35.00");
  const broken = dearer.replace(
    /^providers:$/m,
    "providers:\n  other: { kind: anthropic, base_url: https://api.example.com, credential_env: NO_SUCH_KEY }",
  );
  expect(broken).not.toBe(dearer);
  expect(() => gateway.reload(readCatalogFile(broken))).toThrow("NO_SUCH_KEY");
  expect(await info()).toBe(infoBefore);
  expect((await receiptAt(first)).price).toEqual(before.price);
  await give("");
  await noteEverywhere("");
  expect((await receiptAt(first)).price).toMatchObject({ input: 140_000n, output: 700_000n });
  // The same prices with a provider that can be called are taken as a whole.
  gateway.reload(readCatalogFile(dearer));
  expect((await receiptAt(first)).price).toMatchObject({ input: 1_400_000n, output: 7_000_000n });
  gateway.reload(catalog);
});

test("wrong lists are refused with every problem, and change nothing", async () => {
  const list = await newList("Wrong", { discountBp: 100 });
  const add = (more: object) =>
    refusal(
      billing().createPriceListVersion(
        { priceListId: list.priceListId, after: 1, discountBp: 0, reason, ...more },
        call(),
      ),
    );
  const haiku = (listed: object) => ({ models: { "model-haiku-4.5": listed } });
  expect(await add({ discountBp: 10_001 })).toMatch(/ discount_bp: is at most 10,000$/);
  expect(await add({ models: { nobody: { discountBp: 1 } } })).toContain(
    "no model of the catalogue",
  );
  expect(await add(haiku({}))).toContain("needs a price or discount_bp");
  expect(await add(haiku({ discountBp: 10_001 }))).toMatch(
    / models\.discount_bp: is at most 10,000$/,
  );
  // Of all models at once.
  const both = await add({
    models: {
      "model-haiku-4.5": { price: { input: "1" } },
      "model-opus-4.6": { price: { input: "1", output: "much" } },
      nobody: { discountBp: 1 },
    },
  });
  for (const problem of [
    "models[model-haiku-4.5].price: output: is required",
    "models[model-opus-4.6].price: output: must be a decimal",
    "models[nobody]: is no model of the catalogue",
  ])
    expect(both).toContain(problem);
  // The status of a gRPC call has no room for hundreds.
  const many = Array.from({ length: 40 }, (_, index) => [`nobody-${index}`, { discountBp: 1 }]);
  const shortened = await add({ models: Object.fromEntries(many) });
  expect(shortened).toMatch(/; models\[nobody-9\][^;]*; and 30 more problems/);
  expect(await add(haiku({ price: { input: "1" } }))).toContain("output: is required");
  const contradiction = [
    { speed: "fast", multiply: "2" },
    { speed: "fast", multiply: "3" },
  ];
  expect(await add(haiku({ price: { input: "1", output: "2", when: contradiction } }))).toContain(
    "when[1]: contradicts when[0]",
  );
  const unreachable = { input: "1", output: "2", when: [{ promptAbove: 200_000, multiply: "2" }] };
  expect(await add(haiku({ price: unreachable }))).toContain("never holds");
  expect(await add({ after: 2 })).toContain("Version 1 is the newest");
  expect(await add({ reason: "no" })).toContain("reason");
  expect(await add({ priceListId: "plist_none" })).toContain("No such price list");
  expect(await refusal(newList("Wrong", {}))).toContain("name of another price list");
  const { accountId } = gateway;
  const wrongId = { accountId, priceListId: "plist_none", reason };
  expect(await refusal(billing().setAccountPriceList(wrongId, call()))).toContain("No such price");
  const { priceLists } = await billing().listPriceLists({}, call());
  expect(priceLists.find(({ name }) => name === "Wrong")?.version).toMatchObject({
    ...{ number: 1, discountBp: 100, createdBy: toActor("token:ADMIN_TOKEN") },
  });
});

test("of two versions that are added at once, one counts and the other is refused", async () => {
  const { priceListId } = await newList("Twice", { discountBp: 100 });
  const client = new Client({ connectionString: gateway.databaseUrl });
  await client.connect();
  try {
    await client.query("begin");
    await client.query("select from price_lists where price_list_id = $1 for update", [
      priceListId,
    ]);
    const adds = [200, 300].map((discountBp) =>
      errorOf(
        billing().createPriceListVersion({ priceListId, after: 1, discountBp, reason }, call()),
      ),
    );
    // Both wait for the lock before either adds.
    await expect
      .poll(async () => {
        await client.query("select pg_stat_clear_snapshot()");
        const { rows } = await client.query(
          "select from pg_stat_activity where datname = current_database() " +
            "and wait_event_type = 'Lock' and query like '%from price_lists%'",
        );
        return rows.length;
      })
      .toBe(2);
    await client.query("commit");
    const answers = await Promise.all(adds);
    expect(answers.toSorted()).toEqual(["no error", "wrong_state"]);
  } finally {
    await client.end();
  }
  const { priceLists } = await billing().listPriceLists({}, call());
  expect(priceLists.find(({ name }) => name === "Twice")?.version?.number).toBe(2);
});

test("the audit names the list that an account was given, or that it has the public prices", async () => {
  const { priceListId } = await newList("Audited", { discountBp: 100 });
  await give(priceListId);
  await give("");
  const { accountId } = gateway;
  const { events } = await gateway.admin.core.people.listAuditEvents(
    { accountId, method: "SetAccountPriceList" },
    call(),
  );
  expect(events.slice(0, 2).map(({ facts }) => facts.priceListId)).toEqual(["public", priceListId]);
});

test("a preview shows each model before and after, and what is below cost", async () => {
  const ownPrice = { "model-haiku-4.5": { price: { input: "0.5", output: "2" } } };
  const own = await billing().previewPrices({ models: ownPrice }, call());
  const ofOwn = own.prices.find(({ model }) => model === "model-haiku-4.5");
  // Nothing was said of web searches: they cost what they cost everybody.
  expect(ofOwn?.after).toMatchObject({ input: 100_000n, webSearch: ofOwn?.before?.webSearch });
  expect(ofOwn?.after?.webSearch).toBeGreaterThan(0n);
  const { prices } = await billing().previewPrices({ discountBp: 5_000 }, call());
  const haiku = prices.find(({ model }) => model === "model-haiku-4.5");
  expect([haiku?.before?.input, haiku?.after?.input]).toEqual([140_000n, 70_000n]);
  // Conditions too, with what the list says of them.
  expect(haiku?.after?.abovePrice).toMatchObject({ input: 140_000n, promptOver: 1_000 });
  const inputs = (prices: readonly { note: string; input: bigint }[] = []) =>
    prices.map(({ note, input }) => [note, input]);
  expect(inputs(haiku?.conditionalBefore)).toEqual([["fast", 840_000n]]);
  expect(inputs(haiku?.conditionalAfter)).toEqual([["fast; list preview 1", 420_000n]]);
  const geo = { geo: "us", multiply: "1.5" };
  const other = { "model-haiku-4.5": { price: { input: "0.5", output: "2", when: [geo] } } };
  const [first] = (await billing().previewPrices({ models: other }, call())).prices.filter(
    ({ model }) => model === "model-haiku-4.5",
  );
  expect(inputs(first?.conditionalAfter)).toEqual([["geography us; list preview 1", 150_000n]]);
  const before = (await billing().listPriceLists({}, call())).priceLists.length;
  expect(before).toBeGreaterThan(0);
});

test("a model that left the file is shown as gone, and its prices in the list have no effect", async () => {
  const models = { "model-haiku-4.5": { discountBp: 9_000 } };
  const list = await newList("Gone", { models });
  const goneModels = async () =>
    (await billing().listPriceLists({}, call())).priceLists.find(({ name }) => name === "Gone")
      ?.goneModels;
  expect(await goneModels()).toEqual([]);
  const { models: entries, ...file } = catalog;
  const rest = entries.filter(({ id }) => id !== "model-haiku-4.5");
  const aliases = Object.fromEntries(
    Object.entries(file.aliases).filter(([, id]) => id !== "model-haiku-4.5"),
  );
  gateway.reload({ ...file, models: rest, aliases });
  expect(await goneModels()).toEqual(["model-haiku-4.5"]);
  gateway.reload(catalog);
  expect(await goneModels()).toEqual([]);
  await give(list.priceListId);
  await noteEverywhere("list Gone 1");
  await give("");
});
