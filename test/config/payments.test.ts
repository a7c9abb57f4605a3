import { describe, expect, test } from "vitest";
import {
  type CatalogFile,
  defaultCatalog,
  findMissing,
  readCatalogFile,
  webhookSecretOf,
} from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";
import { bitcoinAccountKey, evmAccountKey, testKey } from "../support/onchain.ts";

const processor = "{ name: simulated, type: simulated }";

/** The built-in file with a section `payments`. */
function fileWith(payments: string): string {
  return `${defaultCatalog()}\npayments: ${payments}\n`;
}

function read(payments: string): CatalogFile {
  return readCatalogFile(fileWith(payments));
}

function problemsOf(payments: string): string[] {
  try {
    read(payments);
  } catch (error) {
    if (error instanceof Error)
      return error.message
        .split("\n")
        .slice(1)
        .map((line) => line.trim());
  }
  return [];
}

test("the built-in file says nothing of payments", () => {
  expect(readCatalogFile(defaultCatalog()).payments).toBeUndefined();
});

test("the example in the built-in file is a valid section, and shows every default", () => {
  const [, example = ""] = defaultCatalog().split("# payments:\n");
  const section = example
    .split("\n")
    .map((line) => line.replace(/^# {0,3}/, "  "))
    .join("\n");
  const { payments } = readCatalogFile(`${defaultCatalog()}\npayments:\n${section}`);
  expect(payments).toEqual({
    packsUsd: [5, 20, 50, 200],
    mostUsd: 2_000,
    ownersMove: false,
    secondApprovalAboveUsd: 500,
    seller: {
      id: "main",
      name: "Example Ltd",
      address: "1 Example Street, Example City",
      taxId: "EX123456",
      contact: "help@example.com",
      termsUrl: "https://example.com/terms",
      privacyUrl: "https://example.com/privacy",
      publicModels: true,
      index: false,
    },
    processors: [
      { name: "simulated", type: "simulated", webhookSecretEnv: "SIMULATED_WEBHOOK_SECRET" },
    ],
  });
});

test("only a processor is required", () => {
  expect(read(`{ processors: [${processor}] }`).payments).toEqual({
    packsUsd: [5, 20, 50, 200],
    mostUsd: 2_000,
    ownersMove: false,
    seller: { id: "main", name: "", address: "", taxId: "" },
    processors: [{ name: "simulated", type: "simulated" }],
  });
  expect(read(`{ most_usd: 20, processors: [${processor}] }`).payments?.packsUsd).toEqual([5, 20]);
});

/** A processor that reads one EVM chain. */
function evmWith(members: string, key = evmAccountKey): string {
  return `{ processors: [{ name: chains, type: onchain, evm: { account_key: ${key},
    chains: [{ name: base, chain_id: 8453, rpc: BASE_RPC, ${members} }] } }] }`;
}

const usdc = "tokens: [{ asset: USDC, contract: 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 }]";

test("a private key is refused, and never repeated", () => {
  const { privateExtendedKey } = testKey("m/44'/60'/0'", "xpub");
  const [problem = "", ...others] = problemsOf(evmWith(usdc, privateExtendedKey));
  expect(problem).toContain("payments.processors[0].evm.account_key: is a private key");
  expect(problem).not.toContain(privateExtendedKey);
  expect(others).toEqual([]);
});

test("every processor with its defaults", () => {
  const { payments } = read(`{ processors: [
    { name: btcpay, type: btcpay, url: "https://pay.example.com/", store: S1, api_key: BTCPAY_KEY },
    { name: now, type: nowpayments, api_key: NOW_KEY, ipn_secret: NOW_SECRET, coins: [btc] },
    { name: sandbox, type: nowpayments, api_key: NOW_KEY, coins: [eth], sandbox: true }] }`);
  expect(payments?.processors).toEqual([
    {
      name: "btcpay",
      type: "btcpay",
      url: "https://pay.example.com",
      store: "S1",
      apiKeyEnv: "BTCPAY_KEY",
      confirmations: 1,
      methods: [
        { id: "BTC-CHAIN", asset: "BTC", network: "bitcoin", decimals: 8 },
        { id: "BTC-LN", asset: "BTC", network: "lightning", decimals: 11 },
      ],
    },
    {
      name: "now",
      type: "nowpayments",
      url: "https://api.nowpayments.io/v1",
      apiKeyEnv: "NOW_KEY",
      webhookSecretEnv: "NOW_SECRET",
      coins: ["btc"],
    },
    {
      name: "sandbox",
      type: "nowpayments",
      url: "https://api-sandbox.nowpayments.io/v1",
      apiKeyEnv: "NOW_KEY",
      coins: ["eth"],
    },
  ]);
  const [chains] = read(evmWith(usdc)).payments?.processors ?? [];
  expect(chains).toMatchObject({
    evm: {
      chains: [
        {
          name: "base",
          chainId: 8453,
          rpcEnv: "BASE_RPC",
          takesEther: false,
          leastUsd: 5,
          depth: undefined,
          tokens: [
            {
              asset: "USDC",
              decimals: 6,
              contract: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
            },
          ],
        },
      ],
    },
  });
});

test("on Ethereum's main chain a pack of 50 USD is the smallest", () => {
  const main = evmWith(usdc).replace("8453", "1");
  const [chains] = read(main).payments?.processors ?? [];
  expect(chains).toMatchObject({ evm: { chains: [{ leastUsd: 50 }] } });
});

test("every secret that the environment lacks is named, with every node", () => {
  const file = read(`{ rates: { BTC: [{ url: "https://a.example", path: x },
      { url: "https://b.example", path: x }] },
    processors: [
      { name: btcpay, type: btcpay, url: "https://x.example", store: S, api_key: A,
        webhook_secret: B },
      { name: now, type: nowpayments, api_key: C, ipn_secret: D, coins: [btc] },
      { name: chains, type: onchain, bitcoin: { rpc: E, account_key: ${bitcoinAccountKey} },
        evm: { account_key: ${evmAccountKey},
          chains: [{ name: base, chain_id: 8453, rpc: F, ${usdc} }] } }] }`);
  const env = { A: " ", D: "short", E: "ftp://node", F: "not an address" };
  expect(findMissing(file, env).map((problem) => problem.split(":", 1)[0])).toEqual([
    "payments.processors[0].api_key",
    "payments.processors[0].webhook_secret",
    "payments.processors[1].api_key",
    "payments.processors[1].ipn_secret",
    "payments.processors[2].bitcoin.rpc",
    "payments.processors[2].evm.chains[0].rpc",
  ]);
  const secret = "a-secret-of-more-than-sixteen";
  const nodes = { E: "http://user:pass@127.0.0.1:8332", F: "https://base.example/key" };
  expect(findMissing(file, { A: "a", B: secret, C: "c", D: secret, ...nodes })).toEqual([]);
  const printed = describeCatalog(file);
  expect(printed).toContain(
    "btcpay: btcpay at https://x.example; store S; BTC-CHAIN, BTC-LN; API key",
  );
  expect(printed).toContain(
    "chains: onchain; BTC on bitcoin, node from E; USDC on base when final",
  );
});

const wrong: [what: string, payments: string, problem: string][] = [
  ["no processor", "{}", "payments.processors: is required"],
  ["an empty list", "{ processors: [] }", "payments.processors: must be a list, and not empty"],
  [
    "an unknown type",
    "{ processors: [{ name: a, type: paypal }] }",
    "payments.processors[0].type: must be one of simulated, btcpay, nowpayments, onchain, not paypal",
  ],
  [
    "a BTCPay Server without a store",
    '{ processors: [{ name: a, type: btcpay, url: "https://pay.example.com", api_key: KEY }] }',
    "payments.processors[0].store: is required",
  ],
  [
    "an API key in the place of its variable's name",
    '{ processors: [{ name: a, type: btcpay, url: "https://x.example", store: s, api_key: a-b }] }',
    "payments.processors[0].api_key: must be the name of an environment variable",
  ],
  [
    "no API key",
    "{ processors: [{ name: a, type: nowpayments, coins: [btc] }] }",
    "payments.processors[0].api_key: is required: the name of an environment variable",
  ],
  [
    "credentials in an address",
    '{ processors: [{ name: a, type: btcpay, url: "https://u:p@x.example", store: s, api_key: K }] }',
    "payments.processors[0].url: must have no credentials, query or fragment",
  ],
  [
    "an address that is none",
    "{ processors: [{ name: a, type: btcpay, url: here, store: s, api_key: K }] }",
    "payments.processors[0].url: must be a URL of http or https",
  ],
  [
    "a coin that is not known",
    "{ processors: [{ name: a, type: nowpayments, api_key: K, coins: [btc, constructor] }] }",
    "payments.processors[0].coins[1]: must be one of btc, eth, etharb, ethbase, usdttrc20, usdterc20, usdtbsc, usdtmatic, usdtarb, usdtsol, usdtton, usdcbase, usdc, usdcarb, usdcmatic, usdcsol, not constructor",
  ],
  [
    "a coin twice",
    "{ processors: [{ name: a, type: nowpayments, api_key: K, coins: [btc, btc] }] }",
    "payments.processors[0].coins: btc is named twice",
  ],
  [
    "chains without any",
    "{ processors: [{ name: a, type: onchain }] }",
    "payments.processors[0].bitcoin: is required, or evm",
  ],
  [
    "Bitcoin without rates",
    `{ processors: [{ name: a, type: onchain, bitcoin: { rpc: R, account_key: ${bitcoinAccountKey} } }] }`,
    "payments.rates.BTC: is required: a processor of the type onchain takes it",
  ],
  [
    "rates of one host only",
    `{ rates: { BTC: [{ url: "https://a.example/1", path: x }, { url: "https://a.example/2", path: x }] },
      processors: [${processor}] }`,
    "payments.rates.BTC: must have 2 sources at least, of different hosts",
  ],
  [
    "a token that is no address",
    evmWith("tokens: [{ asset: USDC, contract: 0x12 }]"),
    "payments.processors[0].evm.chains[0].tokens[0].contract: must be an address: 0x and 40 hexadecimal digits",
  ],
  [
    "a chain that takes nothing",
    evmWith("ether: false"),
    "payments.processors[0].evm.chains[0].tokens: is required, or ether",
  ],
  [
    "two processors of one name",
    `{ processors: [${processor}, ${processor}] }`,
    "payments.processors[1].name: there are two processors simulated",
  ],
  [
    "a name that is no path segment",
    "{ processors: [{ name: a/b, type: simulated }] }",
    "payments.processors[0].name: must be 1 to 32 of a-z, 0-9 and -, and begin with a letter",
  ],
  [
    "a secret in the place of its variable's name",
    "{ processors: [{ name: a, type: simulated, webhook_secret: whsec-secret }] }",
    "payments.processors[0].webhook_secret: must be the name of an environment variable",
  ],
  [
    "a pack that is no multiple of 5",
    `{ packs_usd: [7], processors: [${processor}] }`,
    "payments.packs_usd: must be multiples of 5, up to most_usd (2000)",
  ],
  [
    "a pack above the largest order",
    `{ packs_usd: [20], most_usd: 10, processors: [${processor}] }`,
    "payments.packs_usd: must be multiples of 5, up to most_usd (10)",
  ],
  [
    "packs out of order",
    `{ packs_usd: [20, 5], processors: [${processor}] }`,
    "payments.packs_usd: must be in ascending order, each once",
  ],
  [
    "a largest order that is no multiple of 5",
    `{ most_usd: 12, processors: [${processor}] }`,
    "payments.most_usd: must be a multiple of 5",
  ],
  [
    "a seller without a name",
    `{ seller: { tax_id: X }, processors: [${processor}] }`,
    "payments.seller.name: is required",
  ],
  [
    "a seller with a name for its id",
    `{ seller: { id: "ACME Ltd", name: X }, processors: [${processor}] }`,
    "payments.seller.id: must be 1 to 32 of a-z, 0-9 and -, not ACME Ltd",
  ],
  [
    "a misspelt member",
    `{ proccessors: [], processors: [${processor}] }`,
    "payments.proccessors: is not a known member; did you mean processors?",
  ],
];
for (const [what, payments, problem] of wrong)
  test(`${what} is a problem`, () => expect(problemsOf(payments)).toContain(problem));

test("all problems are reported at once, with those of the rest of the file", () => {
  const payments = "{ most_usd: 12, seller: {}, processors: [{ name: A, type: x }] }\nunknown: y";
  const members = problemsOf(payments).map((problem) => problem.split(":", 1)[0]);
  expect(members).toEqual([
    "payments.most_usd",
    "payments.seller.name",
    "payments.processors[0].name",
    "payments.processors[0].type",
    "unknown",
  ]);
});

describe("the secret of webhooks", () => {
  const { payments, ...rest } = read(
    "{ processors: [{ name: pay, type: simulated, webhook_secret: HOOK_SECRET }] }",
  );
  const problem =
    "payments.processors[0].webhook_secret: the environment variable HOOK_SECRET holds no secret " +
    "of at least 16 visible ASCII characters";
  const file: CatalogFile = { ...rest, ...(payments && { payments }) };
  const [pay] = payments?.processors ?? [];

  for (const value of [undefined, "", " ", "fifteen-letters", "with\nline-break-and-more"])
    test(`${JSON.stringify(value)} is none, and is never repeated`, () => {
      expect(findMissing(file, { HOOK_SECRET: value })).toEqual([problem]);
      expect(pay && webhookSecretOf(pay, { HOOK_SECRET: value })).toBeUndefined();
    });

  test("sixteen characters are one", () => {
    const env = { HOOK_SECRET: "sixteen-letters!" };
    expect(findMissing(file, env)).toEqual([]);
    expect(pay && webhookSecretOf(pay, env)).toBe("sixteen-letters!");
  });
});

test("check-config describes what is offered, and names secrets by their variables", () => {
  const printed = describeCatalog(
    read(`{ packs_usd: [5, 10], most_usd: 100, second_approval_above_usd: 50,
      seller: { name: ACME, address: "1 Street\\nCity" },
      processors: [{ name: pay, type: simulated, webhook_secret: HOOK_SECRET }] }`),
  );
  expect(printed).toContain(
    [
      "payments: packs of 5, 10 USD; at most 100 USD; second approval above 50 USD",
      "  seller main: ACME, 1 Street, City",
      "  pay: simulated (no real money); webhook /payments/pay/webhook, secret from HOOK_SECRET",
    ].join("\n"),
  );
  expect(describeCatalog(readCatalogFile(defaultCatalog()))).toContain(
    "payments: not configured; simulated while PUBLIC_URL is on localhost, else none",
  );
});
