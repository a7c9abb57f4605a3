// JSON-RPC of the nodes of chains.

import type { Outbound } from "../base/outbound.ts";
import { type Answer, ask } from "./ask.ts";

/** A block of Bitcoin has up to some 20 MB of JSON. */
const answerBytesMax = 64 * 1024 * 1024;
/** Requests that wait for a node at a time. */
export const requestsAtOnce = 4;

/** The node understood the call, and has no result. */
export class RpcError extends Error {
  /** Of the node, as text. Empty: it gave none. */
  readonly code: string;

  constructor(message: string, code: string) {
    super(message);
    this.code = code;
  }
}

export type RpcCall = { readonly method: string; readonly params: readonly unknown[] };

export type Rpc = {
  /** Throws `RpcError`, and other errors for a node that does not answer as it should. */
  call(method: string, params: readonly unknown[], signal: AbortSignal): Promise<Answer>;
  /** One request for several calls, so that one node behind an address answers them all. */
  batch(calls: readonly RpcCall[], signal: AbortSignal): Promise<Answer[]>;
  /**
   * Requests of at most so many calls each. `isSome`: a call that fails has an absent answer, and
   * throws no `RpcError`.
   */
  batches(
    calls: readonly RpcCall[],
    most: number,
    signal: AbortSignal,
    options?: { isSome: boolean },
  ): Promise<Answer[]>;
};

/** `whom` names the node in errors: its address may hold a secret. */
export function createRpc(whom: string, address: URL, outbound: Outbound): Rpc {
  const { username, password } = address;
  const url = new URL(address);
  url.username = "";
  url.password = "";
  const secret = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const headers =
    username === "" && password === ""
      ? {}
      : { authorization: `Basic ${Buffer.from(secret).toString("base64")}` };
  const post = (body: unknown, signal: AbortSignal) =>
    ask({
      outbound,
      whom,
      url: url.href,
      headers,
      body,
      signal,
      // Amounts of Bitcoin have 8 places, which numbers hold exactly; all others are texts.
      bytesMax: answerBytesMax,
      isInexact: true,
    });
  async function batch(calls: readonly RpcCall[], signal: AbortSignal, { isSome = false } = {}) {
    if (calls.length === 0) return [];
    const body = calls.map((one, id) => ({ jsonrpc: "2.0", id, ...one }));
    const answers = (await post(body, signal)).list();
    const byId = new Map(answers.map((one) => [one.at("id").textOrEmpty(), one]));
    return calls.map(({ method }, id) => {
      const found = byId.get(String(id));
      if (!found) throw new Error(`${whom} left a call of ${method} without an answer`);
      return isSome ? found.at("result") : resultOf(found, method);
    });
  }
  return {
    async call(method, params, signal) {
      return resultOf(await post({ jsonrpc: "2.0", id: 1, method, params }, signal), method);
    },
    batch,
    async batches(calls, most, signal, options) {
      const pages = pagesOf(most, calls);
      return (await inTurns(pages, (some) => batch(some, signal, options))).flat();
    },
  };
}

/** Does `work` for each, a few at a time. The first failure ends it. */
export async function inTurns<T, R>(all: readonly T[], work: (one: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const some of pagesOf(requestsAtOnce, all))
    results.push(...(await Promise.all(some.map(work))));
  return results;
}

export function pagesOf<T>(most: number, all: readonly T[]): T[][] {
  const pages: T[][] = [];
  for (let at = 0; at < all.length; at += most) pages.push(all.slice(at, at + most));
  return pages;
}

function resultOf(answer: Answer, method: string): Answer {
  const error = answer.at("error");
  if (!error.isAbsent)
    throw new RpcError(
      `${method}: ${error.optional("message").slice(0, 200) || "failed"}`,
      error.at("code").textOrEmpty(),
    );
  return answer.at("result");
}
