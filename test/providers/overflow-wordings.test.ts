import { expect, test } from "vitest";
import { failureOfAnswer } from "../../src/providers/failures.ts";
import {
  findContextOverflow,
  type Overflow,
  wordings,
} from "../../src/providers/overflow-wordings.ts";

const tooLong = (prompt: number, context: number): Overflow => ({
  part: "prompt",
  message: `prompt is too long: ${prompt} tokens > ${context} maximum`,
});
const tooMuchOutput = (prompt: number, output: number, context: number): Overflow => ({
  part: "output",
  message: `input length and \`max_tokens\` exceed context limit: ${prompt} + ${output} > ${context}, decrease input length or \`max_tokens\` and try again`,
});

const bare: Overflow = { part: "prompt", message: "prompt is too long" };

const passed = (input: number, output: number) =>
  `You passed ${input} input tokens and requested ${output} output tokens. However, the model's context length is only 32768 tokens, ` +
  `resulting in a maximum input length of ${32_768 - output} tokens. Please reduce the length of the input prompt. ` +
  `(parameter=input_tokens, value=${input})`;
const cases: { provider: string; message: string; overflow: Overflow | undefined }[] = [
  {
    provider: "the vendor",
    message: "prompt is too long: 300 tokens > 200 maximum",
    overflow: tooLong(300, 200),
  },
  {
    provider: "a hosted provider",
    message:
      "This model's maximum context length is 4096 tokens. However, your messages resulted in 4300 tokens (4200 in the messages, 100 in the functions).",
    overflow: tooLong(4300, 4096),
  },
  {
    provider: "a hosted provider that adds the output",
    message:
      "This model's maximum context length is 4096 tokens. However, you requested 8292 tokens (100 in the messages, 8192 in the completion).",
    overflow: tooMuchOutput(100, 8192, 4096),
  },
  {
    provider: "a hosted provider that counts functions apart",
    message:
      "This model's maximum context length is 4096 tokens. However, you requested 5296 tokens (4100 in the messages, 96 in the functions, and 1100 in the completion).",
    overflow: tooLong(4196, 4096),
  },
  {
    provider: "an old hosted provider",
    message:
      "This model's maximum context length is 8191 tokens, however you requested 8238 tokens (8238 in your prompt; 0 for the completion).",
    overflow: tooLong(8238, 8191),
  },
  {
    provider: "OpenRouter",
    message:
      "This endpoint's maximum context length is 131072 tokens. However, you requested about 150000 tokens (140000 of text input, 8000 of tool input, 2000 in the output).",
    overflow: tooLong(148_000, 131_072),
  },
  {
    provider: "vLLM",
    message:
      "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and your request has 1000 input tokens (32000 > 32768 - 1000).",
    overflow: tooMuchOutput(1000, 32_000, 32_768),
  },
  {
    provider: "vLLM about a prompt",
    message:
      "This model's maximum context length is 32768 tokens. However, your request has 40001 input tokens. Please reduce the length of the input messages.",
    overflow: tooLong(40_001, 32_768),
  },
  {
    provider: "vLLM about a prompt that it stopped counting",
    message:
      "This model's maximum context length is 32768 tokens. However, you requested 100 output tokens and your prompt contains at least 32669 input tokens, for a total of at least 32769 tokens.",
    overflow: tooMuchOutput(32_669, 100, 32_768),
  },
  { provider: "a newer vLLM", message: passed(40_001, 100), overflow: tooLong(40_001, 32_768) },
  {
    provider: "a newer vLLM about the output",
    message: passed(3_073, 32_000),
    overflow: tooMuchOutput(3_073, 32_000, 32_768),
  },
  {
    provider: "a newer vLLM whose context is full",
    message: passed(32_768, 1),
    overflow: tooLong(32_768, 32_768),
  },
  {
    provider: "Together",
    message: "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    overflow: tooLong(61_709, 40_960),
  },
  {
    provider: "SGLang",
    message:
      "Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of 202941 tokens: 170941 tokens from the input messages and 32000 tokens for the completion.",
    overflow: tooMuchOutput(170_941, 32_000, 202_752),
  },
  {
    provider: "xAI",
    message: "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    overflow: tooLong(537_812, 131_072),
  },
  {
    provider: "Gemini",
    message:
      "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    overflow: tooLong(1_200_000, 1_048_576),
  },
  {
    provider: "a server with a capital letter",
    message: "Prompt is too long",
    overflow: bare,
  },
  {
    provider: "the vendor about the output",
    message:
      "input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000, decrease input length or `max_tokens` and try again",
    overflow: tooMuchOutput(180_000, 32_000, 200_000),
  },
  {
    provider: "Bedrock",
    message: "ValidationException: Input is too long for requested model.",
    overflow: bare,
  },
  { provider: "Bedrock in four words", message: "Input is too long.", overflow: bare },
  {
    provider: "OpenAI about a limit",
    message:
      "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 302473 tokens. Please reduce the length of the messages.",
    overflow: tooLong(302_473, 272_000),
  },
  {
    provider: "vLLM's engine",
    message:
      "The decoder prompt (length 8357) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
    overflow: tooLong(8_357, 8_192),
  },
  {
    provider: "Text Generation Inference",
    message:
      "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
    overflow: tooMuchOutput(4_000, 512, 4_096),
  },
  {
    provider: "LiteLLM",
    message: "litellm.ContextWindowExceededError: too many tokens",
    overflow: bare,
  },
  {
    provider: "Gemini on Vertex",
    message:
      "Unable to submit request because the input token count is 131335 but model only supports up to 131072. Reduce the input token count and try again.",
    overflow: tooLong(131_335, 131_072),
  },
  { provider: "Kimi about the input", message: "Input token length too long", overflow: bare },
  { provider: "Z.ai with code 1261", message: "Prompt exceeds max length", overflow: bare },
  {
    provider: "Z.ai with code 1210",
    message: "tokens in request more than max tokens allowed",
    overflow: bare,
  },
  {
    provider: "a deployment",
    message: "The context exceeds your deployment's window.",
    overflow: bare,
  },
  {
    provider: "a context limit",
    message: "The request exceeds the model's maximum context limit.",
    overflow: bare,
  },
  {
    provider: "OpenAI's Responses",
    message: "Your input exceeds the context window of this model. Please adjust your input.",
    overflow: bare,
  },
  {
    provider: "DeepInfra",
    message: "Input length (265330) exceeds model's maximum context length (262144).",
    overflow: tooLong(265_330, 262_144),
  },
  {
    provider: "Mistral",
    message:
      "Prompt contains 40001 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    overflow: tooLong(40_001, 32_768),
  },
  {
    provider: "Groq",
    message: "Please reduce the length of the messages or completion.",
    overflow: bare,
  },
  {
    provider: "Kimi",
    message: "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
    overflow: tooLong(300_000, 262_144),
  },
  {
    provider: "Kimi without a count",
    message: "Your request exceeded model token limit: 128000",
    overflow: bare,
  },
  {
    provider: "MiniMax",
    message: "invalid params, context window exceeds limit (2013)",
    overflow: bare,
  },
  {
    provider: "GitHub Copilot",
    message: "prompt token count of 140000 exceeds the limit of 128000",
    overflow: tooLong(140_000, 128_000),
  },
  {
    provider: "Qwen",
    message:
      "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    overflow: bare,
  },
  { provider: "Z.ai", message: "Prompt 超长", overflow: bare },
  {
    provider: "Poolside",
    message: "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    overflow: tooLong(131_393, 131_040),
  },
  {
    provider: "LM Studio",
    message:
      "The number of tokens to keep from the initial prompt is greater than the context length.",
    overflow: bare,
  },
  {
    provider: "Ollama",
    message: "prompt too long; exceeded max context length by 42 tokens",
    overflow: bare,
  },
  {
    provider: "llama.cpp",
    message: "the request exceeds the available context size, try increasing it",
    overflow: bare,
  },
  {
    provider: "a provider with another error",
    message: "messages.0: wrong, 300 tokens",
    overflow: undefined,
  },
  {
    provider: "a provider that only mentions the context",
    message: "The maximum context length is 200 tokens.",
    overflow: undefined,
  },
];
for (const { provider, message, overflow } of cases) {
  test(`reads the message of ${provider}, in any body`, () => {
    expect(findContextOverflow({ type: "", code: "", message })).toEqual(overflow);
    const error = { message, code: 400 };
    const nested = JSON.stringify({ error });
    const isPrompt = overflow?.part === "prompt";
    for (const body of [
      { error },
      { detail: [{ loc: ["body", "messages"], msg: message, type: "value_error" }] },
      { error: { message: `litellm.BadRequestError: OpenAIException - ${nested}`, code: "400" } },
      { error: { message: "Provider returned error", metadata: { raw: nested } } },
      { message: JSON.stringify({ detail: JSON.stringify({ error: nested }) }) },
    ]) {
      const found = failureOfAnswer({ status: 400, body }, "some-model");
      expect(found.error.reason).toBe(isPrompt ? "context_length_exceeded" : "upstream_refused");
      const { body: answer } = found.error.facts.providerAnswer ?? {};
      const words = isPrompt ? found.error.message : JSON.stringify(answer);
      expect(words).toContain(overflow ? JSON.stringify(overflow.message).slice(1, -1) : message);
    }
  });
}

test("each wording has a message here, which no wording before it matches", () => {
  const found = cases.map(({ message }) => wordings.find(({ words }) => words.test(message))?.by);
  expect(new Set(found)).toEqual(new Set([...wordings.map(({ by }) => by), undefined]));
});

test("a status 413 without a body is a prompt that is too long", () => {
  const { error, alarm } = failureOfAnswer({ status: 413 }, "some-model");
  expect([error.reason, error.message, alarm]).toEqual([
    "context_length_exceeded",
    "prompt is too long",
    undefined,
  ]);
});

test("reads token counts from members of their own", () => {
  const message = "the request exceeds the available context size. try increasing the context size";
  const report = { type: "exceed_context_size_error", code: "", message };
  expect(findContextOverflow({ ...report, promptTokens: 14_429, contextTokens: 8192 })).toEqual(
    tooLong(14_429, 8192),
  );
});

test("recognizes an overflow without token counts", () => {
  expect(
    findContextOverflow({ type: "exceed_context_size_error", code: "", message: "no" }),
  ).toEqual(bare);
  expect(findContextOverflow({ type: "", code: "context_length_exceeded", message: "no" })).toEqual(
    bare,
  );
});
