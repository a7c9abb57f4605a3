// A provider that holds a small conversation, with the features that each kind of client uses.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../src/formats/json.ts";
import type { Respond } from "./provider.ts";
import { type AnswerContent, nativeAnswer, nativeStream } from "./provider-answers.ts";

const usage = { input: 12, output: 9, cacheRead: 3, cacheWrite: 4 };

/**
 * Counts 42 tokens; calls the first tool with `{"city":"Paris"}` until it has a result; thinks when
 * the request enables it; otherwise answers with a greeting.
 */
export const converse: Respond = ({ path, body }) => {
  if (path.includes("count_tokens")) {
    return {
      headers: { "content-type": "application/json" },
      writes: [JSON.stringify({ input_tokens: 42 })],
    };
  }
  return (body.stream === true ? nativeStream : nativeAnswer)({ ...contentFor(body), usage });
};

function contentFor(body: JsonObject): AnswerContent {
  const tool = Array.isArray(body.tools) ? body.tools[0] : undefined;
  const name = isObject(tool) && typeof tool.name === "string" ? tool.name : undefined;
  if (name !== undefined && !hasResult(body.messages)) {
    return { text: ["Let me see."], tool: { name, input: ['{"ci', 'ty":"Par', 'is"}'] } };
  }
  if (isObject(body.output_config) && body.output_config.format)
    return { text: ['{"city":', '"Paris"}'] };
  const thinks = isObject(body.thinking) && body.thinking.type !== "disabled";
  return { ...(thinks && { thinking: { pieces: ["hm", "…"] } }), text: ["Hel", "lo ", "😀"] };
}

function hasResult(messages: JsonValue | undefined): boolean {
  return JSON.stringify(messages).includes('"tool_result"');
}

export const weather = {
  name: "get_weather",
  description: "Weather of a city.",
  input_schema: {
    type: "object" as const,
    properties: { city: { type: "string" as const } },
    required: ["city"],
    additionalProperties: false as const,
  },
};
