// Folds an answer's events into the usage that is billed for it. Providers report totals, so the
// latest report of each category counts, never a sum. What they do not report is counted here.
// The result depends on the order of the events alone, never on the reads in which they come.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Basis } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDelta,
  CacheCreationSchema,
  type Event,
  type ReportedUsage,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import { runOf } from "../formats/text-run.ts";

/** Usage to be billed, and the source of its numbers. */
export type BillableUsage = { readonly usage: Usage; readonly basis: Basis };

/** An input report that the hold has to cover. */
export type InputReport = {
  readonly usage: Usage;
  /** True when the provider had produced content before it. */
  readonly afterContent: boolean;
};

export type MeterSettings = {
  /** Our own count of the input, in tokens. Billed where the provider reports none. */
  readonly countedInput: number;
  /** Whether cache writes of unknown lifetime count as writes for one hour. */
  readonly writesLiveLong: boolean;
  /** Most input tokens that are billed: the model's context window. */
  readonly contextTokens: number;
  /** The output limit that the provider got, in tokens. */
  readonly grantedOutput: number;
  /** Whether 0 input tokens in the last report mean 0, or that the provider reports none. */
  readonly zeroUsage: "reported" | "missing";
};

const nothing: BillableUsage = { usage: create(UsageSchema), basis: Basis.NONE };
const bytesPerToken = 4;
// Columns of the ledger are signed 32-bit integers.
const tokensMax = 2 ** 31 - 1;

export class Meter {
  readonly #settings: MeterSettings;

  #input: number | undefined;
  #cacheRead: number | undefined;
  #cacheWrite: number | undefined;
  #cacheWrite5m: number | undefined;
  #cacheWrite1h: number | undefined;
  #output: number | undefined;
  #thinking: number | undefined;
  #iterations: JsonValue | undefined;
  /** True when the input was reported with the end: a 0 is then no placeholder. */
  #inputIsFinal = false;
  /** True when the output was reported with the end. Earlier reports cannot know the total. */
  #outputIsFinal = false;

  #answerBytes = 0;
  #thinkingBytes = 0;
  /** Of hidden thinking, only these are visible. */
  #signatureBytes = 0;
  #redactedBytes = 0;
  #estimatedThinking = 0;
  /** The output at the time when the client left. Later output is not billed. */
  #frozen: { output: number; thinking: number } | undefined;
  #moved = false;
  #openBlock: number | undefined;
  #inputReports: InputReport[] = [];
  /** What the last of them says. */
  #lastInput: Usage | undefined;

  /** True once a stop reason was received. */
  ending = false;
  /** The last one. Undefined before the first. */
  stopReason: string | undefined;
  /** True when the provider has marked the answer as complete. */
  complete = false;
  /** True once something was reported ahead of the end. */
  hasProgress = false;
  /** False for an answer that came in one piece: it is delivered whole. */
  mayCut = true;
  /**
   * Index, in the last read, of the event with which the provider exceeded the granted output. The
   * answer ends before that event.
   */
  cutIndex: number | undefined;

  constructor(settings: MeterSettings) {
    this.#settings = settings;
  }

  /** True once the provider has produced content. The empty start of a block is not content. */
  get contentBegan(): boolean {
    return (
      this.#answerBytes +
        this.#thinkingBytes +
        this.#signatureBytes +
        this.#redactedBytes +
        this.#estimatedThinking >
      0
    );
  }

  /** Index of the block that is open. Undefined between blocks. */
  get openBlock(): number | undefined {
    return this.#openBlock;
  }

  /** True when the last report has 0 input tokens beside content, and no setting overrides it. */
  get reportedZeroInput(): boolean {
    return this.hasInput && this.#reportedInputSum() === 0 && this.contentBegan;
  }

  /**
   * True if the answer may exceed its grant with these events. It is cut between two deltas, so
   * `fold` needs those of a run one by one then.
   */
  mayReachGrant(events: readonly Event[]): boolean {
    if (!this.mayCut) return false;
    let bytes = this.#answerBytes + this.#thinkingBytes;
    for (const event of events) bytes += contentBytesMax(event);
    return this.#isPastGrant(bytes);
  }

  /**
   * Folds the events of one read. Returns the number of those that come before the end of the
   * answer. Stops at the event with which the provider exceeds the granted output.
   */
  fold(events: readonly Event[]): number {
    this.#moved = true;
    let before = this.ending ? 0 : events.length;
    for (let index = 0; index < events.length; index++) {
      const kind = events[index]?.kind;
      switch (kind?.case) {
        case "messageStart":
          if (kind.value.usage) this.#report(kind.value.usage, "start");
          break;
        case "blockStart":
          this.#openBlock = kind.value.index;
          if (kind.value.block) this.#countBlock(kind.value.block);
          break;
        case "blockDelta":
          this.#countDelta(kind.value);
          if (this.mayCut && this.#isPastGrant(this.#answerBytes + this.#thinkingBytes))
            return this.#cutAt(index, before);
          break;
        case "blockStop":
          this.#openBlock = undefined;
          break;
        case "messageDelta":
          if (kind.value.usage) this.#report(kind.value.usage, "later");
          if (kind.value.stopReason !== undefined) {
            before = this.#beginEnding(before, index);
            this.stopReason = kind.value.stopReason;
          }
          break;
        case "progress":
          this.hasProgress = true;
          if (kind.value.stopReason !== undefined) {
            before = this.#beginEnding(before, index);
            this.stopReason = kind.value.stopReason;
          }
          // A running count is as provisional as the usage of the start.
          if (kind.value.usage) this.#report(kind.value.usage, this.ending ? "later" : "start");
          if (this.mayCut && !this.ending && this.#reportIsPastGrant())
            return this.#cutAt(index, before);
          break;
        case "messageStop":
          before = this.#beginEnding(before, index);
          this.complete = true;
          break;
      }
    }
    return before;
  }

  // The end of the answer begins with this event, unless it has begun. Returns the number of events
  // of this read before it.
  #beginEnding(before: number, index: number): number {
    if (this.ending) return before;
    this.ending = true;
    return index;
  }

  /** Input reports since the last call, in the order in which they came. */
  takeInputReports(): readonly InputReport[] {
    const reports = this.#inputReports;
    if (reports.length > 0) this.#inputReports = [];
    return reports;
  }

  /**
   * True when the provider has reported its input. A 0 at the start is a placeholder. A later 0 is
   * a report, unless `zero_usage` of the model is `missing`.
   */
  get hasInput(): boolean {
    if (this.#reportedInputSum() > 0) return true;
    return this.#inputIsFinal && this.#settings.zeroUsage === "reported";
  }

  /** True when no later event can change the usage of a complete answer. */
  get hasTotal(): boolean {
    return this.complete || (this.ending && this.#outputIsFinal && this.hasInput);
  }

  /** The client left: output that comes later is not billed. */
  freezeOutput(): void {
    this.#frozen ??= this.#producedOutput();
  }

  /** The usage of a complete answer. */
  billableTotal(): BillableUsage {
    const reported = this.#output ?? 0;
    // Zero output beside content is no report.
    if (this.contentBegan && (!this.#outputIsFinal || reported === 0)) return this.billableNow();
    const thinking = Math.min(this.#thinking ?? 0, reported);
    return {
      usage: this.#billable({ output: reported - thinking, thinking }),
      basis: this.#basis(this.#outputIsFinal),
    };
  }

  /** The usage of an answer that breaks off here: its input, and the output produced so far. */
  billableNow(): BillableUsage {
    return {
      usage: this.#billable(this.#frozen ?? this.#producedOutput()),
      basis: this.#basis(false),
    };
  }

  /** The usage of an answer without output, whose input the provider has read. */
  billableInput(): BillableUsage {
    return {
      usage: this.#billable({ output: 0, thinking: 0 }),
      basis: this.hasInput ? Basis.REPORTED : Basis.COUNTED,
    };
  }

  /** No usage at all. */
  billableNothing(): BillableUsage {
    return nothing;
  }

  /** The usage to store while the answer runs. Undefined when nothing came since the last call. */
  movedUsage(): Usage | undefined {
    if (!this.#moved) return undefined;
    this.#moved = false;
    return this.billableNow().usage;
  }

  /**
   * The usage to show at the end of an answer with the charged usage `charged`. Undefined when
   * `last`, the provider's own last report, is the same.
   */
  shownUsage(charged: Usage, last: ReportedUsage | undefined): ReportedUsage | undefined {
    const written = charged.cacheWrite5m + charged.cacheWrite1h;
    const output = charged.output + charged.thinking;
    const hasSplit = this.#cacheWrite5m !== undefined || this.#cacheWrite1h !== undefined;
    const isShown =
      // Reports ahead of the end are not relayed.
      !this.hasProgress &&
      this.#outputIsFinal &&
      this.#input === charged.input &&
      this.#output === output &&
      (this.#thinking ?? charged.thinking) === charged.thinking &&
      (this.#cacheRead ?? 0) === charged.cacheRead &&
      (this.#cacheWrite ?? written) === written &&
      (!hasSplit || (this.#cacheWrite5m ?? 0) + (this.#cacheWrite1h ?? 0) === written) &&
      !usageNames.some((name) => last?.extensions?.[name] !== undefined);
    if (isShown) return undefined;
    const shown = create(ReportedUsageSchema, {
      inputTokens: charged.input,
      outputTokens: output,
    });
    if (written > 0 || this.#cacheWrite !== undefined) shown.cacheCreationInputTokens = written;
    if (charged.cacheRead > 0 || this.#cacheRead !== undefined)
      shown.cacheReadInputTokens = charged.cacheRead;
    if (hasSplit)
      shown.cacheCreation = create(CacheCreationSchema, {
        ephemeral5mInputTokens: charged.cacheWrite5m,
        ephemeral1hInputTokens: charged.cacheWrite1h,
      });
    if (charged.thinking > 0 || this.#thinking !== undefined)
      shown.thinkingTokens = charged.thinking;
    if (last?.extensions) shown.extensions = withoutUsage(last.extensions);
    return shown;
  }

  #report(usage: ReportedUsage, place: "start" | "later"): void {
    const isLater = place === "later";
    this.#input = usage.inputTokens ?? this.#input;
    this.#output = usage.outputTokens ?? this.#output;
    this.#cacheRead = usage.cacheReadInputTokens ?? this.#cacheRead;
    this.#cacheWrite = usage.cacheCreationInputTokens ?? this.#cacheWrite;
    this.#cacheWrite5m = usage.cacheCreation?.ephemeral5mInputTokens ?? this.#cacheWrite5m;
    this.#cacheWrite1h = usage.cacheCreation?.ephemeral1hInputTokens ?? this.#cacheWrite1h;
    this.#thinking = usage.thinkingTokens ?? this.#thinking;
    this.#iterations = usage.extensions?.iterations ?? this.#iterations;
    this.#inputIsFinal ||= isLater && usage.inputTokens !== undefined;
    this.#outputIsFinal ||= isLater && usage.outputTokens !== undefined;
    if (!this.hasInput) return;
    const billable = this.#billable({ output: 0, thinking: 0 });
    if (this.#lastInput && isSameInput(this.#lastInput, billable)) return;
    this.#lastInput = billable;
    this.#inputReports.push({ usage: billable, afterContent: this.contentBegan });
  }

  #countBlock({ kind }: Block): void {
    switch (kind.case) {
      case "text":
        this.#answerBytes += Buffer.byteLength(kind.value.text);
        break;
      case "thinking":
        this.#thinkingBytes += Buffer.byteLength(kind.value.thinking);
        this.#signatureBytes += kind.value.signature.length;
        break;
      case "redactedThinking":
        this.#redactedBytes += kind.value.data.length;
        break;
      case "toolUse":
        this.#answerBytes += Buffer.byteLength(kind.value.name) + bytesOfInput(kind.value.input);
        break;
      case "other":
        this.#answerBytes += Buffer.byteLength(JSON.stringify(kind.value));
        break;
    }
  }

  #countDelta(delta: BlockDelta): void {
    const run = runOf(delta);
    if (run) {
      this.#answerBytes += run.textBytes;
      return;
    }
    const { kind, extensions, attached } = delta;
    const encrypted = attached?.members?.encrypted_content;
    if (typeof encrypted === "string") this.#signatureBytes += encrypted.length;
    switch (kind.case) {
      case "text":
      case "inputJson":
        this.#answerBytes += Buffer.byteLength(kind.value);
        break;
      case "thinking": {
        this.#thinkingBytes += Buffer.byteLength(kind.value);
        const estimated = extensions?.estimated_tokens;
        if (typeof estimated === "number" && estimated > this.#estimatedThinking)
          this.#estimatedThinking = Math.ceil(estimated);
        break;
      }
      case "signature":
        this.#signatureBytes += kind.value.length;
        break;
      case "other":
        this.#answerBytes += Buffer.byteLength(JSON.stringify(kind.value));
        break;
    }
  }

  #cutAt(index: number, before: number): number {
    this.cutIndex = index;
    return Math.min(before, index);
  }

  // The provider's count is exact. The margin allows for tokens that it generated before it
  // stopped.
  #reportIsPastGrant(): boolean {
    const { grantedOutput } = this.#settings;
    const margin = Math.max(256, grantedOutput * 0.05);
    return (this.#output ?? 0) > grantedOutput + margin;
  }

  // Our own count estimates 4 bytes a token. Indented code and tables have up to 8.
  #isPastGrant(bytes: number): boolean {
    return bytes > bytesPerToken * (2 * this.#settings.grantedOutput + 1_024);
  }

  #producedOutput(): { output: number; thinking: number } {
    const counted = this.#counted();
    const reported = this.#output ?? 0;
    if (reported <= counted.output + counted.thinking) return counted;
    const thinking = Math.min(this.#thinking ?? counted.thinking, reported);
    return { output: reported - thinking, thinking };
  }

  #counted(): { output: number; thinking: number } {
    // The signature of visible thinking encodes the same thinking again.
    const bytes =
      (this.#thinkingBytes > 0 ? this.#thinkingBytes : this.#signatureBytes) + this.#redactedBytes;
    const thinking = Math.max(Math.ceil(bytes / bytesPerToken), this.#estimatedThinking);
    return { output: Math.ceil(this.#answerBytes / bytesPerToken), thinking };
  }

  #reportedInputSum(): number {
    return (this.#input ?? 0) + (this.#cacheRead ?? 0) + this.#writes().total;
  }

  #basis(outputReported: boolean): Basis {
    if (outputReported) return this.hasInput ? Basis.REPORTED : Basis.PARTLY_COUNTED;
    return this.hasInput ? Basis.PARTLY_COUNTED : Basis.COUNTED;
  }

  #writes(): { total: number; short: number; long: number } {
    const short = this.#cacheWrite5m ?? 0;
    const long = this.#cacheWrite1h ?? 0;
    const rest = Math.max(0, (this.#cacheWrite ?? 0) - short - long);
    const { writesLiveLong } = this.#settings;
    return {
      total: short + long + rest,
      short: writesLiveLong ? short : short + rest,
      long: writesLiveLong ? long + rest : long,
    };
  }

  #billable({ output, thinking }: { output: number; thinking: number }): Usage {
    const writes = this.#writes();
    const usage = {
      input: this.hasInput ? (this.#input ?? 0) : this.#settings.countedInput,
      output,
      thinking,
      cacheRead: this.#cacheRead ?? 0,
      cacheWrite5m: writes.short,
      cacheWrite1h: writes.long,
    };
    for (const extra of extraIterations(this.#iterations)) {
      usage.input += extra.input;
      usage.output += extra.output;
      usage.cacheRead += extra.cacheRead;
      usage[this.#settings.writesLiveLong ? "cacheWrite1h" : "cacheWrite5m"] += extra.cacheWrite;
    }
    // No prompt is larger than the context window. Of a larger report, the cheapest input is billed
    // first.
    let left = this.#settings.contextTokens;
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
    };
  }
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

/** An upper bound of what `fold` counts for an event. */
function contentBytesMax({ kind }: Event): number {
  if (kind.case === "blockStart") {
    const block = kind.value.block?.kind;
    return block?.case === "text" ? 3 * block.value.text.length : Number.POSITIVE_INFINITY;
  }
  if (kind.case !== "blockDelta") return 0;
  const run = runOf(kind.value);
  if (run) return run.textBytes;
  const delta = kind.value.kind;
  return typeof delta.value === "string" ? 3 * delta.value.length : Number.POSITIVE_INFINITY;
}

// A tool call starts with the empty input `{}`, which is not output. Its arguments follow in
// deltas.
function bytesOfInput(input: JsonObject | undefined): number {
  if (input === undefined || Object.keys(input).length === 0) return 0;
  return Buffer.byteLength(JSON.stringify(input));
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

function tokensOf(value: JsonValue | undefined): number {
  return typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? value : 0;
}
