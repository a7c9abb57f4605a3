// The law of the chat format: a provider of this format receives what its client sent, and the
// client what the provider answered, but for the closed list.

import { fromBinary, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type Event, EventSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { GenerateRequestSchema } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import {
  createEventDecoder,
  createEventEncoder,
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
} from "../../../src/formats/chat/chat.ts";
import { isObject } from "../../../src/formats/json.ts";
import { withoutRuns } from "../../../src/formats/text-run.ts";
import { canonical } from "../../support/canonical-json.ts";
import { context, readStream, streamOf } from "../../support/samples/chat-bodies.ts";
import { chatAnswer, chatBody, chatStream } from "../../support/samples/chat-law.ts";
import { closedChatAnswer, closedChatRequest } from "../../support/samples/closed-list.ts";
import { grown, reads } from "../../support/samples/grow.ts";

const target = { model: "provider-name", stream: true };
const cuts = fc.array(fc.nat(5000), { maxLength: 8 });

test("a provider receives the body that the client sent", () => {
  fc.assert(
    fc.property(grown(chatBody), fc.boolean(), (body, stream) => {
      const before = JSON.stringify(body);
      const to = { ...target, stream };
      const sent = encodeRequest(decodeRequest(body), to);
      expect(canonical(sent)).toBe(canonical(closedChatRequest(body, to)));
      expect(JSON.stringify(body)).toBe(before);
    }),
    { numRuns: 1000 },
  );
});

test("the law holds after protobuf serialisation too", () => {
  fc.assert(
    fc.property(grown(chatBody), (body) => {
      const request = decodeRequest(body);
      const read = fromBinary(GenerateRequestSchema, toBinary(GenerateRequestSchema, request));
      expect(canonical(encodeRequest(read, target))).toBe(
        canonical(closedChatRequest(body, target)),
      );
    }),
    { numRuns: 200 },
  );
});

/** An answer as clients get it, without what is on the closed list. */
const plain = (answer: JsonObject) => canonical(closedChatAnswer(answer));

/** Members that the format promises. */
function completed(answer: JsonObject): JsonObject {
  const [choice] = Array.isArray(answer.choices) ? answer.choices : [];
  return isObject(choice) ? { ...answer, choices: [choice] } : answer;
}

test("a client receives the plain answer that the provider gave", () => {
  fc.assert(
    fc.property(grown(chatAnswer), (answer) => {
      const events = decodeAnswer(answer);
      expect(plain(encodeAnswer(events, context))).toBe(plain(completed(answer)));
      // The events leave the process where the listener is another one.
      expect(plain(encodeAnswer(events.map(travelled), context))).toBe(plain(completed(answer)));
    }),
    { numRuns: 500 },
  );
});

function travelled(event: Event): Event {
  return fromBinary(EventSchema, toBinary(EventSchema, event));
}

/** The choices of a stream in their order, as `openai` reads them, one for each chunk. */
function choicesOf(chunks: readonly JsonObject[]): JsonObject[] {
  return chunks.flatMap(({ choices }) =>
    (Array.isArray(choices) ? choices : []).filter(isObject).flatMap(withoutSplit),
  );
}

/** Text and reason may come apart: a reason waits for the charge. */
function withoutSplit({ finish_reason: reason = null, ...choice }: JsonObject): JsonObject[] {
  const isLast = typeof reason === "string";
  const hasContent = isObject(choice.delta) && Object.keys(choice.delta).length > 0;
  if (!isLast || !hasContent) return [{ ...choice, finish_reason: reason }];
  return [
    { ...choice, finish_reason: null },
    { index: 0, delta: {}, finish_reason: reason },
  ];
}

test("a client receives every piece of a stream in its order, in any split of its bytes", () => {
  fc.assert(
    fc.property(grownStream(), cuts, fc.boolean(), (chunks, places, hasRuns) => {
      const bytes = streamOf(...chunks, "[DONE]");
      const decoder = createEventDecoder(hasRuns);
      const encoder = createEventEncoder(context);
      const all: Event[] = [];
      let text = "";
      const take = (events: Event[]) => {
        all.push(...events);
        text += encoder.encode(events);
      };
      for (const read of reads(bytes.toString(), places)) take(decoder.push(read));
      take(decoder.end());
      const received = readStream(text).filter((chunk) => chunk !== "[DONE]");
      expect(choicesOf(received).map(canonical)).toEqual(choicesOf(chunks).map(canonical));
      expect(toplevel(received)).toEqual(toplevel(chunks));

      // Over gRPC, without runs.
      const far = createEventEncoder(context);
      const sent = far.encode(withoutRuns(all).map(travelled));
      expect(withoutIds(sent)).toBe(withoutIds(text));
      // A plain client gets the same as one that folds the pieces.
      const whole = encodeAnswer(all, context);
      const folded = encodeAnswer(withoutRuns(all).map(travelled), context);
      expect(plain(whole)).toBe(plain(folded));
    }),
    { numRuns: 500 },
  );
});

function grownStream(): fc.Arbitrary<JsonObject[]> {
  const streams = chatStream.map((chunks): JsonObject => ({ chunks }));
  return grown(streams).map(({ chunks }) => (Array.isArray(chunks) ? chunks : []).filter(isObject));
}

const withoutIds = (text: string) => text.replace(/chatcmpl-\w+/g, "");

/** The members of the chunks with a choice that a client gets beside it. */
function toplevel(chunks: readonly JsonObject[]): JsonValue[] {
  return chunks
    .filter(({ choices }) => Array.isArray(choices) && choices.length > 0)
    .flatMap(({ system_fingerprint, service_tier }) => {
      const members = JSON.stringify({ system_fingerprint, service_tier });
      return members === "{}" ? [] : [members];
    });
}
