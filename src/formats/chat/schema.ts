// What the public description says of the bodies of the chat format. A member of a request that is
// null counts as absent, and one that is not named here is ignored.

import {
  boolean,
  count,
  described,
  list,
  oneOf,
  open,
  orNull,
  ref,
  type Schema,
  text,
} from "../../base/json-schema.ts";
import { toolsMax } from "../codec.ts";

const object: Schema = { type: "object" };
const number: Schema = { type: "number" };
const positive: Schema = { type: "integer", minimum: 1 };
const orAbsent = (members: Readonly<Record<string, Schema>>): Record<string, Schema> =>
  Object.fromEntries(Object.entries(members).map(([name, schema]) => [name, orNull(schema)]));

export const chatSchemas: Readonly<Record<string, Schema>> = {
  ChatRequest: open(
    {
      model: described("Id or alias of a model.", { type: "string", minLength: 1 }),
      messages: list(ref("ChatMessage"), { minItems: 1 }),
    },
    orAbsent({
      max_completion_tokens: positive,
      max_tokens: described("The older name of `max_completion_tokens`.", positive),
      stream: described("Whether the answer comes as server-sent events.", boolean),
      stream_options: open({}, { include_usage: boolean }),
      temperature: described("Above 1 it counts as 1.", { ...number, minimum: 0, maximum: 2 }),
      top_p: { ...number, minimum: 0, maximum: 1 },
      top_k: count,
      n: described("One answer only.", { const: 1 }),
      stop: { anyOf: [text, list(text)] },
      tools: list(object, { maxItems: toolsMax }),
      tool_choice: { anyOf: [text, object] },
      parallel_tool_calls: boolean,
      reasoning_effort: text,
      response_format: object,
      metadata: ref("Metadata"),
    }),
  ),
  ChatMessage: open(
    { role: oneOf("system", "developer", "user", "assistant", "tool", "function") },
    { content: { anyOf: [text, list({ anyOf: [text, object] }), { type: "null" }] } },
  ),
  ChatCompletion: open({
    id: text,
    object: oneOf("chat.completion"),
    created: described("Seconds since 1970.", count),
    model: text,
    choices: list(
      open({
        index: count,
        message: open({ role: oneOf("assistant"), content: orNull(text) }),
        finish_reason: text,
      }),
    ),
    usage: ref("ChatUsage"),
  }),
  ChatUsage: described(
    "Tokens. `prompt_tokens` is all input, cached or not; `completion_tokens` has the reasoning.",
    open({ prompt_tokens: count, completion_tokens: count, total_tokens: count }),
  ),
  ChatChunk: described(
    "One event of a stream. The last one has the usage, if `stream_options` asks for it, and may " +
      "have a member `gateway` with the request id and the charge. `[DONE]` ends the stream.",
    open(
      {
        id: text,
        object: oneOf("chat.completion.chunk"),
        created: count,
        model: text,
        choices: list(open({ index: count, delta: object, finish_reason: orNull(text) })),
      },
      { usage: orNull(ref("ChatUsage")), gateway: ref("Cost") },
    ),
  ),
};
