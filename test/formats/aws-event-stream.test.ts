import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { createAwsParser } from "../../src/formats/aws-event-stream.ts";
import * as native from "../../src/formats/native/native.ts";
import {
  awsFrame,
  awsFrames,
  chunkFrame,
  exceptionFrame,
  readAwsFrame,
} from "../support/aws-frames.ts";
import { type AnswerContent, nativeEvents } from "../support/provider-answers.ts";
import { kindsOf } from "../support/providers.ts";

const answers: Readonly<Record<string, AnswerContent>> = {
  text: { text: ["Hel", "lo, ", "wörld 👍"], usage: { input: 12, output: 5, cacheRead: 900 } },
  thinking: { thinking: { pieces: ["Let me ", "see."], signature: "c2ln" }, text: ["42"] },
  tool: { tool: { name: "read", input: ['{"path":', '"a.ts"}'] }, stopReason: "tool_use" },
};

function decode(bytes: Uint8Array, split = bytes.length): Event[] {
  const decoder = native.createEventDecoder(false, {}, createAwsParser());
  const events: Event[] = [];
  for (let at = 0; at < bytes.length; at += split)
    events.push(...decoder.push(bytes.subarray(at, at + split)));
  return [...events, ...decoder.end()];
}

const isComplete = (bytes: Uint8Array) => {
  try {
    return kindsOf(decode(bytes)).at(-1) === "messageStop";
  } catch {
    return false;
  }
};

describe.each(Object.entries(answers))("an answer with %s in frames", (_, content) => {
  const stream = Buffer.concat(awsFrames(content));

  test("has the events of the same answer as server-sent events", () => {
    const decoder = native.createEventDecoder();
    const sse = decoder.push(Buffer.from(nativeEvents(content).join("")));
    expect(decode(stream)).toEqual([...sse, ...decoder.end()]);
  });

  test("has the same events in every split", () => {
    const whole = decode(stream);
    for (const split of [1, 2, 7, 64, 1_000]) expect(decode(stream, split)).toEqual(whole);
    fc.assert(
      fc.property(fc.array(fc.nat(stream.length), { maxLength: 20 }), (cuts) => {
        const decoder = native.createEventDecoder(false, {}, createAwsParser());
        const places = [0, ...cuts.sort((one, other) => one - other), stream.length];
        const events = places.flatMap((at, index) =>
          decoder.push(stream.subarray(at, places[index + 1] ?? at)),
        );
        expect([...events, ...decoder.end()]).toEqual(whole);
      }),
    );
  });

  test("fails if any bit is another one", () => {
    fc.assert(
      fc.property(fc.nat(stream.length * 8 - 1), (bit) => {
        const bytes = Uint8Array.from(stream);
        bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        expect(isComplete(bytes)).toBe(false);
      }),
      { numRuns: 500 },
    );
  });

  test("keeps the frames before a broken or cut one of the same read", () => {
    const frames = awsFrames(content);
    const ends = frames.map((_, at) => Buffer.concat(frames.slice(0, at + 1)).length);
    fc.assert(
      fc.property(fc.nat(stream.length * 8 - 1), fc.boolean(), (bit, isCut) => {
        const at = bit >> 3;
        const whole = ends.filter((end) => end <= at).length;
        const bytes = Uint8Array.from(isCut ? stream.subarray(0, at) : stream);
        if (!isCut) bytes[at] = (bytes[at] ?? 0) ^ (1 << (bit & 7));
        const parser = createAwsParser();
        const events = [...parser.push(bytes), ...parser.end()];
        const expected = createAwsParser().push(stream.subarray(0, ends[whole - 1] ?? 0));
        expect(events.slice(0, whole)).toEqual(expected);
        const isBroken = !isCut || at !== (ends[whole - 1] ?? 0);
        expect(events.slice(whole).map(({ event }) => event)).toEqual(isBroken ? ["error"] : []);
      }),
    );
  });

  test("fails where it is cut off within a frame", () => {
    let end = 0;
    const ends = new Set(awsFrames(content).map((frame) => (end += frame.length)));
    for (let at = 1; at < stream.length; at++)
      if (!ends.has(at)) expect(isComplete(stream.subarray(0, at))).toBe(false);
  });
});

test("frames say the same here as in AWS's own codec", () => {
  const header = fc.record({
    name: fc.string({ minLength: 1, maxLength: 30, unit: "grapheme-ascii" }),
    value: fc.string({ unit: "grapheme" }),
  });
  fc.assert(
    fc.property(
      fc.array(header, { maxLength: 5 }),
      fc.string({ unit: "grapheme" }),
      (more, text) => {
        const others = more.filter(({ name }) => !name.startsWith(":") && name !== "__proto__");
        const frame = awsFrame(
          {
            ...Object.fromEntries(others.map(({ name, value }) => [name, value])),
            ":message-type": "event",
            ":event-type": "chunk",
          },
          JSON.stringify({ bytes: Buffer.from(text).toString("base64") }),
        );
        const { bytes } = JSON.parse(readAwsFrame(frame).text);
        const [event] = createAwsParser().push(frame);
        expect(event?.data).toBe(Buffer.from(bytes, "base64").toString());
      },
    ),
  );
});

test("events of other types are skipped", () => {
  const other = awsFrame({ ":message-type": "event", ":event-type": "metadata" }, "{}");
  expect(createAwsParser().push(other)).toEqual([]);
  const typed = awsFrame({ ":message-type": "event", ":event-type": "chunk" }, '{"bytes":"e30="}');
  expect(createAwsParser().push(Buffer.concat([other, typed]))).toEqual([
    { event: "", data: "{}" },
  ]);
});

test.each([
  ["throttlingException", "rate_limit_error"],
  ["modelTimeoutException", "timeout_error"],
  ["serviceUnavailableException", "overloaded_error"],
  ["validationException", "invalid_request_error"],
  ["modelStreamErrorException", "api_error"],
  ["internalServerException", "api_error"],
  ["somethingNew", "api_error"],
])("the exception %s in a frame is the failure %s", (name, type) => {
  const frames = awsFrames({ text: ["Hel", "lo"] });
  const cut = Buffer.concat([...frames.slice(0, 3), exceptionFrame(name, "Slow down.")]);
  const last = decode(cut).at(-1)?.kind;
  expect(last).toMatchObject({ case: "failure", value: { type, message: "Slow down." } });
});

const prelude = (size: number, headers: number) => {
  const frame = Buffer.from(chunkFrame("{}"));
  frame.writeUInt32BE(size, 0);
  frame.writeUInt32BE(headers, 4);
  return frame;
};

test("a frame above 25 MiB, and one shorter than its headers, is refused at its first bytes", async () => {
  const { crc32 } = await import("node:zlib");
  for (const [size, headers] of [
    [25 * 1024 * 1024 + 1, 0],
    [15, 0],
    [100, 90],
  ] as const) {
    const frame = prelude(size, headers);
    frame.writeUInt32BE(crc32(frame.subarray(0, 8)), 8);
    expect(createAwsParser().push(frame.subarray(0, 12))).toMatchObject([{ event: "error" }]);
  }
});

test("a frame of 25 MiB in small pieces is read once it is whole", () => {
  const text = "a".repeat(18 * 1024 * 1024);
  const frame = chunkFrame(text, "");
  expect(frame.length).toBeGreaterThan(24 * 1024 * 1024);
  const parser = createAwsParser();
  const events = [];
  for (let at = 0; at < frame.length; at += 65_536)
    events.push(...parser.push(frame.subarray(at, at + 65_536)));
  expect(events).toEqual([{ event: "", data: text }]);
});
