// Calls for tokens: to the addresses at which the clouds give credentials.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Outbound } from "../base/outbound.ts";
import { isObject, parseJsonText } from "../formats/json.ts";
import type { Fetched } from "./renewal.ts";

/** One call, and its whole answer. Rejects without one. */
export type TokenCall = (call: {
  readonly method: "GET" | "POST" | "PUT";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}) => Promise<{
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}>;

const answerMaxMs = 10_000;

/** Calls on this way. */
export function tokenCall(outbound: Outbound): TokenCall {
  return async ({ url, ...call }) => {
    const signal = AbortSignal.timeout(answerMaxMs);
    // A redirect would carry the credentials along.
    const answer = await outbound
      .fetch(url, { ...call, redirect: "error", signal })
      .catch((error: unknown) => {
        // "fetch failed" tells an operator nothing.
        throw error instanceof Error && error.cause instanceof Error ? error.cause : error;
      });
    const headers = Object.fromEntries(answer.headers);
    return { status: answer.status, headers, body: await answer.text() };
  };
}

/** The members of an answer. Throws what the address says for any other, without its values. */
export function readToken({ status, body }: Awaited<ReturnType<TokenCall>>): JsonObject {
  const read = parseJsonText(body);
  if (status === 200 && isObject(read)) return read;
  const { error, error_description: description } = isObject(read) ? read : {};
  const words = isObject(error) ? (error.message ?? error.status) : error;
  const known = [words, description].filter((one) => typeof one === "string").join(": ");
  throw new Error(`it answers status ${status}${known === "" ? "" : `: ${known.slice(0, 300)}`}`);
}

/** Posts a form, and reads the JSON object that answers it. */
export async function postForm(
  call: TokenCall,
  url: string,
  members: Readonly<Record<string, string>>,
): Promise<JsonObject> {
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  const body = new URLSearchParams(members).toString();
  return readToken(await call({ method: "POST", url, headers, body }));
}

/** The token of an answer of OAuth 2.0. */
export function accessTokenOf(answer: JsonObject): Fetched<string> {
  const { access_token: value, expires_in: seconds } = answer;
  if (typeof value !== "string") throw new Error("it answers without a token");
  return { value, lifeMs: Number(seconds ?? 3600) * 1000 };
}
