// The section `payments` of the configuration file: what can be bought, from whom, and by which
// payment processors. Secrets are named by environment variables, never written in the file.

import { packStepUsdCents } from "../base/shown-figures.ts";
import { btc, coins } from "./coins.ts";
import { assetsOf } from "./onchain.ts";
import { missingSecretsOf, type ProcessorSettings, readProcessor } from "./processors.ts";
import { type RateSources, readRates } from "./rates.ts";
import type { Section } from "./section.ts";

/** The section `payments`. */
export type PaymentSettings = {
  /** Packs that are offered first, in dollars, ascending. */
  readonly packsUsd: readonly number[];
  /** The largest order, in dollars. Any multiple of 5 up to it can be ordered. */
  readonly mostUsd: number;
  /** The seller on receipts. */
  readonly seller: Seller;
  /** Credits granted by persons beyond this need a second person. Absent: they never do. */
  readonly secondApprovalAboveUsd?: number;
  /** At least one, each with its own name. */
  readonly processors: readonly ProcessorSettings[];
  /** Absent: no coin has a rate but the ones that processors quote. */
  readonly rates?: RateSources;
};

/** Who sells. The texts are empty where nothing was configured. */
export type Seller = {
  /** Numbers documents. A name may change, and the numbers go on. */
  readonly id: string;
  readonly name: string;
  /** With line breaks. */
  readonly address: string;
  readonly taxId: string;
};

/** 1,000 credits: the smallest pack, and the step of all others. */
const stepUsd = packStepUsdCents / 100;
const mostUsdMax = 1_000_000;
const defaultPacksUsd = [5, 20, 50, 200];
const nobody: Seller = { id: "main", name: "", address: "", taxId: "" };

/** What is offered where the file has no section `payments`, and people reach only this machine. */
export const simulatedPayments: PaymentSettings = {
  packsUsd: defaultPacksUsd,
  mostUsd: 2_000,
  seller: nobody,
  processors: [{ type: "simulated", name: "simulated" }],
};

/** Reads the section. Adds its problems to it. */
export function readPayments(section: Section): PaymentSettings {
  const most = { min: stepUsd, max: mostUsdMax, fallback: simulatedPayments.mostUsd };
  const mostUsd = section.integer("most_usd", most);
  if (mostUsd % stepUsd !== 0) section.problem("most_usd", `must be a multiple of ${stepUsd}`);
  const packsUsd = readPacks(section, mostUsd);
  const seller = readSeller(section.optionalSection("seller"));
  const above = section.has("second_approval_above_usd")
    ? section.integer("second_approval_above_usd", { min: 0, max: mostUsdMax })
    : undefined;
  const processors = section.sections("processors").map(readProcessor);
  for (const [index, { name }] of processors.entries())
    if (name !== "" && processors.findIndex((one) => one.name === name) < index)
      section.problem(`processors[${index}].name`, `there are two processors ${name}`);
  for (const [index, { type }] of processors.entries())
    if (type === "onchain" && processors.findIndex((one) => one.type === type) < index)
      section.problem(`processors[${index}].type`, "there can be one processor of type onchain");
  const ratesSection = section.optionalSection("rates");
  const rates = ratesSection && readRates(ratesSection);
  for (const coin of new Set(processors.flatMap(coinsToQuote)))
    if (!rates?.[coin])
      section.problem(`rates.${coin}`, "is required: a processor of the type onchain takes it");
  section.rejectUnknown();
  return {
    packsUsd,
    mostUsd,
    seller,
    processors,
    ...(rates && { rates }),
    ...(above !== undefined && { secondApprovalAboveUsd: above }),
  };
}

/** The coins that the gateway quotes by itself. A stablecoin is a dollar. */
function coinsToQuote(processor: ProcessorSettings): string[] {
  if (processor.type !== "onchain") return [];
  const { bitcoin, evm } = processor;
  const taken = new Set(bitcoin ? [btc.asset] : []);
  for (const { takesEther, tokens } of evm?.chains ?? [])
    for (const asset of assetsOf({ takesEther, tokens })) taken.add(asset);
  return coins.filter((one) => !one.isStablecoin && taken.has(one.asset)).map((one) => one.asset);
}

function readPacks(section: Section, mostUsd: number): readonly number[] {
  if (!section.has("packs_usd")) return defaultPacksUsd.filter((usd) => usd <= mostUsd);
  const packs = section.texts("packs_usd").map(Number);
  const isPack = (usd: number) => usd >= stepUsd && usd <= mostUsd && usd % stepUsd === 0;
  if (!packs.every(isPack))
    section.problem("packs_usd", `must be multiples of ${stepUsd}, up to most_usd (${mostUsd})`);
  else if (packs.some((usd, index) => index > 0 && usd <= (packs[index - 1] ?? 0)))
    section.problem("packs_usd", "must be in ascending order, each once");
  return packs;
}

function readSeller(section: Section | undefined): Seller {
  if (!section) return nobody;
  const id = section.text("id", nobody.id);
  if (!/^[a-z0-9-]{1,32}$/.test(id)) section.problem("id", "must be 1 to 32 of a-z, 0-9 and -");
  const seller = {
    id,
    name: section.text("name"),
    address: section.text("address", ""),
    taxId: section.text("tax_id", ""),
  };
  section.rejectUnknown();
  return seller;
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
