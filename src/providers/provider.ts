// The types of this folder: the requests of the inference service, and the interface that every
// kind of provider implements.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { ApiError } from "../base/errors.ts";
import type { Stopwatch } from "../base/stopwatch.ts";
import type { Route } from "../config/catalog.ts";
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
  /**
   * Called with true when the whole request was sent to a provider and no error status was received
   * yet. Called with false when that provider then failed without an event, so that none works on
   * the request any more.
   */
  readonly onAccepted: (isAccepted: boolean) => void;
  /**
   * Called with the events of a read while its reader waits for them. True: they went on, and the
   * reader does not get them. What it throws ends the answer. Where it is present, text deltas may
   * come as runs (`formats/text-run.ts`).
   */
  readonly relay?: ((events: readonly Event[]) => boolean) | undefined;
  /**
   * Called before a further attempt, which is made only if it resolves to true. Never rejects.
   * Absent: one may always be made.
   */
  readonly mayRepeat?: (() => Promise<boolean>) | undefined;
  /** Absent: the request is not traced. */
  readonly trace?: TraceScope | undefined;
  /** Runs while the request waits for a provider. Absent: nobody asks. */
  readonly waits?: Stopwatch | undefined;
};

/** The input tokens that a provider counted, with further members of its answer. */
export type ProviderTokenCount = { readonly inputTokens: number; readonly extensions?: JsonObject };

/** An answer of a provider, or of none. */
export type ProviderAnswer = {
  /** Name of the provider that answers, as in the configuration. Absent where none began. */
  readonly provider?: string;
  /** The span of its call. */
  readonly span?: Span | undefined;
  /** True when the answer came in one piece, not as a stream. */
  readonly isPlain: boolean;
  /**
   * One array per read from the provider, never empty. The next read happens when the consumer
   * reads on, so a slow consumer slows the provider. Throws `ApiError`: `overloaded`,
   * `upstream_error`, `upstream_refused`, `timeout`, and `cancelled` after the request's signal; a
   * provider's own error event is thrown as well. Only the signal ends the call: a consumer that
   * stops reading does not.
   */
  readonly events: AsyncIterable<Event[]>;
  /** The calls made for this answer so far, oldest first. A new list each time. */
  attempts(): Attempt[];
};

/** All providers, as the inference service uses them. */
export interface Providers {
  /**
   * Begins a model's answer. Resolves with its first event, or when no provider gave one. Never
   * rejects: an answer that no provider began fails at its first read.
   */
  generate(request: ProviderRequest): Promise<ProviderAnswer>;
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
  /** Called when the whole request was sent and no error status was received yet. */
  readonly onAccepted: () => void;
  /** Called once, when the call ends, before the reader's promise settles. */
  readonly onEnd: (end: ProviderEnd) => void;
  /** Called once, at the end or after it: the connection serves nothing of this call any more. */
  readonly onReleased: () => void;
  /** As in `ProviderRequest`. A provider may ignore it. */
  readonly relay?: ProviderRequest["relay"];
  /** They name our span. Absent: the provider gets none. */
  readonly traceHeaders?: TraceHeaders | undefined;
};

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
  /** True of a 429 whose quota is that of a day. */
  readonly isDayQuota?: boolean;
  /** The provider's own words, without secrets, for operators alone: at most 500 characters. */
  readonly reason?: string;
  /** A fault that the operator must repair: a credential, an unpaid bill, a model name. */
  readonly alarm?: string;
};

/** The result of one read of an answer. */
export type Read = IteratorResult<Event[], undefined>;

/** The answer of one call. */
export interface ProviderStream {
  /** True when the answer comes in one piece. Known from the first read on. */
  readonly isPlain: boolean;
  /**
   * The events of one read, never empty. One call at a time. Rejects with the error of the end.
   * Without a pending call, reading from the provider soon pauses. The promise and the array go to
   * the consumer as they are, without a copy per read.
   */
  next(): Promise<Read>;
  /** Ends the call at once with this error. No effect after its end. */
  stop(error: ApiError): void;
}

export interface Provider {
  /**
   * Prepares a call, which the first `next` sends. Throws an ApiError for a request that the
   * provider's format cannot express.
   */
  generate(call: ProviderCall): ProviderStream;
  /** Undefined if the provider cannot count. Rejects with an ApiError. */
  countTokens(
    call: Omit<ProviderCall, "onAccepted" | "onEnd" | "onReleased">,
    signal: AbortSignal,
  ): Promise<ProviderTokenCount | undefined>;
  /** Accepts no further call, and resolves when the active ones have ended. */
  close(): Promise<void>;
  /** Closes every connection at once. */
  destroy(): Promise<void>;
}
