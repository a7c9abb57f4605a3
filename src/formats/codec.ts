// The interfaces that all formats implement: encoders of answers for the listeners, decoders of
// answers for the providers.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import {
  type Block,
  BlockSchema,
  ContentForm,
  Format,
  type Message,
  MessageSchema,
  Role,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Cost, Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, type LimitName } from "../base/errors.ts";
import { leftOutReasonName } from "../base/left-out.ts";
import { credits } from "../base/money.ts";
import { isObject } from "./json.ts";
import type { Sealing, Writer } from "./packs.ts";

/** Most messages and parts of a conversation together. */
export const partsMax = 20_000;
/** Most tools of a request. */
export const toolsMax = 512;

/**
 * Throws `request_too_large` if a request body of either format has too many messages and parts or
 * too many tools. The parts are the elements of the lists in messages, in tool results and in the
 * system instruction.
 */
export function checkCounts({ messages, system, tools }: JsonObject): void {
  const parts = lengthOf(system) + (Array.isArray(messages) ? countParts(messages) : 0);
  if (parts > partsMax) throw tooManyParts(partsMax);
  if (lengthOf(tools) > toolsMax) throw tooManyTools();
}

/** True for the two formats of OpenAI, whose extensions mean nothing in the native format. */
export function isOpenai(format: Format | undefined): boolean {
  return format === Format.CHAT || format === Format.RESPONSES;
}

/** The error for a request with more than `max` messages and parts. */
export function tooManyParts(max: number): ApiError {
  return tooMany("messages_and_parts", "messages and parts", max);
}

/** The error for a request with more than `toolsMax` tools. */
export function tooManyTools(): ApiError {
  return tooMany("tools", "tools", toolsMax);
}

function tooMany(name: LimitName, what: string, max: number): ApiError {
  const message = `The request has more than ${max} ${what}.`;
  return new ApiError("request_too_large", { message, limit: { name, limit: BigInt(max) } });
}

function countParts(messages: readonly JsonValue[]): number {
  let parts = messages.length;
  for (const message of messages) {
    if (!isObject(message)) continue;
    const { content, tool_calls } = message;
    parts += lengthOf(content) + lengthOf(tool_calls);
    if (Array.isArray(content))
      for (const part of content) if (isObject(part)) parts += lengthOf(part.content);
  }
  return parts;
}

function lengthOf(value: JsonValue | undefined): number {
  return Array.isArray(value) ? value.length : 0;
}

/** The values of an answer that come from the gateway, not from the provider. */
export type AnswerContext = {
  /** Catalogue id of the model that answers. Replaces the provider's own name for it. */
  readonly model: string;
  /** Input tokens to report until the provider reports its own count. */
  readonly estimatedInputTokens: number;
  /** Whether the end of a stream shows what the request was charged. Default: false. */
  readonly showCost?: boolean;
  /** Seals what a provider of another format wants back. Default: nothing is carried. */
  readonly sealing?: Sealing;
};

/** The member `gateway` that shows a charge, and what the provider did not get. */
export function encodeCost({
  requestId,
  chargedMicrocredits: amountMicrocredits,
  leftOut,
}: Cost): JsonObject {
  const shown = { request_id: requestId, cost_credits: credits(amountMicrocredits) };
  return leftOut.length === 0 ? shown : { ...shown, left_out: encodeLeftOut(leftOut) };
}

/** Entries of what was left out, as clients see them. */
export function encodeLeftOut(entries: readonly LeftOut[]): JsonObject[] {
  return entries.map(({ where, what, why, count }) => ({
    ...{ where, what, why: leftOutReasonName(why), count },
  }));
}

/**
 * Encodes one answer as server-sent events. Each method returns complete events, ready to be sent,
 * or an empty string.
 */
export interface EventEncoder {
  /**
   * `events` continue those of earlier calls, in the order of event.proto. Events that the format
   * cannot express are omitted.
   */
  encode(events: readonly Event[]): string;
  /** A keep-alive that clients skip. */
  ping(): string;
  /** The last event of an answer that failed; `body` is the whole error body of the format. */
  failure(body: JsonObject): string;
  /** The text that follows the last event of a complete answer. */
  end(): string;
}

/**
 * Decodes the event stream of one answer, in any split of its bytes. The last event is
 * `message_stop` or `failure`.
 */
export interface EventDecoder {
  /**
   * The events that `bytes` complete. Throws `upstream_error` if one event is larger than
   * `sseEventMax`.
   */
  push(bytes: Uint8Array): Event[];
  /** The events that the end of the stream completes; a `failure` if the answer is incomplete. */
  end(): Event[];
}

/**
 * The type of the failure that ends an answer whose content cannot be read. It concerns one request
 * alone, because the content depends on the request.
 */
export const unreadableAnswer = "unreadable_answer";

/** What is known of an answer before it comes. */
export type AnswerSource = {
  /** Who writes it. Absent: its provider wants nothing back. */
  readonly writer?: Writer;
  /** What its request had and the provider did not get. */
  readonly leftOut?: readonly LeftOut[];
  /** The client's names of tools by those that the provider got, where they differ. */
  readonly toolNames?: ReadonlyMap<string, string>;
};

/** The part of a format that decodes answers. */
export interface AnswerCodec {
  /** With `acceptsRuns`, text deltas may come as runs (`text-run.ts`). Default: false. */
  createEventDecoder(acceptsRuns?: boolean, source?: AnswerSource): EventDecoder;
  /** The events of a plain answer; one `failure` if the body is not an answer. */
  decodeAnswer(body: JsonObject, source?: AnswerSource): Event[];
}

/**
 * True for a request of one of OpenAI's formats without a user or assistant message. Providers of
 * chat completions accept it as it is; for all others its last instruction is the user's message.
 */
export function hasOnlyInstructions({ origin, messages }: GenerateRequest): boolean {
  return isOpenai(origin?.format) && messages.every(({ role }) => role === Role.SYSTEM);
}

/**
 * `messages` without system messages, which many models and servers do not accept in the middle of
 * a conversation. Each becomes a text block at the end of the user message before it, and not of
 * the top-level instruction: that would invalidate the prefix that the provider has cached. Changed
 * messages are copies.
 */
export function foldSystemEntries(messages: readonly Message[]): readonly Message[] {
  if (!messages.some((message) => message.role === Role.SYSTEM)) return messages;
  const folded: Message[] = [];
  let own: Message | undefined;
  for (const message of messages) {
    if (message.role !== Role.SYSTEM) {
      folded.push(message);
      continue;
    }
    const reminder = toReminder(message);
    if (!reminder) continue;
    const before = folded.at(-1);
    // Several system messages in a row extend one copy, which keeps the cost linear.
    if (own !== undefined && before === own) {
      own.content.push(reminder);
    } else if (before?.role === Role.USER) {
      own = { ...before, content: [...before.content, reminder], form: ContentForm.UNSPECIFIED };
      folded[folded.length - 1] = own;
    } else {
      own = create(MessageSchema, { role: Role.USER, content: [reminder] });
      folded.push(own);
    }
  }
  return folded;
}

/**
 * The text of a system message, marked as a system reminder. Undefined for a message without text,
 * which only changes settings that such servers do not have.
 */
function toReminder(message: Message): Block | undefined {
  const texts = message.content.flatMap(({ kind }) =>
    kind.case === "text" && kind.value.text !== "" ? [kind.value.text] : [],
  );
  if (texts.length === 0) return undefined;
  const text = `<system-reminder>\n${texts.join("\n")}\n</system-reminder>`;
  const cacheControl = message.content.findLast((block) => block.cacheControl)?.cacheControl;
  return create(BlockSchema, {
    kind: { case: "text", value: { text } },
    ...(cacheControl && { cacheControl }),
  });
}

/** The format of the provider whose answer begins with this event. */
export function providerFormatOf(start: Event): Format {
  const { kind, wireForm } = start;
  if (kind.case !== "messageStart") return Format.NATIVE;
  return kind.value.attached?.format ?? wireForm?.format ?? Format.NATIVE;
}
