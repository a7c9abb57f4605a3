// What a provider says about a request that does not fit into its model's context, in the two
// wordings that clients act on: at the one they compact their conversation, at the other they ask
// for less output.

/** The members of an error body that may tell of an overflow. */
export type OverflowReport = {
  readonly type: string;
  readonly code: string;
  readonly message: string;
  /** Figures that llama.cpp gives as members of their own. */
  readonly promptTokens?: number;
  readonly contextTokens?: number;
};

/**
 * `prompt`: it is too long by itself. `output`: it fits, but not together with the output that was
 * asked for.
 */
export type Overflow = { readonly what: "prompt" | "output"; readonly message: string };

/** Undefined for every other error. */
export function findContextOverflow(report: OverflowReport): Overflow | undefined {
  const { type, code, message } = report;
  if (tooLong.test(message))
    return { what: "prompt", message: message.replace(tooLong, "prompt is too long") };
  const context = report.contextTokens ?? figureIn(message, contextForm);
  const output = figureIn(message, outputForm);
  const prompt = report.promptTokens ?? promptIn(message, output);
  if (context !== undefined && prompt !== undefined) {
    if (prompt >= context)
      return {
        what: "prompt",
        message: `prompt is too long: ${prompt} tokens > ${context} maximum`,
      };
    if (output !== undefined) {
      const sum = `${prompt} + ${output} > ${context}`;
      const advice = "decrease input length or `max_tokens` and try again";
      return {
        what: "output",
        message: `input length and \`max_tokens\` exceed context limit: ${sum}, ${advice}`,
      };
    }
  }
  const isOverflow = code === "context_length_exceeded" || type === "exceed_context_size_error";
  return isOverflow ? { what: "prompt", message: "prompt is too long" } : undefined;
}

const tooLong = /^(?:the )?prompt is too long/i;
// As hosted providers, OpenRouter, Together, SGLang and vLLM (three generations) word them.
const contextForm =
  /context length (?:is |of |is only |of only |\()(\d+)|maximum prompt length is (\d+)|number of tokens allowed \((\d+)\)/;
const outputForm =
  /requested (\d+) output tokens|(\d+) (?:tokens )?(?:in|for) the (?:completion|output)|is too large: (\d+)/;
const inputForm =
  /(\d+) input tokens|input \((\d+) tokens|resulted in (\d+) tokens|request contains (\d+) tokens|token count \((\d+)\)/;
const totalForm = /requested (?:about |a total of )?(\d+) tokens/;

// A total holds the prompt in parts (messages, functions), so what is left of it beside the output
// is surer than any part.
function promptIn(message: string, output: number | undefined): number | undefined {
  const total = figureIn(message, totalForm);
  return total === undefined ? figureIn(message, inputForm) : total - (output ?? 0);
}

function figureIn(message: string, form: RegExp): number | undefined {
  const figure = form
    .exec(message)
    ?.slice(1)
    .find((group) => group !== undefined);
  return figure === undefined ? undefined : Number(figure);
}
