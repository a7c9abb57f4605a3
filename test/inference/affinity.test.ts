// The affinity identifies a conversation, so that each stays with the provider that has cached its
// beginning.

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
const blockOf = (text: string) => ({ type: "text", text });

test("it is the same for every call of a conversation, with any first line of a coding assistant", () => {
  const call = (line: string, ...later: object[]) =>
    startOf({
      system: [blockOf(`x-anthropic-billing-header: ${line}`), blockOf("You are an assistant.")],
      messages: [{ role: "user", content: "Hello" }, ...later],
    });
  const next = call(
    "cc_version=1; cch=b2;",
    { role: "assistant", content: "Hi" },
    { role: "user", content: "Go on" },
  );
  expect(next).toBe(call("cc_version=1; cch=a1;"));
});

test("other instructions or another first message give another affinity", () => {
  const starts = [
    startOf({}),
    startOf({ system: "Be brief." }),
    startOf({ system: [blockOf("Be kind.")] }),
    startOf({ messages: [{ role: "user", content: "Good bye" }] }),
  ];
  expect(new Set(starts).size).toBe(starts.length);
});
