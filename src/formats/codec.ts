// What both formats have in common: how doors write answers with them, how adapters of providers
// read answers, and a limit.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";

/** Most messages of a conversation. */
export const messagesMax = 100_000;

/** What an answer shows that is not the provider's. */
export type AnswerContext = {
  /** Catalogue id of the model that answers. */
  readonly model: string;
  /** Shown as the input until the provider reports its own figure. */
  readonly estimatedInputTokens: number;
};

/**
 * Writes one answer as server-sent events. Each call gives whole ones, ready to be sent, or an
 * empty text.
 */
export interface EventEncoder {
  /**
   * `events` continue those of the calls before, in the order of event.proto; what the format has
   * no words for is left out.
   */
  encode(events: readonly Event[]): string;
  /** Something that keeps the connection alive and that clients skip. */
  ping(): string;
  /** The last event of an answer that failed; `problem` is the whole error envelope. */
  failure(problem: JsonObject): string;
  /** What follows the last event of a complete answer. */
  end(): string;
}

/**
 * Reads the event stream of one answer, in any split of its bytes. The last event is `message_stop`
 * or `failure`.
 */
export interface EventDecoder {
  /**
   * The events that `bytes` complete. Throws `upstream_error` when one event is beyond all bounds.
   */
  push(bytes: Uint8Array): Event[];
  /** The events that the end of the stream completes: a `failure` where the answer breaks off. */
  end(): Event[];
}

/** The half of a format that reads answers. */
export interface AnswerCodec {
  createEventDecoder(): EventDecoder;
  /** The events of a plain answer; one `failure` where the body is not an answer. */
  decodeAnswer(body: JsonObject): Event[];
}
