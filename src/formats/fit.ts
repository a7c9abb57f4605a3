// What encoders do to a request so that its provider accepts it.

import type { JsonValue } from "@bufbuild/protobuf";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type LeftOutReasonName, leftOutReasonOf } from "../base/left-out.ts";
import { isObject } from "./json.ts";

/** What became of the reasoning and the members that a client returned. */
export type CarryResult = "back" | "foreign" | "model" | "placeholder" | "changed" | "age" | "size";

export type LeftOutEntry = Pick<LeftOut, "where" | "what"> & { readonly why: LeftOutReasonName };

/** Most entries of one request. Names of members are the client's, and there can be many. */
const entriesMax = 100;

/**
 * Collects what is left out of one request: one entry for each kind of thing and reason, at its
 * first place, with its number, because a history comes again with every request.
 */
export class Fit {
  readonly #entries = new Map<string, LeftOut>();

  leaveOut({ where, what, why }: LeftOutEntry, count = 1): void {
    const key = `${why}\0${what}`;
    const known = this.#entries.get(key);
    if (known) known.count += count;
    else if (this.#entries.size < entriesMax)
      this.#entries.set(key, {
        $typeName: "gateway.common.v1.LeftOut",
        where,
        what: what.slice(0, 64),
        why: leftOutReasonOf(why),
        count,
      });
  }

  get leftOut(): LeftOut[] {
    return [...this.#entries.values()];
  }

  /** How often each thing happened to what a client returned. */
  readonly carried: Partial<Record<CarryResult, number>> = {};

  carry(result: CarryResult): void {
    this.carried[result] = (this.carried[result] ?? 0) + 1;
  }
}

/**
 * Members of OpenAI's two formats that every target gets in a form of its own, and those that have
 * an effect on the gateway alone.
 */
const expressed = new Set([
  // The client's notes on itself.
  "client_metadata",
  ...["background", "function_call", "functions", "include", "input", "instructions"],
  ...["max_completion_tokens", "max_output_tokens", "max_tokens", "metadata", "moderation", "n"],
  ...["parallel_tool_calls", "reasoning", "reasoning_effort", "response_format", "store", "stop"],
  ...["stream", "stream_options", "temperature", "thinking", "tool_choice", "tools", "top_k"],
  // The number of calls of tools that its provider has not.
  ...["max_tool_calls", "top_p", "text", "truncation", "verbosity"],
]);
/** Of the native format: its other members have typed fields. */
const expressedNative = new Set(["metadata", "service_tier", "stop_sequences", "stream", "tools"]);

/** Notes the members of a request that its target, of another format, does not get. */
export function leaveOutMembers(
  { extensions = {}, origin }: GenerateRequest,
  more: readonly string[],
  fit: Fit,
): void {
  const isNative = origin?.format !== Format.CHAT && origin?.format !== Format.RESPONSES;
  const known = isNative ? expressedNative : expressed;
  // Of a chat request with messages, an input beside them says nothing.
  const isExpressed = (name: string) =>
    known.has(name) && !(name === "input" && origin?.format === Format.CHAT);
  for (const [name, value] of Object.entries(extensions))
    if (value !== null && !isExpressed(name) && !more.includes(name) && !isDefault(name, value))
      fit.leaveOut({ where: name, what: name, why: "member" });
}

/** True for a value that asks for what every provider does by itself. */
function isDefault(name: string, value: JsonValue): boolean {
  return (
    name === "modalities" && Array.isArray(value) && value.every((modality) => modality === "text")
  );
}

/** How long the client of one of OpenAI's formats wants its answer: `low`, `medium` or `high`. */
export function verbosityOf({ extensions = {}, origin }: GenerateRequest) {
  const { text, verbosity } = extensions;
  const asked =
    origin?.format === Format.RESPONSES && isObject(text)
      ? text.verbosity
      : origin?.format === Format.CHAT
        ? verbosity
        : undefined;
  return typeof asked === "string" ? asked : undefined;
}

/**
 * What stands where a provider needs the reasoning of a turn and the client lost it. Another text
 * for each turn: of a constant, models learn to answer with nothing.
 */
export function reasoningPlaceholder(calls: readonly string[], where: string, fit: Fit): string {
  notePlaceholder(where, fit);
  return `Calling ${calls.join(", then ")}.`;
}

export function notePlaceholder(where: string, fit: Fit): void {
  fit.carry("placeholder");
  fit.leaveOut({ where, what: "thinking", why: "placeholder" });
}
