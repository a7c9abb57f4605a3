// The simulated provider: a deterministic model with a clock, for trying the gateway without a
// provider and for its tests. It counts 4 bytes of UTF-8 as a token, and an image or a document as
// 1,000.

import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../../base/clock.ts";
import { type ApiError, toApiError } from "../../base/errors.ts";
import type { SimulatedSettings } from "../../config/catalog.ts";
import { aborted, failed, failureOfAnswer, failureOfEvent } from "../failures.ts";
import type { Provider, ProviderCall, ProviderFailure, ProviderStream, Read } from "../provider.ts";
import { type Plan, planAnswer } from "./answer.ts";
import { renderPlan, type Step } from "./events.ts";
import { tokensOf } from "./measure.ts";
import { segmentPrompt } from "./prompt.ts";
import { PromptCache } from "./prompt-cache.ts";

// Events that come together when nothing pauses between them.
const readMax = 64;

/** A simulated provider. */
export function createSimulated(settings: SimulatedSettings, clock: Clock): Provider {
  const cache = new PromptCache();
  return {
    generate: (call) => new SimulatedStream(settings, clock, cache, call),
    async countTokens({ request }) {
      const bytes = segmentPrompt(request).reduce((sum, segment) => sum + segment.bytes, 0);
      return { inputTokens: Math.max(1, tokensOf(bytes)) };
    },
    async close() {},
    async destroy() {},
  };
}

class SimulatedStream implements ProviderStream {
  readonly #settings: SimulatedSettings;
  readonly #clock: Clock;
  readonly #cache: PromptCache;
  readonly #call: ProviderCall;
  #plan: Plan | undefined;
  #steps: Generator<Step> | undefined;
  // A step whose pause is still to come.
  #ahead: Step | undefined;
  #sent = 0;
  #ended: { apiError?: ApiError } | undefined;
  // Ends the pause that is being waited for.
  #wake: (() => void) | undefined;

  constructor(settings: SimulatedSettings, clock: Clock, cache: PromptCache, call: ProviderCall) {
    this.#settings = settings;
    this.#clock = clock;
    this.#cache = cache;
    this.#call = call;
  }

  async next(): Promise<Read> {
    if (this.#ended === undefined && this.#steps === undefined) this.#begin();
    const events: Event[] = [];
    while (this.#ended === undefined && events.length < readMax) {
      const step = this.#ahead ?? this.#steps?.next().value;
      if (step === undefined) {
        this.#end();
        break;
      }
      const pauseMs = this.#pauseMs(step);
      if (pauseMs > 0 && events.length > 0) {
        this.#ahead = step;
        break;
      }
      this.#ahead = undefined;
      if (pauseMs > 0) await this.#pause(pauseMs);
      if (this.#ended === undefined && !this.#breaks()) {
        events.push(step.event);
        this.#sent++;
      }
    }
    if (events.length > 0) return { done: false, value: events };
    if (this.#ended?.apiError !== undefined) throw this.#ended.apiError;
    return { done: true, value: undefined };
  }

  stop(why: ApiError): void {
    if (this.#ended === undefined) this.#fail(aborted(why, this.#plan === undefined ? 0 : 200));
    this.#wake?.();
  }

  #begin(): void {
    const { request, route } = this.#call;
    try {
      const input = this.#cache.count(request.model, segmentPrompt(request), this.#clock.now());
      const plan = planAnswer(
        request,
        input.input + input.read + input.write5m + input.write1h,
        this.#settings.directives,
      );
      if (plan.directives.error !== undefined) {
        this.#fail(failureOfDirective(plan.directives.error, route.model));
        return;
      }
      this.#call.onAccepted();
      this.#plan = plan;
      this.#steps = renderPlan(plan, route.model, input);
    } catch (error) {
      this.#fail({ outcome: "refused", status: 400, error: toApiError(error), retry: "nowhere" });
    }
  }

  #pauseMs({ pause }: Step): number {
    const directives = this.#plan?.directives;
    if (pause === "firstToken") return directives?.firstTokenMs ?? this.#settings.firstTokenMs;
    return pause === "token" ? (directives?.tokenMs ?? this.#settings.tokenMs) : 0;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(ms, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
  }

  // True when a directive ends the answer here.
  #breaks(): boolean {
    const { dropAfter, failAfter } = this.#plan?.directives ?? {};
    if (this.#sent === dropAfter) this.#fail(failed(200));
    else if (this.#sent === failAfter)
      this.#fail(failureOfEvent({ type: "overloaded_error", message: "Overloaded" }, 200));
    return this.#ended !== undefined;
  }

  #end(): void {
    this.#ended = {};
    this.#call.onEnd({ outcome: "delivered", status: 200 });
  }

  #fail(failure: ProviderFailure): void {
    this.#ended = { apiError: failure.error };
    this.#call.onEnd(failure);
  }
}

function failureOfDirective(status: number, model: string): ProviderFailure {
  const error = {
    type: "invalid_request_error",
    message: `The simulated model was asked to answer status ${status}.`,
  };
  return failureOfAnswer({ status, body: { type: "error", error } }, model);
}
