// What a provider reported of an answer. Its reports are totals, so none is added to another: the
// last one of the output counts, and the last positive one of each category of input.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type CacheCreation,
  CacheCreationSchema,
  type Event,
  type ReportedUsage,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import type { PriceFacts } from "../config/catalog.ts";
import { progressOf } from "../formats/events.ts";
import { isObject } from "../formats/json.ts";

/** Generated tokens. `output`: without thinking. */
export type Output = { readonly output: number; readonly thinking: number };

/** How the reports of a request are read. */
export type UsageRules = {
  /** Our own count of the input, in tokens. Billed where the provider reports none. */
  readonly countedInput: number;
  /** Whether cache writes of unknown lifetime count as writes for one hour. */
  readonly writesLiveLong: boolean;
  /** Most input tokens that are billed: the model's context window. */
  readonly contextTokens: number;
  /** Most web searches that are billed: those that the request allows. */
  readonly webSearches: number;
  /** Whether zeros in the last report mean 0, or that the provider reports none. */
  readonly zeroUsage: "reported" | "missing";
};

// Columns of the ledger are signed 32-bit integers.
const tokensMax = 2 ** 31 - 1;

export class Reported {
  readonly #rules: UsageRules;
  input: number | undefined;
  cacheRead: number | undefined;
  cacheWrite: number | undefined;
  write5m: number | undefined;
  write1h: number | undefined;
  /** All generated tokens, thinking included. */
  output: number | undefined;
  thinking: number | undefined;
  /** Web searches. */
  searches: number | undefined;
  iterations: JsonValue | undefined;
  /** The speed, geography and tier that the provider says it applied. */
  applied: PriceFacts = {};
  /** The last one. Undefined before the first. */
  stopReason: string | undefined;
  /** `ending`: the stop reason is known. `complete`: the provider marked the end of the answer. */
  phase: "running" | "ending" | "complete" = "running";
  /** True when the input was reported with the end: a 0 is then no placeholder. */
  inputIsFinal = false;
  /** True when the output was reported with the end. Earlier reports cannot know the total. */
  outputIsFinal = false;
  #searchesAreFinal = false;
  /** The format of the provider. Undefined: not known. */
  #format: Format | undefined;
  /** The figures that clients are sent, where the later of two replaces the earlier. */
  #sent: ReportedUsage | undefined;
  #lastInput: Usage | undefined;

  constructor(rules: UsageRules) {
    this.#rules = rules;
  }

  read(event: Event): void {
    const { kind } = event;
    switch (kind.case) {
      case "messageStart":
        this.#format = kind.value.attached?.format;
        this.#send(kind.value.usage);
        this.#report(kind.value.usage, false);
        return;
      case "messageDelta":
        this.#end(kind.value.stopReason);
        this.#send(kind.value.usage);
        this.#report(kind.value.usage, true);
        return;
      case "messageStop":
        this.phase = "complete";
        return;
      case undefined: {
        const progress = progressOf(event);
        this.#end(progress?.stopReason);
        // A running count is as provisional as the usage of the start.
        this.#report(progress?.usage, this.phase !== "running");
      }
    }
  }

  /**
   * True when the provider has reported its input. A 0 at the start is a placeholder. A later 0 is
   * a report, unless `zero_usage` of the model is `missing`.
   */
  get hasInput(): boolean {
    if (this.inputSum > 0) return true;
    return this.inputIsFinal && this.#rules.zeroUsage === "reported";
  }

  /** Input of all categories, in tokens. */
  get inputSum(): number {
    return (this.input ?? 0) + (this.cacheRead ?? 0) + this.#writes;
  }

  /** True when no later event can change the usage of a complete answer. */
  get hasTotal(): boolean {
    return this.phase === "complete" || (this.#isEnding && this.outputIsFinal && this.hasInput);
  }

  /**
   * True when the last report of the output is the provider's own total, so that its 0 is believed
   * beside content: it closed a native answer or a response. Chat servers without a meter send 0.
   */
  get isTotal(): boolean {
    if (this.phase !== "complete" || !this.outputIsFinal) return false;
    const isKnown = this.#format === Format.NATIVE || this.#format === Format.RESPONSES;
    return isKnown && this.#rules.zeroUsage === "reported";
  }

  /** The usage to be billed with this output, and with these searches if no total is reported. */
  usage({ output, thinking }: Output, seenSearches = 0): Usage {
    const { writesLiveLong, countedInput, contextTokens } = this.#rules;
    const { write5m = 0, write1h = 0 } = this;
    const rest = this.#writes - write5m - write1h;
    const usage = {
      input: this.hasInput ? (this.input ?? 0) : countedInput,
      output,
      thinking,
      cacheRead: this.cacheRead ?? 0,
      cacheWrite5m: writesLiveLong ? write5m : write5m + rest,
      cacheWrite1h: writesLiveLong ? write1h + rest : write1h,
    };
    for (const extra of extraIterations(this.iterations)) {
      usage.input += extra.input;
      usage.output += extra.output;
      usage.cacheRead += extra.cacheRead;
      usage[writesLiveLong ? "cacheWrite1h" : "cacheWrite5m"] += extra.cacheWrite;
    }
    // No prompt is larger than the context window. Of a larger report, the cheapest input is billed
    // first.
    let left = contextTokens;
    const upTo = (tokens: number): number => {
      const billed = Math.min(tokens, left);
      left -= billed;
      return billed;
    };
    const cacheRead = upTo(usage.cacheRead);
    const input = upTo(usage.input);
    const cacheWrite5m = upTo(usage.cacheWrite5m);
    return {
      $typeName: "gateway.common.v1.Usage",
      input,
      output: Math.min(usage.output, tokensMax),
      thinking: Math.min(usage.thinking, tokensMax),
      cacheRead,
      cacheWrite5m,
      cacheWrite1h: upTo(usage.cacheWrite1h),
      webSearches: Math.min(this.#searches(seenSearches), this.#rules.webSearches),
    };
  }

  #searches(seen: number): number {
    const { searches = 0 } = this;
    return this.#searchesAreFinal ? searches : Math.max(searches, seen);
  }

  /**
   * The input that is billed, if it has changed since the last call. The hold has to cover it, and
   * every search that the request allows.
   */
  newInput(): Usage | undefined {
    if (!this.hasInput) return undefined;
    const last = this.#lastInput;
    const usage = this.usage({ output: 0, thinking: 0 });
    if (last && isSameInput(last, usage)) return undefined;
    this.#lastInput = usage;
    return { ...usage, webSearches: this.#rules.webSearches };
  }

  /**
   * The report to show at the end of an answer with this charged usage. Undefined when clients get
   * the same figures without it. `last`: the provider's own last report.
   */
  shown(charged: Usage, last: ReportedUsage | undefined): ReportedUsage | undefined {
    const sent = this.#sent ?? nothing;
    const written = charged.cacheWrite5m + charged.cacheWrite1h;
    const output = charged.output + charged.thinking;
    const { cacheCreation: split } = sent;
    const changed: Partial<ReportedUsage> = {};
    if (sent.inputTokens !== charged.input) changed.inputTokens = charged.input;
    if (sent.outputTokens !== output) changed.outputTokens = output;
    if ((sent.cacheReadInputTokens ?? 0) !== charged.cacheRead)
      changed.cacheReadInputTokens = charged.cacheRead;
    if ((sent.cacheCreationInputTokens ?? 0) !== written)
      changed.cacheCreationInputTokens = written;
    if ((sent.thinkingTokens ?? 0) !== charged.thinking) changed.thinkingTokens = charged.thinking;
    if (split && !isSameSplit(split, charged))
      changed.cacheCreation = create(CacheCreationSchema, {
        ephemeral5mInputTokens: charged.cacheWrite5m,
        ephemeral1hInputTokens: charged.cacheWrite1h,
      });
    const searches = searchesOf(last?.extensions);
    if (last?.extensions && searches !== undefined && searches !== charged.webSearches)
      changed.extensions = withSearches(last.extensions, charged.webSearches);
    // A prompt of no tokens does not exist: clients show an estimate instead of such a report.
    const isEstimated = charged.input + charged.cacheRead + written === 0;
    const isOdd = usageNames.some((name) => last?.extensions?.[name] !== undefined);
    for (const _ in changed) return withFigures(charged.input, output, last, changed);
    return isOdd || isEstimated ? withFigures(charged.input, output, last, changed) : undefined;
  }

  get #writes(): number {
    return Math.max(this.cacheWrite ?? 0, (this.write5m ?? 0) + (this.write1h ?? 0));
  }

  get #isEnding(): boolean {
    return this.phase !== "running";
  }

  #end(stopReason: string | undefined): void {
    if (stopReason === undefined) return;
    this.stopReason = stopReason;
    if (this.phase === "running") this.phase = "ending";
  }

  #send(usage: ReportedUsage | undefined): void {
    if (!usage) return;
    this.#sent = {
      $typeName: "gateway.inference.v1.ReportedUsage",
      inputTokens: usage.inputTokens ?? this.#sent?.inputTokens,
      outputTokens: usage.outputTokens ?? this.#sent?.outputTokens,
      cacheReadInputTokens: usage.cacheReadInputTokens ?? this.#sent?.cacheReadInputTokens,
      cacheCreationInputTokens:
        usage.cacheCreationInputTokens ?? this.#sent?.cacheCreationInputTokens,
      cacheCreation: usage.cacheCreation ?? this.#sent?.cacheCreation,
      thinkingTokens: usage.thinkingTokens ?? this.#sent?.thinkingTokens,
    };
  }

  #report(usage: ReportedUsage | undefined, isFinal: boolean): void {
    if (!usage) return;
    this.input = usage.inputTokens || (this.input ?? usage.inputTokens);
    this.cacheRead = usage.cacheReadInputTokens || (this.cacheRead ?? usage.cacheReadInputTokens);
    this.cacheWrite =
      usage.cacheCreationInputTokens || (this.cacheWrite ?? usage.cacheCreationInputTokens);
    const split = usage.cacheCreation;
    this.write5m = split?.ephemeral5mInputTokens || (this.write5m ?? split?.ephemeral5mInputTokens);
    this.write1h = split?.ephemeral1hInputTokens || (this.write1h ?? split?.ephemeral1hInputTokens);
    this.#reportOutput(usage);
    this.applied = appliedBy(usage, this.applied);
    const searches = searchesOf(usage.extensions);
    this.searches = searches || (this.searches ?? searches);
    this.#searchesAreFinal ||= isFinal && searches !== undefined;
    this.inputIsFinal ||= isFinal && usage.inputTokens !== undefined;
    this.outputIsFinal ||= isFinal && usage.outputTokens !== undefined;
  }

  #reportOutput({ outputTokens, thinkingTokens, extensions }: ReportedUsage): void {
    this.output = outputTokens ?? this.output;
    this.thinking = thinkingTokens ?? this.thinking;
    this.iterations = extensions?.iterations ?? this.iterations;
  }
}

function isSameSplit(split: CacheCreation, { cacheWrite5m, cacheWrite1h }: Usage): boolean {
  return (
    (split.ephemeral5mInputTokens ?? 0) === cacheWrite5m &&
    (split.ephemeral1hInputTokens ?? 0) === cacheWrite1h
  );
}

/** The conditions of a price that a report names, and those that earlier ones did. */
function appliedBy({ serviceTier, extensions }: ReportedUsage, earlier: PriceFacts): PriceFacts {
  const { speed, inference_geo: geo, service_tier: named } = extensions ?? {};
  const tier = serviceTier ?? named;
  if (speed === undefined && geo === undefined && tier === undefined) return earlier;
  return {
    ...earlier,
    ...(typeof speed === "string" && { speed }),
    ...(typeof geo === "string" && { geo }),
    ...(typeof tier === "string" && { tier }),
  };
}

const nothing: ReportedUsage = create(ReportedUsageSchema);

/** Clients fail without input and output, so a report that differs anywhere has both. */
function withFigures(
  inputTokens: number,
  outputTokens: number,
  last: ReportedUsage | undefined,
  changed: Partial<ReportedUsage>,
): ReportedUsage {
  const shown: ReportedUsage = { ...(last ?? nothing), ...changed, inputTokens, outputTokens };
  if (shown.extensions) shown.extensions = withoutUsage(shown.extensions);
  return shown;
}

function isSameInput(one: Usage, other: Usage): boolean {
  return (
    one.input === other.input &&
    one.cacheRead === other.cacheRead &&
    one.cacheWrite5m === other.cacheWrite5m &&
    one.cacheWrite1h === other.cacheWrite1h
  );
}

/** Members of a usage object that count charged tokens. */
const usageNames = [
  "input_tokens",
  "output_tokens",
  "cache_creation_input_tokens",
  "cache_read_input_tokens",
  "cache_creation",
  "output_tokens_details",
] as const;

// The decoder keeps such a member among the unknown ones if it is not a number. It would then be
// shown instead of the charged tokens.
function withoutUsage(extensions: JsonObject): JsonObject {
  const kept = Object.entries(extensions).filter(
    ([name]) => !usageNames.some((usageName) => usageName === name),
  );
  return Object.fromEntries(kept);
}

/**
 * Usage beside the answer, which a provider reports apart from its totals: compaction and advice.
 */
function extraIterations(iterations: JsonValue | undefined) {
  if (!Array.isArray(iterations)) return [];
  return iterations.flatMap((entry) => {
    if (entry === null || typeof entry !== "object" || Array.isArray(entry)) return [];
    if (entry.type !== "compaction" && entry.type !== "advisor_message") return [];
    return [
      {
        input: tokensOf(entry.input_tokens),
        output: tokensOf(entry.output_tokens),
        cacheRead: tokensOf(entry.cache_read_input_tokens),
        cacheWrite: tokensOf(entry.cache_creation_input_tokens),
      },
    ];
  });
}

/** The web searches of a native report. Undefined: it has no number of them. */
function searchesOf(extensions: JsonObject | undefined): number | undefined {
  const uses = extensions?.server_tool_use;
  const searches = isObject(uses) ? uses.web_search_requests : undefined;
  return isCount(searches) ? searches : undefined;
}

function withSearches(extensions: JsonObject, searches: number): JsonObject {
  const uses = isObject(extensions.server_tool_use) ? extensions.server_tool_use : {};
  return { ...extensions, server_tool_use: { ...uses, web_search_requests: searches } };
}

function tokensOf(value: JsonValue | undefined): number {
  return isCount(value) ? value : 0;
}

function isCount(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
