// Bodies of this format that come to the path of chat completions, as Cursor's agent sends them.
// They are answered in the chat format.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../json.ts";

/** True for a body with an `input` in place of `messages`. */
export function isOfChatPath(body: JsonValue): body is JsonObject {
  return isObject(body) && isAbsent(body.messages) && !isAbsent(body.input);
}

/** The body as the path of this format takes it. Nothing sealed comes back by a chat answer. */
export function fromChatPath(body: JsonObject): JsonObject {
  const { messages, include, stream_options, reasoning_effort: effort, ...members } = body;
  const { max_tokens, max_completion_tokens, max_output_tokens, ...others } = members;
  const limit = max_output_tokens ?? max_completion_tokens ?? max_tokens;
  return {
    ...others,
    ...(limit !== undefined && { max_output_tokens: limit }),
    ...(effort !== undefined && isAbsent(body.reasoning) && { reasoning: { effort } }),
    ...(Array.isArray(body.tools) && { tools: body.tools.map(flatTool) }),
  };
}

/** A tool in the form of chat completions has its members one level down. */
function flatTool(tool: JsonValue): JsonValue {
  if (!isObject(tool)) return tool;
  const { function: called, custom, ...members } = tool;
  if (isObject(called)) return { type: "function", ...members, ...called };
  if (!isObject(custom)) return tool;
  const { format } = custom;
  const grammar = isObject(format) && isObject(format.grammar) ? format.grammar : undefined;
  return {
    ...members,
    ...custom,
    type: "custom",
    ...(grammar && { format: { type: "grammar", ...grammar } }),
  };
}

function isAbsent(value: JsonValue | undefined): boolean {
  return value === undefined || value === null;
}
