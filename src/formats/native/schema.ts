// What the public description says of the bodies of the native format. A request may have members
// that are not named here: they go to the provider as they are. `decode-request.ts` refuses what
// these schemas refuse, and no more but what their texts say.

import {
  anyOf,
  boolean,
  count,
  described,
  list,
  object,
  oneOf,
  open,
  orNull,
  ref,
  type Schema,
  text,
  unchecked,
} from "../../base/json-schema.ts";
import { partsMax, toolsMax } from "../codec.ts";
import { membersMax } from "./decode-request.ts";

const fraction: Schema = { type: "number", minimum: 0, maximum: 1 };
const blocks = list(ref("ContentBlock"));
const content: Schema = anyOf(text, blocks);
const cached = { cache_control: unchecked(ref("CacheControl")) };

/** The members that a request must have, and that matter for its count. */
const prompt = {
  model: described("Id or alias of a model.", { type: "string", minLength: 1 }),
  messages: described(
    `The conversation. Messages and the parts in them are at most ${partsMax} together.`,
    list(ref("InputMessage"), { minItems: 1 }),
  ),
};
const optional = {
  system: described("The instruction.", content),
  stream: described("Whether the answer comes as server-sent events.", boolean),
  temperature: fraction,
  top_p: fraction,
  top_k: count,
  stop_sequences: list(text),
  tools: list(ref("Tool"), { maxItems: toolsMax }),
  tool_choice: open(
    {},
    {
      type: unchecked(oneOf("auto", "any", "tool", "none")),
      name: unchecked(described("The tool, with `tool`.", text)),
      disable_parallel_tool_use: unchecked(boolean),
    },
  ),
  thinking: open(
    {},
    {
      type: unchecked(oneOf("enabled", "adaptive", "disabled")),
      budget_tokens: unchecked(described("With `enabled`.", count)),
    },
  ),
  output_config: unchecked(
    described(
      "The effort and the format of the answer.",
      open({}, { effort: text, format: object }),
    ),
  ),
  metadata: ref("Metadata"),
  ...cached,
};
const members = `An object has at most ${membersMax} members.`;

export const nativeSchemas: Readonly<Record<string, Schema>> = {
  MessagesRequest: described(
    members,
    open(
      {
        ...prompt,
        max_tokens: described(
          "The most tokens to generate. 0 only fills the cache, and needs a `cache_control`.",
          count,
        ),
      },
      optional,
    ),
  ),
  CountTokensRequest: described(members, open(prompt, optional)),
  InputMessage: {
    ...open(
      { role: oneOf("user", "assistant", "system") },
      { content, output_config: unchecked(object) },
    ),
    // A system message without content changes the settings of the next turns.
    anyOf: [
      { required: ["content"] },
      { properties: { role: oneOf("system") }, required: ["output_config"] },
    ],
  },
  ContentBlock: described(
    "`text`, `image`, `document`, `tool_use`, `tool_result`, `thinking`, `redacted_thinking`, and " +
      "whatever the provider knows besides. Members by type.",
    open(
      { type: text },
      {
        text: unchecked(text),
        source: unchecked(
          described("`{type: base64, media_type, data}` or `{type: url, url}`.", object),
        ),
        title: unchecked(orNull(text)),
        id: unchecked(text),
        name: unchecked(text),
        input: unchecked(object),
        tool_use_id: unchecked(text),
        content: unchecked(anyOf(text, blocks)),
        is_error: unchecked(boolean),
        thinking: unchecked(text),
        signature: unchecked(text),
        data: unchecked(text),
        ...cached,
      },
    ),
  ),
  CacheControl: open(
    {},
    {
      type: unchecked(oneOf("ephemeral")),
      ttl: described("`5m` or `1h`.", orNull(text)),
    },
  ),
  Tool: described("Tools that run at the provider may have a type in place of a name.", {
    ...open({}, { description: unchecked(text), input_schema: unchecked(object), ...cached }),
    anyOf: [open({ name: text }), open({ type: text })],
  }),
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
