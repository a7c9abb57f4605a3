// Calls for tokens: to the addresses at which the clouds give credentials.

import type { JsonObject } from "@bufbuild/protobuf";
import { request } from "undici";
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

/** Calls without a proxy. */
export const callDirectly: TokenCall = async ({ url, method, headers, body }) => {
  const signal = AbortSignal.timeout(answerMaxMs);
  const answer = await request(url, {
    method,
    headers,
    signal,
    ...(body !== undefined && { body }),
  });
  const received = Object.entries(answer.headers).map(([name, value]) => [name, String(value)]);
  return {
    status: answer.statusCode,
    headers: Object.fromEntries(received),
    body: await answer.body.text(),
  };
};

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
