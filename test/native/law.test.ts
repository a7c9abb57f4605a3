// The law of the native format through the whole gateway: the provider receives the body that the
// client sent.

import { isDeepStrictEqual } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { decodeRequest } from "../../src/formats/native/native.ts";
import { shareOf } from "../support/arbitraries.ts";
import {
  type GatewayWithProvider,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { nativeAnswer } from "../support/provider-answers.ts";
import { closedNativeRequest } from "../support/samples/closed-list.ts";
import { anyBody } from "../support/samples/native-bodies.ts";

let native: GatewayWithProvider;
beforeAll(async () => {
  native = await startGatewayWithProvider("native");
  native.provider.always(nativeAnswer({ text: ["Hi"] }));
});
afterAll(() => native.stop());

test("any body reaches the provider unchanged, or is rejected and reaches no provider", async () => {
  await fc.assert(
    fc.asyncProperty(anyBody, async (generated) => {
      const body = { ...generated, model: "haiku", max_tokens: 50, stream: false };
      const before = native.provider.requests.length;
      const response = await native.post(body);
      const answer: unknown = await response.json();
      if (response.status === 200) {
        const received = JSON.parse(native.provider.requests.at(-1)?.bodyText ?? "");
        const target = { model: "provider-model", stream: false };
        const sent = JSON.parse(JSON.stringify(closedNativeRequest(body, target)));
        expect(isDeepStrictEqual(received, sent), JSON.stringify(received)).toBe(true);
      } else {
        expect(answer).toMatchObject({ error: { type: "invalid_request_error" } });
        expect(native.provider.requests.length).toBe(before);
      }
    }),
    { numRuns: 300 },
  );
  // Enough of them are passed on.
  const headers = { version: "2023-06-01", beta: "" };
  const isTaken = (body: JsonObject) => {
    try {
      return decodeRequest({ ...body, model: "haiku", max_tokens: 50 }, headers) !== undefined;
    } catch {
      return false;
    }
  };
  expect(shareOf(anyBody, isTaken)).toBeGreaterThan(0.4);
});
