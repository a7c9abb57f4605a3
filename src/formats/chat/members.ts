// Which members of a chat request reach a provider of this format. An unknown member can cost the
// operator money that nobody pays, so the list says what passes.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { withoutTags } from "../../base/tags.ts";
import type { Dialect } from "../../config/catalog.ts";
import type { Fit } from "../fit.ts";
import { isObject } from "../json.ts";

/** Members of OpenAI's reference. Those that the gateway sets itself are not listed. */
const reference = [
  "frequency_penalty",
  "function_call",
  "functions",
  "logit_bias",
  "logprobs",
  "metadata",
  "modalities",
  "moderation",
  "parallel_tool_calls",
  "prediction",
  "presence_penalty",
  "prompt_cache_key",
  "prompt_cache_options",
  "prompt_cache_retention",
  "reasoning_effort",
  "response_format",
  "safety_identifier",
  "seed",
  "service_tier",
  "stop",
  "temperature",
  "tool_choice",
  "tools",
  "top_logprobs",
  "top_p",
  "user",
  "verbosity",
];

/** Members that servers of open models know besides. */
const open = [
  "chat_template_kwargs",
  "dry_allowed_length",
  "dry_base",
  "dry_multiplier",
  "dry_penalty_last_n",
  "dry_sequence_breakers",
  "enable_thinking",
  "grammar",
  "guided_choice",
  "guided_grammar",
  "guided_json",
  "guided_regex",
  "ignore_eos",
  "min_p",
  "mirostat",
  "mirostat_eta",
  "mirostat_tau",
  "preserve_thinking",
  "reasoning",
  "reasoning_split",
  "repetition_penalty",
  "safe_prompt",
  "stop_token_ids",
  "structured_outputs",
  "thinking",
  "thinking_budget",
  "top_a",
  "top_k",
  "typical_p",
  "xtc_probability",
  "xtc_threshold",
];

/**
 * Members that would choose another model, another price or a secret, or use what belongs to the
 * operator: no provider gets them, whatever its settings say.
 */
export const neverPassed: ReadonlySet<string> = new Set([
  "access_programs",
  "api_base",
  "api_key",
  "enable_search",
  "extra_body",
  "fallbacks",
  "mock_response",
  "models",
  "plugins",
  "preset",
  "provider",
  "route",
  "search_options",
  "search_parameters",
  "transforms",
  "user_config",
  "web_search_options",
]);

/** Members that the gateway sets for every provider. */
const ownMembers = new Set([
  "max_completion_tokens",
  "max_tokens",
  "messages",
  "model",
  "n",
  "store",
  "stream",
  "stream_options",
]);
const known = new Set([...reference, ...open]);
const referenceSet = new Set(reference);

/** What a provider is given beyond the list: all members, or some by name. */
export type PassMembers = "all" | readonly string[];

/** The members that pass, without those that the gateway sets. Others are noted in `fit`. */
export function passMembers(
  members: JsonObject,
  dialect: Dialect,
  more: PassMembers,
  fit: Fit,
): JsonObject {
  const effort = members.reasoning_effort;
  const hasEffort = typeof effort === "string" && effort !== "none";
  const entries = Object.entries(members).flatMap(([name, value]): [string, JsonValue][] => {
    if (ownMembers.has(name)) return [];
    const isBarred = hasEffort && dialect.refusedBesideEffort?.includes(name) === true;
    if (isBarred || !passes(name, dialect, more)) {
      const nested = name === "extra_body" ? ownPart(value, dialect.extraBody) : undefined;
      if (nested) return [[name, nested]];
      if (value !== null) fit.leaveOut({ where: name, what: name, why: "member" });
      return [];
    }
    if (name === "reasoning_effort") return effortMembers(value, dialect);
    return name === "metadata" && isObject(value) ? metadataMembers(value) : [[name, value]];
  });
  return Object.fromEntries(entries);
}

/** Metadata without the tags of the gateway, unless it had nothing else. */
function metadataMembers(value: JsonObject): [string, JsonValue][] {
  const rest = withoutTags(value);
  const isEmptied = Object.keys(rest).length === 0 && Object.keys(value).length > 0;
  return isEmptied ? [] : [["metadata", rest]];
}

/** An effort in the words of the provider. */
export function effortMembers(effort: JsonValue, dialect: Dialect): [string, JsonValue][] {
  const { efforts = {}, thinkingOff } = dialect;
  if (effort === "none" && thinkingOff) return Object.entries(thinkingOff);
  const own = typeof effort === "string" ? efforts[effort] : undefined;
  return [["reasoning_effort", own ?? effort]];
}

/** Of `extra_body`, the one member that a provider documents for it. */
function ownPart(value: JsonValue, path: Dialect["extraBody"]): JsonObject | undefined {
  const [outer, inner] = path ?? [];
  if (outer === undefined || inner === undefined || !isObject(value)) return undefined;
  const group = value[outer];
  const found = isObject(group) ? group[inner] : undefined;
  return found === undefined ? undefined : { [outer]: { [inner]: found } };
}

/** True if a provider gets this member of a client. */
export function passes(name: string, dialect: Dialect, more: PassMembers): boolean {
  if (neverPassed.has(name) || dialect.refusedRequestMembers?.includes(name)) return false;
  if (more === "all" || more.includes(name) || dialect.ownMembers?.includes(name)) return true;
  return dialect.isStrict ? referenceSet.has(name) : known.has(name);
}
