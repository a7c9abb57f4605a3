// The providers behind the models.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";

/** One request to a provider. */
export type UpstreamAsk = {
  /** After all rules: `model` is the catalogue id, `maxTokens` what was granted. Read-only. */
  readonly request: GenerateRequest;
  /** Same text for the same key and conversation, so that it meets the same provider's prompt cache again. */
  readonly affinity: string;
  /** Aborts the provider call at once. */
  readonly signal: AbortSignal;
  /** Every call to a provider is added here as it ends, the delivered one last. */
  readonly attempts: Attempt[];
  /** Called when a provider has the whole request and has not answered with an error status. */
  readonly onAccepted: () => void;
};

/** Input tokens as a provider counts them, with further members of its answer. */
export type UpstreamCount = { readonly inputTokens: number; readonly extensions?: JsonObject };

/** All providers, as the inference service uses them. */
export interface Upstreams {
  /**
   * Streams a model's answer, one array per read from the provider, never empty. Backpressure: the next read happens when the consumer
   * asks for it. Throws `Refusal`, before or amid the events: `overloaded`, `upstream_error`, `upstream_refused`, `timeout`; a
   * provider's own error event is thrown as well, never yielded. The provider call is aborted when the consumer returns early.
   */
  generate(ask: UpstreamAsk): AsyncIterable<Event[]>;
  /** Undefined where the provider of this model cannot count. Throws as `generate`. */
  countTokens(ask: Omit<UpstreamAsk, "onAccepted">): Promise<UpstreamCount | undefined>;
  /** False when no model has a provider that may be called at this moment. */
  usable(): boolean;
}
