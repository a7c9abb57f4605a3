// Calls for tokens: to the addresses at which the clouds give credentials.

import type { Outbound } from "../base/outbound.ts";

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
    const answer = await outbound.fetch(url, { ...call, redirect: "error", signal });
    const headers = Object.fromEntries(answer.headers);
    return { status: answer.status, headers, body: await answer.text() };
  };
}
