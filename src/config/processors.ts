// The processors of the section `payments`: who receives coins. Secrets, and addresses that may
// hold one, are named by environment variables, never written in the file.

import { coins } from "./coins.ts";
import { type OnchainSettings, readAsset, readOnchain, rpcOf, rpcsOf } from "./onchain.ts";
import type { Section } from "./section.ts";

/** Pretends to receive all coins. */
export type SimulatedProcessorSettings = {
  readonly type: "simulated";
  /** Of every type: part of the paths of webhooks, and of every order that it opens. */
  readonly name: string;
  /** Of every type: variable with the secret of webhooks. Absent: there is no webhook. */
  readonly webhookSecretEnv?: string;
};

/** A BTCPay Server. */
export type BtcpaySettings = {
  readonly type: "btcpay";
  readonly name: string;
  readonly webhookSecretEnv?: string;
  /** Without a slash at the end. */
  readonly url: string;
  readonly store: string;
  /** Variable with the API key. */
  readonly apiKeyEnv: string;
  readonly methods: readonly BtcpayMethod[];
  /** Blocks until a payment counts. */
  readonly confirmations: number;
};

/** A payment method of a BTCPay Server, and what it carries. */
export type BtcpayMethod = {
  readonly id: string;
  readonly asset: string;
  readonly network: string;
  readonly decimals: number;
};

/** NOWPayments, hosted. */
export type NowpaymentsSettings = {
  readonly type: "nowpayments";
  readonly name: string;
  readonly webhookSecretEnv?: string;
  readonly url: string;
  readonly apiKeyEnv: string;
  /** Codes of `nowpaymentsCoins`. */
  readonly coins: readonly string[];
};

export type ProcessorSettings =
  | SimulatedProcessorSettings
  | BtcpaySettings
  | NowpaymentsSettings
  | OnchainSettings;

/** Each coin on each network. */
const assets = () =>
  coins.flatMap(({ asset, networks }) => networks.map((one) => ({ asset, ...one })));

/** Names of methods that every BTCPay Server has. */
const btcpayMethods = () =>
  assets().flatMap(({ asset, network, decimals, btcpay }): BtcpayMethod[] =>
    btcpay === undefined ? [] : [{ id: btcpay, asset, network, decimals }],
  );

/** The coins of NOWPayments that the gateway knows, by their codes. */
export const nowpaymentsCoins = () =>
  new Map(
    assets().flatMap(({ asset, network, decimals, nowpayments }) =>
      nowpayments === undefined ? [] : [[nowpayments, { asset, network, decimals }] as const],
    ),
  );

const nowpaymentsUrl = "https://api.nowpayments.io/v1";
const nowpaymentsSandboxUrl = "https://api-sandbox.nowpayments.io/v1";

const types = ["simulated", "btcpay", "nowpayments", "onchain"] as const;

/** Reads one processor. Adds its problems to the section. */
export function readProcessor(section: Section): ProcessorSettings {
  const name = section.text("name");
  if (name !== "" && !/^[a-z][a-z0-9-]{0,31}$/.test(name))
    section.problem("name", "must be 1 to 32 of a-z, 0-9 and -, and begin with a letter");
  const given = section.text("type");
  const type = section.choice("type", types);
  // An unknown type has unknown members.
  if (type !== given) return { type: "simulated", name };
  const settings = readers[type](section, name);
  section.rejectUnknown();
  return settings;
}

const readers = {
  simulated: (section: Section, name: string): SimulatedProcessorSettings => ({
    type: "simulated",
    name,
    ...webhookSecret(section, "webhook_secret"),
  }),
  btcpay: (section: Section, name: string): BtcpaySettings => ({
    type: "btcpay",
    name,
    url: readUrl(section, "url"),
    store: section.text("store"),
    apiKeyEnv: requiredVariable(section, "api_key"),
    ...webhookSecret(section, "webhook_secret"),
    methods: section.has("methods") ? readMethods(section) : btcpayMethods().slice(0, 2),
    confirmations: Number(section.choice("confirmations", ["1", "2", "6"], "1")),
  }),
  nowpayments(section: Section, name: string): NowpaymentsSettings {
    const isSandbox = section.flag("sandbox", false);
    return {
      type: "nowpayments",
      name,
      url: section.has("url")
        ? readUrl(section, "url")
        : isSandbox
          ? nowpaymentsSandboxUrl
          : nowpaymentsUrl,
      apiKeyEnv: requiredVariable(section, "api_key"),
      ...webhookSecret(section, "ipn_secret"),
      coins: readCoins(section),
    };
  },
  onchain: readOnchain,
} as const;

function webhookSecret(section: Section, key: string): { webhookSecretEnv?: string } {
  const webhookSecretEnv = section.variable(key);
  return webhookSecretEnv === undefined ? {} : { webhookSecretEnv };
}

/** The name of an environment variable. */
function requiredVariable(section: Section, key: string): string {
  const name = section.variable(key);
  if (name === undefined) section.problem(key, "is required: the name of an environment variable");
  return name ?? "";
}

/** An address of HTTP or HTTPS without credentials, without a slash at the end. */
function readUrl(section: Section, key: string): string {
  const text = section.text(key);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url && /^https?:$/.test(url.protocol) && url.search === "" && url.hash === "";
  if (text !== "" && !isPlain) section.problem(key, "must be a URL of http or https");
  if (url && (url.username !== "" || url.password !== ""))
    section.problem(key, "must not contain credentials");
  return text.replace(/\/+$/, "");
}

function readMethods(section: Section): BtcpayMethod[] {
  const usual = btcpayMethods();
  const methods = section.sections("methods").map((one): BtcpayMethod => {
    const id = one.text("id");
    if (id !== "" && !/^[A-Za-z0-9_-]{1,60}$/.test(id))
      one.problem("id", "must be a payment method id, such as BTC-CHAIN");
    const known = usual.find((method) => method.id === id);
    const method = {
      id,
      asset: readAsset(one, coins, known?.asset),
      network: one.text("network", known?.network),
      decimals: one.integer("decimals", {
        min: 0,
        max: 18,
        ...(known && { fallback: known.decimals }),
      }),
    };
    if (method.network !== "" && !/^[a-z][a-z0-9-]{0,31}$/.test(method.network))
      one.problem("network", "must be 1 to 32 of a-z, 0-9 and -, and begin with a letter");
    one.rejectUnknown();
    return method;
  });
  for (const [index, { asset, network }] of methods.entries())
    if (methods.findIndex((one) => one.asset === asset && one.network === network) < index)
      section.problem(`methods[${index}]`, `there are two methods of ${asset} on ${network}`);
  return methods;
}

function readCoins(section: Section): string[] {
  const known = [...nowpaymentsCoins().keys()];
  const codes = section.texts("coins");
  if (!section.has("coins")) section.problem("coins", "is required");
  for (const [index, coin] of codes.entries()) {
    if (!known.includes(coin))
      section.problem(`coins[${index}]`, `must be one of ${known.join(", ")}, not ${coin}`);
    if (codes.indexOf(coin) < index) section.problem(`coins[${index}]`, `${coin} is named twice`);
  }
  return codes;
}

/** Shorter secrets could be guessed. */
const secretLengthMin = 16;

/** The secret of a processor's webhooks, if the environment holds a usable one. */
export function webhookSecretOf(
  { webhookSecretEnv }: Pick<ProcessorSettings, "webhookSecretEnv">,
  env: NodeJS.ProcessEnv,
): string | undefined {
  const secret = webhookSecretEnv === undefined ? "" : (env[webhookSecretEnv] ?? "");
  return secret.length >= secretLengthMin && /^[\x21-\x7e]+$/.test(secret) ? secret : undefined;
}

/** The API key of a processor, if the environment holds one that can be a header. */
export function apiKeyOf(
  { apiKeyEnv }: { readonly apiKeyEnv: string },
  env: NodeJS.ProcessEnv,
): string | undefined {
  const key = (env[apiKeyEnv] ?? "").trim();
  return /^[\x21-\x7e]{1,500}$/.test(key) ? key : undefined;
}

/** The members that name secrets, by type, for messages. */
const webhookMembers = {
  simulated: "webhook_secret",
  btcpay: "webhook_secret",
  nowpayments: "ipn_secret",
  onchain: "",
} as const;

/** A problem for each secret of a processor that the environment lacks. */
export function missingSecretsOf(
  processor: ProcessorSettings,
  env: NodeJS.ProcessEnv,
): { member: string; problem: string }[] {
  const missing: { member: string; problem: string }[] = [];
  const { webhookSecretEnv: name } = processor;
  for (const { member, name: rpc } of processor.type === "onchain" ? rpcsOf(processor) : [])
    if (rpcOf(rpc, env) === undefined)
      missing.push({
        member,
        problem: `the environment variable ${rpc} holds no address of http or https`,
      });
  if ("apiKeyEnv" in processor && apiKeyOf(processor, env) === undefined)
    missing.push({
      member: "api_key",
      problem: `the environment variable ${processor.apiKeyEnv} holds no API key`,
    });
  if (name !== undefined && webhookSecretOf(processor, env) === undefined)
    missing.push({
      member: webhookMembers[processor.type],
      problem:
        `the environment variable ${name} holds no secret of at least ${secretLengthMin} ` +
        "visible ASCII characters",
    });
  return missing;
}
