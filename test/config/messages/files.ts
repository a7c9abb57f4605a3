// A configuration file with every section, of which the table of messages changes one place at a
// time.

import { bitcoinAccountKey, evmAccountKey } from "../../support/onchain.ts";

export const wholeFile = {
  native_bearer: "auto",
  tier_fallback: "true",
  hosted_tools: "leave_out",
  features: { server_tools: "false" },
  price_multipliers: {
    cache_write_5m: "1.25",
    cache_write_1h: "2",
    cache_read: "0.1",
    thinking: "1",
  },
  models: [
    {
      id: "opus-1",
      display_name: "Opus",
      tier: "opus",
      created_at: "2026-02-05T00:00:00Z",
      context_tokens: "200000",
      max_output_tokens: "64000",
      thinking: "adaptive",
      zero_usage: "reported",
      price: { input: "1", output: "5" },
      routes: [[{ provider: "sim", model: "m", weight: "1", system_entries: "fold" }]],
    },
    {
      id: "haiku-1",
      tier: "haiku",
      created_at: "2026-02-05T00:00:00Z",
      context_tokens: "200000",
      max_output_tokens: "64000",
      thinking: "none",
      price: { inherit: "opus-1" },
      routes: [[{ provider: "native" }], [{ provider: "chat" }]],
    },
  ],
  aliases: { opus: "opus-1" },
  providers: {
    sim: { kind: "simulated", token_ms: "1" },
    native: { kind: "anthropic", base_url: "https://native.example", headers: { "x-team": "a" } },
    chat: { kind: "openai", base_url: "https://chat.example/v1", pass_members: ["one"] },
    responses: { kind: "openai", api: "responses", base_url: "https://responses.example" },
    aws: { kind: "bedrock", region: "us-east-1" },
    google: { kind: "vertex", project: "my-project", location: "global" },
    azure: { kind: "azure", resource: "my-resource", auth: "entra" },
  },
  people: {
    sign_up: "domains",
    domains: ["acme.com"],
    account: "acc_1",
    role: "member",
    limits: { keys: "10" },
    oidc: {
      acme: {
        issuer: "https://login.acme.com",
        client_id: "gateway",
        client_secret_env: "ACME_SECRET",
        sign_up: "closed",
        groups: [{ group: "ops", operator: "admin" }],
      },
    },
  },
  alerts: { allow_hosts: ["hooks.internal"] },
  payments: {
    packs_usd: ["5", "20"],
    most_usd: "2000",
    second_approval_above_usd: "100",
    seller: { id: "main", name: "Example Ltd" },
    processors: [
      { name: "simulated", type: "simulated", webhook_secret: "HOOK" },
      {
        name: "btcpay",
        type: "btcpay",
        url: "https://pay.example",
        store: "S",
        api_key: "BTCPAY_KEY",
        methods: [{ id: "BTC-CHAIN" }, { id: "X", asset: "USDC", network: "base", decimals: "6" }],
      },
      { name: "now", type: "nowpayments", api_key: "NOW_KEY", coins: ["btc"] },
      {
        name: "chains",
        type: "onchain",
        bitcoin: { rpc: "BITCOIN_RPC", account_key: bitcoinAccountKey },
        evm: {
          account_key: evmAccountKey,
          chains: [
            {
              name: "base",
              chain_id: "8453",
              rpc: "BASE_RPC",
              ether: "true",
              depth: "12",
              tokens: [{ asset: "USDC", contract: `0x${"1".repeat(40)}` }],
            },
          ],
        },
      },
    ],
    rates: {
      BTC: [
        { url: "https://a.example", path: "x" },
        { url: "https://b.example", path: "x" },
      ],
      ETH: [
        { url: "https://a.example", path: "x" },
        {
          url: "https://b.example",
          path: "x",
          history_url: "https://b.example/{start}",
          history_path: "y",
        },
      ],
    },
  },
};

/** The file with the members at these paths replaced, or removed where the value is null. */
export function fileWith(changes: Readonly<Record<string, unknown>>): string {
  const file: unknown = structuredClone(wholeFile);
  for (const [path, value] of Object.entries(changes)) {
    const steps = path.split(/[.[\]]+/).filter((step) => step !== "");
    const last = steps.pop() ?? "";
    const place = steps.reduce<unknown>(memberOf, file);
    if (typeof place !== "object" || place === null) throw new Error(`${path} is nowhere`);
    if (value === null) Reflect.deleteProperty(place, last);
    else Reflect.set(place, last, value);
  }
  return JSON.stringify(file);
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}
