// The generation that the HTTP listener gives to inference.

import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ReceiptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { AdmissionSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Generate, Generation } from "../../src/contract/generation.ts";
import {
  answerOf,
  chatBody,
  chatHeaders,
  nativeBody,
  nativeHeaders,
  post,
  startHttpServer,
} from "../support/http-server.ts";

const formats = [
  { path: "/v1/messages", headers: nativeHeaders, body: nativeBody },
  { path: "/v1/chat/completions", headers: chatHeaders, body: chatBody },
];

/** Sends a request, and returns what inference gets of it. */
async function send(
  { path, headers, body }: (typeof formats)[number],
  more: object = {},
  moreHeaders: Record<string, string> = {},
): Promise<Generation> {
  let seen: Generation | undefined;
  const generate: Generate = async (generation) => {
    seen = generation;
    const { sink } = generation;
    sink.admit(create(AdmissionSchema));
    for (const { kind } of answerOf("Hello"))
      if (kind.case === "events") sink.write(kind.value.events);
    return create(ReceiptSchema);
  };
  const { url } = await startHttpServer({ generate });
  const answer = await post(url, path, { ...headers, ...moreHeaders }, { ...body, ...more });
  expect(answer.status).toBe(200);
  await answer.text();
  return seen ?? expect.unreachable("nothing was generated");
}

test.each(formats)(
  "$path takes runs of text for a stream, and for nothing else",
  async (format) => {
    expect((await send(format, { stream: true })).sink.takesRuns).toBe(true);
    expect((await send(format)).sink.takesRuns).toBe(false);
  },
);

test.each(formats)(
  "$path says that it made the request id, unless the client proposed it",
  async (format) => {
    const [own, odd] = [await send(format), await send(format, {}, { "x-request-id": "not one" })];
    expect([own.isNewId, odd.isNewId]).toEqual([true, true]);
    const proposed = await send(format, {}, { "x-request-id": "req_proposed123" });
    expect(proposed).toMatchObject({ isNewId: false, requestId: "req_proposed123" });
  },
);

test.each(formats)("$path passes the credential and the count of repeats on", async (format) => {
  const { headers } = await send(format, {}, { "x-stainless-retry-count": "2" });
  expect(headers.get("x-stainless-retry-count")).toBe("2");
  expect(headers.get("authorization")).toMatch(/^Bearer sk-/);
});
