// Folds an answer's events into what is owed for it. Providers report totals, so the latest figure
// of each category counts, never a sum; what they do not report is counted here.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Basis } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDelta,
  type Event,
  EventSchema,
  MessageDeltaSchema,
  type ReportedUsage,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";

/** What is owed, and where the figures come from. */
export type BillableUsage = { readonly usage: Usage; readonly basis: Basis };

const nothing: BillableUsage = { usage: create(UsageSchema), basis: Basis.NONE };
const bytesPerToken = 4;
// Columns of the ledger are signed 32-bit integers.
const tokensMax = 2 ** 31 - 1;

export class Meter {
  /** Our own figure for the input, used when the provider reports none. */
  readonly #countedInput: number;
  /** Whether cache writes of unknown life are to be taken for one hour. */
  readonly #writesLiveLong: boolean;

  #input: number | undefined;
  #cacheRead: number | undefined;
  #cacheWrite: number | undefined;
  #cacheWrite5m: number | undefined;
  #cacheWrite1h: number | undefined;
  #output: number | undefined;
  #thinking: number | undefined;
  #iterations: JsonValue | undefined;
  /** True when the output was reported at the end of the answer, not only at its start. */
  #totalReported = false;

  #answerBytes = 0;
  #thinkingBytes = 0;
  /** What hidden thinking leaves behind. */
  #signatureBytes = 0;
  #redactedBytes = 0;
  #estimatedThinking = 0;
  #moved = false;

  /** True from the first event that tells how or at what cost the answer ends. */
  ending = false;
  /** True when the provider said that the answer is complete. */
  complete = false;

  constructor(countedInput: number, writesLiveLong: boolean) {
    this.#countedInput = countedInput;
    this.#writesLiveLong = writesLiveLong;
  }

  /**
   * True from the first content that the provider produced. The empty form that opens a block is
   * none.
   */
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

  /** Folds the events of one read. Answers how many of them stand before the end of the answer. */
  fold(events: readonly Event[]): number {
    this.#moved = true;
    let before = this.ending ? 0 : events.length;
    for (let index = 0; index < events.length; index++) {
      const kind = events[index]?.kind;
      switch (kind?.case) {
        case "messageStart":
          if (kind.value.usage) this.#report(kind.value.usage);
          break;
        case "blockStart":
          if (kind.value.block) this.#countBlock(kind.value.block);
          break;
        case "blockDelta":
          this.#countDelta(kind.value);
          break;
        case "messageDelta":
          if (kind.value.usage) {
            this.#report(kind.value.usage);
            this.#totalReported ||= kind.value.usage.outputTokens !== undefined;
          }
          if (!this.ending) before = index;
          this.ending = true;
          break;
        case "messageStop":
          if (!this.ending) before = index;
          this.ending = true;
          this.complete = true;
          break;
      }
    }
    return before;
  }

  /** The input as the provider reported it, or undefined when it has not. */
  reportedInput(): Usage | undefined {
    return this.#hasInput() ? this.#billable({ output: 0, thinking: 0 }) : undefined;
  }

  /** What is owed for a complete answer. */
  billableTotal(): BillableUsage {
    const reported = this.#output ?? 0;
    // The figure that came with the start is no total, and zero output beside content is no report
    // at all.
    if (this.contentBegan && (!this.#totalReported || reported === 0)) return this.billableNow();
    const thinking = Math.min(this.#thinking ?? 0, reported);
    return {
      usage: this.#billable({ output: reported - thinking, thinking }),
      basis: this.#basis(this.#totalReported),
    };
  }

  /** What is owed for an answer that breaks off here: the input, and what was produced. */
  billableNow(): BillableUsage {
    const counted = this.#counted();
    const reported = this.#output ?? 0;
    if (reported > counted.output + counted.thinking) {
      const thinking = Math.min(this.#thinking ?? counted.thinking, reported);
      return {
        usage: this.#billable({ output: reported - thinking, thinking }),
        basis: this.#basis(false),
      };
    }
    return { usage: this.#billable(counted), basis: this.#basis(false) };
  }

  /** What is owed when nothing was produced, but the provider has read the input. */
  inputOnly(): BillableUsage {
    return {
      usage: this.#billable({ output: 0, thinking: 0 }),
      basis: this.#hasInput() ? Basis.REPORTED : Basis.COUNTED,
    };
  }

  nothing(): BillableUsage {
    return nothing;
  }

  /**
   * The figure to remember while the answer runs; undefined when nothing came since the last call.
   */
  movedUsage(): Usage | undefined {
    if (!this.#moved) return undefined;
    this.#moved = false;
    return this.billableNow().usage;
  }

  #report(usage: ReportedUsage): void {
    this.#input = usage.inputTokens ?? this.#input;
    this.#output = usage.outputTokens ?? this.#output;
    this.#cacheRead = usage.cacheReadInputTokens ?? this.#cacheRead;
    this.#cacheWrite = usage.cacheCreationInputTokens ?? this.#cacheWrite;
    this.#cacheWrite5m = usage.cacheCreation?.ephemeral5mInputTokens ?? this.#cacheWrite5m;
    this.#cacheWrite1h = usage.cacheCreation?.ephemeral1hInputTokens ?? this.#cacheWrite1h;
    this.#thinking = usage.thinkingTokens ?? this.#thinking;
    this.#iterations = usage.extensions?.iterations ?? this.#iterations;
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

  #countDelta({ kind, extensions }: BlockDelta): void {
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

  #counted(): { output: number; thinking: number } {
    // The signature of visible thinking holds the same thoughts again.
    const bytes =
      (this.#thinkingBytes > 0 ? this.#thinkingBytes : this.#signatureBytes) + this.#redactedBytes;
    const thinking = Math.max(Math.ceil(bytes / bytesPerToken), this.#estimatedThinking);
    return { output: Math.ceil(this.#answerBytes / bytesPerToken), thinking };
  }

  // A prompt is never empty, so a report of no input at all is none.
  #hasInput(): boolean {
    return (this.#input ?? 0) + (this.#cacheRead ?? 0) + (this.#writes().total ?? 0) > 0;
  }

  #basis(outputReported: boolean): Basis {
    if (outputReported) return this.#hasInput() ? Basis.REPORTED : Basis.PARTLY_COUNTED;
    return this.#hasInput() ? Basis.PARTLY_COUNTED : Basis.COUNTED;
  }

  #writes(): { total: number; short: number; long: number } {
    const short = this.#cacheWrite5m ?? 0;
    const long = this.#cacheWrite1h ?? 0;
    const rest = Math.max(0, (this.#cacheWrite ?? 0) - short - long);
    return {
      total: short + long + rest,
      short: this.#writesLiveLong ? short : short + rest,
      long: this.#writesLiveLong ? long + rest : long,
    };
  }

  #billable({ output, thinking }: { output: number; thinking: number }): Usage {
    const writes = this.#writes();
    const usage = {
      input: this.#hasInput() ? (this.#input ?? 0) : this.#countedInput,
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
      usage[this.#writesLiveLong ? "cacheWrite1h" : "cacheWrite5m"] += extra.cacheWrite;
    }
    return create(UsageSchema, {
      input: Math.min(usage.input, tokensMax),
      output: Math.min(usage.output, tokensMax),
      thinking: Math.min(usage.thinking, tokensMax),
      cacheRead: Math.min(usage.cacheRead, tokensMax),
      cacheWrite5m: Math.min(usage.cacheWrite5m, tokensMax),
      cacheWrite1h: Math.min(usage.cacheWrite1h, tokensMax),
    });
  }
}

// A tool's empty start form `{}` is not output; its arguments follow as deltas.
function bytesOfInput(input: JsonObject | undefined): number {
  if (input === undefined || Object.keys(input).length === 0) return 0;
  return Buffer.byteLength(JSON.stringify(input));
}

/** Work beside the answer that a provider reports apart from the totals: compaction, and advice. */
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

// What a client is shown as usage is what it is charged for, also where we had to count.

/** The end of an answer, with the charged usage in place of what the provider left out. */
export function showCharged(end: readonly Event[], usage: Usage): Event[] {
  return end.map((event) => {
    if (event.kind.case !== "messageDelta") return event;
    const { usage: reported, ...delta } = event.kind.value;
    const cacheWrite = usage.cacheWrite5m + usage.cacheWrite1h;
    const shown = create(ReportedUsageSchema, {
      ...reported,
      inputTokens: usage.input,
      outputTokens: usage.output + usage.thinking,
      ...(cacheWrite > 0 && { cacheCreationInputTokens: cacheWrite }),
      ...(usage.cacheRead > 0 && { cacheReadInputTokens: usage.cacheRead }),
      ...(usage.thinking > 0 && { thinkingTokens: usage.thinking }),
    });
    // The provider's own bytes say something else.
    return create(EventSchema, {
      kind: { case: "messageDelta", value: create(MessageDeltaSchema, { ...delta, usage: shown }) },
    });
  });
}
