// The answers of the dialects, whole and streamed, to clients of the provider's own format: they
// arrive as they came, but for the closed list and for members that the format requires and the
// provider left out.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import * as chat from "../../../src/formats/chat/chat.ts";
import { isObject } from "../../../src/formats/json.ts";
import * as native from "../../../src/formats/native/native.ts";
import * as responses from "../../../src/formats/responses/responses.ts";
import { context, readStream } from "../../support/samples/chat-bodies.ts";
import {
  closedChatAnswer,
  closedNativeAnswer,
  closedResponse,
} from "../../support/samples/closed-list.ts";
import { readableSealing } from "../../support/sealing.ts";
import { chatDialects } from "./chat-dialects.ts";
import type { Dialect } from "./dialect.ts";
import { nativeDialects } from "./native-dialects.ts";
import { responsesDialects } from "./responses-dialects.ts";

function bytesOf(lines: Dialect["stream"]): Buffer {
  const frames = lines.map((line) => {
    if (typeof line === "string") return `${line}\n\n`;
    const name = typeof line.type === "string" ? `event: ${line.type}\n` : "";
    return `${name}data: ${JSON.stringify(line)}\n\n`;
  });
  return Buffer.from(frames.join(""));
}

/** A chat answer with the members without which clients cannot read it. Made ids are `made`. */
function readable(answer: JsonObject): JsonObject {
  const choices = objectsIn(answer.choices).filter(({ index = 0 }) => index === 0);
  const messages = choices.map(({ message }) => message).filter(isObject);
  const [first = {}] = messages;
  const [{ delta, finish_reason: reason, ...choice } = {}] = choices;
  const calls = messages.flatMap(({ tool_calls: own }) => (isObject(own) ? [own] : objectsIn(own)));
  const message = {
    role: "assistant",
    content: calls.length > 0 ? null : "",
    ...first,
    ...(calls.length > 0 && { tool_calls: calls.map(readableCall) }),
  };
  const end = reason ?? (calls.length > 0 ? "tool_calls" : "stop");
  return { ...answer, choices: [{ index: 0, ...choice, message, finish_reason: end }] };
}

function readableCall({ id, function: called, ...call }: JsonObject): JsonObject {
  const { arguments: given, ...others } = isObject(called) ? called : {};
  const text = typeof given === "string" ? given : JSON.stringify(given ?? {});
  const isMade = typeof id !== "string" || id === "" || id.startsWith("toolu_");
  const filled = text.trim() === "" || text === "null" ? "{}" : text;
  return {
    type: "function",
    ...call,
    id: isMade ? "made" : id,
    function: { ...others, arguments: filled },
  };
}

function objectsIn(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

describe("a chat client", () => {
  test.for(chatDialects)("of $name gets the whole answer", ({ whole }) => {
    const received = chat.encodeAnswer(chat.decodeAnswer(whole), context);
    expect(closedChatAnswer(readable(received))).toEqual(closedChatAnswer(readable(whole)));
  });

  test.for(chatDialects)("of $name gets each piece of a stream in its order", ({ stream }) => {
    const decoder = chat.createEventDecoder(true);
    const encoder = chat.createEventEncoder(context);
    const events = [...decoder.push(bytesOf(stream)), ...decoder.end()];
    const received = readStream(encoder.encode(events)).filter(isObject);
    expect(piecesOf(received)).toEqual(piecesOf(stream.filter(isObject)));
  });
});

/** What the deltas of a stream say in their order, or the message where no delta says anything. */
function piecesOf(chunks: readonly JsonObject[]): JsonValue[] {
  const own = chunks.flatMap(({ choices }) =>
    objectsIn(choices).filter(({ index = 0 }) => index === 0),
  );
  const deltas = own.filter(({ delta }) => isObject(delta));
  return (deltas.length > 0 ? deltas : own)
    .flatMap(({ delta, message }) =>
      isObject(delta) ? [delta] : isObject(message) ? [message] : [],
    )
    .flatMap((delta) => Object.entries(delta))
    .filter(([name, value]) => name !== "role" && !isNothing(value))
    .map(([name, value]) =>
      name === "tool_calls" ? [name, ...callsIn(value).map(pieceOfCall)] : [name, value],
    );
}

const isNothing = (value: JsonValue) =>
  value === null || value === "" || (Array.isArray(value) && value.length === 0);

const callsIn = (value: JsonValue) => (isObject(value) ? [value] : objectsIn(value));

/** A fragment of a call, without what clients need and providers leave out. */
function pieceOfCall({ id, index, type, function: called, ...call }: JsonObject): JsonObject {
  return { ...call, ...(isObject(called) && called) };
}

describe("a native client", () => {
  const source = { writer: { format: Format.NATIVE, dialect: "generic", model: "m" } };
  const withSignature = (answer: JsonObject): JsonObject => ({
    stop_sequence: null,
    ...answer,
    content: objectsIn(answer.content).map((block) =>
      block.type === "thinking" ? { signature: "", ...block } : block,
    ),
  });

  test.for(nativeDialects)("of $name gets the whole answer", ({ whole }) => {
    const received = native.encodeAnswer(native.decodeAnswer(whole, source), context);
    expect(closedNativeAnswer(received)).toEqual(closedNativeAnswer(withSignature(whole)));
  });
});

describe("a client of the Responses format", () => {
  const source = { writer: { format: Format.RESPONSES, dialect: "generic", model: "m" } };
  const wishes = responses.readWishes({
    model: "m",
    input: "Hello",
    reasoning: { summary: "auto" },
  });
  const responsesContext = { ...context, wishes, sealing: readableSealing };

  test.for(responsesDialects)("of $name gets the whole answer", ({ whole }) => {
    const received = responses.encodeAnswer(
      responses.decodeAnswer(whole, source),
      responsesContext,
    );
    const shown = (answer: JsonObject) => withoutIds(closedResponse(answer, wishes.echo));
    expect(shown(received)).toEqual(shown(whole));
  });
});

/** Without the ids of items, and what is encrypted, which the client did not ask for. */
function withoutIds(answer: JsonObject): JsonObject {
  const output = objectsIn(answer.output).map(({ id, encrypted_content, ...item }) => item);
  return { ...answer, output };
}
