// The types of this folder: the requests of the inference service, and the interface that every
// kind of provider implements.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { ApiError } from "../base/errors.ts";
import type { Stopwatch } from "../base/stopwatch.ts";
import type { PriceFacts, ProviderFeatures, Route } from "../config/catalog.ts";
import type { Fit } from "../formats/fit.ts";
import type { Span, TraceHeaders, TraceScope } from "../tracing/tracing.ts";

/** One request of the inference service. */
export type ProviderRequest = {
  /** Prepared: `model` is the catalogue id, `maxTokens` the granted limit. Read-only. */
  readonly request: GenerateRequest;
  /**
   * The same for all requests of a key's conversation. They go to the same provider, for its prompt
   * cache. Asked for only where several share a model.
   */
  readonly affinity: () => string;
  /** The account of the key. Its failures bound its own calls first. */
  readonly accountId: string;
  /** How often the client has sent the request before. Then it is tried once only. */
  readonly repeat?: number | undefined;
  /** Cancels the provider call at once. */
  readonly signal: AbortSignal;
  /** Fires when the client hangs up. No further attempt is made after that. */
  readonly client: AbortSignal;
  /** Absent: the request is not traced. */
  readonly trace?: TraceScope | undefined;
  /** Runs while the request waits for a provider. Absent: nobody asks. */
  readonly waits?: Stopwatch | undefined;
};

/** The input tokens that a provider counted, with further members of its answer. */
export type ProviderTokenCount = { readonly inputTokens: number; readonly extensions?: JsonObject };

/** An answer that a provider has begun. */
export type ProviderAnswer = {
  /** Name of the provider, as in the configuration. */
  readonly provider: string;
  /** The span of its call. */
  readonly span: Span | undefined;
  /** True when the answer comes in one piece, not as a stream. */
  readonly isPlain: boolean;
};

/** The place to which the answer to one request goes. Calls come in the order of the members. */
export interface AnswerReader {
  /** True: text deltas may come as runs (`formats/text-run.ts`). */
  readonly takesRuns: boolean;
  /**
   * With true: the whole request was sent to a provider, and no error status was received yet. With
   * false: that provider then failed without an event, so that none works on the request any more.
   */
  accepted(isAccepted: boolean): void;
  /** Asked before a further attempt, which is made only after true. Never rejects. */
  mayRepeat(): Promise<boolean>;
  /** Called once, before the first write. No further attempt is made after it. */
  begin(answer: ProviderAnswer): void;
  /**
   * Takes these events, never none. A promise: it took none of them, and they are to be offered
   * again once it resolves, together with those that came since. An error that it throws ends the
   * answer.
   */
  write(events: Event[]): Promise<unknown> | undefined;
}

/** The calls to providers for one request. */
export type ProviderRun = {
  /**
   * Never rejects. Resolves after the last write: without an error if the answer is complete.
   * Otherwise with `overloaded`, `upstream_error`, `upstream_refused`, `timeout`, the provider's
   * own error, or `cancelled` after the signal of the request.
   */
  readonly ended: Promise<ApiError | undefined>;
  /**
   * The calls so far, oldest first. A new list each time. `facts`: the conditions under which the
   * request was answered, which decide what it costs. Default: none.
   */
  attempts(facts?: PriceFacts): Attempt[];
};

/** All providers, as the inference service uses them. */
export interface Providers {
  /** Calls a provider, and pushes its answer to `reader`. */
  generate(request: ProviderRequest, reader: AnswerReader): ProviderRun;
  /** Undefined where the provider of this model cannot count. Rejects as events do. */
  countTokens(
    request: Pick<ProviderRequest, "request" | "affinity" | "accountId" | "signal" | "waits">,
  ): Promise<ProviderTokenCount | undefined>;
  /** False when no model has a provider that may be called now. */
  isUsable(): boolean;
}

/** One call to a provider. */
export type ProviderCall = {
  /** Read-only. */
  readonly request: GenerateRequest;
  readonly route: Pick<Route, "model" | "systemEntries">;
  /** They name our span. Absent: the provider gets none. */
  readonly traceHeaders?: TraceHeaders | undefined;
};

/** The place to which one call reports. `takesRuns` and `write` as in `AnswerReader`. */
export interface CallReader extends Pick<AnswerReader, "takesRuns" | "write"> {
  /** Called when the whole request was sent and no error status was received yet. */
  accepted(): void;
  /** Called before a refused request is sent once more. False: nobody waits for that. */
  refused(): boolean;
  /** Called once, when the provider has ended its answer. Events may still wait to be written. */
  ended(end: ProviderEnd): void;
  /** Called once, at the end or after it: the connection serves nothing of this call any more. */
  released(): void;
}

/** Counts what became of the reasoning that a client returned with its request. */
export type CountCarried = (fit: Fit, request: GenerateRequest) => void;

/** How a call ended. */
export type ProviderEnd = Delivery | ProviderFailure;

export type Delivery = { readonly outcome: "delivered"; readonly status: number };

/**
 * Whom a failure tells of. `provider`: no request can cause it. `account`: the requests of one
 * account may. `request`: this request alone.
 */
export type FailureScope = "provider" | "account" | "request";

export type ProviderFailure = {
  /** refused: a fault of the request. failed: a fault of the provider. aborted: we stopped it. */
  readonly outcome: "refused" | "failed" | "timeout" | "aborted";
  /** HTTP status; 0 if none was received. */
  readonly status: number;
  readonly error: ApiError;
  /** True if the gateway ended the call, so that its result is no verdict on the provider. */
  readonly isOurs?: boolean;
  /** Where a second attempt may succeed: nowhere, at other providers, or at this one too. */
  readonly retry: "nowhere" | "elsewhere" | "anywhere";
  /** Whose calls the failure bounds. Default: the account's. */
  readonly scope?: FailureScope;
  /** True if the provider has too much to do, so that a repeat waits longer. */
  readonly isOverload?: boolean;
  /** The time that it asked to wait. */
  readonly retryAfterMs?: number;
  /** True of a quota that is used up. Default: true of a 429. */
  readonly isQuota?: boolean;
  /** True of a 429 whose quota is that of a day. */
  readonly isDayQuota?: boolean;
  /** The provider's own words, without secrets, for operators alone: at most 500 characters. */
  readonly reason?: string;
  /** A fault that the operator must repair: a credential, an unpaid bill, a model name. */
  readonly alarm?: string;
};

/** A call that is prepared. */
export interface RunningCall {
  /** True when the answer comes in one piece. Known at the first write. */
  readonly isPlain: boolean;
  /**
   * Sends the request. Resolves after the last write, with the error of the end if there is one.
   * Never rejects.
   */
  run(): Promise<ApiError | undefined>;
  /** Ends the call at once with this error. What waits to be written is dropped. */
  stop(error: ApiError): void;
}

/** A thing that a request may need and that not every provider has. */
export type Feature = keyof ProviderFeatures;

/** Where a credential is from, in words, and when it ends. Absent: that is not known yet. */
export type Credential = { readonly source: string; readonly endsAt?: Date | undefined };

export interface Provider {
  /** Absent: it has every feature. */
  readonly supports?: (feature: Feature, model: string) => boolean;
  /** Absent: its credential is constant, or there is none. */
  readonly credential?: () => Credential;
  /** Throws an ApiError for a request that the provider's format cannot express. */
  generate(call: ProviderCall, reader: CallReader): RunningCall;
  /** Undefined if the provider cannot count. Rejects with an ApiError. */
  countTokens(call: ProviderCall, signal: AbortSignal): Promise<ProviderTokenCount | undefined>;
  /** Accepts no further call, and resolves when the active ones have ended. */
  close(): Promise<void>;
  /** Closes every connection at once. */
  destroy(): Promise<void>;
}
