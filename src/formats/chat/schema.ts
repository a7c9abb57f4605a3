// What the public description says of the bodies of the chat format. A member of a request that is
// null counts as absent. The decoders refuse what these schemas refuse, and no more but what their
// texts say.

import {
  allOf,
  anyOf,
  boolean,
  count,
  described,
  list,
  object,
  oneOf,
  open,
  orAbsent,
  orNull,
  ref,
  type Schema,
  text,
  unchecked,
} from "../../base/json-schema.ts";
import { effortNames } from "../../base/reasoning-effort.ts";
import { toolsMax } from "../codec.ts";

export const filled: Schema = { type: "string", minLength: 1 };
/** A text that is not blank. */
export const words: Schema = { type: "string", pattern: "\\S" };
export const positive: Schema = { type: "integer", minimum: 1 };
const fraction: Schema = { type: "number", minimum: 0, maximum: 1 };
/** What samples of both formats of OpenAI have. */
export const sampling = {
  temperature: described("For native providers it counts as 1 at most.", {
    type: "number",
    minimum: 0,
    maximum: 2,
  }),
  top_p: described("Without effect beside `temperature` at native providers.", fraction),
};
export const parallelCalls = {
  parallel_tool_calls: described("False: at most one call.", boolean),
};
/** `{type: json_schema, …}` as `known`, and any other object. */
export function formatOf(known: Readonly<Record<string, Schema>>): Schema {
  return anyOf(
    open({ type: oneOf("json_schema"), ...known }),
    open({}, { type: { not: oneOf("json_schema") } }),
  );
}

const cached = { cache_control: orNull(ref("CacheControl")) };
const parts = anyOf(text, list(ref("ChatPart")));
const refusal = oneOf("refusal");
/** Types of parts that the decoder reads. */
const partTypes = [
  ...["text", "image_url", "file", "refusal"],
  ...["image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"],
];
const called = open({ name: text });
const toolName: Schema = { type: "string", pattern: "^[a-zA-Z0-9_-]{1,64}$" };

const grammarMembers = { syntax: text, definition: text };
const grammar = open(grammarMembers);

export const chatSchemas: Readonly<Record<string, Schema>> = {
  ChatRequest: open(
    {
      model: described("Id or alias of a model.", words),
      messages: described(
        "The conversation: at least one message that is not blank.",
        list(ref("ChatMessage"), { minItems: 1 }),
      ),
    },
    {
      ...orAbsent({
        max_completion_tokens: positive,
        max_tokens: described("The older name of `max_completion_tokens`.", positive),
        stream: described("Whether the answer comes as server-sent events.", boolean),
        stream_options: open({}, { include_usage: orNull(boolean) }),
        ...sampling,
        top_k: { ...count, maximum: 4_294_967_295 },
        n: described("One answer only.", { const: 1 }),
        stop: anyOf(text, list(text)),
        tools: list(ref("ChatTool"), { maxItems: toolsMax }),
        tool_choice: ref("ChatToolChoice"),
        functions: described("The older form of `tools`.", list(ref("ChatFunction"))),
        ...parallelCalls,
        response_format: formatOf({ json_schema: open({}, { schema: orNull(object) }) }),
      }),
      function_call: unchecked(described("The older form of `tool_choice`.", anyOf(text, called))),
      reasoning_effort: unchecked(oneOf(...effortNames)),
      thinking: unchecked(described("As in the native format.", object)),
      modalities: unchecked(described("Never audio.", list(text))),
      metadata: unchecked(ref("Metadata")),
    },
  ),
  ChatMessage: anyOf(
    ...["ChatSystemMessage", "ChatUserMessage", "ChatAssistantMessage", "ChatToolMessage"].map(ref),
  ),
  ChatSystemMessage: described(
    "An instruction, which is text.",
    open(
      { role: oneOf("system", "developer") },
      {
        content: orNull(anyOf(text, list(anyOf(ref("ChatTextPart"), open({ type: refusal }))))),
        ...cached,
      },
    ),
  ),
  ChatUserMessage: open({ role: oneOf("user"), content: parts }, cached),
  ChatAssistantMessage: open(
    { role: oneOf("assistant") },
    {
      content: orNull(parts),
      tool_calls: orNull(list(ref("ChatToolCall"))),
      function_call: orNull(described("The older form of `tool_calls`.", ref("ChatCalled"))),
      reasoning_content: unchecked(
        described("Thinking of earlier answers, under the name that it had.", text),
      ),
      reasoning_details: orNull(
        described("Signed or sealed thinking of earlier answers, as they had it.", list(object)),
      ),
      ...cached,
    },
  ),
  ChatToolMessage: described(
    "The result of a call. `function` is the older form, after a `function_call`.",
    {
      ...open({ role: oneOf("tool", "function") }, { content: orNull(parts), ...cached }),
      anyOf: [open({ role: oneOf("function") }), open({ tool_call_id: text })],
    },
  ),
  ChatToolCall: anyOf(
    open({ id: filled, function: ref("ChatCalled") }, { type: orNull(oneOf("function")) }),
    open({ id: filled, type: oneOf("custom"), custom: open({ name: filled, input: text }) }),
  ),
  ChatCalled: open(
    { name: filled },
    { arguments: unchecked(described("The JSON of an object, as a text.", text)) },
  ),
  ChatPart: described(
    "A part of a content. Six kinds are in the native form.",
    anyOf(
      ref("ChatTextPart"),
      open(
        {
          type: oneOf("image_url"),
          image_url: described(
            "An http or https URL, or a data URL in base64 of a JPEG, PNG, GIF or WebP.",
            anyOf(open({ url: text }), text),
          ),
        },
        cached,
      ),
      open(
        {
          type: oneOf("file"),
          file: open(
            { file_data: described("A PDF, as a data URL in base64.", text) },
            { filename: orNull(text) },
          ),
        },
        cached,
      ),
      ref("ChatOtherPart"),
      open({ type: oneOf("image"), source: ref("ChatSource") }, cached),
      open(
        { type: oneOf("document"), source: ref("ChatSource") },
        { title: orNull(text), ...cached },
      ),
      open({ type: oneOf("tool_use"), id: text, name: text }, { input: {}, ...cached }),
      open(
        { type: oneOf("tool_result"), tool_use_id: text },
        { content: orNull(parts), is_error: orNull(boolean), ...cached },
      ),
      open({ type: oneOf("thinking"), thinking: text, signature: filled }, cached),
      open({ type: oneOf("redacted_thinking"), data: text }, cached),
    ),
  ),
  ChatTextPart: open({ type: oneOf("text"), text }, cached),
  ChatOtherPart: described(
    "Reaches a provider of this format as it is. For other providers a refusal is text, thinking " +
      "without a signature is left out, and any other type, such as `input_audio`, is refused.",
    anyOf(
      open({ type: { type: "string", not: { enum: [...partTypes] } } }),
      open({ type: refusal }),
      open({ type: oneOf("thinking") }, { signature: { enum: ["", null] } }),
      open({ type: oneOf("thinking"), thinking: list({}) }),
    ),
  ),
  ChatSource: anyOf(
    open({ type: oneOf("base64", "text"), media_type: text, data: text }),
    open({ type: oneOf("url"), url: text }),
  ),
  ChatTool: described(
    "The members of `function` and `custom` may be one level up, and `parameters` may be " +
      "`input_schema`.",
    anyOf(
      open({ function: ref("ChatFunction") }, { type: unchecked(oneOf("function")), ...cached }),
      allOf(ref("ChatFunction"), open({}, { type: orNull(oneOf("function")), ...cached })),
      open(
        { type: oneOf("custom"), name: toolName, input_schema: object },
        { description: orNull(text), strict: unchecked(boolean), ...cached },
      ),
      open({ type: oneOf("custom"), custom: ref("CustomTool") }),
      allOf(
        ref("CustomTool"),
        open({ type: oneOf("custom") }, { custom: { not: object }, input_schema: { not: object } }),
      ),
    ),
  ),
  CustomTool: described(
    "A tool whose input is plain text. Its grammar reaches the model as text, where the provider " +
      "has no such tools.",
    open(
      { name: toolName },
      {
        description: orNull(text),
        format: ref("CustomFormat"),
      },
    ),
  ),
  CustomFormat: orNull(
    anyOf(
      open({ type: oneOf("text") }),
      open({ type: oneOf("grammar"), grammar }),
      open({ type: oneOf("grammar"), ...grammarMembers }, { grammar: { type: "null" } }),
    ),
  ),
  ChatFunction: open(
    { name: toolName },
    { description: orNull(text), parameters: orNull(object), strict: unchecked(boolean) },
  ),
  ChatToolChoice: described(
    "`required` and a named function need a tool of the request.",
    anyOf(
      oneOf("auto", "none", "required", "any"),
      open({ type: oneOf("function"), function: called }),
      open({ type: oneOf("function"), name: text }, { function: { type: "null" } }),
      open({ type: oneOf("custom"), custom: called }),
      open({ type: oneOf("custom"), name: text }, { custom: { type: "null" } }),
      open({ type: oneOf("allowed_tools"), allowed_tools: ref("ChatAllowedTools") }),
      open({ type: oneOf("auto", "any", "none") }, { disable_parallel_tool_use: orNull(boolean) }),
      open({ type: oneOf("tool"), name: text }, { disable_parallel_tool_use: orNull(boolean) }),
    ),
  ),
  ChatAllowedTools: open(
    {},
    {
      mode: unchecked(oneOf("auto", "required")),
      tools: orNull(
        list(
          anyOf(
            open({ function: called }, { custom: { not: object } }),
            open({ custom: called }),
            open({ name: text }, { function: { type: "null" }, custom: { not: object } }),
          ),
        ),
      ),
    },
  ),
  ChatCompletion: open({
    id: text,
    object: oneOf("chat.completion"),
    created: described("Seconds since 1970.", count),
    model: text,
    choices: list(
      open({
        index: count,
        message: described(
          "What the provider wrote, where it has this format, too.",
          open({ role: oneOf("assistant"), content: orNull(anyOf(text, list(object))) }),
        ),
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
