// Recognizes a provider's error about a request that exceeds the model's context, and rewords it to
// one of the two messages that clients act on: after "prompt is too long" they compact their
// conversation, after "exceed context limit" they request less output.

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

/** The overflow that an error body reports. Undefined for every other error. */
export function findContextOverflow(report: OverflowReport): Overflow | undefined {
  const { type, code, message } = report;
  if (tooLong.test(message))
    return { part: "prompt", message: message.replace(tooLong, "prompt is too long") };
  const context = report.contextTokens ?? findNumber(message, contextForm);
  const output = findNumber(message, outputForm);
  const prompt = report.promptTokens ?? findPromptTokens(message, output);
  if (context !== undefined && prompt !== undefined) {
    if (prompt >= context)
      return {
        part: "prompt",
        message: `prompt is too long: ${prompt} tokens > ${context} maximum`,
      };
    if (output !== undefined) {
      const sum = `${prompt} + ${output} > ${context}`;
      const advice = "decrease input length or `max_tokens` and try again";
      return {
        part: "output",
        message: `input length and \`max_tokens\` exceed context limit: ${sum}, ${advice}`,
      };
    }
  }
  const isOverflow = code === "context_length_exceeded" || type === "exceed_context_size_error";
  return isOverflow ? { part: "prompt", message: "prompt is too long" } : undefined;
}

const tooLong = /^(?:the )?prompt is too long/i;
// The wordings of hosted providers, OpenRouter, Together, SGLang and vLLM (three generations).
const contextForm =
  /context length (?:is |of |is only |of only |\()(\d+)|maximum prompt length is (\d+)|number of tokens allowed \((\d+)\)/;
const outputForm =
  /requested (\d+) output tokens|(\d+) (?:tokens )?(?:in|for) the (?:completion|output)|is too large: (\d+)/;
const inputForm =
  /(\d+) input tokens|input \((\d+) tokens|resulted in (\d+) tokens|request contains (\d+) tokens|token count \((\d+)\)/;
const totalForm = /requested (?:about |a total of )?(\d+) tokens/;

// If the message states a total, the prompt is the total without the output. The prompt itself is
// stated in parts (messages, functions), of which one may be missing.
function findPromptTokens(message: string, output: number | undefined): number | undefined {
  const total = findNumber(message, totalForm);
  return total === undefined ? findNumber(message, inputForm) : total - (output ?? 0);
}

function findNumber(message: string, form: RegExp): number | undefined {
  const number = form
    .exec(message)
    ?.slice(1)
    .find((group) => group !== undefined);
  return number === undefined ? undefined : Number(number);
}
