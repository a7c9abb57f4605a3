// What tells one conversation from another, so that each stays with the provider that has cached
// its beginning.

import { expect, test } from "vitest";
import { decodeRequest } from "../../src/formats/native/native.ts";
import { affinityOf } from "../../src/inference/prepare.ts";

const startOf = (members: object) => {
  const body = {
    model: "opus",
    max_tokens: 1,
    messages: [{ role: "user", content: "Hello" }],
    ...members,
  };
  return affinityOf("key", decodeRequest(body, { version: "2023-06-01", beta: "" }));
};
const text = (said: string) => ({ type: "text", text: said });

test("it is the same for every call of a conversation, whatever the coding assistant's first line says", () => {
  const call = (line: string, ...later: object[]) =>
    startOf({
      system: [text(`x-anthropic-billing-header: ${line}`), text("You are an assistant.")],
      messages: [{ role: "user", content: "Hello" }, ...later],
    });
  const next = call(
    "cc_version=1; cch=b2;",
    { role: "assistant", content: "Hi" },
    { role: "user", content: "Go on" },
  );
  expect(next).toBe(call("cc_version=1; cch=a1;"));
});

test("other instructions or another first message make another conversation", () => {
  const starts = [
    startOf({}),
    startOf({ system: "Be brief." }),
    startOf({ system: [text("Be kind.")] }),
    startOf({ messages: [{ role: "user", content: "Good bye" }] }),
  ];
  expect(new Set(starts).size).toBe(starts.length);
});
