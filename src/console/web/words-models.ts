// Texts of the page of models, which is loaded by need. As `words.ts`.

import { creditsPerUsd } from "../../base/shown-figures.ts";

export const modelWords = {
  intro:
    `What each model takes and costs. 1 credit is ${1 / creditsPerUsd} USD; prices are for a million tokens. ` +
    "Where you have prices of your own, those of everybody are struck out.",
  search: "Find a model",
  caption: "Models and their prices",
  emptyTitle: "No models",
  empty: "The operator of this gateway sells none yet.",
  noMatchTitle: "No such model",
  noMatch: "No name and no alias contains this.",
  showAll: "Show all",
  input: "Tokens in",
  output: "Tokens out",
  cached: "Cached, in percent",
  condition: "Condition",
  plain: "None",
  speed: (speed: string) => speed,
  geo: (geo: string) => `geography ${geo}`,
  tier: (tier: string) => `tier ${tier}`,
  callHint:
    "What a receipt of this call will say. Cached tokens are read from the cache. Tokens of thinking are tokens out, at their own price. First token: the median of your requests of the last day.",
  notACount: "A whole number, such as 10,000",
  notAPercent: "0 to 100",
  notOffered: "not offered",
  allowed: (keys: string, all: string) => `${keys} of ${all}`,
  publicly: "public",
  out: (tokens: string) => `${tokens} out`,
  ownPrices: "own prices",
  copyName: (name: string) => `Copy ${name}`,
  rules: (n: string) => `${n} rules`,
  partly: "Times and keys could not be read.",
  head: {
    model: "Model",
    call: "This call",
    input: "Input",
    output: "Output",
    read: "Cached",
    write5m: "Write 5 min",
    write1h: "Write 1 h",
    thinking: "Thinking",
    context: "Context",
    answer: "Largest output",
    first: "First token",
    keys: "Keys allowed",
    rules: "Price rules",
  },
} as const;
