// The law of the native format: a native provider receives exactly the body that the client sent.

import { isDeepStrictEqual } from "node:util";
import { create, fromBinary, type JsonObject, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  GenerateRequestSchema,
  OriginSchema,
} from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { decodeRequest, encodeRequest } from "../../../src/formats/native/native.ts";
import { canonical } from "../../support/canonical-json.ts";
import { closedNativeRequest } from "../../support/samples/closed-list.ts";
import { anyBlock, anyBody } from "../../support/samples/native-bodies.ts";

const headers = { version: "2023-06-01", beta: "a,b" };
const target = { model: "provider-name", stream: true };

const expected = (body: JsonObject) => closedNativeRequest(body, target);

test("a native provider receives the body that the client sent", () => {
  fc.assert(
    fc.property(anyBody, (body) => {
      const sent = encodeRequest(decodeRequest(body, headers), target);
      expect(canonical(sent)).toBe(canonical(expected(body)));
      expect(
        isDeepStrictEqual(
          JSON.parse(JSON.stringify(sent)),
          JSON.parse(JSON.stringify(expected(body))),
        ),
      ).toBe(true);
    }),
    { numRuns: 2000 },
  );
});

test("decoding does not change the body", () => {
  fc.assert(
    fc.property(anyBody, (body) => {
      const before = JSON.stringify(body);
      encodeRequest(decodeRequest(body, headers), target);
      expect(JSON.stringify(body)).toBe(before);
    }),
  );
});

test("tool input, schemas and unknown values keep the order of their members", () => {
  const ordered = { z: 1, a: { y: [], b: null }, m: [{ q: 1, c: 2 }] };
  const body = {
    model: "m",
    max_tokens: 1,
    messages: [
      {
        role: "assistant",
        content: [
          { type: "tool_use", id: "t", name: "n", input: ordered },
          { type: "newest", x: ordered },
        ],
        extra: ordered,
      },
    ],
    tools: [{ name: "n", input_schema: ordered, extra: ordered }],
    output_config: { format: ordered },
    extra: ordered,
  };
  const sent = encodeRequest(decodeRequest(body, headers), target);
  expect(JSON.stringify(sent).split(JSON.stringify(ordered)).length - 1).toBe(7);
});

test("the law holds after protobuf serialisation too", () => {
  fc.assert(
    fc.property(anyBody, (body) => {
      const request = decodeRequest(body, headers);
      const received = fromBinary(GenerateRequestSchema, toBinary(GenerateRequestSchema, request));
      expect(canonical(encodeRequest(received, target))).toBe(canonical(expected(body)));
    }),
  );
});

test("headers that are part of the request are kept with it", () => {
  const request = decodeRequest(
    { model: "m", max_tokens: 1, messages: [{ role: "user", content: "x" }] },
    headers,
  );
  expect(request.origin).toMatchObject({
    format: Format.NATIVE,
    vendorVersion: "2023-06-01",
    vendorBeta: "a,b",
  });
});

test("extensions of a chat request are not passed on", () => {
  const body = {
    model: "m",
    max_tokens: 1,
    messages: [
      { role: "user", content: [{ type: "text", text: "x", y: 1 }], z: 1 },
      { role: "assistant", content: [{ type: "text", text: "x" }, { type: "odd" }] },
    ],
    w: 1,
  };
  const request = {
    ...decodeRequest(body, headers),
    origin: create(OriginSchema, { format: Format.CHAT }),
  };
  expect(encodeRequest(request, target)).toEqual({
    model: "provider-name",
    max_tokens: 1,
    stream: true,
    messages: [
      { role: "user", content: "x" },
      { role: "assistant", content: "x" },
    ],
  });
});

test("blocks of the history are unchanged, including empty thinking with a signature", () => {
  const blocks = [
    { type: "thinking", thinking: "", signature: "c2ln" },
    { type: "thinking", thinking: "hm", signature: "c2ln" },
    { type: "redacted_thinking", data: "b3BhcXVl" },
    { type: "tool_use", id: "toolu_1", name: "f", input: {} },
    { type: "tool_use", id: "toolu_2", name: "f", input: "not an object" },
    { type: "tool_result", tool_use_id: "toolu_1" },
    { type: "tool_result", tool_use_id: "toolu_1", content: "" },
    { type: "tool_result", tool_use_id: "toolu_1", content: [], is_error: false },
    { type: "tool_result", tool_use_id: "toolu_1", content: null, is_error: null },
    { type: "text", text: "x", citations: null, cache_control: null },
    { type: "text", text: "x", cache_control: { type: "ephemeral", ttl: "1h", scope: "global" } },
  ];
  const body = { model: "m", max_tokens: 1, messages: [{ role: "assistant", content: blocks }] };
  expect(encodeRequest(decodeRequest(body, headers), target).messages).toStrictEqual(body.messages);
});

test("any block is passed on", () => {
  fc.assert(
    fc.property(fc.array(anyBlock), (content) => {
      const body = { model: "m", max_tokens: 1, messages: [{ role: "user", content }] };
      const sent = encodeRequest(decodeRequest(body, headers), target);
      expect(canonical(sent)).toBe(canonical(expected(body)));
    }),
    { numRuns: 1000 },
  );
});
