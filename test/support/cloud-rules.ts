// What the clouds have in common that serve the native API: each refuses a whole request for one
// beta or member that it does not know.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Script } from "./provider.ts";

/** What a cloud knows. */
export type CloudRules = {
  /** Betas, without their dates. */
  betas: string[];
  /** Members at the top of a body. */
  members: string[];
};

export const cloudMembers: readonly string[] = [
  ...["anthropic_beta", "anthropic_version", "max_tokens", "messages", "metadata", "model"],
  ...["output_config", "stop_sequences", "stream", "system", "temperature", "thinking"],
  ...["tool_choice", "tools", "top_k", "top_p", "cache_control", "context_management"],
];
export const cloudBetas: readonly string[] = [
  ...["interleaved-thinking", "context-management", "context-1m", "tool-search-tool", "effort"],
];

/** What it refuses of a body and its betas. `foreign`: members that belong elsewhere here. */
export function problemOf(
  { members: known, betas: offered }: CloudRules,
  body: JsonObject,
  sent: readonly string[],
  foreign: readonly string[],
): string | undefined {
  const extra = Object.keys(body).find((name) => !known.includes(name) || foreign.includes(name));
  if (extra !== undefined) return `${extra}: Extra inputs are not permitted`;
  const isOffered = (beta: string) => offered.some((name) => beta.startsWith(`${name}-20`));
  if (sent.some((beta) => beta !== "" && !isOffered(beta))) return "invalid beta flag";
  if (/"scope":"(global|org)"/.test(JSON.stringify([body.system, body.messages])))
    return "system.0.cache_control.scope: Extra inputs are not permitted";
  return undefined;
}

export function jsonScript(body: JsonObject, status = 200): Script {
  return {
    status,
    headers: { "content-type": "application/json" },
    writes: [JSON.stringify(body)],
  };
}

/** A refusal of the native form. */
export function nativeRefusal(status: number, message: string): Script {
  return jsonScript({ type: "error", error: { type: "invalid_request_error", message } }, status);
}
