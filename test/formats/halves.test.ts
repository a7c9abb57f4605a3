// Providers cut their text anywhere, also between the two halves of a surrogate pair. JSON writes
// each half as an escape of its own, and the client gets the character.

import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { decodeEvent } from "../../src/formats/native/decode-events.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { withoutRuns } from "../../src/formats/text-run.ts";
import {
  type AnswerContent,
  chatChunks,
  nativeEvents,
  responsesEvents,
} from "../support/provider-answers.ts";

const formats = {
  native: { codec: native, write: nativeEvents },
  chat: { codec: chat, write: chatChunks },
  responses: { codec: responses, write: responsesEvents },
} as const;

/** What the deltas of a stream say, in three kinds of text. */
type Texts = { text: string; thinking: string; input: string };

function textsOf(events: readonly Event[]): Texts {
  const texts = { text: "", thinking: "", input: "" };
  for (const { kind } of withoutRuns(events)) {
    if (kind.case !== "blockDelta") continue;
    const delta = kind.value.kind;
    if (delta.case === "text") texts.text += delta.value;
    if (delta.case === "thinking") texts.thinking += delta.value;
    if (delta.case === "inputJson") texts.input += delta.value;
  }
  return texts;
}

/** Text in which halves, escapes and quotes meet, cut at any of its code units. */
const pieces = fc
  .tuple(
    fc
      .array(fc.constantFrom("😀", "👩‍👩‍👧", "a", '"', "\\", "\\ud83d", "é", "\n", '"\\'), {
        minLength: 1,
        maxLength: 12,
      })
      .map((parts) => parts.join("")),
    fc.array(fc.nat(40), { maxLength: 6 }),
  )
  .map(([text, cuts]) => {
    const places = [...new Set(cuts.filter((cut) => cut > 0 && cut < text.length))];
    const ends = [...places.sort((one, other) => one - other), text.length];
    return ends.map((end, at) => text.slice(ends[at - 1] ?? 0, end));
  });

describe.for(Object.entries(formats))("an answer of a %s provider", ([, { codec, write }]) => {
  const read = (text: string, splitBytes: number, acceptsRuns: boolean): Event[] => {
    const decoder = codec.createEventDecoder(acceptsRuns);
    const bytes = Buffer.from(text);
    const events: Event[] = [];
    for (let at = 0; at < bytes.length; at += splitBytes)
      events.push(...decoder.push(bytes.subarray(at, at + splitBytes)));
    return [...events, ...decoder.end()];
  };

  test("has its characters whole, wherever its deltas and its bytes were cut", () => {
    fc.assert(
      fc.property(
        pieces,
        pieces,
        fc.integer({ min: 1, max: 200 }),
        fc.boolean(),
        (text, thinking, splitBytes, acceptsRuns) => {
          const content: AnswerContent = { text, thinking: { pieces: thinking } };
          const events = read(write(content).join(""), splitBytes, acceptsRuns);
          expect(textsOf(events)).toEqual({
            text: text.join(""),
            thinking: thinking.join(""),
            input: "",
          });
          expect(events.at(-1)?.kind.case).toBe("messageStop");
        },
      ),
    );
  });

  test("has whole characters in the arguments of a call", () => {
    const input = ['{"a":"\ud83d', '\ude00 and \\"\ud83d', '\ude00"}'];
    const events = read(write({ tool: { name: "f", input } }).join(""), 7, false);
    expect(textsOf(events).input).toBe(input.join(""));
  });

  test("has U+FFFD for a half that stays alone", () => {
    for (const text of [["a\ud83d", "b"], ["a", "\ude00b"], ["a\ud83d"], ["\ude00", "\ud83d"]]) {
      const events = read(write({ text }).join(""), 50, true);
      expect(textsOf(events).text).toBe(text.map((piece) => piece.toWellFormed()).join(""));
    }
  });
});

test("a native event that is passed on as it came has none either", () => {
  const start = (text: string): JsonObject => ({
    type: "content_block_start",
    index: 0,
    content_block: { type: "text", text },
    note: "of another day",
  });
  const event = decodeEvent("content_block_start", JSON.stringify(start("a\ud83d")));
  expect(JSON.parse(Buffer.from(event?.wireForm?.data ?? []).toString())).toEqual(start("a\ufffd"));
});
