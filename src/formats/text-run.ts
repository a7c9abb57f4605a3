// Runs of text deltas. Most reads from a provider are such a run: events that differ in their text
// alone. A listener in the same process may ask for runs. It then gets their text as the provider
// wrote it, so that no delta is parsed or written as JSON again.
//
// A run never changes what is sent or billed: it holds only texts that `JSON.stringify` would write
// in the same way, and a property test compares both ways. Everything else becomes ordinary events.

import type { JsonObject } from "@bufbuild/protobuf";
import type { BlockDelta, Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { blockDelta, newEvent } from "./events.ts";
import { isObject } from "./json.ts";

/**
 * The form of a text delta in one stream: an event is `before`, its text as a JSON string without
 * the quotes, and `after`, which ends with the blank line.
 */
export type TextForm = {
  readonly before: string;
  readonly after: string;
  readonly index: number;
  /** What a client of the provider's format gets of a delta with this text, if more than that. */
  readonly piece?: ((text: string, kind: Event["kind"]) => Event) | undefined;
};

/** Text deltas of one block that came one after the other in one read. */
export class TextRun {
  readonly form: TextForm;
  /** The events as they came. */
  readonly frames: string;
  /** Bytes of the text in UTF-8. */
  readonly textBytes: number;
  /** Where each text ends in `frames`. */
  readonly #ends: readonly number[];

  constructor(form: TextForm, frames: string, textBytes: number, ends: readonly number[]) {
    this.form = form;
    this.frames = frames;
    this.textBytes = textBytes;
    this.#ends = ends;
  }

  /** Calls `use` with the text of each delta, as a JSON string without its quotes. */
  eachText(use: (text: string) => void): void {
    const { before, after } = this.form;
    let from = before.length;
    for (const end of this.#ends) {
      use(this.frames.slice(from, end));
      from = end + after.length + before.length;
    }
  }

  /** The deltas as ordinary events of block `index`. */
  toDeltas(index: number): Event[] {
    const events: Event[] = [];
    this.eachText((text) => {
      const value: string = JSON.parse(`"${text}"`);
      const delta = blockDelta(index, { case: "text", value });
      events.push(this.form.piece?.(value, delta.kind) ?? delta);
    });
    return events;
  }
}

/** A delta with a run. Code that does not know runs sees one delta with the whole text. */
class RunDelta implements BlockDelta {
  readonly $typeName = "gateway.inference.v1.BlockDelta";
  index: number;
  readonly run: TextRun;

  constructor(index: number, run: TextRun) {
    this.index = index;
    this.run = run;
  }

  get kind(): BlockDelta["kind"] {
    let text = "";
    this.run.eachText((part) => {
      text += part;
    });
    const value: string = JSON.parse(`"${text}"`);
    return { case: "text", value };
  }
}

/** The event of a run for block `index`. */
export function runDelta(index: number, run: TextRun): Event {
  return newEvent({ case: "blockDelta", value: new RunDelta(index, run) });
}

/** The run of a delta. Undefined if it is an ordinary delta. */
export function runOf(delta: BlockDelta): TextRun | undefined {
  return delta instanceof RunDelta ? delta.run : undefined;
}

/** `events` with each run replaced by its deltas. */
export function withoutRuns(events: readonly Event[]): Event[] {
  return events.flatMap((event) => {
    if (event.kind.case !== "blockDelta") return event;
    const { value } = event.kind;
    return runOf(value)?.toDeltas(value.index) ?? event;
  });
}

/** How a format writes text deltas. */
export type TextDeltas = {
  /** Occurs in every event with a text delta. A cheap test before the event is parsed. */
  readonly mark: string;
  /** The text delta of an event. Undefined if the event has any other effect. */
  readonly read: (
    name: string,
    json: JsonObject,
  ) => (Pick<TextForm, "index" | "piece"> & { readonly text: string }) | undefined;
  /** The form to begin with. Undefined: the first delta is parsed to learn it. */
  readonly firstForm: TextForm | undefined;
};

/** A provider whose events differ in more than their text is not worth more attempts. */
const attemptsMax = 8;
const probe = "the probe for a text";

/** Finds the runs of one stream. */
export class TextRuns {
  readonly #deltas: TextDeltas;
  #attempts = 0;
  #form: TextForm | undefined;
  /** Of the text that `#endOfText` read last, in UTF-8. */
  #textBytes = 0;

  constructor(deltas: TextDeltas) {
    this.#deltas = deltas;
    this.#form = deltas.firstForm;
  }

  /** The run that begins at `from`, where an event begins. Undefined if there is none. */
  read(text: string, from: number): TextRun | undefined {
    const form = this.#form;
    if (form === undefined || !isAt(text, from, form.before)) return undefined;
    const { before, after } = form;
    const ends: number[] = [];
    let at = from;
    let textBytes = 0;
    do {
      const end = this.#endOfText(text, at + before.length);
      if (end < 0 || !isAt(text, end, after)) break;
      textBytes += this.#textBytes;
      ends.push(end - from);
      at = end + after.length;
    } while (isAt(text, at, before));
    return at === from ? undefined : new TextRun(form, text.slice(from, at), textBytes, ends);
  }

  /**
   * Learns the form of the event `name` with this data, if it is a text delta. `frame` is the whole
   * event as it came.
   */
  learn(name: string, data: string, frame: string): void {
    if (this.#attempts >= attemptsMax || !data.includes(this.#deltas.mark)) return;
    this.#attempts++;
    const delta = this.#read(name, data);
    // An event with several lines of data does not contain its data in one piece.
    if (!delta || frame.includes("\r") || !frame.endsWith(`${data}\n\n`)) return;
    const quoted = JSON.stringify(delta.text);
    // The same text may occur elsewhere in the event. It is the delta's where a probe in its place
    // is read as the delta's text.
    for (let at = data.indexOf(quoted); at >= 0; at = data.indexOf(quoted, at + 1)) {
      const [head, tail] = [data.slice(0, at + 1), data.slice(at + quoted.length - 1)];
      if (this.#read(name, head + probe + tail)?.text !== probe) continue;
      const before = frame.slice(0, frame.length - data.length - 2) + head;
      const { index, piece } = delta;
      this.#form = { before, after: `${tail}\n\n`, index, piece };
      return;
    }
  }

  #read(name: string, data: string) {
    try {
      const json = JSON.parse(data);
      return isObject(json) ? this.#deltas.read(name, json) : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * Where the JSON string ends whose content begins at `from`: the offset of its quote. -1 if it is
   * empty, does not end in `text`, or the gateway would write it in another way.
   */
  #endOfText(text: string, from: number): number {
    let bytes = 0;
    for (let at = from; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === quote) {
        this.#textBytes = bytes;
        return at === from ? -1 : at;
      }
      bytes++;
      if (code === backslash) {
        at++;
        // `\u….` is the long way to write some characters, and the only one for others.
        if (!shortEscapes.has(text.charCodeAt(at))) return -1;
      } else if (code < 0x20) return -1;
      else if (code >= 0x80) {
        if (lineEnds.has(code)) return -1;
        bytes += moreBytesOf(code);
      }
    }
    return -1;
  }
}

/** Line ends besides those of ASCII. */
const lineEnds = new Set([0x85, 0x2028, 0x2029]);

/** Bytes of a UTF-16 unit beyond ASCII after the first one. */
function moreBytesOf(code: number): number {
  // Each half of a surrogate pair stands for two of its four bytes.
  return code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 1 : 2;
}

/** As `text.startsWith(part, at)`, which compares long parts a character at a time. */
function isAt(text: string, at: number, part: string): boolean {
  return text.slice(at, at + part.length) === part;
}

const [quote, backslash] = [0x22, 0x5c];
/** The characters after the backslash of a short escape, without `\/`, which is never needed. */
const shortEscapes = new Set([...'"\\bfnrt'].map((one) => one.charCodeAt(0)));
