// What the router knows of a provider, whichever kind it is.

import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Route } from "../catalog-file/catalog-file.ts";
import type { Refusal } from "../errors.ts";
import type { UpstreamCount } from "./upstream.ts";

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
  readonly refusal: Refusal;
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
   * The events of one read, never empty. One call at a time. Rejects with the refusal of the end. While nobody asks, nothing is
   * read from the provider beyond what is on its way. Handed to the consumer as it is: no promise or copy per read is added.
   */
  next(): Promise<Read>;
  /** Ends the call at once for `why`. Harmless when it is over. */
  stop(why: Refusal): void;
}

export interface Provider {
  /** Begins nothing before the first `next`. Throws a Refusal for a request that the provider's format cannot express. */
  generate(call: ProviderCall): ProviderStream;
  /** Undefined where the provider cannot count. Rejects with a Refusal. */
  countTokens(call: Omit<ProviderCall, "onAccepted" | "onEnd">, signal: AbortSignal): Promise<UpstreamCount | undefined>;
  /** Takes no further call, and resolves when the running ones have ended. */
  close(): Promise<void>;
  /** Cuts every connection. */
  destroy(): Promise<void>;
}
