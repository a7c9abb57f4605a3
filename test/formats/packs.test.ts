// What one pack holds, and what becomes of packs that do not open.

import { randomBytes } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LeftOutReason } from "../../gen/gateway/common/v1/left_out_pb.ts";
import { type Attached, Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import * as native from "../../src/formats/native/native.ts";
import { attachedOf, Carried, type Sealing, sealPack } from "../../src/formats/packs.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { SealedContent } from "../../src/http/sealed-content.ts";
import { canonical } from "../support/canonical-json.ts";
import { grownNames } from "../support/samples/grow.ts";
import { anyValue } from "../support/samples/native-bodies.ts";

const dayMs = 24 * 3600 * 1000;
let nowMs = Date.UTC(2026, 10, 26);
const content = new SealedContent([randomBytes(32)], () => nowMs);
const sealing = content.sealingOf("acc_1");
const writer = { format: Format.CHAT, dialect: "openrouter", model: "a-model" };

const names = fc.oneof(fc.constantFrom(...grownNames, "signature"), fc.string({ maxLength: 8 }));
const members: fc.Arbitrary<JsonObject> = fc
  .array(fc.tuple(names, anyValue), { minLength: 1, maxLength: 5 })
  .map((entries) => Object.fromEntries(entries));
const attached: fc.Arbitrary<Attached> = fc
  .record({
    list: fc.constantFrom("", "reasoning_details", "content"),
    textMembers: fc.array(fc.constantFrom("text", "reasoning", "__proto__"), { maxLength: 2 }),
    members,
  })
  .map((given) => attachedOf(writer, given));

test("a pack gives back all that went into it", () => {
  fc.assert(
    fc.property(
      attached,
      fc.option(fc.string(), { nil: undefined }),
      fc.array(fc.tuple(names, attached), { maxLength: 3 }),
      (block, text, calls) => {
        const packed = {
          block,
          ...(text !== undefined && { text }),
          message: block,
          calls: Object.fromEntries(calls),
        };
        const carried = new Carried(sealing);
        const opened = carried.open(sealPack(packed, sealing) ?? "", "messages[0]");
        expect(canonical(JSON.parse(JSON.stringify(opened)))).toBe(
          canonical(JSON.parse(JSON.stringify(packed))),
        );
        expect(carried.leftOut).toEqual([]);
      },
    ),
    { numRuns: 300 },
  );
});

test("what would be a pack of more than 1 MiB is none, and one of nothing is none", () => {
  const of = (length: number) =>
    sealPack({ block: attachedOf(writer, { members: { data: "x".repeat(length) } }) }, sealing);
  expect(of(700_000)?.length).toBeLessThan(1024 * 1024);
  expect(of(800_000)).toBeUndefined();
  expect(sealPack({}, sealing)).toBeUndefined();
});

const decoders = {
  native: (sealed: string, by: Sealing) =>
    native.decodeRequest(
      {
        model: "m",
        max_tokens: 10,
        messages: [
          { role: "user", content: "Hello" },
          {
            role: "assistant",
            content: [
              { type: "thinking", thinking: "I know.", signature: sealed },
              { type: "text", text: "Hi" },
            ],
          },
          { role: "user", content: "Go on." },
        ],
      },
      { version: "2023-06-01", beta: "" },
      by,
    ),
  chat: (sealed: string, by: Sealing) =>
    chat.decodeRequest(
      {
        model: "m",
        messages: [
          { role: "user", content: "Hello" },
          {
            role: "assistant",
            content: "Hi",
            reasoning_details: [{ type: "reasoning.encrypted", data: sealed }],
          },
        ],
      },
      by,
    ),
  responses: (sealed: string, by: Sealing) =>
    responses.decodeRequest(
      {
        model: "m",
        input: [
          { role: "user", content: "Hello" },
          { type: "reasoning", summary: [], encrypted_content: sealed },
          { role: "assistant", content: "Hi" },
        ],
      },
      by,
    ),
};

describe.each(Object.entries(decoders))("a %s request", (_, decode) => {
  const block = attachedOf(writer, { members: { data: "secret" } });

  test("is decoded without a pack that does not open, and says why", () => {
    const sealed = sealPack({ block }, sealing) ?? "";
    expect(decode(sealed, sealing).origin?.leftOut).toEqual([]);
    const changed = `${sealed.slice(0, 40)}${sealed[40] === "A" ? "B" : "A"}${sealed.slice(41)}`;
    const cases: [string, Sealing, LeftOutReason][] = [
      [changed, sealing, LeftOutReason.CHANGED],
      [sealed, content.sealingOf("acc_2"), LeftOutReason.CHANGED],
      ["gw1.", sealing, LeftOutReason.CHANGED],
      [`gw1.${"A".repeat(1024 * 1024)}`, sealing, LeftOutReason.SIZE],
    ];
    for (const [given, by, why] of cases) {
      const request = decode(given, by);
      expect(request.origin?.leftOut).toMatchObject([{ what: "thinking", why, count: 1 }]);
      expect(JSON.stringify(request.messages)).not.toContain("secret");
    }
    nowMs += 31 * dayMs;
    expect(decode(sealed, sealing).origin?.leftOut).toMatchObject([{ why: LeftOutReason.AGE }]);
  });
});
