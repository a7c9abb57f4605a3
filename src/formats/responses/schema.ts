// What the public description says of the bodies of the Responses format. A member of a request
// that is null counts as absent. The decoders refuse what these schemas refuse, and no more but
// what their texts say.

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
import { filled, formatOf, parallelCalls, positive, sampling, words } from "../chat/schema.ts";
import { toolsMax } from "../codec.ts";

const absent: Schema = described("Nothing is stored here: send the whole input.", { type: "null" });
const parts = anyOf(text, list(ref("ResponsePart")));
const texts = anyOf(text, list(ref("ResponseTextPart")));
const named = open({ name: text }, { namespace: orNull(text) });
const message = { type: orNull(oneOf("message")) };
const call = { call_id: filled, name: filled };
const otherTool: Schema = {
  type: "string",
  not: { enum: ["function", "custom", "allowed_tools"] },
};
/** Types of items and of parts that the decoder reads, and the one that it refuses. */
const itemTypes = [
  ...["message", "reasoning", "function_call", "function_call_output"],
  ...["custom_tool_call", "custom_tool_call_output", "item_reference"],
  ...["additional_tools", "tool_search_output"],
];
const partTypes = ["input_text", "output_text", "text", "refusal", "input_image", "input_file"];

export const responsesSchemas: Readonly<Record<string, Schema>> = {
  ResponsesRequest: open(
    {
      model: described("Id or alias of a model.", words),
      input: described(
        "A text, or the items of the whole conversation, of which one is not blank: nothing is " +
          "stored here.",
        anyOf(words, list(ref("ResponseItem"), { minItems: 1 })),
      ),
    },
    {
      ...orAbsent({
        instructions: text,
        max_output_tokens: positive,
        stream: described("Whether the answer comes as server-sent events.", boolean),
        ...sampling,
        tools: list(ref("ResponseTool"), { maxItems: toolsMax }),
        tool_choice: ref("ResponseToolChoice"),
        ...parallelCalls,
        reasoning: open(
          {},
          {
            effort: described("One that is not known is ignored.", orNull(text)),
            summary: unchecked(text),
          },
        ),
        text: open(
          {},
          { format: orNull(formatOf({ schema: object })), verbosity: unchecked(text) },
        ),
        include: list(text),
        metadata: ref("Metadata"),
        store: described("Whatever it says, nothing is stored.", boolean),
        background: { const: false },
        prompt_cache_key: text,
      }),
      previous_response_id: absent,
      conversation: absent,
      prompt: absent,
    },
  ),
  ResponsesOnChatPath: described(
    "As `ResponsesRequest`, with members of `ChatRequest` for its limit and its effort.",
    open({ model: words, input: anyOf(words, list(ref("ResponseItem"), { minItems: 1 })) }),
  ),
  ResponseItem: anyOf(
    described(
      "An instruction, which is text.",
      open({ role: oneOf("system", "developer"), content: texts }, message),
    ),
    open({ role: oneOf("user"), content: parts }, message),
    open({ role: oneOf("assistant"), content: parts }, { ...message, phase: orNull(text) }),
    described(
      "Thinking of an earlier answer of this gateway.",
      open({ type: oneOf("reasoning") }, { encrypted_content: orNull(text) }),
    ),
    open(
      { type: oneOf("function_call"), ...call },
      {
        arguments: unchecked(described("The JSON of an object, as a text.", text)),
        namespace: orNull(text),
      },
    ),
    open({ type: oneOf("custom_tool_call"), ...call, input: text }, { namespace: orNull(text) }),
    open(
      { type: oneOf("function_call_output", "custom_tool_call_output"), output: parts },
      {
        call_id: described("Absent: the latest call without an output.", orNull(text)),
      },
    ),
    described(
      "Tools that came later, or that a search has found. They are tools of the request.",
      open(
        { type: oneOf("additional_tools", "tool_search_output") },
        {
          tools: anyOf(list(ref("ResponseTool"), { maxItems: toolsMax }), {
            not: { type: "array" },
          }),
        },
      ),
    ),
    described(
      "Any other item. Reaches a provider of this format as it is. For other providers, calls " +
        "and outputs of tool_search, local_shell, shell and apply_patch are those of functions, " +
        "and the rest is left out.",
      open(
        { type: { type: "string", not: { enum: itemTypes } } },
        { encrypted_content: unchecked(orNull(text)) },
      ),
    ),
  ),
  ResponsePart: described(
    "A part of a content. There is no file store: `file_id` is refused.",
    anyOf(
      ref("ResponseTextPart"),
      open(
        {
          type: oneOf("input_image"),
          image_url: described(
            "An http or https URL, or a data URL in base64 of a JPEG, PNG, GIF or WebP.",
            text,
          ),
        },
        { detail: unchecked(text) },
      ),
      open(
        {
          type: oneOf("input_file"),
          file_data: described("A PDF, as a data URL in base64.", text),
        },
        { filename: orNull(text) },
      ),
      open(
        {
          type: oneOf("input_file"),
          file_url: { type: "string", pattern: "^[hH][tT][tT][pP][sS]?://" },
        },
        { filename: orNull(text), file_data: { not: text } },
      ),
      described(
        "Any other part. Reaches a provider of this format as it is; for others it is refused.",
        open({ type: { type: "string", not: { enum: partTypes } } }),
      ),
    ),
  ),
  ResponseTextPart: anyOf(
    open({ type: oneOf("input_text", "output_text", "text"), text }),
    open({ type: oneOf("refusal"), refusal: text }),
  ),
  ResponseTool: described(
    "The names of tools, together with their namespaces, differ.",
    anyOf(
      allOf(ref("ChatFunction"), open({ type: oneOf("function") })),
      allOf(ref("CustomTool"), open({ type: oneOf("custom") })),
      described(
        "A tool that the client runs in a form of its own, such as local_shell, or that the " +
          "vendor runs, such as web_search. One that the vendor runs and that is not offered here " +
          "is left out.",
        open({ type: { type: "string", not: { enum: ["function", "custom", "namespace"] } } }),
      ),
      open(
        {
          type: oneOf("namespace"),
          name: filled,
          tools: list(
            anyOf(
              open(
                { type: oneOf("function"), name: filled },
                { description: orNull(text), parameters: orNull(object) },
              ),
              open({ type: oneOf("custom"), name: filled }, { format: ref("CustomFormat") }),
            ),
            { minItems: 1 },
          ),
        },
        { description: orNull(text) },
      ),
      described(
        "An empty one is left out.",
        open({ type: oneOf("namespace") }, { tools: orNull(list({}, { maxItems: 0 })) }),
      ),
    ),
  ),
  ResponseToolChoice: described(
    "`required` and a named tool need a tool of the request.",
    anyOf(
      oneOf("auto", "none", "required"),
      open({ type: oneOf("function", "custom"), name: text }, { namespace: orNull(text) }),
      open(
        { type: oneOf("allowed_tools") },
        {
          mode: unchecked(oneOf("auto", "required")),
          tools: orNull(list(anyOf(named, open({ type: otherTool })))),
        },
      ),
      described("A tool that has no name but its type.", open({ type: otherTool })),
    ),
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
