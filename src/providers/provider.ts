// What the router knows of a provider, whichever kind it is.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { ApiError } from "../base/errors.ts";
import type { Route } from "../config/catalog.ts";

/** One request to a provider. */
export type ProviderRequest = {
  /** After all rules: `model` is the catalogue id, `maxTokens` what was granted. Read-only. */
  readonly request: GenerateRequest;
  /**
   * Same text for the same key and conversation, so that it meets the same provider's prompt cache
   * again.
   */
  readonly affinity: string;
  /** Aborts the provider call at once. */
  readonly signal: AbortSignal;
  /**
   * Every call to a provider is added here: one that failed as it ends, the delivered one with its
   * first event, as the last.
   */
  readonly attempts: Attempt[];
  /**
   * Called with true when a provider has the whole request and has not answered with an error
   * status, and with false when it then failed without an event, so that nobody works on the
   * request any more.
   */
  readonly onAccepted: (isAccepted: boolean) => void;
};

/** Input tokens as a provider counts them, with further members of its answer. */
export type ProviderTokenCount = { readonly inputTokens: number; readonly extensions?: JsonObject };

/** All providers, as the inference service uses them. */
export interface Providers {
  /**
   * Streams a model's answer, one array per read from the provider, never empty. Backpressure: the
   * next read happens when the consumer asks for it. Throws `ApiError`, before or during the
   * events: `overloaded`, `upstream_error`, `upstream_refused`, `timeout`; a provider's own error
   * event is thrown as well, never yielded. The provider call is aborted when the consumer returns
   * early, and when the signal fires: then it throws `cancelled`.
   */
  generate(ask: ProviderRequest): AsyncIterable<Event[]>;
  /** Undefined where the provider of this model cannot count. Throws as `generate`. */
  countTokens(
    ask: Pick<ProviderRequest, "request" | "affinity" | "signal">,
  ): Promise<ProviderTokenCount | undefined>;
  /** False when no model has a provider that may be called at this moment. */
  usable(): boolean;
}

/** One call to a provider. */
export type ProviderCall = {
  /** Read-only. */
  readonly request: GenerateRequest;
  readonly route: Pick<Route, "model" | "systemEntries">;
  /** The provider has the whole request and has not answered with an error status. */
  readonly onAccepted: () => void;
  /** The call is over. Called once, before the promise that tells the reader so settles. */
  readonly onEnd: (end: ProviderEnd) => void;
};

/** How a call ended. */
export type ProviderEnd = Delivery | ProviderFailure;

export type Delivery = { readonly outcome: "delivered"; readonly status: number };

export type ProviderFailure = {
  /** refused: the request is at fault. failed: the provider is. aborted: we stopped it. */
  readonly outcome: "refused" | "failed" | "timeout" | "aborted";
  /** HTTP status; 0 when none came. */
  readonly status: number;
  readonly error: ApiError;
  /** True when we stopped the call ourselves, so that it tells nothing about the provider. */
  readonly isOurs?: boolean;
  /** Who may well answer a second attempt: nobody, another provider only, or this one as well. */
  readonly retry: "nowhere" | "elsewhere" | "anywhere";
  /** How long the provider asked to be left alone. */
  readonly coolDownMs?: number;
  /** What an operator must repair: a credential, an unpaid bill, a model name. */
  readonly alarm?: string;
};

/** What one read of an answer brings. */
export type Read = IteratorResult<Event[], undefined>;

/** A running answer. */
export interface ProviderStream {
  /**
   * The events of one read, never empty. One call at a time. Rejects with the error of the end.
   * While nobody asks, nothing is read from the provider beyond what is on its way. Handed to the
   * consumer as it is: no promise or copy per read is added.
   */
  next(): Promise<Read>;
  /** Ends the call at once for `why`. Harmless when it is over. */
  stop(why: ApiError): void;
}

export interface Provider {
  /**
   * Begins nothing before the first `next`. Throws an ApiError for a request that the provider's
   * format cannot express.
   */
  generate(call: ProviderCall): ProviderStream;
  /** Undefined where the provider cannot count. Rejects with an ApiError. */
  countTokens(
    call: Omit<ProviderCall, "onAccepted" | "onEnd">,
    signal: AbortSignal,
  ): Promise<ProviderTokenCount | undefined>;
  /** Takes no further call, and resolves when the running ones have ended. */
  close(): Promise<void>;
  /** Cuts every connection. */
  destroy(): Promise<void>;
}
