// What the public description says of the bodies of the native format. A request may have members
// that are not named here: they go to the provider as they are.

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
import { partsMax, toolsMax } from "../codec.ts";

const fraction: Schema = { type: "number", minimum: 0, maximum: 1 };
const blocks = list(ref("ContentBlock"));
const content: Schema = { anyOf: [text, blocks] };
const object: Schema = { type: "object" };

/** The members of a request that also matter for its count. */
const prompt = {
  model: described("Id or alias of a model.", { type: "string", minLength: 1 }),
  messages: described(
    `The conversation. Messages and the parts in them are at most ${partsMax} together.`,
    list(ref("InputMessage"), { minItems: 1 }),
  ),
};
const optionalPrompt = {
  system: described("The instruction.", content),
  tools: list(ref("Tool"), { maxItems: toolsMax }),
  tool_choice: object,
  thinking: described("`{type: enabled, budget_tokens}`, `adaptive` or `disabled`.", object),
  output_config: described("The effort and the format of the answer.", object),
  cache_control: object,
};

export const nativeSchemas: Readonly<Record<string, Schema>> = {
  MessagesRequest: open(
    {
      ...prompt,
      max_tokens: described("The most tokens to generate. 0 only fills the cache.", {
        ...count,
        maximum: 4_294_967_295,
      }),
    },
    {
      ...optionalPrompt,
      stream: described("Whether the answer comes as server-sent events.", boolean),
      temperature: fraction,
      top_p: fraction,
      top_k: count,
      stop_sequences: list(text),
      metadata: ref("Metadata"),
    },
  ),
  CountTokensRequest: open(prompt, optionalPrompt),
  InputMessage: open({ role: oneOf("user", "assistant", "system") }, { content }),
  ContentBlock: described(
    "`text`, `image`, `document`, `tool_use`, `tool_result`, `thinking`, `redacted_thinking`, and " +
      "whatever the provider knows besides.",
    open({ type: text }),
  ),
  Tool: {
    ...open({}, { name: text, type: text, description: text, input_schema: object }),
    anyOf: [{ required: ["name"] }, { required: ["type"] }],
  },
  Message: open({
    id: text,
    type: oneOf("message"),
    role: oneOf("assistant"),
    model: described("Catalogue id of the model that answered.", text),
    content: blocks,
    stop_reason: orNull(text),
    stop_sequence: orNull(text),
    usage: ref("MessageUsage"),
  }),
  MessageUsage: described(
    "Tokens. The cached input is not part of `input_tokens`.",
    open({ input_tokens: count, output_tokens: count }),
  ),
  MessageEvent: described(
    "One event of a stream: `message_start`, `content_block_start`, `content_block_delta`, " +
      "`content_block_stop`, `message_delta`, `message_stop`, `ping` or `error`. The last " +
      "`message_delta` may have a member `gateway` with the request id and the charge.",
    {
      oneOf: [
        open({ type: oneOf("message_start"), message: object }),
        open({ type: oneOf("content_block_start"), index: count, content_block: object }),
        open({ type: oneOf("content_block_delta"), index: count, delta: object }),
        open({ type: oneOf("content_block_stop"), index: count }),
        open({ type: oneOf("message_delta"), delta: object }, { gateway: ref("Cost") }),
        open({ type: oneOf("message_stop") }),
        open({ type: oneOf("ping") }),
        open({ type: oneOf("error"), error: object }),
      ],
    },
  ),
  TokenCount: open({ input_tokens: count }),
};
