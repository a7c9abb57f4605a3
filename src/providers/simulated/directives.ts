// `[[simulate key=value …]]` in the last user text: requests a certain answer from the simulated
// model.

import { ApiError } from "../../base/errors.ts";

/** The requested answer. Absent members: the simulated model decides. */
export type Directives = {
  /** Exact length of the text, in tokens. */
  tokens?: number;
  /** Pause before the first token. */
  firstTokenMs?: number;
  /** Pause before each further token. */
  tokenMs?: number;
  /** Answer with this HTTP error status. */
  error?: number;
  /** Reject the prompt as longer than the context window. */
  contextLengthExceeded?: boolean;
  /** Break the connection after this number of events. */
  dropAfter?: number;
  /** Send an error event after this number of events. */
  failAfter?: number;
  /** Report no usage. */
  noUsage?: boolean;
  stopReason?: string;
  /** Kinds of blocks of the answer, in this order, instead of the usual ones. */
  blocks?: BlockKind[];
};

const blockKinds = ["text", "thinking", "tool_use"] as const;
export type BlockKind = (typeof blockKinds)[number];

const form = /\[\[simulate\b([^\]]{0,2000})\]\]/g;

const delayMaxMs = 600_000;

/**
 * The directives in a text, and the text without them. Throws `invalid_request` for a wrong one.
 */
export function readDirectives(text: string): { directives: Directives; rest: string } {
  const directives: Directives = {};
  if (!text.includes("[[simulate")) return { directives, rest: text };
  const rest = text.replace(form, (_, pairs: string) => {
    for (const pair of pairs.trim().split(/\s+/)) if (pair !== "") readPair(pair, directives);
    return "";
  });
  return { directives, rest: rest.trim() };
}

function readPair(pair: string, into: Directives): void {
  const [key = "", value = ""] = pair.split(/=(.*)/s);
  const whole = (min: number, max: number) => {
    const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new ApiError("invalid_request", {
      message: `simulate: ${key} must be a whole number from ${min} to ${max}`,
    });
  };
  const kindOf = (name: string) => {
    const kind = blockKinds.find((one) => one === name);
    if (kind) return kind;
    throw new ApiError("invalid_request", {
      message: `simulate: ${key} are some of ${blockKinds.join(", ")}`,
    });
  };
  switch (key) {
    case "tokens":
      into.tokens = whole(0, 1_000_000);
      break;
    case "first_token_ms":
      into.firstTokenMs = whole(0, delayMaxMs);
      break;
    case "token_ms":
      into.tokenMs = whole(0, delayMaxMs);
      break;
    case "error":
      into.error = whole(400, 599);
      break;
    case "context_length_exceeded":
      into.contextLengthExceeded = value !== "false";
      break;
    case "drop_after":
      into.dropAfter = whole(0, 1_000_000);
      break;
    case "fail_after":
      into.failAfter = whole(0, 1_000_000);
      break;
    case "no_usage":
      into.noUsage = value !== "false";
      break;
    case "stop_reason":
      into.stopReason = value;
      break;
    case "blocks":
      into.blocks = value.split(",").map(kindOf);
      break;
    default:
      throw new ApiError("invalid_request", {
        message: `simulate: there is no directive ${key.slice(0, 40)}`,
      });
  }
}
