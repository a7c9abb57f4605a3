// An incremental parser of server-sent events (HTML Standard, "Parsing an event stream").
//
// Written by hand: it reads bytes, bounds the size of an event, and keeps a last event that lacks
// its blank line. Relaying events unchanged also needs their byte ranges, which a parser of decoded
// text cannot report. A test compares it with the package `eventsource-parser`.

import { StringDecoder } from "node:string_decoder";
import { ApiError } from "../base/errors.ts";
import { mayHoldSurrogates } from "./json.ts";
import type { TextRun, TextRuns } from "./text-run.ts";

/** One event of a stream. */
export type SseEvent = {
  /** Value of the `event` field; empty when the event has none. */
  readonly event: string;
  /** Values of the `data` fields, joined by line feeds. */
  readonly data: string;
  /** A run of events instead of one; `event` and `data` are then empty. */
  readonly run?: TextRun;
  /** Present if the data may escape surrogates. */
  readonly hasSurrogates?: true;
};

/** Most characters of one event. No working provider sends more. */
export const sseEventMax = 10 * 1024 * 1024;

/** Parses an event stream in any split of its bytes. */
export interface SseParser {
  /**
   * The events that `bytes` complete. Throws `upstream_error` if one exceeds `sseEventMax`.
   */
  push(bytes: Uint8Array): SseEvent[];
  /** The last event, if the stream ended without the blank line after it. */
  end(): SseEvent[];
}

/**
 * With `runs`, the events of runs come as one. Where a provider cut its text inside of a character,
 * an event ends with the first half of a surrogate pair: it waits for the next event, which then
 * has both halves.
 *
 * The loop over lines is one function: what it reads for each line are variables of its own, and
 * every line of every stream comes through it.
 */
export function createSseParser(runs?: TextRuns): SseParser {
  // Holds back the bytes of a character that continues in the next read.
  const decoder = new StringDecoder("utf8");
  let started = false;
  let afterCarriageReturn = false;
  /**
   * The pieces of the unfinished line. They are joined once, at its end, because joining them with
   * every read would copy a long line each time.
   */
  let pieces: string[] = [];
  let piecesLength = 0;
  let event = "";
  let data: string | undefined;
  /** True if an event of this read may have a half of a character. */
  let mayHoldHalf = false;
  /** The last event, which ends with the first half of a character. */
  let held: SseEvent | undefined;

  /** Reads the line of `text` from `from` to `end`. */
  const readLine = (text: string, from: number, end: number, events: SseEvent[]): void => {
    if (from === end) {
      if (data !== undefined) addEvent({ event, data }, events);
      event = "";
      data = undefined;
      return;
    }
    // Fast path: nearly every line of a provider has one of these two forms.
    if (text.startsWith("data: ", from)) addData(text.slice(from + 6, end));
    else if (text.startsWith("event: ", from)) event = text.slice(from + 7, end);
    else readField(text.slice(from, end));
  };

  const addEvent = (one: SseEvent, events: SseEvent[]): void => {
    if (mayHoldSurrogates(one.data)) {
      mayHoldHalf = true;
      events.push({ ...one, hasSurrogates: true });
    } else events.push(one);
  };

  /** `events` with the halves of a character in one of them. */
  const joinHalves = (events: readonly SseEvent[]): SseEvent[] => {
    const joined: SseEvent[] = [];
    mayHoldHalf = false;
    for (let one of events) {
      if (held) {
        const [first, second] = moveHalf(held, one);
        joined.push(first);
        one = second;
      }
      held = halfAt(one, firstHalf) === undefined ? undefined : one;
      if (!held) joined.push(one);
    }
    return joined;
  };

  const readField = (line: string): void => {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") addData(value);
    else if (field === "event") event = value;
    // A line that starts with a colon is a comment. `id`, `retry` and unknown fields are ignored.
  };

  /** Reads the unfinished line, which `last` completes. */
  const readPieces = (last: string, events: SseEvent[]): void => {
    pieces.push(last);
    const line = pieces.join("");
    pieces = [];
    piecesLength = 0;
    readLine(line, 0, line.length, events);
  };

  const addData = (value: string): void => {
    data = data === undefined ? value : `${data}\n${value}`;
    if (data.length > sseEventMax) throw tooLarge();
  };

  /** A read without the mark at the start of a stream, and the rest of a line end before it. */
  const withoutJoin = (chunk: string): string => {
    if (chunk === "") return chunk;
    let text = chunk;
    if (!started && text.startsWith("\uFEFF")) text = text.slice(1);
    started = true;
    // CR LF is one line end, even if a read ends between the two.
    if (afterCarriageReturn && text !== "") {
      afterCarriageReturn = false;
      if (text.startsWith("\n")) text = text.slice(1);
    }
    return text;
  };

  const keepPiece = (piece: string): void => {
    pieces.push(piece);
    piecesLength += piece.length;
    if (piecesLength > sseEventMax) throw tooLarge();
  };

  // biome-ignore lint/complexity/noExcessiveCognitiveComplexity: one loop for each line
  const read = (chunk: string): SseEvent[] => {
    const events: SseEvent[] = [];
    const text = withoutJoin(chunk);
    // A lone carriage return ends a line, too. Most providers send none, so that each line costs
    // one search.
    let carriageReturn = text.indexOf("\r");
    let from = 0;
    // Where the event began. -1 if it began in an earlier read.
    let frameStart = -1;
    for (;;) {
      if (runs && pieces.length === 0 && data === undefined && event === "") {
        frameStart = from;
        const run = runs.read(text, from);
        if (run) {
          events.push({ event: "", data: "", run });
          from += run.frames.length;
          continue;
        }
      }
      let end = text.indexOf("\n", from);
      let next = end + 1;
      if (carriageReturn >= 0 && (end < 0 || carriageReturn < end)) {
        end = carriageReturn;
        next = text[end + 1] === "\n" ? end + 2 : end + 1;
        afterCarriageReturn = next === text.length && next === end + 1;
        carriageReturn = text.indexOf("\r", next);
      }
      if (end < 0) break;
      if (runs && from === end && data !== undefined && frameStart >= 0)
        runs.learn(event, data, text.slice(frameStart, next));
      if (pieces.length === 0) readLine(text, from, end, events);
      else readPieces(text.slice(from, end), events);
      from = next;
    }
    if (from < text.length) keepPiece(from === 0 ? text : text.slice(from));
    return mayHoldHalf || held ? joinHalves(events) : events;
  };

  return {
    push: (bytes) => read(decoder.write(bytes)),
    end() {
      const events = read(decoder.end());
      if (pieces.length > 0) readPieces("", events);
      readLine("", 0, 0, events);
      const joined = joinHalves(events);
      return held ? [...joined, held] : joined;
    },
  };
}

/** The escape of a first half at the end of a JSON string, and of a second half at the start. */
const firstHalf = /\\u[dD][89abAB][\da-fA-F]{2}"/g;
const secondHalf = /"\\u[dD][c-fC-F][\da-fA-F]{2}/g;
const halfLength = "\\ud83d".length;

/** Where the one such half of an event begins. Undefined: there is none, or more than one. */
function halfAt({ data, hasSurrogates }: SseEvent, half: RegExp): number | undefined {
  if (!hasSurrogates) return undefined;
  const [found, ...others] = [...data.matchAll(half)].filter(
    ({ index }) => !isEscaped(data, index),
  );
  return others.length === 0 ? found?.index : undefined;
}

/** True if an odd number of backslashes stands before this place. */
function isEscaped(text: string, at: number): boolean {
  let from = at;
  while (text[from - 1] === "\\") from--;
  return (at - from) % 2 === 1;
}

/** Two events after one another, with the first half of a character before its second. */
function moveHalf(first: SseEvent, second: SseEvent): [SseEvent, SseEvent] {
  const [from, quote] = [halfAt(first, firstHalf), halfAt(second, secondHalf)];
  const continues = first.event === second.event && from !== undefined && quote !== undefined;
  if (!continues) return [first, second];
  const half = first.data.slice(from, from + halfLength);
  const [before, after] = [second.data.slice(0, quote + 1), second.data.slice(quote + 1)];
  return [
    { ...first, data: first.data.slice(0, from) + first.data.slice(from + halfLength) },
    { ...second, data: before + half + after },
  ];
}

function tooLarge(): ApiError {
  return new ApiError("upstream_error", {
    message: "The model provider sent an event that is too large.",
  });
}
