// What operators see of the whole installation, over a whole gateway: accounts at a glance, nodes,
// providers, prices, and the last check of the ledger.

import { toJson } from "@bufbuild/protobuf";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  AccountFilter,
  LimitsStore,
  ListProvidersResponseSchema,
  ProviderHealth,
  ProviderKind,
  SetupPart,
  SetupState,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { toApiError } from "../../src/base/errors.ts";
import { type CatalogFile, readCatalogFile } from "../../src/config/catalog.ts";
import { defaultCatalogWithoutPauses } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const headerSecret = "header-secret-of-the-test";
const credential = "credential-of-the-test";

/** The built-in file, with a provider where nobody listens, which one model goes to. */
function catalogWith(inputPrice: string): CatalogFile {
  const text = defaultCatalogWithoutPauses()
    .replace(
      /^providers:\n/m,
      `providers:
  nowhere:
    kind: openai
    base_url: http://127.0.0.1:9/v1
    credential_env: NOWHERE_KEY
    headers: { x-team: ${headerSecret} }
    concurrency: 7
  claude-at-google:
    kind: vertex
    project: team-of-ours
    location: europe-west1
`,
    )
    .replace(
      /^models:\n/m,
      `models:
  - id: model-broken
    tier: opus
    created_at: 2026-01-01T00:00:00Z
    context_tokens: 10000
    max_output_tokens: 1000
    thinking: none
    price:
      input: ${inputPrice}
      output: 2
      cache_write_5m: 1
      cache_write_1h: 1
      cache_read: 1
      thinking: 2
    routes: [[{ provider: nowhere, model: any }]]
`,
    );
  return readCatalogFile(text);
}

let gateway: TestGateway;
let client: Client;
let own = "";
beforeAll(async () => {
  gateway = await startTestGateway({
    split: false,
    catalog: catalogWith("1"),
    env: { NOWHERE_KEY: credential, TRUSTED_PROXIES: "10.1.0.0/16" },
  });
  client = new Client({ connectionString: gateway.databaseUrl });
  await client.connect();
  own = gateway.accountId;
});
afterAll(async () => {
  await client.end();
  await gateway.stop();
});

const call = () => gateway.admin.call;
const operations = () => gateway.admin.core.operations;
const billing = () => gateway.admin.core.billing;

async function makeAccount(name: string): Promise<string> {
  const { account } = await billing().createAccount({ settings: { name } }, call());
  return account?.accountId ?? "";
}

let transfers = 0;
async function book(accountId: string, kind: TransferKind, credits: bigint): Promise<void> {
  await billing().createTransfer(
    {
      accountId,
      family: Family.V1,
      kind,
      amountMicrocredits: credits * 1_000_000n,
      idempotencyKey: `test-${++transfers}`,
      reason: "a test",
    },
    call(),
  );
}

async function idsFound(
  query: string,
  filter: AccountFilter = AccountFilter.UNSPECIFIED,
): Promise<string[]> {
  const { accounts } = await operations().findAccounts({ query, filter }, call());
  return accounts.map(({ account }) => account?.accountId ?? "");
}

/** The field for which a search is refused. */
async function refusedField(request: object): Promise<string | undefined> {
  const error = await operations()
    .findAccounts(request, call())
    .then(
      () => undefined,
      (thrown: unknown) => toApiError(thrown),
    );
  expect(error?.reason).toBe("invalid_request");
  return error?.facts.field;
}

async function ask(model: string): Promise<number> {
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model,
      max_tokens: 20,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  await answer.text();
  return answer.status;
}

const soon = { timeout: 10_000, interval: 50 };

describe("an account", () => {
  test("is found by its name, its id, its owners, a key, and a hint", async () => {
    const names = ["Ünïcode GmbH", '<img src="x" onerror="alert(1)">', "شركة الاختبار"];
    const ids = await Promise.all(names.map(makeAccount));
    const [first = "", markup = "", rtl = ""] = ids;
    await client.query(
      "insert into people (person_id, login, email, email_verified_at) values " +
        "('per_found', 'boss', 'Vera.Boss@example.com', now()), ('per_member', 'helper', null, null)",
    );
    await client.query(
      "insert into members (account_id, person_id, role) values " +
        "($1, 'per_found', 'owner'), ($2, 'per_member', 'member')",
      [first, markup],
    );
    expect(await idsFound("ünïcode")).toEqual([first]);
    expect(await idsFound("ONERROR")).toEqual([markup]);
    expect(await idsFound("الاختبار")).toEqual([rtl]);
    expect(await idsFound(first)).toEqual([first]);
    expect(await idsFound("vera.boss@EXAMPLE")).toEqual([first]);
    expect(await idsFound("bos")).toEqual([first]);
    // Members who do not own it are no way to it.
    expect(await idsFound("helper")).toEqual([]);
    const { key } = await gateway.admin.core.keys.createKey(
      { accountId: rtl, family: Family.V1, settings: { name: "k" } },
      call(),
    );
    expect(await idsFound(key?.keyId ?? "")).toEqual([rtl]);
    expect(await idsFound(key?.secrets[0]?.hint ?? "")).toEqual([rtl]);
    for (const query of ["%", "_", "'; drop table accounts; --", "no such account"])
      expect(await idsFound(query)).toEqual([]);
    const { accounts } = await operations().findAccounts({ query: first }, call());
    expect(accounts[0]).toMatchObject({
      owners: [{ personId: "per_found", login: "boss" }],
      ownerCount: 1,
      waitingOrders: 0,
    });
  });

  test("is shown with what it has, spent in 30 days, and owes", async () => {
    expect(await ask("haiku")).toBe(200);
    const { totals } = await billing().queryUsage({ accountId: own }, call());
    const spent = totals?.chargedMicrocredits ?? 0n;
    expect(spent).toBeGreaterThan(0n);
    const { pools } = await billing().getPools({ accountId: own }, call());
    const { accounts } = await operations().findAccounts({ query: own }, call());
    expect(accounts).toHaveLength(1);
    expect(accounts[0]?.spentMicrocredits).toBe(spent);
    expect(accounts[0]?.pools.map(({ freeMicrocredits }) => freeMicrocredits)).toEqual(
      pools.map(({ freeMicrocredits }) => freeMicrocredits),
    );
    // What was spent before the 30 days counts no more.
    await client.query(
      `insert into usage_daily (account_id, key_id, model, day, amount, requests)
         values ($1, 'key_old', 'old', now()::date - 30, 1000, 1),
                ($1, 'key_old', 'old', now()::date - 29, 10, 1)`,
      [own],
    );
    await client.query("update usage_progress set closed_to = now()::date - 2");
    const again = await operations().findAccounts({ query: own }, call());
    expect(again.accounts[0]?.spentMicrocredits).toBe(spent + 10n);
    await client.query("delete from usage_daily where key_id = 'key_old'");
    await client.query("update usage_progress set closed_to = '0001-01-01'");
  });

  test("is found by what waits in it", async () => {
    const debtor = await makeAccount("a debtor");
    await book(debtor, TransferKind.BONUS, 10n);
    await book(debtor, TransferKind.CHARGEBACK, 25n);
    expect(await idsFound("", AccountFilter.IN_DEBT)).toEqual([debtor]);
    const { accounts } = await operations().findAccounts({ query: debtor }, call());
    expect(accounts[0]?.debtMicrocredits).toBe(15_000_000n);

    const buyer = await makeAccount("a buyer");
    const { payments } = gateway.admin.core;
    const { order } = await payments.createOrder(
      {
        accountId: buyer,
        family: Family.V1,
        packMicrodollars: 5_000_000n,
        method: "simulated:usdt",
        idempotencyKey: "1",
      },
      call(),
    );
    const { orderId = "" } = order ?? {};
    const value = { coins: "0.01", confirmations: 1, asset: "BTC" };
    await payments.simulateDeposit({ orderId, event: { case: "deposit", value } }, call());
    await expect.poll(() => idsFound("", AccountFilter.WAITING), soon).toEqual([buyer, debtor]);
    expect(await idsFound("debtor", AccountFilter.WAITING)).toEqual([debtor]);

    const suspended = await makeAccount("a suspended one");
    await billing().suspendAccount({ accountId: suspended, reason: "a test" }, call());
    expect(await idsFound("", AccountFilter.SUSPENDED)).toEqual([suspended]);
    expect(await idsFound("", AccountFilter.CLOSED)).toEqual([]);
  });

  test("is one of 10,000: each is listed once, newest first, and found at once", async () => {
    await client.query(
      `insert into accounts (account_id, name)
         select 'acc_' || lpad(n::text, 6, '0'), 'bulk ' || n from generate_series(1, 10000) n`,
    );
    await client.query(
      `insert into pools (account_id, "family")
         select account_id, f from accounts, unnest(array['v1', 'v2']) f where name like 'bulk %'`,
    );
    const seen: string[] = [];
    let pageToken = "";
    do {
      const request = { query: "bulk", pageSize: 200, pageToken };
      const page = await operations().findAccounts(request, call());
      seen.push(...page.accounts.map(({ account }) => account?.accountId ?? ""));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(seen).toHaveLength(10_000);
    expect(seen).toEqual([...new Set(seen)].sort().reverse());
    expect(await idsFound("bulk 9999")).toEqual(["acc_009999"]);
    // A page goes on with its own question only.
    const first = await operations().findAccounts({ query: "bulk", pageSize: 1 }, call());
    const other = { query: "bulk 1", pageToken: first.nextPageToken };
    expect(await refusedField(other)).toBe("page_token");
    const wrong: [object, string][] = [
      [{ pageSize: 201 }, "page_size"],
      [{ query: "x".repeat(201) }, "query"],
      [{ filter: 99 }, "filter"],
    ];
    for (const [request, field] of wrong) expect(await refusedField(request)).toBe(field);
  });
});

describe("the installation", () => {
  test("has nodes that describe themselves, a database, and running requests", async () => {
    await expect
      .poll(async () => (await operations().getStatus({}, call())).nodes[0]?.report, soon)
      .toBeDefined();
    const { setup } = await operations().getStatus({}, call());
    const nameIn = (values: Readonly<Record<string, number>>, value: number) =>
      Object.keys(values).find((name) => values[name] === value);
    const steps = setup.map(({ part, state, facts }) => [
      ...[nameIn(SetupPart, part), nameIn(SetupState, state)],
      ...facts,
    ]);
    // As it is on a machine of one's own, with two providers.
    expect(steps).toMatchObject([
      ["REACHABLE", "OPEN", expect.stringMatching(/^http:\/\/localhost:/)],
      ["PROXIES", "DONE"],
      ["PROVIDER", "DONE", "nowhere", "claude-at-google"],
      ["MAIL", "DEFAULT"],
      ["SIGN_UP", "DEFAULT", "closed"],
      ["PAYMENTS", "OPEN"],
      ["BACKUP", "DEFAULT", expect.stringMatching(/^(embedded|external)$/)],
      ["LEDGER", "OPEN"],
      ["ALERTS", "OPEN"],
    ]);
    const { nodes, database, running } = await operations().getStatus({}, call());
    expect(nodes).toHaveLength(1);
    expect(nodes[0]).toMatchObject({ answering: true, silentFor: { seconds: 0n } });
    const { configuration } = await operations().listCatalogModels({}, call());
    expect(nodes[0]?.report).toMatchObject({
      pid: process.pid,
      worker: 0,
      version: "0.1.0",
      runtimeVersion: process.version,
      limits: LimitsStore.MEMORY,
      configuration,
    });
    expect(database).toMatchObject({ embedded: false, problem: "" });
    expect(database?.version).toMatch(/^\d+/);
    expect(running).toMatchObject({ requests: 0n, heldMicrocredits: 0n });
    expect(running?.oldestAdmittedAt).toBeUndefined();
  });

  test("names the peers that look like proxies and are not known as such", async () => {
    await fetch(`${gateway.address}/health`, { headers: { "x-forwarded-for": "198.51.100.7" } });
    const { nodeId } = (await operations().getStatus({}, call())).nodes[0] ?? {};
    await expect
      .poll(async () => {
        const { nodes } = await operations().getStatus({}, call());
        return nodes.find((one) => one.nodeId === nodeId)?.report?.unnamedProxies;
      }, soon)
      .toEqual(["127.0.0.1"]);
    // It may be a client as well: nothing is to be done for sure.
    const { setup } = await operations().getStatus({}, call());
    expect(setup.find(({ part }) => part === SetupPart.PROXIES)).toMatchObject({
      ...{ state: SetupState.DEFAULT, facts: ["127.0.0.1"] },
      line: "TRUSTED_PROXIES=10.1.0.0/16,127.0.0.1",
    });
  });

  test("tells of a provider that fails, and shows no secret of any", async () => {
    const health = async () => {
      const { providers } = await operations().listProviders({}, call());
      const nowhere = providers.find(({ name }) => name === "nowhere");
      return nowhere?.nodes.map(({ state }) => state?.health);
    };
    await expect.poll(health, soon).toEqual([ProviderHealth.GOOD]);
    for (let index = 0; index < 6; index++) expect(await ask("model-broken")).toBeGreaterThan(499);
    await expect.poll(health, soon).not.toEqual([ProviderHealth.GOOD]);
    const answer = await operations().listProviders({}, call());
    const nowhere = answer.providers.find(({ name }) => name === "nowhere");
    expect(nowhere).toMatchObject({
      kind: ProviderKind.OPENAI,
      baseUrl: "http://127.0.0.1:9/v1",
      credentialEnv: "NOWHERE_KEY",
      headerNames: ["x-team"],
      concurrency: 7,
      ...{ models: ["model-broken"], region: "" },
    });
    const cloud = answer.providers.find(({ name }) => name === "claude-at-google");
    expect(cloud).toMatchObject({
      ...{ kind: ProviderKind.VERTEX, region: "europe-west1", credentialEnv: "" },
      baseUrl: "https://europe-west1-aiplatform.googleapis.com",
    });
    expect(nowhere?.nodes[0]?.state).toMatchObject({ credentialSource: "variable NOWHERE_KEY" });
    const text = JSON.stringify(toJson(ListProvidersResponseSchema, answer));
    expect(text).not.toContain(headerSecret);
    expect(text).not.toContain(credential);
    const { rows } = await client.query("select report::text from nodes");
    expect(JSON.stringify(rows)).not.toContain(headerSecret);
  });

  test("remembers every price at which it charged", async () => {
    const modelOf = async (id: string) => {
      const { models } = await operations().listCatalogModels({}, call());
      return models.find((model) => model.modelId === id);
    };
    const before = await modelOf("model-broken");
    expect(before).toMatchObject({ tier: "opus", contextTokens: 10_000, usable: false });
    expect(before?.price?.input).toBe(200_000n);
    expect(before?.routes).toMatchObject([{ provider: "nowhere", model: "any", group: 1 }]);
    const version = before?.price?.priceVersion;
    expect(before?.prices.map(({ price }) => price?.priceVersion)).toEqual([version]);
    gateway.reload(catalogWith("3"));
    const after = await modelOf("model-broken");
    expect(after?.price?.input).toBe(600_000n);
    expect(after?.prices.map(({ price }) => price?.priceVersion)).toEqual([version]);
    expect(await modelOf("model-haiku-4.5")).toMatchObject({ usable: true });
  });

  test("remembers what the last check of the ledger found, and who asked", async () => {
    const ledgerStep = async () => {
      const { setup } = await operations().getStatus({}, call());
      return setup.find(({ part }) => part === SetupPart.LEDGER);
    };
    const before = await billing().getLastVerification({}, call());
    expect(before.latest).toBeUndefined();
    await billing().verifyLedger({}, call());
    const clean = await billing().getLastVerification({}, call());
    expect(clean.latest).toMatchObject({
      startedBy: toActor("token:ADMIN_TOKEN"),
      violationCount: 0,
    });
    expect(clean.latestCleanAt).toEqual(clean.latest?.endedAt);
    expect(await ledgerStep()).toMatchObject({ state: SetupState.DONE });
    await client.query("update pools set posted = posted + 1 where account_id = $1", [own]);
    await billing().verifyLedger({}, call());
    await client.query("update pools set posted = posted - 1 where account_id = $1", [own]);
    const found = await billing().getLastVerification({}, call());
    expect(found.latest?.violationCount).toBe(2);
    expect(found.latest?.violations[0]).toMatchObject({
      invariant: "posted = transfers - charges",
      subject: `${own}/v1`,
    });
    expect(found.latestCleanAt).toEqual(clean.latestCleanAt);
    // The check before the last one does not make it done.
    expect(await ledgerStep()).toMatchObject({ state: SetupState.OPEN, facts: [] });
  });
});
