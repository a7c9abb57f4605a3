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

  constructor(kind: Event["kind"], rawFormat: Format, piece: JsonObject) {
    this.kind = kind;
    this.rawFormat = rawFormat;
    this.piece = piece;
  }

  get raw(): Uint8Array<ArrayBuffer> {
    return Buffer.from(JSON.stringify(this.piece));
  }
}

/** An event of a piece. Without a kind, it means something to clients of its format alone. */
export function pieceEvent(
  format: Format,
  piece: JsonObject,
  kind: Event["kind"] = { case: undefined },
): Event {
  return new PieceEvent(kind, format, piece);
}

/** The piece of an event; undefined for one that has none. */
export function pieceOf(event: Event): JsonObject | undefined {
  if (event instanceof PieceEvent) return event.piece;
  if (event.raw.length === 0) return undefined;
  const value = parseJsonText(Buffer.from(event.raw).toString());
  return isObject(value) ? value : undefined;
}

/**
 * Marks the events from `from` on as those of `piece`. Reports ahead of the end are not part of an
 * answer, so they carry none.
 */
export function cover(events: Event[], from: number, format: Format, piece: JsonObject): void {
  let isCarried = false;
  for (let at = from; at < events.length; at++) {
    const event = events[at];
    if (!event || event.kind.case === "progress" || event.rawFormat === format) continue;
    if (isCarried) event.rawFormat = format;
    else events[at] = pieceEvent(format, piece, event.kind);
    isCarried = true;
  }
  if (!isCarried) events.push(pieceEvent(format, piece));
}
