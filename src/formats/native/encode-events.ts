// Events → the event stream of an answer in the native format.

import type { JsonObject } from "@bufbuild/protobuf";
import { type Block, Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Event,
  MessageDelta,
  MessageStart,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../base/ids.ts";
import { Carrier } from "../carry.ts";
import { type AnswerContext, type EventEncoder, encodeCost, providerFormatOf } from "../codec.ts";
import { escapeLineSeparators, isObject, parseJsonText, stringifyJson } from "../json.ts";
import { runOf, type TextForm, type TextRun } from "../text-run.ts";
import { toNativeId } from "../tool-ids.ts";
import { splitBlock } from "./encode-block.ts";
import { completeUsage, encodeUsage } from "./usage.ts";

/** The block that is open in our stream. */
type OpenBlock = {
  /** Its number in our stream: without gaps, even if the provider's numbers have gaps. */
  readonly index: number;
  /** A delta from the start of the block. It is sent at the end unless such a delta follows. */
  late: { readonly kind: "inputJson" | "signature"; readonly delta: JsonObject } | undefined;
};

export function createEventEncoder(context: AnswerContext): EventEncoder {
  let open: OpenBlock | undefined;
  /** Of an answer of another format. */
  let carrier: Carrier | undefined;
  let blocks = 0;
  let outputTokens = 0;
  let over = false;

  const openBlock = (providerIndex: number, block: Block, event: Event): string => {
    const closed = closeBlock();
    const { start, deltas, late } = splitBlock(block);
    if (!start) return closed;
    const index = blocks++;
    open = { index, late };
    const raw =
      providerIndex === index && deltas.length === 0 && !late ? rawJson(event) : undefined;
    const first = frame(
      "content_block_start",
      raw ?? stringifyJson({ type: "content_block_start", index, content_block: start }),
    );
    return closed + first + deltas.map((delta) => frameDelta(index, stringifyJson(delta))).join("");
  };

  const closeBlock = (event?: Event): string => {
    if (!open) return "";
    const { index, late } = open;
    open = undefined;
    const last = late ? frameDelta(index, stringifyJson(late.delta)) : "";
    const raw =
      event?.kind.case === "blockStop" && event.kind.value.index === index
        ? rawJson(event)
        : undefined;
    return (
      last + frame("content_block_stop", raw ?? `{"type":"content_block_stop","index":${index}}`)
    );
  };

  const continueBlock = (delta: BlockDelta, event: Event): string => {
    // The block is of a kind that this format cannot express.
    if (!open) return "";
    const run = runOf(delta);
    if (run) return encodeRun(run, open.index);
    if (open.late?.kind === delta.kind.case) open.late = undefined;
    const raw = event.wireForm && delta.index === open.index ? rawJson(event) : undefined;
    if (raw !== undefined) return frame("content_block_delta", raw);
    const json = encodeDelta(delta);
    return json === undefined ? "" : frameDelta(open.index, json);
  };

  const encodeOne = (event: Event): string => {
    const { kind } = event;
    switch (kind.case) {
      case "blockDelta":
        return continueBlock(kind.value, event);
      case "blockStart":
        return kind.value.block ? openBlock(kind.value.index, kind.value.block, event) : "";
      case "blockStop":
        return closeBlock(event);
      case "messageStart": {
        outputTokens = kind.value.usage?.outputTokens ?? 0;
        // Blocks that came with the start have the first numbers.
        const earlier = kind.value.extensions?.content;
        if (Array.isArray(earlier)) blocks = earlier.length;
        return encodeStart(kind.value, context, event);
      }
      case "messageDelta":
        outputTokens = kind.value.usage?.outputTokens ?? outputTokens;
        return (
          closeBlock() + encodeMessageDelta(kind.value, outputTokens, context.showCost === true)
        );
      case "messageStop":
        over = true;
        return `${closeBlock()}event: message_stop\ndata: {"type":"message_stop"}\n\n`;
      case "ping":
        return pingText;
      case "other":
        return encodeOther(kind.value);
      default:
        return "";
    }
  };

  return {
    encode(events) {
      const [first] = events;
      if (first?.kind.case === "messageStart") carrier = carrierFor(first, context);
      let text = "";
      for (const event of carrier ? carrier.carry(events) : events)
        if (!over) text += encodeOne(event);
      return text;
    },
    ping: () => pingText,
    failure(problem) {
      over = true;
      return frame("error", stringifyJson(problem));
    },
    end: () => "",
  };
}

/** What an answer of another format needs; undefined for one of this format. */
export function carrierFor(start: Event, { sealing }: AnswerContext): Carrier | undefined {
  if (providerFormatOf(start) === Format.NATIVE) return undefined;
  return new Carrier({ format: Format.NATIVE, toClientId: toNativeId, hidesText: false }, sealing);
}

function encodeRun(run: TextRun, index: number): string {
  const { before, after } = textFormOf(index);
  if (run.form.before === before && run.form.after === after) return run.frames;
  let frames = "";
  run.eachText((text) => {
    frames += before + text + after;
  });
  return frames;
}

const pingText = 'event: ping\ndata: {"type":"ping"}\n\n';

function frame(name: string, json: string): string {
  return `event: ${name}\ndata: ${json}\n\n`;
}

function frameDelta(index: number, json: string): string {
  return `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":${json}}\n\n`;
}

const deltaStarts = {
  text: '{"type":"text_delta","text":',
  thinking: '{"type":"thinking_delta","thinking":',
  signature: '{"type":"signature_delta","signature":',
  inputJson: '{"type":"input_json_delta","partial_json":',
};

function encodeDelta({ kind, extensions }: BlockDelta): string | undefined {
  if (kind.case === undefined) return undefined;
  if (kind.case === "other") return stringifyJson(kind.value);
  const json = `${deltaStarts[kind.case]}${stringifyJson(kind.value)}`;
  // The JSON of the extensions without its opening brace ends the delta.
  if (extensions) return `${json},${stringifyJson(extensions).slice(1)}`;
  return `${json}}`;
}

/** The provider's id, or a new one if the provider's does not have the form of this format. */
export function messageId(id: string): string {
  return id.startsWith("msg_") ? id : randomId("msg_");
}

function encodeStart(start: MessageStart, context: AnswerContext, event: Event): string {
  const message = {
    id: messageId(start.id),
    type: "message",
    role: "assistant",
    model: context.model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    ...start.extensions,
    usage: completeUsage(start.usage ? encodeUsage(start.usage) : {}, context.estimatedInputTokens),
  };
  // Unknown members beside `message` are kept in the provider's text only.
  const whole = parseJsonText(rawJson(event) ?? "{}");
  return frame(
    "message_start",
    stringifyJson({ ...(isObject(whole) && whole), type: "message_start", message }),
  );
}

function encodeMessageDelta(delta: MessageDelta, outputTokens: number, showCost: boolean): string {
  const { stopReason, stopSequence, usage, deltaExtensions, cost } = delta;
  // `gateway` is ours: a provider's member of that name is dropped.
  const { gateway: _, ...extensions } = delta.extensions ?? {};
  return frame(
    "message_delta",
    stringifyJson({
      type: "message_delta",
      delta: {
        stop_reason: stopReason ?? null,
        stop_sequence: stopSequence ?? null,
        ...deltaExtensions,
      },
      usage: { ...(usage && encodeUsage(usage)), output_tokens: outputTokens },
      ...extensions,
      ...(showCost && cost && { gateway: encodeCost(cost) }),
    }),
  );
}

/**
 * An event that event.proto does not name, unchanged. Its type becomes its name in the stream, so
 * an event whose type could break the line is omitted.
 */
function encodeOther(event: JsonObject): string {
  const { type } = event;
  return typeof type === "string" && /^[\w.-]+$/.test(type)
    ? frame(type, stringifyJson(event))
    : "";
}

/** The provider's own JSON text on one line; undefined if the event does not keep it. */
function rawJson(event: Event): string | undefined {
  const { wireForm } = event;
  if (wireForm?.format !== Format.NATIVE || wireForm.data.length === 0) return undefined;
  const { buffer, byteOffset, byteLength } = wireForm.data;
  const text = Buffer.from(buffer, byteOffset, byteLength).toString();
  // In JSON, line ends occur only between tokens.
  return escapeLineSeparators(text).replaceAll(/[\r\n]/g, " ");
}

const forms: TextForm[] = [];
/** Answers have few blocks; a provider's number may be anything. */
const formsMax = 64;

/** The form of a text delta of block `index`, as this gateway writes it. */
export function textFormOf(index: number): TextForm {
  const known = forms[index];
  if (known) return known;
  const before = `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":{"type":"text_delta","text":"`;
  const form = { before, after: '"}}\n\n', index };
  if (index < formsMax) forms[index] = form;
  return form;
}
