import type { JsonValue } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { decodeRequest, encodeRequest } from "../../../src/formats/native/native.ts";

function fold(messages: JsonValue[]): JsonValue | undefined {
  const request = decodeRequest({ model: "m", max_tokens: 1, messages }, { version: "", beta: "" });
  return encodeRequest(request, { model: "m", stream: false, foldSystem: true }).messages;
}
const reminder = (text: string) => ({
  type: "text",
  text: `<system-reminder>\n${text}\n</system-reminder>`,
});

test("a system message becomes the last block of the user message before it", () => {
  const messages = [
    { role: "user", content: "hi" },
    { role: "system", content: "be brief" },
    { role: "assistant", content: "ok" },
  ];
  expect(fold(messages)).toEqual([
    { role: "user", content: [{ type: "text", text: "hi" }, reminder("be brief")] },
    { role: "assistant", content: "ok" },
  ]);
});

test("it keeps its cache mark and comes after tool results", () => {
  const result = { type: "tool_result", tool_use_id: "t", content: "1" };
  const messages = [
    { role: "user", content: [result] },
    {
      role: "system",
      content: [
        { type: "text", text: "a" },
        { type: "text", text: "b", cache_control: { type: "ephemeral" } },
      ],
    },
  ];
  expect(fold(messages)).toEqual([
    {
      role: "user",
      content: [result, { ...reminder("a\nb"), cache_control: { type: "ephemeral" } }],
    },
  ]);
});

test("a system message without text is dropped, and one without a user message before it becomes one", () => {
  const messages = [
    { role: "system", content: "first" },
    { role: "assistant", content: "ok" },
    { role: "system", output_config: { effort: "low" } },
    { role: "system", content: "" },
    { role: "system", content: "last" },
  ];
  expect(fold(messages)).toEqual([
    { role: "user", content: [reminder("first")] },
    { role: "assistant", content: "ok" },
    { role: "user", content: [reminder("last")] },
  ]);
});

test("the given messages are not changed, even if many system messages follow one", () => {
  const texts = ["a", "b", "c"];
  const messages = [
    { role: "user", content: "hi" },
    ...texts.map((content) => ({ role: "system", content })),
    { role: "user", content: "x" },
  ];
  const request = decodeRequest({ model: "m", max_tokens: 1, messages }, { version: "", beta: "" });
  const encode = () =>
    encodeRequest(request, { model: "m", stream: false, foldSystem: true }).messages;
  expect(encode()).toEqual(encode());
  expect(encode()).toEqual([
    { role: "user", content: [{ type: "text", text: "hi" }, ...texts.map(reminder)] },
    { role: "user", content: "x" },
  ]);
});

test("a conversation without system messages is returned unchanged", () => {
  const messages = [{ role: "user", content: "hi" }];
  expect(fold(messages)).toEqual(messages);
});
