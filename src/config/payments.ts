// The section `payments` of the configuration file: what can be bought, from whom, by which payment
// processors, and at what rates. Secrets are named by environment variables, never written in the
// file.

import * as v from "valibot";
import { packStepUsdCents } from "../base/shown-figures.ts";
import { btc, coins } from "./coins.ts";
import { assetOf, assetsOf } from "./onchain.ts";
import {
  missingSecretsOf,
  nowpaymentsCoins,
  type ProcessorSettings,
  processor,
} from "./processors.ts";
import {
  checked,
  distinct,
  flag,
  formed,
  httpUrl,
  integer,
  list,
  named,
  section,
  text,
} from "./schema.ts";

/** 1,000 credits: the smallest pack, and the step of all others. */
const stepUsd = packStepUsdCents / 100;
const mostUsdMax = 1_000_000;
const sourcesMin = 2;

/** Who sells. The texts are empty where nothing was configured. */
const seller = section({
  /** Numbers documents. A name may change, and the numbers go on. */
  id: v.optional(formed(/^[a-z0-9-]{1,32}$/, "1 to 32 of a-z, 0-9 and -"), "main"),
  name: text,
  /** With line breaks. */
  address: v.exactOptional(text),
  tax_id: v.exactOptional(text),
  /** Where people ask, as the open page of models shows it: a mail address or a URL. */
  contact: v.exactOptional(formed(/^\S{3,200}$/, "a mail address or a URL")),
  terms_url: v.exactOptional(httpUrl),
  privacy_url: v.exactOptional(httpUrl),
  /** Whether everybody sees the models, the prices and the packs at `/models`. Absent: they do. */
  public_models: v.exactOptional(flag),
  /** Whether search engines may list that page. Absent: they may not. */
  index: v.exactOptional(flag),
});

type SellerSettings = v.InferOutput<typeof seller>;
/** What its documents say. */
export type Seller = Required<Pick<SellerSettings, "id" | "name" | "address" | "taxId">>;

const nobody: Seller = { id: "main", name: "", address: "", taxId: "" };

const webUrl = checked((value) =>
  /^https?:$/.test(URL.parse(value)?.protocol ?? "") ? undefined : "must be a URL of http or https",
);

/** A public price in dollars of one coin. */
const source = v.pipe(
  section(
    {
      url: webUrl,
      /** The members that lead to it in the JSON, such as `data.amount`. */
      path: text,
      /**
       * The price of a minute of the past, in an address with `{start}` and `{end}` (of ISO 8601),
       * or `{start_unix}` and `{end_unix}` (seconds). Absent: there is none.
       */
      history_url: v.exactOptional(webUrl),
      history_path: v.exactOptional(text),
    },
    (rule) => {
      rule("history_url", ["history_url"], ({ history_url: url }) =>
        url === undefined || /\{start(_unix)?\}/.test(url)
          ? undefined
          : "must have {start} or {start_unix}",
      );
      for (const [one, other] of [
        ["history_url", "history_path"],
        ["history_path", "history_url"],
      ] as const)
        rule(one, [one, other], (given) =>
          given[one] === undefined && given[other] !== undefined ? "is required" : undefined,
        );
    },
  ),
  v.transform(({ historyUrl: url, historyPath: path, ...one }) => ({
    ...one,
    ...(url !== undefined && path !== undefined && { history: { url, path } }),
  })),
);

export type RateSource = v.InferOutput<typeof source>;

/** By coin. */
const rates = named(
  v.pipe(
    list(source),
    v.rawCheck(({ dataset, addIssue }) => {
      const hosts = dataset.typed && new Set(dataset.value.map(({ url }) => new URL(url).host));
      if (hosts && hosts.size < sourcesMin)
        addIssue({ message: `must have ${sourcesMin} sources at least, of different hosts` });
    }),
  ),
  assetOf(() => coins),
);

export type RateSources = v.InferOutput<typeof rates>;

const dollars = integer(0, mostUsdMax);
const isStep = (usd: number) => usd % stepUsd === 0;

export const payments = v.pipe(
  section(
    {
      /** Packs that are offered first, in dollars, ascending. */
      packs_usd: v.exactOptional(list(dollars)),
      /** The largest order, in dollars. Any multiple of 5 up to it can be ordered. */
      most_usd: v.optional(
        v.pipe(integer(stepUsd, mostUsdMax), v.check(isStep, `must be a multiple of ${stepUsd}`)),
        "2000",
      ),
      /** The seller on receipts. */
      seller: v.exactOptional(seller),
      /** Credits granted by persons beyond this need a second person. Absent: they never do. */
      second_approval_above_usd: v.exactOptional(dollars),
      /** True: owners of an account may move credits between its pools. */
      owners_move: v.optional(flag, "false"),
      /** At least one, each with its own name. */
      processors: v.pipe(list(processor), distinct("name", "processors")),
      /** Absent: no coin has a rate but the ones that processors quote. */
      rates: v.exactOptional(rates),
    },
    (rule) => {
      rule("packs_usd", ["packs_usd", "most_usd"], ({ packs_usd: packs = [], most_usd: most }) => {
        if (!packs.every((usd) => usd >= stepUsd && usd <= most && isStep(usd)))
          return `must be multiples of ${stepUsd}, up to most_usd (${most})`;
        return packs.every((usd, index) => index === 0 || usd > (packs[index - 1] ?? 0))
          ? undefined
          : "must be in ascending order, each once";
      });
      rule("processors", ["processors"], ({ processors }) =>
        processors.filter(({ type }) => type === "onchain").length > 1
          ? "there can be one processor of type onchain"
          : undefined,
      );
      for (const { asset } of coins)
        rule(`rates.${asset}`, ["processors", "rates"], ({ processors, rates }) =>
          rates?.[asset] || !processors.some((one) => coinsToQuote(one).includes(asset))
            ? undefined
            : "is required: a processor of the type onchain takes it",
        );
    },
  ),
  v.transform(({ packsUsd, seller, ...one }) => ({
    ...one,
    packsUsd: packsUsd ?? defaultPacksUsd.filter((usd) => usd <= one.mostUsd),
    seller: { ...nobody, ...seller } satisfies Seller & Partial<SellerSettings>,
  })),
);

export type PaymentSettings = v.InferOutput<typeof payments>;

const defaultPacksUsd = [5, 20, 50, 200];

/** What is offered where the file has no section `payments`, and people reach only this machine. */
export const simulatedPayments: PaymentSettings = v.parse(payments, {
  processors: [{ type: "simulated", name: "simulated" }],
});

/** The coins that the gateway quotes by itself. A stablecoin is a dollar. */
function coinsToQuote(processor: ProcessorSettings): string[] {
  if (processor.type !== "onchain") return [];
  const { bitcoin, evm } = processor;
  const taken = new Set(bitcoin ? [btc.asset] : []);
  for (const chain of evm?.chains ?? []) for (const asset of assetsOf(chain)) taken.add(asset);
  return coins.filter((one) => !one.isStablecoin && taken.has(one.asset)).map((one) => one.asset);
}

/** The coins in which a pack can be paid, such as `BTC on bitcoin`, each once. */
export function coinsOf({ processors }: Pick<PaymentSettings, "processors">): string[] {
  const known = nowpaymentsCoins();
  const all = processors.flatMap((processor) => {
    switch (processor.type) {
      case "btcpay":
        return processor.methods.map(({ asset, network }) => `${asset} on ${network}`);
      case "nowpayments":
        return processor.coins.flatMap((code) => {
          const coin = known.get(code);
          return coin ? [`${coin.asset} on ${coin.network}`] : [];
        });
      case "onchain":
        return [
          ...(processor.bitcoin ? [`${btc.asset} on ${processor.bitcoin.chain}`] : []),
          ...(processor.evm?.chains ?? []).flatMap((chain) =>
            assetsOf(chain).map((asset) => `${asset} on ${chain.name}`),
          ),
        ];
      default:
        return ["play money"];
    }
  });
  return [...new Set(all)];
}

/** A problem for each secret that the environment lacks. The value is never repeated. */
export function findMissingSecrets(
  payments: PaymentSettings | undefined,
  env: NodeJS.ProcessEnv,
): string[] {
  return (payments?.processors ?? []).flatMap((processor, index) =>
    missingSecretsOf(processor, env).map(
      ({ member, problem }) => `payments.processors[${index}].${member}: ${problem}`,
    ),
  );
}
