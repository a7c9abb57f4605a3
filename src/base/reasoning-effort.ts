// The reasoning efforts that clients may request, and their equivalents for models and providers
// that know fewer efforts, or budgets of thinking tokens only.

type EffortEquivalents = {
  /** Native format, `output_config.effort`: the efforts that every model with efforts knows. */
  readonly native: "low" | "medium" | "high" | "max";
  /** Chat, `reasoning_effort`: the efforts that every provider of chat completions knows. */
  readonly chat: "low" | "medium" | "high";
  /** Thinking tokens, for models that know budgets only. */
  readonly budgetTokens: number;
};

/** From the lowest to the highest. `none` is not listed: it turns reasoning off. */
const efforts = new Map<string, EffortEquivalents>([
  ["minimal", { native: "low", chat: "low", budgetTokens: 1_024 }],
  ["low", { native: "low", chat: "low", budgetTokens: 1_024 }],
  ["medium", { native: "medium", chat: "medium", budgetTokens: 4_096 }],
  ["high", { native: "high", chat: "high", budgetTokens: 16_384 }],
  ["xhigh", { native: "max", chat: "high", budgetTokens: 32_768 }],
  ["max", { native: "max", chat: "high", budgetTokens: 32_768 }],
]);

/** Every value of `reasoning_effort` that chat clients may send. */
export const effortNames: readonly string[] = ["none", ...efforts.keys()];

/** The smallest thinking budget that providers accept, in tokens. */
export const budgetTokensMin = 1_024;

/** Budget of a request that states no effort: vendors take that for a high one. */
export const defaultBudgetTokens = 16_384;

/** The equivalents of an effort; undefined for `none` and for names that are not listed. */
export function findEffort(name: string | undefined): EffortEquivalents | undefined {
  return name === undefined ? undefined : efforts.get(name);
}

/** The chat effort of a thinking budget: the highest one whose budget it reaches, at least low. */
export function chatEffortOfBudget(budgetTokens: number): EffortEquivalents["chat"] {
  const reached = [...efforts.values()].findLast((effort) => effort.budgetTokens <= budgetTokens);
  return reached?.chat ?? "low";
}
