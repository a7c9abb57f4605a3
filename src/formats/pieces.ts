// Pieces: what a provider wrote, for a client of the same format, who gets it as it came. A piece
// is the wire form of the first event that was made of it; those of the other events have no data,
// and an encoder of that format skips them. An encoder of another format sees the events alone.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event, WireForm } from "../../gen/gateway/inference/v1/event_pb.ts";
import { newEvent, progressOf } from "./events.ts";
import { isObject, parseJsonText } from "./json.ts";

/** A piece as a value: it becomes bytes only where it leaves the process. */
class Piece implements WireForm {
  readonly $typeName = "gateway.inference.v1.WireForm";
  readonly format: Format;
  readonly value: JsonObject;
  readonly text: string | undefined;

  constructor(format: Format, value: JsonObject, text: string | undefined) {
    this.format = format;
    this.value = value;
    this.text = text;
  }

  get data(): Uint8Array<ArrayBuffer> {
    return Buffer.from(this.text ?? JSON.stringify(this.value));
  }
}

const noBytes = new Uint8Array(0);

/** The wire form of an event whose piece another event has. */
export function emptyForm(format: Format): WireForm {
  return { $typeName: "gateway.inference.v1.WireForm", format, data: noBytes };
}

/**
 * An event of a piece. Without a kind, it means something to clients of its format alone. `text`:
 * the JSON of the piece as it came, if the provider wrote no line break into it.
 */
export function pieceEvent(
  format: Format,
  piece: JsonObject,
  kind: Event["kind"] = { case: undefined },
  text?: string,
): Event {
  const event = newEvent(kind);
  event.wireForm = new Piece(format, piece, text);
  return event;
}

/** The piece of an event; undefined for one that has none. */
export function pieceOf({ wireForm }: Event): JsonObject | undefined {
  if (wireForm instanceof Piece) return wireForm.value;
  if (!wireForm || wireForm.data.length === 0) return undefined;
  const value = parseJsonText(Buffer.from(wireForm.data).toString());
  return isObject(value) ? value : undefined;
}

/** The JSON of the piece of an event as it came, where that is known. */
export function textOfPiece({ wireForm }: Event): string | undefined {
  return wireForm instanceof Piece ? wireForm.text : undefined;
}

/**
 * Marks the events from `from` on as those of `piece`, with its `text`. Reports ahead of the end
 * are not part of an answer, so they carry none.
 */
export function cover(
  events: Event[],
  from: number,
  format: Format,
  piece: JsonObject,
  text?: string,
): void {
  let isCarried = false;
  for (let at = from; at < events.length; at++) {
    const event = events[at];
    if (!event || progressOf(event) || event.wireForm?.format === format) continue;
    event.wireForm = isCarried ? emptyForm(format) : new Piece(format, piece, text);
    isCarried = true;
  }
  if (!isCarried) events.push(pieceEvent(format, piece, undefined, text));
}
