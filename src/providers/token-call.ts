// Calls for tokens: to the addresses at which the clouds give credentials.

import { request } from "undici";

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
