// The dialects of providers and servers, whole and streamed, through a whole gateway to clients of
// all formats: the meaning of the answer stays the same.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type GatewayWithProvider,
  providerFormats,
  readEvents,
  smallBody,
  startGatewayWithProvider,
} from "../../support/gateway-with-provider.ts";
import type { Script } from "../../support/provider.ts";
import { chatDialects } from "./chat-dialects.ts";
import type { Dialect } from "./dialect.ts";
import { nativeDialects, programmaticStart } from "./native-dialects.ts";
import {
  complete,
  inChat,
  inResponse,
  joinChat,
  joinNative,
  joinResponse,
  readChat,
  readNative,
  readResponse,
} from "./read-answer.ts";
import { responsesDialects } from "./responses-dialects.ts";

const dialects = { native: nativeDialects, chat: chatDialects, responses: responsesDialects };

function frame(line: JsonObject | string): string {
  if (typeof line === "string") return `${line}\n\n`;
  const name = typeof line.type === "string" ? `event: ${line.type}\n` : "";
  return `${name}data: ${JSON.stringify(line)}\n\n`;
}

const streamed = (lines: Dialect["stream"]): Script => ({
  headers: { "content-type": "text/event-stream" },
  writes: lines.map(frame),
});
const plain = (body: JsonObject): Script => ({
  headers: { "content-type": "application/json" },
  writes: [JSON.stringify(body)],
});

async function bodyOf(answer: Response): Promise<JsonObject> {
  const body: JsonObject = JSON.parse(await answer.text());
  return body;
}

const chatBody = { ...smallBody, stream_options: { include_usage: true } };
const responsesBody = {
  model: smallBody.model,
  max_output_tokens: smallBody.max_tokens,
  input: "Hello",
  reasoning: { summary: "auto" },
};

describe.each(providerFormats)("a %s provider", (format) => {
  let parts: GatewayWithProvider;
  beforeAll(async () => {
    parts = await startGatewayWithProvider(format);
  });
  afterAll(() => parts.stop());

  const answerWith = ({ whole, stream }: Pick<Dialect, "whole" | "stream">) =>
    parts.provider.always((request) =>
      request.body.stream === true ? streamed(stream) : plain(whole),
    );

  test.each(dialects[format])("$name: clients of all formats get its meaning", async (dialect) => {
    answerWith(dialect);
    const meaning = complete(dialect.meaning);
    const postResponses = (body: JsonObject) => parts.postChat(body, "/v1/responses");
    const [native, nativeStream, chat, chatStream, response, responseStream] = await Promise.all([
      parts.post(smallBody).then(bodyOf),
      parts.post({ ...smallBody, stream: true }).then((answer) => answer.text()),
      parts.postChat(smallBody).then(bodyOf),
      parts.postChat({ ...chatBody, stream: true }).then((answer) => answer.text()),
      postResponses(responsesBody).then(bodyOf),
      postResponses({ ...responsesBody, stream: true }).then((answer) => answer.text()),
    ]);
    expect(readNative(native)).toEqual(meaning);
    expect(readNative(joinNative(nativeStream))).toEqual(meaning);
    expect(readChat(chat)).toEqual(inChat(meaning));
    expect(readChat(joinChat(chatStream))).toEqual(inChat(meaning));
    expect(readResponse(response)).toEqual(inResponse(meaning));
    expect(readResponse(joinResponse(responseStream))).toEqual(inResponse(meaning));
  });
});

test("the corpus has at least 25 dialects, each with a name of its own", () => {
  const names = Object.values(dialects).flatMap((list) => list.map(({ name }) => name));
  expect(new Set(names).size).toBe(names.length);
  expect(names.length).toBeGreaterThanOrEqual(25);
});

describe("a native provider", () => {
  let parts: GatewayWithProvider;
  beforeAll(async () => {
    parts = await startGatewayWithProvider("native");
  });
  afterAll(() => parts.stop());

  test("a programmatic tool call reaches a native client unchanged, and a whole one too", async () => {
    parts.provider.always(streamed([programmaticStart, { type: "message_stop" }]));
    const answer = await parts.post({ ...smallBody, stream: true });
    const [start, ...rest] = readEvents(await answer.text());
    expect(start).toEqual({
      type: "message_start",
      message: { ...Object(programmaticStart.message), model: "model-haiku-4.5" },
    });
    // Its cost needs an event that the provider did not send.
    expect(rest).toMatchObject([
      {
        type: "message_delta",
        delta: { stop_reason: "tool_use", stop_sequence: null },
        usage: { output_tokens: 8 },
        gateway: { cost_credits: "0.0084" },
      },
      { type: "message_stop" },
    ]);
    const long = await parts.post({ ...smallBody, max_tokens: 8_000 });
    expect(await long.json()).toMatchObject({
      content: Object(programmaticStart.message).content,
      stop_reason: "tool_use",
      usage: { input_tokens: 20, output_tokens: 8 },
    });
  });

  test("of a request with instructions only, the last one is the user's message", async () => {
    parts.provider.always(plain(Object(nativeDialects[0]).whole));
    const messages = ["Be brief.", "Say hello."].map((content) => ({ role: "system", content }));
    const answer = await parts.postChat({ model: "haiku", max_tokens: 100, messages });
    expect(answer.status).toBe(200);
    expect(parts.provider.requests.at(-1)?.body).toMatchObject({
      system: "Be brief.",
      messages: [{ role: "user", content: "Say hello." }],
    });
  });
});
