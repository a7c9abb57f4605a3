// The section `payments` of the configuration file: what can be bought, from whom, and by which
// payment processors. Secrets are named by environment variables, never written in the file.

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
};

/** Who sells. The texts are empty where nothing was configured. */
export type Seller = {
  readonly name: string;
  /** With line breaks. */
  readonly address: string;
  readonly taxId: string;
};

/** Pretends to receive all coins. */
export type SimulatedProcessorSettings = {
  readonly type: "simulated";
  /** Part of the paths of webhooks, and of every order that it opens. */
  readonly name: string;
  /** Environment variable with the secret of webhooks. Absent: there is no webhook. */
  readonly webhookSecretEnv?: string;
};

export type ProcessorSettings = SimulatedProcessorSettings;

/** 1,000 credits: the smallest pack, and the step of all others. */
const stepUsd = 5;
const mostUsdMax = 1_000_000;
const defaultPacksUsd = [5, 20, 50, 200];
const nobody: Seller = { name: "", address: "", taxId: "" };

/** What is offered where the file has no section `payments`, and people reach only this machine. */
export const simulatedPayments: PaymentSettings = {
  packsUsd: defaultPacksUsd,
  mostUsd: 2_000,
  seller: nobody,
  processors: [{ type: "simulated", name: "simulated" }],
};

const types = ["simulated"] as const;
/** Types that a later version knows. */
const laterTypes = ["btcpay", "nowpayments", "onchain"];

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
  section.rejectUnknown();
  return {
    ...{ packsUsd, mostUsd, seller, processors },
    ...(above !== undefined && { secondApprovalAboveUsd: above }),
  };
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
  const seller = {
    name: section.text("name"),
    address: section.text("address", ""),
    taxId: section.text("tax_id", ""),
  };
  section.rejectUnknown();
  return seller;
}

function readProcessor(section: Section): ProcessorSettings {
  const name = section.text("name");
  if (name !== "" && !/^[a-z][a-z0-9-]{0,31}$/.test(name))
    section.problem("name", "must be 1 to 32 of a-z, 0-9 and -, and begin with a letter");
  const type = section.text("type");
  if (laterTypes.includes(type)) {
    section.problem("type", `${type} is not part of this version; it has ${types.join(", ")}`);
    return { type: "simulated", name };
  }
  const webhookSecretEnv = section.variable("webhook_secret");
  const known = section.choice("type", types);
  // The type decides which members are known.
  if (known === type) section.rejectUnknown();
  return { type: known, name, ...(webhookSecretEnv !== undefined && { webhookSecretEnv }) };
}

/** Shorter secrets could be guessed. */
const secretLengthMin = 16;

/** The secret of a processor's webhooks, if the environment holds a usable one. */
export function webhookSecretOf(
  { webhookSecretEnv }: ProcessorSettings,
  env: NodeJS.ProcessEnv,
): string | undefined {
  const secret = webhookSecretEnv === undefined ? "" : (env[webhookSecretEnv] ?? "");
  return secret.length >= secretLengthMin && /^[\x21-\x7e]+$/.test(secret) ? secret : undefined;
}

/** A problem for each secret that the environment lacks. The value is never repeated. */
export function findMissingSecrets(
  payments: PaymentSettings | undefined,
  env: NodeJS.ProcessEnv,
): string[] {
  return (payments?.processors ?? []).flatMap((processor, index) => {
    const { webhookSecretEnv: name } = processor;
    if (name === undefined || webhookSecretOf(processor, env) !== undefined) return [];
    return [
      `payments.processors[${index}].webhook_secret: the environment variable ${name} holds no ` +
        `secret of at least ${secretLengthMin} visible ASCII characters`,
    ];
  });
}
