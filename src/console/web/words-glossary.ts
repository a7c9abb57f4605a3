// The words of the console that are ours, each with its meaning. Loaded by need.

import { creditsPerUsd } from "../../base/shown-figures.ts";

export const glossaryWords = {
  title: "Glossary",
  intro: "The words of these pages. Keys: Ctrl K or / finds, g and a letter goes, ? opens this.",
  go: "g o overview, g c connect, g m models, g t try it, g k keys, g u usage, g r requests, g b credits.",
} as const;

const oneCredit = 1 / creditsPerUsd;

/** In the order of the page. */
export const glossary = {
  account: ["Account", "A customer. It has a name, two pools and any number of keys."],
  credit: [
    "Credit",
    `The unit of payment: ${oneCredit} US dollars. A micro-credit is a millionth of it.`,
  ],
  pool: [
    "Pool",
    "The credits of one account and one family. Keys of v1 pay from the pool v1 alone, and those of v2 from v2. A pool in debt admits no requests.",
  ],
  family: [
    "v1 and v2",
    "The two families of keys. A key belongs to one for ever, and pays from its pool. Both reach the same models by the same addresses.",
  ],
  key: [
    "Key",
    "What a program sends to be let in. It has a name, limits, and one or more secrets. A secret is shown once; later its hint, the first and last characters, tells it from others.",
  ],
  hold: [
    "Hold",
    "Credits that are set aside while a request runs: the most that it can cost. When it ends, the pool pays what it did cost, and the rest is free again.",
  ],
  charge: [
    "Charge",
    "The final cost of one request: its tokens of each category times their prices, rounded up once on the sum. Its receipt shows how.",
  ],
  budget: [
    "Budget",
    "The most credits that a key, a member or a pool may spend in a UTC day, week or month, or in total. A request that it cannot cover is refused.",
  ],
  model: ["Model", "What answers. Its aliases are other names for the same model."],
  cache: [
    "Cache",
    "What a provider keeps of a prompt for some minutes or an hour. To write it costs more than plain input, to read it far less.",
  ],
  order: [
    "Order",
    "A pack of credits that somebody buys: dollars, coin, rate, and what to pay until when.",
  ],
  refused: [
    "Refused request",
    "One that was not let in, because of its key, a limit or the pool. It costs nothing.",
  ],
} as const satisfies Readonly<Record<string, readonly [string, string]>>;

export type GlossaryTerm = keyof typeof glossary;
