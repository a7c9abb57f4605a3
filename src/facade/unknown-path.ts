// Requests to paths or with methods that are not served: 404 with guidance where people are known to take a wrong turn, or 405.

import { Refusal } from "../errors.ts";

/** A served path, with `:name` for one free segment, and its methods. */
export type Served = { readonly path: string; readonly methods: readonly string[] };

const chat = "POST /v1/chat/completions";
const native = "POST /v1/messages";
const guidance: readonly (readonly [prefix: string, advice: string])[] = [
  [
    "/v1/responses",
    `The Responses API is not served here: use ${chat} (with @ai-sdk/openai take the chat model, or the openai-compatible package).`,
  ],
  ["/v1/completions", `Text completions are not served here: use ${chat}.`],
  ["/v1/complete", `Text completions are not served here: use ${native}.`],
  ["/v1/messages/batches", `Batches are not served here: use ${native} for each request.`],
  ["/v1/files", `There is no file store here: put the content into the request of ${native}.`],
  ["/v1/embeddings", `Embeddings are not served here; this gateway serves ${native} and ${chat}.`],
];

/** The refusal of a request that no route serves, and the methods that its path has. */
export function refuseUnserved(method: string, url: string, served: readonly Served[]): { refusal: Refusal; allow: string[] } {
  const path = url.split(/[?#]/, 1)[0] ?? "";
  const allow = [...new Set(served.filter((one) => fits(path, one.path)).flatMap((one) => one.methods))];
  if (allow.length > 0) {
    const message = `This path has no method ${method}; it has ${allow.join(", ")}.`;
    return { refusal: new Refusal("method_not_allowed", { message, allowed: allow }), allow };
  }
  const advice = guidance.find(([prefix]) => joins(prefix).some((one) => path === one || path.startsWith(`${one}/`)))?.[1];
  const message = advice ?? `There is no such path. Served are ${native}, ${chat}, GET /v1/models.`;
  return { refusal: new Refusal("not_found", { message }), allow };
}

/** A path, and what it becomes when a client's base address has one `/v1` too few or too many. */
export function joins(path: string): string[] {
  return [path, path.slice("/v1".length), `/v1${path}`];
}

function fits(path: string, pattern: string): boolean {
  const segments = path.split("/");
  const wanted = pattern.split("/");
  return (
    segments.length === wanted.length &&
    wanted.every((one, at) => one === segments[at] || (one.startsWith(":") && segments[at] !== ""))
  );
}
