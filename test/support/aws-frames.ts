// Frames of the event stream of AWS, made by AWS's own codec.

import { EventStreamCodec } from "@smithy/eventstream-codec";
import { createSseParser } from "../../src/formats/sse.ts";
import { type AnswerContent, nativeEvents } from "./provider-answers.ts";

const codec = new EventStreamCodec(
  (bytes) => Buffer.from(bytes).toString("utf8"),
  (text) => Buffer.from(text, "utf8"),
);

export function awsFrame(headers: Readonly<Record<string, string>>, body: string): Uint8Array {
  return codec.encode({
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, { type: "string", value }]),
    ),
    body: Buffer.from(body),
  });
}

/** The headers and the text of a frame. Throws for a broken one. */
export function readAwsFrame(frame: Uint8Array): {
  headers: Record<string, unknown>;
  text: string;
} {
  const { headers, body } = codec.decode(frame);
  const values = Object.entries(headers).map(([name, { value }]) => [name, value]);
  return { headers: Object.fromEntries(values), text: Buffer.from(body).toString() };
}

const chunkHeaders = {
  ":event-type": "chunk",
  ":content-type": "application/json",
  ":message-type": "event",
};

/** One event of the native format, padded as Bedrock does to hide its length. */
export function chunkFrame(json: string, padding = "abcdefghijkl"): Uint8Array {
  const bytes = Buffer.from(json).toString("base64");
  return awsFrame(chunkHeaders, JSON.stringify({ bytes, p: padding }));
}

/** An exception in a frame, as after an answer that had begun. */
export function exceptionFrame(type: string, message: string): Uint8Array {
  const headers = {
    ":exception-type": type,
    ":content-type": "application/json",
    ":message-type": "exception",
  };
  return awsFrame(headers, JSON.stringify({ message }));
}

/** The frames of a streamed answer: the events of the native format without their names. */
export function awsFrames(content: AnswerContent = {}): Uint8Array[] {
  const parser = createSseParser();
  const events = [...parser.push(Buffer.from(nativeEvents(content).join(""))), ...parser.end()];
  const metrics = '"amazon-bedrock-invocationMetrics":{"inputTokenCount":999,"outputTokenCount":9}';
  return events.map(({ data }) =>
    chunkFrame(data === '{"type":"message_stop"}' ? `{"type":"message_stop",${metrics}}` : data),
  );
}
