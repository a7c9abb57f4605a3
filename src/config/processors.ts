// The processors of the section `payments`: who receives coins. Secrets, and addresses that may
// hold one, are named by environment variables, never written in the file.

import * as v from "valibot";
import { coins } from "./coins.ts";
import { assetOf, onchain, rpcOf, rpcsOf, shortName } from "./onchain.ts";
import {
  checked,
  choice,
  flag,
  formed,
  httpUrl,
  integer,
  isMapping,
  list,
  section,
  text,
  variable,
  variant,
} from "./schema.ts";

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

/** Part of the paths of webhooks, and of every order that the processor opens. */
const name = shortName;

/** Pretends to receive all coins. */
const simulated = v.pipe(
  section({
    name,
    type: v.literal("simulated"),
    /** Variable with the secret of webhooks. Absent: there is no webhook. */
    webhook_secret: v.exactOptional(variable),
  }),
  v.transform(({ webhookSecret, ...one }) => ({ ...one, ...webhookOf(webhookSecret) })),
);

/** A payment method of a BTCPay Server, and what it carries. */
export type BtcpayMethod = {
  readonly id: string;
  readonly asset: string;
  readonly network: string;
  readonly decimals: number;
};

/** What a usual method carries is known. */
const method = v.pipe(
  v.unknown(),
  v.transform(withUsual),
  section({
    id: formed(/^[A-Za-z0-9_-]{1,60}$/, "a payment method id, such as BTC-CHAIN"),
    asset: assetOf(() => coins),
    network: shortName,
    decimals: integer(0, 18),
  }),
);

/** Adds what the usual method of this id has. */
function withUsual(input: unknown): unknown {
  const usual = isMapping(input) && btcpayMethods().find(({ id }) => id === input.id);
  return usual ? { ...usual, decimals: `${usual.decimals}`, ...input } : input;
}

/** A BTCPay Server. */
const btcpay = v.pipe(
  section(
    {
      name,
      type: v.literal("btcpay"),
      url: httpUrl,
      store: text,
      /** Variable with the API key. */
      api_key: variable,
      webhook_secret: v.exactOptional(variable),
      methods: v.exactOptional(list(method)),
      /** Blocks until a payment counts. */
      confirmations: v.optional(choice(["1", "2", "6"]), "1"),
    },
    (rule) =>
      rule("methods", ["methods"], ({ methods = [] }) => {
        const carried = methods.map(({ asset, network }) => `${asset} on ${network}`);
        const again = carried.find((one, index) => carried.indexOf(one) < index);
        return again === undefined ? undefined : `there are two methods of ${again}`;
      }),
  ),
  v.transform(({ apiKey: apiKeyEnv, webhookSecret, methods, confirmations, ...one }) => ({
    ...one,
    apiKeyEnv,
    ...webhookOf(webhookSecret),
    methods: methods ?? btcpayMethods().slice(0, 2),
    confirmations: Number(confirmations),
  })),
);

/** NOWPayments, hosted. */
const nowpayments = v.pipe(
  section(
    {
      name,
      type: v.literal("nowpayments"),
      /** Default: the hosted one, or its sandbox. */
      url: v.exactOptional(httpUrl),
      sandbox: v.optional(flag, "false"),
      api_key: variable,
      ipn_secret: v.exactOptional(variable),
      /** Codes of `nowpaymentsCoins`. */
      coins: list(
        checked((code) => {
          const known = [...nowpaymentsCoins().keys()];
          return known.includes(code)
            ? undefined
            : `must be one of ${known.join(", ")}, not ${code}`;
        }),
      ),
    },
    (rule) =>
      rule("coins", ["coins"], ({ coins }) => {
        const again = coins.find((one, index) => coins.indexOf(one) < index);
        return again === undefined ? undefined : `${again} is named twice`;
      }),
  ),
  v.transform(({ url, sandbox, apiKey: apiKeyEnv, ipnSecret, ...one }) => ({
    ...one,
    url: url ?? (sandbox ? nowpaymentsSandboxUrl : nowpaymentsUrl),
    apiKeyEnv,
    ...webhookOf(ipnSecret),
  })),
);

function webhookOf(webhookSecretEnv: string | undefined): { readonly webhookSecretEnv?: string } {
  return webhookSecretEnv === undefined ? {} : { webhookSecretEnv };
}

export type BtcpaySettings = v.InferOutput<typeof btcpay>;
export type NowpaymentsSettings = v.InferOutput<typeof nowpayments>;

const chains = v.pipe(
  onchain,
  v.transform((one) => ({ ...one, ...webhookOf(undefined) })),
);

export const processor = variant(
  "type",
  { simulated, btcpay, nowpayments, onchain: chains },
  { always: { name } },
);

export type ProcessorSettings = v.InferOutput<typeof processor>;

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
