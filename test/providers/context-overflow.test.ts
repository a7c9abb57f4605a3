import { expect, test } from "vitest";
import { findContextOverflow } from "../../src/providers/context-overflow.ts";

const tooLong = (prompt: number, context: number) => ({
  part: "prompt",
  message: `prompt is too long: ${prompt} tokens > ${context} maximum`,
});
const tooMuchOutput = (prompt: number, output: number, context: number) => ({
  part: "output",
  message: `input length and \`max_tokens\` exceed context limit: ${prompt} + ${output} > ${context}, decrease input length or \`max_tokens\` and try again`,
});

const passed = (input: number, output: number) =>
  `You passed ${input} input tokens and requested ${output} output tokens. However, the model's context length is only 32768 tokens, ` +
  `resulting in a maximum input length of ${32_768 - output} tokens. Please reduce the length of the input prompt. ` +
  `(parameter=input_tokens, value=${input})`;
const cases: { provider: string; message: string; overflow: object | undefined }[] = [
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
    overflow: { part: "prompt", message: "prompt is too long" },
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
  test(`reads the message of ${provider}`, () => {
    expect(findContextOverflow({ type: "", code: "", message })).toEqual(overflow);
  });
}

test("reads token counts from members of their own", () => {
  const message = "the request exceeds the available context size. try increasing the context size";
  const report = { type: "exceed_context_size_error", code: "", message };
  expect(findContextOverflow({ ...report, promptTokens: 14_429, contextTokens: 8192 })).toEqual(
    tooLong(14_429, 8192),
  );
});

test("recognizes an overflow without token counts", () => {
  const bare = { part: "prompt", message: "prompt is too long" };
  expect(
    findContextOverflow({ type: "exceed_context_size_error", code: "", message: "no" }),
  ).toEqual(bare);
  expect(findContextOverflow({ type: "", code: "context_length_exceeded", message: "no" })).toEqual(
    bare,
  );
});
