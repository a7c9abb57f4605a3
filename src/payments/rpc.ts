// JSON-RPC of the nodes of chains.

import { type Answer, ask } from "./ask.ts";

/** A block of Bitcoin has up to some 20 MB of JSON. */
const answerBytesMax = 64 * 1024 * 1024;

/** The node understood the call, and has no result. */
export class RpcError extends Error {}

export type RpcCall = { readonly method: string; readonly params: readonly unknown[] };

export type Rpc = {
  /** Throws `RpcError`, and other errors for a node that does not answer as it should. */
  call(method: string, params: readonly unknown[], signal: AbortSignal): Promise<Answer>;
  /** One request for several calls, so that one node behind an address answers them all. */
  batch(calls: readonly RpcCall[], signal: AbortSignal): Promise<Answer[]>;
};

/** `whom` names the node in errors: its address may hold a secret. */
export function createRpc(whom: string, address: URL): Rpc {
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
      whom,
      url: url.href,
      headers,
      body,
      signal,
      // Amounts of Bitcoin have 8 places, which numbers hold exactly; all others are texts.
      bytesMax: answerBytesMax,
      isInexact: true,
    });
  return {
    async call(method, params, signal) {
      return resultOf(await post({ jsonrpc: "2.0", id: 1, method, params }, signal), method);
    },
    async batch(calls, signal) {
      if (calls.length === 0) return [];
      const body = calls.map((one, id) => ({ jsonrpc: "2.0", id, ...one }));
      const answers = (await post(body, signal)).list();
      return calls.map(({ method }, id) => {
        const found = answers.find((one) => one.at("id").textOrEmpty() === String(id));
        if (!found) throw new Error(`${whom} left a call of ${method} without an answer`);
        return resultOf(found, method);
      });
    },
  };
}

function resultOf(answer: Answer, method: string): Answer {
  const error = answer.at("error");
  if (!error.isAbsent)
    throw new RpcError(`${method}: ${error.optional("message").slice(0, 200) || "failed"}`);
  return answer.at("result");
}
