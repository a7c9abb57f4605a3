// Answers of providers and servers with the chat completions API. Sources of the shapes: the
// providers' API references, and the adapters for them in public clients and gateways (LiteLLM,
// Portkey, the AI SDK, pi, gptel, copilot-api) and servers (vLLM, SGLang, llama.cpp, Ollama, TGI).

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Dialect, Meaning } from "./dialect.ts";

const done = "data: [DONE]";
const input = { city: "Paris" };
const argumentsText = '{"city":"Paris"}';
const call = { name: "get_weather", input };
const plainUsage = { prompt_tokens: 20, completion_tokens: 8, total_tokens: 28 };
const reasonedUsage = { ...plainUsage, completion_tokens_details: { reasoning_tokens: 3 } };
const cachedUsage = { ...plainUsage, prompt_tokens_details: { cached_tokens: 12 } };

const said: Meaning = { text: "Hello you", stop: "end_turn", usage: { input: 20, output: 8 } };
const called: Meaning = { calls: [call], stop: "tool_use", usage: { input: 20, output: 8 } };
const thought: Meaning = {
  thinking: "Let me see.",
  text: "Hello you",
  stop: "end_turn",
  usage: { input: 20, output: 8, thinking: 3 },
};

type Members = { message: JsonObject; reason?: JsonValue; choice?: JsonObject; body?: JsonObject };

function whole({ message, reason = "stop", choice = {}, body = {} }: Members): JsonObject {
  return {
    id: "cmpl-1",
    object: "chat.completion",
    created: 1_764_000_000,
    model: "provider-model",
    choices: [
      { index: 0, message: { role: "assistant", ...message }, finish_reason: reason, ...choice },
    ],
    usage: plainUsage,
    ...body,
  };
}

function chunk(
  delta: JsonObject,
  { reason = null, choice = {}, body = {} }: Partial<Members> = {},
): JsonObject {
  return {
    id: "cmpl-1",
    object: "chat.completion.chunk",
    created: 1_764_000_000,
    model: "provider-model",
    choices: [{ index: 0, delta, finish_reason: reason, ...choice }],
    ...body,
  };
}

const role = chunk({ role: "assistant", content: "" });
const hello = [chunk({ content: "Hello " }), chunk({ content: "you" })];
const stop = chunk({}, { reason: "stop" });
const usageChunk = (usage: JsonObject = plainUsage): JsonObject => ({
  ...chunk({}),
  choices: [],
  usage,
});
const toolCall = (members: JsonObject = {}): JsonObject => ({
  id: "call_1",
  type: "function",
  function: { name: call.name, arguments: argumentsText },
  ...members,
});
const numbered = (members: JsonObject = {}): JsonObject => ({ index: 0, ...toolCall(members) });

export const chatDialects: readonly Dialect[] = [
  {
    name: "OpenAI",
    whole: whole({
      message: { content: "Hello you", refusal: null, annotations: [] },
      choice: { logprobs: null },
      body: { usage: cachedUsage, service_tier: "default", system_fingerprint: "fp_1" },
    }),
    stream: [
      chunk({ role: "assistant", content: "", refusal: null }, { body: { obfuscation: "x1" } }),
      ...hello,
      stop,
      usageChunk(cachedUsage),
      done,
    ],
    meaning: { ...said, usage: { input: 8, output: 8, cacheRead: 12 } },
  },
  {
    name: "OpenAI, calls in fragments",
    whole: whole({ message: { content: null, tool_calls: [toolCall()] }, reason: "tool_calls" }),
    stream: [
      chunk({
        role: "assistant",
        content: null,
        tool_calls: [numbered({ function: { name: call.name, arguments: "" } })],
      }),
      chunk({ tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] }),
      chunk({ tool_calls: [{ index: 0, function: { arguments: '"Paris"}' } }] }),
      chunk({}, { reason: "tool_calls" }),
      usageChunk(),
      done,
    ],
    meaning: called,
  },
  {
    name: "OpenAI, refusal",
    whole: whole({ message: { content: null, refusal: "I cannot." } }),
    stream: [
      role,
      chunk({ refusal: "I " }),
      chunk({ refusal: "cannot." }),
      stop,
      usageChunk(),
      done,
    ],
    meaning: { ...said, text: "I cannot.", stop: "refusal" },
  },
  {
    name: "Azure OpenAI",
    whole: whole({
      message: { content: "Hello you" },
      choice: { content_filter_results: { hate: { filtered: false, severity: "safe" } } },
      body: { prompt_filter_results: [{ prompt_index: 0, content_filter_results: {} }] },
    }),
    stream: [
      {
        ...chunk({}),
        id: "",
        model: "",
        choices: [],
        prompt_filter_results: [{ prompt_index: 0, content_filter_results: {} }],
      },
      role,
      ...hello.map((one) => ({ ...one, content_filter_results: {} })),
      stop,
      usageChunk(),
      done,
    ],
    meaning: said,
  },
  {
    name: "OpenRouter",
    whole: whole({
      message: {
        content: "Hello you",
        refusal: null,
        reasoning: "Let me see.",
        reasoning_details: [
          { type: "reasoning.text", text: "Let me see.", signature: "c2ln", index: 0 },
        ],
      },
      choice: { native_finish_reason: "end_turn", logprobs: null },
      body: { provider: "Anthropic", usage: { ...reasonedUsage, cost: 0.001 } },
    }),
    stream: [
      ": OPENROUTER PROCESSING",
      chunk({
        role: "assistant",
        content: "",
        reasoning: "Let me see.",
        reasoning_details: [{ type: "reasoning.text", text: "Let me see.", index: 0 }],
      }),
      chunk({
        content: "",
        reasoning: null,
        reasoning_details: [{ type: "reasoning.text", signature: "c2ln", index: 0 }],
      }),
      ...hello,
      chunk({ content: "" }, { reason: "stop", choice: { native_finish_reason: "end_turn" } }),
      chunk({ role: "assistant", content: "" }, { body: { usage: reasonedUsage } }),
      done,
    ],
    meaning: thought,
  },
  {
    name: "Groq",
    whole: whole({
      message: { content: "Hello you", reasoning: "Let me see." },
      body: { usage: { ...reasonedUsage, queue_time: 0.1 }, x_groq: { id: "req_1" } },
    }),
    stream: [
      { ...role, x_groq: { id: "req_1" } },
      chunk({ reasoning: "Let me see.", channel: "analysis" }),
      ...hello,
      chunk({}, { reason: "stop", body: { x_groq: { id: "req_1", usage: { ...reasonedUsage } } } }),
      done,
    ],
    meaning: thought,
  },
  {
    name: "Gemini's compatible endpoint",
    whole: whole({
      message: {
        tool_calls: [
          toolCall({
            id: "function-call-1",
            extra_content: { google: { thought_signature: "c2ln" } },
          }),
        ],
      },
      reason: "stop",
    }),
    // Calls come whole and without numbers, and the reason does not mention them.
    stream: [
      chunk({
        role: "assistant",
        tool_calls: [
          toolCall({
            id: "function-call-1",
            extra_content: { google: { thought_signature: "c2ln" } },
          }),
        ],
      }),
      chunk({ role: "assistant" }, { reason: "stop", body: { usage: plainUsage } }),
      done,
    ],
    meaning: called,
  },
  {
    name: "Gemini's compatible endpoint, filtered",
    whole: whole({ message: { content: "Hello" }, reason: "content_filter: RECITATION" }),
    stream: [
      chunk({ role: "assistant", content: "Hello" }),
      chunk({}, { reason: "content_filter: RECITATION", body: { usage: plainUsage } }),
      done,
    ],
    meaning: { ...said, text: "Hello", stop: "refusal" },
  },
  {
    name: "DeepSeek",
    whole: whole({
      message: { content: "Hello you", reasoning_content: "Let me see." },
      body: {
        usage: { ...reasonedUsage, prompt_cache_hit_tokens: 12, prompt_cache_miss_tokens: 8 },
      },
    }),
    stream: [
      ": keep-alive",
      chunk({ role: "assistant", content: null, reasoning_content: "" }),
      chunk({ content: null, reasoning_content: "Let me see." }),
      ...hello.map((one) => ({ ...one, usage: null })),
      chunk(
        { content: "", reasoning_content: null },
        {
          reason: "stop",
          body: {
            usage: { ...reasonedUsage, prompt_cache_hit_tokens: 12, prompt_cache_miss_tokens: 8 },
          },
        },
      ),
      done,
    ],
    meaning: { ...thought, usage: { input: 8, output: 8, cacheRead: 12, thinking: 3 } },
  },
  {
    name: "xAI",
    // Its completion excludes the reasoning.
    whole: whole({
      message: { content: "Hello you", reasoning_content: "Let me see.", refusal: null },
      body: {
        usage: {
          prompt_tokens: 20,
          completion_tokens: 5,
          total_tokens: 28,
          completion_tokens_details: { reasoning_tokens: 3 },
          num_sources_used: 0,
        },
      },
    }),
    stream: [
      chunk({ role: "assistant", reasoning_content: "Let me see." }),
      ...hello,
      stop,
      usageChunk({
        prompt_tokens: 20,
        completion_tokens: 5,
        total_tokens: 28,
        completion_tokens_details: { reasoning_tokens: 3 },
      }),
      done,
    ],
    meaning: thought,
  },
  {
    name: "Together",
    whole: whole({
      message: { content: "Hello you", tool_calls: [] },
      reason: "eos",
      choice: { seed: 1, logprobs: null },
      body: { prompt: [] },
    }),
    stream: [
      ...hello.map((one) => ({ ...one, usage: null })),
      chunk(
        { token_id: 2, role: "assistant", content: "", tool_calls: [] },
        { reason: "eos", choice: { text: "", seed: 1 }, body: { usage: plainUsage } },
      ),
      done,
    ],
    meaning: said,
  },
  {
    name: "Fireworks",
    whole: whole({ message: { content: "Hello you" }, reason: "length", body: { perf: null } }),
    stream: [
      chunk({ role: "assistant" }),
      ...hello,
      chunk({}, { reason: "length", body: { usage: plainUsage } }),
      done,
    ],
    meaning: { ...said, stop: "max_tokens" },
  },
  {
    name: "Cerebras",
    whole: whole({
      message: { content: "Hello you", reasoning: "Let me see." },
      body: { usage: reasonedUsage, time_info: { total_time: 0.01 } },
    }),
    stream: [
      chunk({ role: "assistant" }),
      chunk({ reasoning: "Let me see." }),
      ...hello,
      chunk({}, { reason: "stop", body: { usage: reasonedUsage, time_info: {} } }),
      done,
    ],
    meaning: thought,
  },
  {
    name: "vLLM",
    whole: whole({
      message: { content: "Hello you", reasoning_content: "Let me see.", tool_calls: [] },
      choice: { stop_reason: null, logprobs: null },
      body: { prompt_logprobs: null, usage: { ...plainUsage, prompt_tokens_details: null } },
    }),
    stream: [
      role,
      chunk({ reasoning_content: "Let me " }),
      chunk({ reasoning_content: "see." }),
      ...hello,
      chunk({ content: "" }, { reason: "stop", choice: { stop_reason: null } }),
      usageChunk(),
      done,
    ],
    meaning: { ...said, thinking: "Let me see." },
  },
  {
    name: "SGLang",
    whole: whole({
      message: { content: "Hello you", reasoning_content: "Let me see.", tool_calls: null },
      choice: { matched_stop: 128_001, logprobs: null },
      body: { usage: { ...plainUsage, reasoning_tokens: 3 }, metadata: { weight_version: "1" } },
    }),
    stream: [
      chunk({ role: "assistant", content: "", reasoning_content: null, tool_calls: null }),
      chunk({ content: null, reasoning_content: "Let me see.", tool_calls: null }),
      ...hello.map((one) => ({ ...one, usage: null })),
      chunk({ tool_calls: null }, { reason: "stop", choice: { matched_stop: 128_001 } }),
      usageChunk({ ...plainUsage, reasoning_tokens: 3 }),
      done,
    ],
    meaning: thought,
  },
  {
    name: "llama.cpp",
    whole: whole({
      message: { content: "", tool_calls: [toolCall({ id: "" })] },
      reason: "tool_calls",
      body: { timings: { prompt_n: 20 } },
    }),
    stream: [
      chunk({ role: "assistant", content: null }),
      chunk({ tool_calls: [numbered({ function: { name: call.name, arguments: "{" } })] }),
      chunk({ tool_calls: [{ index: 0, function: { arguments: '"city":"Paris"}' } }] }),
      chunk({}, { reason: "tool_calls" }),
      { ...usageChunk(), timings: { prompt_n: 20 } },
      done,
    ],
    meaning: called,
  },
  {
    name: "Ollama",
    whole: whole({
      message: { content: "", reasoning: "Let me see.", tool_calls: [numbered()] },
      reason: "tool_calls",
      body: { system_fingerprint: "fp_ollama" },
    }),
    stream: [
      chunk({ role: "assistant", content: "", reasoning: "Let me see." }),
      chunk({ role: "assistant", content: "", tool_calls: [numbered()] }),
      chunk({ role: "assistant", content: "" }, { reason: "tool_calls" }),
      usageChunk(),
      done,
    ],
    meaning: { ...called, thinking: "Let me see." },
  },
  {
    name: "Ollama, all calls with the number 0",
    whole: whole({
      message: { content: "", tool_calls: [numbered(), numbered({ id: "call_2" })] },
      reason: "tool_calls",
    }),
    stream: [
      chunk({ role: "assistant", content: "", tool_calls: [numbered()] }),
      chunk({ role: "assistant", content: "", tool_calls: [numbered({ id: "call_2" })] }),
      chunk({ role: "assistant", content: "" }, { reason: "tool_calls" }),
      usageChunk(),
      done,
    ],
    meaning: { ...called, calls: [call, call] },
  },
  {
    name: "LM Studio",
    whole: whole({
      message: { content: "", tool_calls: [toolCall({ id: "123456789" })] },
      reason: "tool_calls",
      body: { stats: {}, system_fingerprint: "provider-model" },
    }),
    stream: [
      chunk({
        role: "assistant",
        tool_calls: [numbered({ id: "123456789", function: { name: call.name, arguments: "" } })],
      }),
      chunk({ tool_calls: [{ index: 0, type: "function", function: { arguments: "" } }] }),
      chunk({ tool_calls: [{ index: 0, function: { name: "", arguments: argumentsText } }] }),
      chunk({}, { reason: "tool_calls" }),
      usageChunk(),
      done,
    ],
    meaning: called,
  },
  {
    name: "Mistral, thoughts as parts",
    whole: whole({
      message: {
        content: [
          { type: "thinking", thinking: [{ type: "text", text: "Let me see." }], closed: true },
          { type: "text", text: "Hello you" },
        ],
        tool_calls: null,
        prefix: false,
      },
    }),
    stream: [
      role,
      chunk({
        content: [{ type: "thinking", thinking: [{ type: "text", text: "Let me " }] }],
      }),
      chunk({
        content: [
          { type: "thinking", thinking: [{ type: "text", text: "see." }] },
          { type: "reference", reference_ids: [1] },
        ],
      }),
      chunk({ content: [{ type: "text", text: "Hello " }] }),
      chunk({ content: "you" }),
      chunk({ content: "" }, { reason: "stop", body: { usage: plainUsage } }),
      done,
    ],
    meaning: { ...said, thinking: "Let me see." },
  },
  {
    name: "Mistral, at the limit of the model",
    whole: whole({ message: { content: "Hello you", tool_calls: null }, reason: "model_length" }),
    stream: [
      role,
      ...hello,
      chunk({ content: "" }, { reason: "model_length", body: { usage: plainUsage } }),
      done,
    ],
    meaning: { ...said, stop: "max_tokens" },
  },
  {
    name: "Snowflake, an empty function call beside text",
    whole: whole({
      message: { content: "Hello you", function_call: { name: "", arguments: "" } },
    }),
    stream: [
      chunk({ role: "assistant", content: "Hello ", function_call: { name: "", arguments: "" } }),
      chunk({ content: "you", function_call: { name: "", arguments: "" } }),
      chunk({}, { reason: "stop", body: { usage: plainUsage } }),
      done,
    ],
    meaning: said,
  },
  {
    name: "Snowflake, null calls beside text",
    whole: whole({ message: { content: "Hello you", tool_calls: null, function_call: null } }),
    stream: [
      chunk({ role: "assistant", content: "Hello ", tool_calls: null }),
      chunk({ content: "you", tool_calls: null }),
      chunk({ tool_calls: null }, { reason: "stop", body: { usage: plainUsage } }),
      done,
    ],
    meaning: said,
  },
  {
    name: "Moonshot",
    whole: whole({
      message: { content: "Hello you", reasoning_content: "Let me see." },
      body: { usage: { ...plainUsage, cached_tokens: 12 } },
    }),
    stream: [
      role,
      chunk({ reasoning_content: "Let me see." }),
      ...hello,
      chunk({}, { reason: "stop", choice: { usage: { ...plainUsage, cached_tokens: 12 } } }),
      done,
    ],
    meaning: {
      ...said,
      thinking: "Let me see.",
      usage: { input: 8, output: 8, cacheRead: 12 },
    },
  },
  {
    name: "Z.ai",
    whole: whole({
      message: { content: "Hello you", reasoning_content: "Let me see." },
      reason: "sensitive",
      body: { request_id: "r1", usage: cachedUsage },
    }),
    stream: [
      chunk({ role: "assistant", reasoning_content: "Let me see." }),
      ...hello,
      chunk(
        { role: "assistant", content: "" },
        { reason: "sensitive", body: { usage: cachedUsage } },
      ),
      done,
    ],
    meaning: {
      thinking: "Let me see.",
      text: "Hello you",
      stop: "refusal",
      usage: { input: 8, output: 8, cacheRead: 12 },
    },
  },
  {
    name: "Qwen on Model Studio",
    whole: whole({
      message: { content: "", reasoning_content: "", tool_calls: [numbered()] },
      reason: "tool_calls",
    }),
    stream: [
      chunk({ role: "assistant", content: null }),
      chunk({
        content: null,
        tool_calls: [numbered({ function: { name: call.name, arguments: '{"city":' } })],
      }),
      chunk({
        content: null,
        tool_calls: [
          { index: 0, id: "", type: "function", function: { name: null, arguments: '"Paris"}' } },
        ],
      }),
      chunk({ content: "" }, { reason: "tool_calls" }),
      usageChunk(),
      done,
    ],
    meaning: called,
  },
  {
    name: "MiniMax",
    whole: whole({
      message: { content: "Hello you", name: "MiniMax AI", audio_content: "" },
      body: { base_resp: { status_code: 0, status_msg: "" }, input_sensitive: false },
    }),
    // The last chunk repeats the whole message.
    stream: [
      ...hello,
      {
        ...whole({ message: { content: "Hello you" } }),
        base_resp: { status_code: 0, status_msg: "" },
      },
      done,
    ],
    meaning: said,
  },
  {
    name: "Perplexity",
    whole: whole({
      message: { content: "Hello you" },
      choice: { delta: { role: "assistant", content: "" } },
      body: { citations: ["https://example.com"], search_results: [] },
    }),
    // Every chunk repeats the message so far, and has a usage.
    stream: [
      chunk(
        { role: "assistant", content: "Hello " },
        {
          choice: { message: { role: "assistant", content: "Hello " } },
          body: { usage: { prompt_tokens: 20, completion_tokens: 4, total_tokens: 24 } },
        },
      ),
      chunk(
        { role: "assistant", content: "you" },
        {
          reason: "stop",
          choice: { message: { role: "assistant", content: "Hello you" } },
          body: { usage: plainUsage, citations: ["https://example.com"] },
        },
      ),
    ],
    meaning: said,
  },
  {
    name: "Databricks",
    whole: whole({
      message: {
        content: [
          {
            type: "reasoning",
            summary: [{ type: "summary_text", text: "Let me see.", signature: "c2ln" }],
          },
          { type: "text", text: "Hello you" },
        ],
      },
    }),
    stream: [
      chunk({
        role: "assistant",
        content: [{ type: "reasoning", summary: [{ type: "summary_text", text: "Let me see." }] }],
      }),
      chunk({
        content: [
          {
            type: "reasoning",
            summary: [{ type: "summary_text", text: "", signature: "c2ln" }],
          },
        ],
      }),
      ...hello,
      chunk({ content: "" }, { reason: "stop", body: { usage: plainUsage } }),
      done,
    ],
    meaning: { ...said, thinking: "Let me see." },
  },
  {
    name: "LiteLLM",
    whole: whole({
      message: {
        content: "Hello you",
        tool_calls: null,
        function_call: null,
        reasoning_content: "Let me see.",
        thinking_blocks: [{ type: "thinking", thinking: "Let me see.", signature: "c2ln" }],
      },
      body: { usage: { ...cachedUsage, cache_read_input_tokens: 12 } },
    }),
    stream: [
      chunk({
        role: "assistant",
        content: "",
        reasoning_content: "Let me see.",
        thinking_blocks: [{ type: "thinking", thinking: "Let me see.", signature: null }],
      }),
      chunk({
        content: "",
        reasoning_content: "",
        thinking_blocks: [{ type: "thinking", thinking: "", signature: "c2ln" }],
      }),
      ...hello,
      stop,
      usageChunk({ ...cachedUsage, cache_read_input_tokens: 12 }),
      done,
    ],
    meaning: {
      ...said,
      thinking: "Let me see.",
      usage: { input: 8, output: 8, cacheRead: 12 },
    },
  },
  {
    name: "GitHub Copilot, text and calls as choices of their own",
    whole: {
      ...whole({ message: {} }),
      choices: [
        { finish_reason: "tool_calls", message: { role: "assistant", content: "Hello you" } },
        { finish_reason: "tool_calls", message: { role: "assistant", tool_calls: [toolCall()] } },
      ],
    },
    stream: [
      chunk({ role: "assistant", content: "Hello you" }),
      chunk({ content: null, tool_calls: [numbered()] }),
      chunk({ content: null }, { reason: "tool_calls", body: { usage: plainUsage } }),
      done,
    ],
    meaning: { ...called, text: "Hello you" },
  },
  {
    name: "GitHub Copilot, reasoning",
    whole: whole({
      message: { content: "Hello you", reasoning_text: "Let me see.", reasoning_opaque: "b3A=" },
      body: { usage: { ...plainUsage, reasoning_tokens: 3 } },
    }),
    stream: [
      chunk({ role: "assistant", content: null, reasoning_text: "Let me see." }),
      ...hello,
      chunk(
        { content: null, reasoning_opaque: "b3A=" },
        { reason: "stop", body: { usage: { ...plainUsage, reasoning_tokens: 3 } } },
      ),
      done,
    ],
    meaning: thought,
  },
  {
    name: "Text Generation Inference",
    whole: whole({
      message: {
        content: null,
        tool_calls: [toolCall({ id: "0", function: { name: call.name, arguments: input } })],
      },
      reason: "stop",
    }),
    // Older versions send one entry instead of a list.
    stream: [
      chunk({
        role: "assistant",
        tool_calls: numbered({ id: "", function: { name: call.name, arguments: '{"city":' } }),
      }),
      chunk({
        role: "assistant",
        tool_calls: numbered({ id: "", function: { name: null, arguments: '"Paris"}' } }),
      }),
      chunk({ role: "assistant", content: "" }, { reason: "eos_token" }),
      usageChunk(),
      done,
    ],
    meaning: called,
  },
  {
    name: "a server that streams one whole message",
    whole: whole({ message: { content: "Hello you" }, reason: null }),
    stream: [whole({ message: { content: "Hello you" } }), done],
    meaning: said,
  },
];
