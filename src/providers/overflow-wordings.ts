// The sentences by which providers say that a request exceeds the model's context, one entry each.
// All become one of the two messages that clients act on: after "prompt is too long" they compact
// their conversation, after "exceed context limit" they request less output.

/** The members of an error body that may report an overflow. */
export type OverflowReport = {
  readonly type: string;
  readonly code: string;
  readonly message: string;
  /** llama.cpp reports these two as members of their own. */
  readonly promptTokens?: number;
  readonly contextTokens?: number;
};

/** `prompt`: it alone is too long. `output`: the prompt fits, but not with the requested output. */
export type Overflow = { readonly part: "prompt" | "output"; readonly message: string };

/**
 * Found anywhere in a message. The groups are numbers of tokens: of the prompt, of the requested
 * output, of both together (`total`), and of the context.
 */
type Wording = { readonly by: string; readonly words: RegExp };

export const wordings: readonly Wording[] = [
  {
    by: "Anthropic, Vertex",
    words: /prompt is too long(?:: (?<prompt>\d+) tokens > (?<context>\d+) maximum)?/i,
  },
  {
    by: "Anthropic, with the output",
    words: /exceed context limit: (?<prompt>\d+) \+ (?<output>\d+) > (?<context>\d+)/,
  },
  { by: "Bedrock", words: /input is too long for requested model/i },
  { by: "Bedrock, in four words", words: /(?:^|: )input is too long\.?$/i },
  { by: "OpenAI Responses", words: /exceeds the context window/i },
  {
    by: "OpenAI, of a limit",
    words:
      /input tokens exceed the configured limit(?: of (?<context>\d+) tokens\. Your messages resulted in (?<prompt>\d+) tokens)?/i,
  },
  {
    by: "OpenAI, DeepSeek",
    words:
      /context length is (?<context>\d+) tokens\. However, your messages resulted in (?<prompt>\d+) tokens/,
  },
  {
    by: "OpenAI with the output, OpenRouter",
    words:
      /context length is (?<context>\d+) tokens[.,] however,? you requested (?:about )?(?<total>\d+) tokens \([^)]*?(?:(?<output>\d+) (?:in|for) the (?:completion|output))?\)/i,
  },
  {
    by: "vLLM",
    words:
      /is too large: (?<output>\d+)\. .*context length is (?<context>\d+) tokens and your request has (?<prompt>\d+) input tokens/,
  },
  {
    by: "vLLM, of the prompt",
    words:
      /context length is (?<context>\d+) tokens\. However, your request has (?<prompt>\d+) input tokens/,
  },
  {
    by: "vLLM, that stopped counting",
    words:
      /context length is (?<context>\d+) tokens\. However, you requested (?<output>\d+) output tokens and your prompt contains at least (?<prompt>\d+) input tokens/,
  },
  {
    by: "vLLM 0.12",
    words:
      /passed (?<prompt>\d+) input tokens and requested (?<output>\d+) output tokens\. .*context length is only (?<context>\d+) tokens/,
  },
  {
    by: "vLLM, of its engine",
    words:
      /(?:\(length (?<prompt>\d+)\) )?is longer than the maximum model length(?: of (?<context>\d+))?/i,
  },
  {
    by: "Text Generation Inference",
    words:
      /`inputs` tokens \+ `max_new_tokens` must be <= (?<context>\d+)\. Given: (?<prompt>\d+) `inputs` tokens and (?<output>\d+) `max_new_tokens`/,
  },
  { by: "LiteLLM", words: /ContextWindowExceededError/i },
  {
    by: "Together",
    words:
      /input \((?<prompt>\d+) tokens\) is longer than the model's context length \((?<context>\d+) tokens\)/,
  },
  {
    by: "SGLang",
    words:
      /context length of (?<context>\d+) tokens\. You requested a total of (?<total>\d+) tokens: .*?(?<output>\d+) tokens for the completion/,
  },
  {
    by: "DeepInfra",
    words:
      /Input length \((?<prompt>\d+)\) exceeds model's maximum context length \((?<context>\d+)\)/,
  },
  {
    by: "xAI",
    words:
      /maximum prompt length is (?<context>\d+) but the request contains (?<prompt>\d+) tokens/,
  },
  {
    by: "Gemini",
    words:
      /input token count \((?<prompt>\d+)\) exceeds the maximum number of tokens allowed \((?<context>\d+)\)/,
  },
  {
    by: "Gemini on Vertex",
    words: /input token count is (?<prompt>\d+) but model only supports up to (?<context>\d+)/i,
  },
  {
    by: "Mistral",
    words:
      /Prompt contains (?<prompt>\d+) tokens .*too large for model with (?<context>\d+) maximum context length/,
  },
  { by: "Groq", words: /reduce the length of the messages/i },
  {
    by: "Kimi",
    words: /exceeded model token limit(?:: (?<context>\d+) \(requested: (?<prompt>\d+)\))?/,
  },
  { by: "Kimi, of the input", words: /input token length too long/i },
  { by: "MiniMax", words: /context window exceeds limit/ },
  {
    by: "GitHub Copilot",
    words: /prompt token count of (?<prompt>\d+) exceeds the limit of (?<context>\d+)/,
  },
  { by: "Qwen", words: /Range of input length should be/ },
  { by: "Z.ai", words: /Prompt 超长/ },
  { by: "Z.ai, code 1261", words: /prompt exceeds max length/i },
  { by: "Z.ai, code 1210", words: /tokens in request more than max tokens allowed/i },
  {
    by: "Poolside",
    words:
      /Input length (?<prompt>\d+) exceeds the maximum allowed input length of (?<context>\d+)/,
  },
  { by: "LM Studio", words: /greater than the context length/ },
  { by: "Ollama", words: /exceeded max context length/ },
  { by: "llama.cpp", words: /exceeds the available context size/ },
  // Of unknown origin: clients know them.
  { by: "a deployment", words: /context exceeds your deployment/i },
  {
    by: "a context limit",
    words: /(?:exceed(?:s|ed)?|than) the (?:model's )?maximum context limit/i,
  },
];

/** Characters of a message that are searched. */
const searchedMax = 8_000;

/** The overflow that an error body reports. Undefined for every other error. */
export function findContextOverflow(report: OverflowReport): Overflow | undefined {
  const { type, code, promptTokens, contextTokens } = report;
  if (promptTokens !== undefined && contextTokens !== undefined)
    return overflowOf(promptTokens, undefined, contextTokens);
  const message = report.message.slice(0, searchedMax);
  for (const { words } of wordings) {
    const found = words.exec(message);
    if (!found) continue;
    const numberOf = (name: string) => {
      const digits = found.groups?.[name];
      return digits === undefined ? undefined : Number(digits);
    };
    const [output, total] = [numberOf("output"), numberOf("total")];
    // The prompt of a total is stated in parts (messages, functions), of which one may be missing.
    const prompt = total === undefined ? numberOf("prompt") : total - (output ?? 0);
    return overflowOf(prompt, output, numberOf("context"));
  }
  const isOverflow = code === "context_length_exceeded" || type === "exceed_context_size_error";
  return isOverflow ? overflowOf() : undefined;
}

/** The overflow of these numbers of tokens, as far as they are known. */
export function overflowOf(prompt?: number, output?: number, context?: number): Overflow {
  const bare = { part: "prompt", message: "prompt is too long" } as const;
  if (prompt === undefined || context === undefined) return bare;
  if (prompt >= context)
    return { part: "prompt", message: `${bare.message}: ${prompt} tokens > ${context} maximum` };
  if (output === undefined) return bare;
  const sum = `${prompt} + ${output} > ${context}`;
  const advice = "decrease input length or `max_tokens` and try again";
  return {
    part: "output",
    message: `input length and \`max_tokens\` exceed context limit: ${sum}, ${advice}`,
  };
}
