// What the public description says of the bodies of the Responses format. A member of a request
// that is null counts as absent.

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
const item = open({}, { type: text });

export const responsesSchemas: Readonly<Record<string, Schema>> = {
  ResponsesRequest: open(
    {
      model: described("Id or alias of a model.", { type: "string", minLength: 1 }),
      input: described("A text, or the items of the whole conversation: nothing is stored here.", {
        anyOf: [{ type: "string", minLength: 1 }, list(item, { minItems: 1 })],
      }),
    },
    {
      instructions: orNull(text),
      max_output_tokens: orNull({ type: "integer", minimum: 1 }),
      stream: orNull(described("Whether the answer comes as server-sent events.", boolean)),
      temperature: orNull({ ...number, minimum: 0, maximum: 2 }),
      top_p: orNull({ ...number, minimum: 0, maximum: 1 }),
      tools: orNull(list(object, { maxItems: toolsMax })),
      tool_choice: orNull({ anyOf: [text, object] }),
      parallel_tool_calls: orNull(boolean),
      reasoning: orNull(object),
      text: orNull(object),
      include: orNull(list(text)),
      metadata: orNull(ref("Metadata")),
      store: orNull(described("Whatever it says, nothing is stored.", boolean)),
      background: orNull({ const: false }),
      prompt_cache_key: orNull(text),
    },
  ),
  Response: open({
    id: text,
    object: oneOf("response"),
    created_at: described("Seconds since 1970.", count),
    model: text,
    status: oneOf("in_progress", "completed", "incomplete", "failed"),
    output: list(open({ type: text })),
    usage: orNull(open({ input_tokens: count, output_tokens: count, total_tokens: count })),
  }),
  ResponseEvent: described(
    "One event of a stream, numbered from 0. The last one is `response.completed`, " +
      "`response.incomplete` or `response.failed`, has the whole response, and may have a member " +
      "`gateway` with the request id and the charge.",
    open({ type: text, sequence_number: count }, { response: object, gateway: ref("Cost") }),
  ),
};
