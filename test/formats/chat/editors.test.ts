// Request bodies of editors, written by hand after each editor's documented behaviour, and the
// native bodies that providers receive for them.

import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { decodeRequest } from "../../../src/formats/chat/chat.ts";
import { encodeRequest } from "../../../src/formats/native/native.ts";
import {
  decodeRequest as decodeResponses,
  fromChatPath,
  isOfChatPath,
} from "../../../src/formats/responses/responses.ts";

const folder = new URL("./fixtures/", import.meta.url);

for (const file of readdirSync(folder)) {
  const { client, body, native } = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
  test(client, () => {
    const request = isOfChatPath(body) ? decodeResponses(fromChatPath(body)) : decodeRequest(body);
    const sent = encodeRequest(request, {
      model: request.model,
      stream: request.origin?.streamed === true,
    });
    // As JSON, because the provider reads that.
    expect(JSON.parse(JSON.stringify(sent))).toEqual(native);
    if (body.reasoning_effort !== undefined)
      expect(request.origin?.reasoningEffort).toBe(body.reasoning_effort);
  });
}
