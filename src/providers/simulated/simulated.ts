// The simulated provider: a deterministic model with pauses, for trials without a real provider and
// for tests. It counts 4 bytes of UTF-8 as one token, and an image or a document as 1,000.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { LeftOut } from "../../../gen/gateway/common/v1/left_out_pb.ts";
import {
  type BlockDelta,
  BlockDeltaSchema,
  type Event,
  EventSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../../base/clock.ts";
import { type ApiError, toApiError } from "../../base/errors.ts";
import { randomId } from "../../base/ids.ts";
import type { SimulatedSettings } from "../../config/catalog.ts";
import { Fit } from "../../formats/fit.ts";
import { fitRequest } from "../../formats/native/native.ts";
import { aborted, failed, failureOfAnswer, failureOfEvent } from "../failures.ts";
import type {
  CallReader,
  CountCarried,
  Provider,
  ProviderCall,
  ProviderEnd,
  ProviderFailure,
  RunningCall,
} from "../provider.ts";
import { type Plan, type PlannedBlock, planAnswer } from "./answer.ts";
import { type InputTokens, PromptCache, segmentPrompt } from "./prompt.ts";
import { splitTokens, tokensOf } from "./tokens.ts";

// The most events of one write, if no pause separates them.
const readMax = 64;

/** The context window of a catalogue model, in tokens. Undefined: the model has no limit. */
export type ContextTokensOf = (model: string) => number | undefined;

/** Creates a simulated provider. */
export function createSimulated(
  settings: SimulatedSettings,
  clock: Clock,
  contextTokensOf: ContextTokensOf,
  countCarried: CountCarried = () => {},
): Provider {
  const cache = new PromptCache();
  return {
    generate(call, reader) {
      const contextTokens = contextTokensOf(call.request.model);
      return new SimulatedCall(
        { settings, clock, cache, countCarried },
        { call, reader, ...(contextTokens !== undefined && { contextTokens }) },
      );
    },
    async countTokens({ request }) {
      const bytes = segmentPrompt(fitRequest(request)).reduce(
        (sum, segment) => sum + segment.bytes,
        0,
      );
      return { inputTokens: Math.max(1, tokensOf(bytes)) };
    },
    async close() {},
    async destroy() {},
  };
}

/** What the calls of one simulated provider share. */
type Parts = {
  readonly settings: SimulatedSettings;
  readonly clock: Clock;
  readonly cache: PromptCache;
  readonly countCarried: CountCarried;
};

class SimulatedCall implements RunningCall {
  readonly isPlain = false;
  readonly #parts: Parts;
  readonly #call: ProviderCall;
  readonly #reader: CallReader;
  readonly #contextTokens: number;
  #plan: Plan | undefined;
  #sent = 0;
  #end: ProviderEnd | undefined;
  /** The error by which it was stopped. */
  #fault: ApiError | undefined;
  #isStopped = false;
  readonly #stopped = Promise.withResolvers<void>();
  /** Ends the current pause. */
  #wake = () => {};

  constructor(
    parts: Parts,
    of: { call: ProviderCall; reader: CallReader; contextTokens?: number },
  ) {
    this.#parts = parts;
    this.#call = of.call;
    this.#reader = of.reader;
    this.#contextTokens = of.contextTokens ?? Number.POSITIVE_INFINITY;
  }

  async run(): Promise<ApiError | undefined> {
    let unsent: Event[] = [];
    for (const { event, pause } of this.#begin()) {
      const pauseMs = this.#pauseMs(pause);
      if (unsent.length > 0 && (pauseMs > 0 || unsent.length === readMax)) {
        await this.#write(unsent);
        unsent = [];
      }
      if (pauseMs > 0 && !this.#isStopped) await this.#pause(pauseMs);
      if (this.#end || this.#endIfDirected()) break;
      unsent.push(event);
      this.#sent++;
    }
    if (this.#end === undefined) this.#finish({ outcome: "delivered", status: 200 });
    if (unsent.length > 0) await this.#write(unsent);
    if (this.#end === undefined || this.#end.outcome === "delivered") return this.#fault;
    return this.#end.error;
  }

  stop(error: ApiError): void {
    this.#isStopped = true;
    this.#fault ??= error;
    this.#stopped.resolve();
    if (this.#end === undefined) this.#finish(aborted(error, this.#plan === undefined ? 0 : 200));
    this.#wake();
  }

  /** The events of the answer, with the pauses before them. None of a request that is refused. */
  #begin(): Iterable<Step> {
    const { route } = this.#call;
    const { settings, clock, cache, countCarried } = this.#parts;
    if (this.#end !== undefined) return [];
    try {
      const fit = new Fit();
      const request = fitRequest(this.#call.request, fit);
      countCarried(fit, this.#call.request);
      const segments = segmentPrompt(request);
      const promptTokens = tokensOf(segments.reduce((sum, { bytes }) => sum + bytes, 0));
      const plan = planAnswer(request, promptTokens, settings.directives);
      const refusal = findRefusal(plan, promptTokens, request.maxTokens ?? 0, this.#contextTokens);
      if (refusal !== undefined) {
        this.#finish(failureOfRefusal(refusal, route.model));
        return [];
      }
      const input = cache.count(request.model, segments, clock.now());
      this.#reader.accepted();
      this.#plan = plan;
      return renderPlan(plan, { model: route.model, leftOut: fit.leftOut }, input);
    } catch (error) {
      this.#finish({ outcome: "refused", status: 400, error: toApiError(error), retry: "nowhere" });
      return [];
    }
  }

  async #write(events: Event[]): Promise<void> {
    try {
      while (!this.#isStopped) {
        const waiting = this.#reader.write(events);
        if (waiting === undefined) return;
        await Promise.race([waiting, this.#stopped.promise]);
      }
    } catch (error) {
      this.stop(toApiError(error));
    }
  }

  #pauseMs(pause: Step["pause"]): number {
    const directives = this.#plan?.directives;
    const { settings } = this.#parts;
    if (pause === "firstToken") return directives?.firstTokenMs ?? settings.firstTokenMs;
    return pause === "token" ? (directives?.tokenMs ?? settings.tokenMs) : 0;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(ms, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
  }

  // Ends the answer if a directive demands it before the next event. True once it has ended.
  #endIfDirected(): boolean {
    const { dropAfter, failAfter } = this.#plan?.directives ?? {};
    if (this.#sent === dropAfter) this.#finish(failed(200));
    else if (this.#sent === failAfter)
      this.#finish(failureOfEvent({ type: "overloaded_error", message: "Overloaded" }, 200));
    return this.#end !== undefined;
  }

  #finish(end: ProviderEnd): void {
    this.#end = end;
    this.#reader.ended(end);
    this.#reader.released();
  }
}

/** An error status and message in place of an answer. */
type Refusal = { readonly status: number; readonly message: string };

/** The refusal that a directive demands, or that of a request above the context window. */
function findRefusal(
  { directives }: Plan,
  promptTokens: number,
  maxTokens: number,
  contextTokens: number,
): Refusal | undefined {
  if (directives.error !== undefined) {
    const message = `The simulated model was asked to answer status ${directives.error}.`;
    return { status: directives.error, message };
  }
  // The vendor's two messages, which clients act on.
  if (directives.contextLengthExceeded || promptTokens > contextTokens) {
    const limit = Math.min(contextTokens, promptTokens - 1);
    return {
      status: 400,
      message: `prompt is too long: ${promptTokens} tokens > ${limit} maximum`,
    };
  }
  if (promptTokens + maxTokens > contextTokens) {
    const sum = `${promptTokens} + ${maxTokens} > ${contextTokens}`;
    const advice = "decrease input length or `max_tokens` and try again";
    const message = `input length and \`max_tokens\` exceed context limit: ${sum}, ${advice}`;
    return { status: 400, message };
  }
  return undefined;
}

function failureOfRefusal({ status, message }: Refusal, model: string): ProviderFailure {
  const error = { type: "invalid_request_error", message };
  return failureOfAnswer({ status, body: { type: "error", error } }, model);
}

/** One event and the pause before it. */
type Step = { readonly event: Event; readonly pause: "none" | "firstToken" | "token" };

/** The events of a planned answer, in order, with the pauses of a model that sends tokens. */
function* renderPlan(
  plan: Plan,
  { model, leftOut }: { model: string; leftOut: LeftOut[] },
  input: InputTokens,
): Generator<Step> {
  const { directives } = plan;
  const inputUsage = {
    inputTokens: input.input,
    cacheCreationInputTokens: input.write5m + input.write1h,
    cacheReadInputTokens: input.read,
    cacheCreation: { ephemeral5mInputTokens: input.write5m, ephemeral1hInputTokens: input.write1h },
  };
  const usage = directives.noUsage ? {} : { usage: { ...inputUsage, outputTokens: 0 } };
  yield step(
    { case: "messageStart", value: { id: randomId("msg_"), model, leftOut, ...usage } },
    "firstToken",
  );
  for (const [index, block] of plan.blocks.entries()) yield* renderBlock(block, index);

  const { stopReason, stopSequence, outputTokens, thinkingTokens } = plan;
  const refusal = {
    type: "refusal",
    category: null,
    explanation: "The simulated model was asked to refuse.",
  };
  yield step({
    case: "messageDelta",
    value: {
      stopReason,
      ...(stopSequence !== undefined && { stopSequence }),
      ...(stopReason === "refusal" && { deltaExtensions: { stop_details: refusal } }),
      ...(!directives.noUsage && {
        usage: { ...inputUsage, outputTokens, ...(thinkingTokens > 0 && { thinkingTokens }) },
      }),
    },
  });
  yield step({ case: "messageStop", value: {} });
}

function* renderBlock(block: PlannedBlock, index: number): Generator<Step> {
  switch (block.kind) {
    case "text":
      yield step({
        case: "blockStart",
        value: { index, block: { kind: { case: "text", value: { text: "" } } } },
      });
      for (const text of splitTokens(block.text))
        yield delta(index, { case: "text", value: text }, "token");
      break;
    case "thinking":
      yield step({
        case: "blockStart",
        value: { index, block: { kind: { case: "thinking", value: {} } } },
      });
      if (block.isShown) {
        for (const text of splitTokens(block.thinking))
          yield delta(index, { case: "thinking", value: text }, "token");
      }
      yield delta(index, { case: "signature", value: block.signature });
      break;
    case "tool_use": {
      const value = { id: randomId("toolu_"), name: block.name, input: {} };
      yield step({
        case: "blockStart",
        value: { index, block: { kind: { case: "toolUse", value } } },
      });
      for (const text of splitTokens(block.input))
        yield delta(index, { case: "inputJson", value: text }, "token");
      break;
    }
  }
  yield step({ case: "blockStop", value: { index } });
}

function step(
  kind: NonNullable<MessageInitShape<typeof EventSchema>["kind"]>,
  pause: Step["pause"] = "none",
): Step {
  return { event: create(EventSchema, { kind }), pause };
}

function delta(index: number, kind: BlockDelta["kind"], pause: Step["pause"] = "none"): Step {
  return step({ case: "blockDelta", value: create(BlockDeltaSchema, { index, kind }) }, pause);
}
