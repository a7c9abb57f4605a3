// Pieces: what a provider wrote, for a client of the same format, who gets it as it came. A piece
// is the `raw` of the first event that was made of it; the other events have its format only, and
// an encoder of that format skips them. An encoder of another format sees the events alone.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { isObject, parseJsonText } from "./json.ts";

/** An event with its piece as a value: it becomes bytes only where it leaves the process. */
class PieceEvent implements Event {
  readonly $typeName = "gateway.inference.v1.Event";
  readonly kind: Event["kind"];
  readonly rawFormat: Format;
  readonly piece: JsonObject;
  readonly text: string | undefined;

  constructor(kind: Event["kind"], rawFormat: Format, piece: JsonObject, text: string | undefined) {
    this.kind = kind;
    this.rawFormat = rawFormat;
    this.piece = piece;
    this.text = text;
  }

  get raw(): Uint8Array<ArrayBuffer> {
    return Buffer.from(this.text ?? JSON.stringify(this.piece));
  }
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
  return new PieceEvent(kind, format, piece, text);
}

/** The piece of an event; undefined for one that has none. */
export function pieceOf(event: Event): JsonObject | undefined {
  if (event instanceof PieceEvent) return event.piece;
  if (event.raw.length === 0) return undefined;
  const value = parseJsonText(Buffer.from(event.raw).toString());
  return isObject(value) ? value : undefined;
}

/** The JSON of the piece of an event as it came, where that is known. */
export function textOfPiece(event: Event): string | undefined {
  return event instanceof PieceEvent ? event.text : undefined;
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
    if (!event || event.kind.case === "progress" || event.rawFormat === format) continue;
    if (isCarried) event.rawFormat = format;
    else events[at] = pieceEvent(format, piece, event.kind, text);
    isCarried = true;
  }
  if (!isCarried) events.push(pieceEvent(format, piece, undefined, text));
}
