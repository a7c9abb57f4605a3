// The same request in every format and over gRPC, for an answer in one piece or as a stream, with
// so many tokens that its provider is asked in one piece or for a stream.

import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect } from "vitest";
import { newRequestId } from "../../src/base/ids.ts";
import type { grpcCore } from "../../src/grpc/client.ts";
import { nativeOrigin, requestOf } from "./providers.ts";

export const formats = ["native", "chat", "Responses", "gRPC"] as const;
export type FormatName = (typeof formats)[number];

export type Wish = { readonly maxTokens: number; readonly stream: boolean };

/** A provider is asked for up to 4,096 tokens of a plain answer in one piece. */
export const wishes: readonly Wish[] = [
  { maxTokens: 4_096, stream: false },
  { maxTokens: 4_097, stream: false },
  { maxTokens: 4_096, stream: true },
  { maxTokens: 4_097, stream: true },
];

export type Asker = {
  /** Of the HTTP listener. */
  readonly address: string;
  readonly core: ReturnType<typeof grpcCore>;
  /** The secret of a key. */
  readonly secret: string;
};

/** A request that is on its way. */
export type Asked = {
  readonly requestId: string;
  /** Resolves when the client has this text. */
  received(text: string): Promise<void>;
  /** The status, of gRPC 200 or 500. Undefined: there was none before the connection ended. */
  readonly ended: Promise<number | undefined>;
  leave(): void;
};

export function ask({ address, core, secret }: Asker, format: FormatName, wish: Wish): Asked {
  const requestId = newRequestId();
  const leaving = new AbortController();
  let text = "";
  let waiting: { text: string; resolve: () => void }[] = [];
  const read = (more: string) => {
    text += more;
    for (const one of waiting) if (text.includes(one.text)) one.resolve();
    waiting = waiting.filter((one) => !text.includes(one.text));
  };
  const { maxTokens, stream } = wish;

  const post = async (path: string, body: JsonObject): Promise<number | undefined> => {
    let status: number | undefined;
    try {
      const answer = await fetch(address + path, {
        method: "POST",
        signal: leaving.signal,
        headers: {
          ...(path === "/v1/messages"
            ? { "x-api-key": secret, "anthropic-version": "2023-06-01" }
            : { authorization: `Bearer ${secret}` }),
          "content-type": "application/json",
          "x-request-id": requestId,
        },
        body: JSON.stringify({ model: "haiku", stream, ...body }),
      });
      status = answer.status;
      for await (const chunk of answer.body ?? []) read(Buffer.from(chunk).toString("latin1"));
    } catch {
      // The client left, its gateway was killed, or a stream broke.
    }
    return status;
  };
  const call = async (): Promise<number | undefined> => {
    const request = requestOf("Hello", {
      model: "haiku",
      maxTokens,
      origin: nativeOrigin({ streamed: stream }),
    });
    const headers = { authorization: `Bearer ${secret}`, "x-request-id": requestId };
    try {
      const { signal } = leaving;
      for await (const { kind } of core.inference.generate(request, { headers, signal }))
        if (kind.case === "events")
          for (const { kind: event } of kind.value.events)
            read(
              event.case === "blockDelta" && event.value.kind.case === "text"
                ? event.value.kind.value
                : `${event.case} `,
            );
      return 200;
    } catch (error) {
      if (leaving.signal.aborted) return undefined;
      expect(ConnectError.from(error).code).not.toBe(Code.Internal);
      return 500;
    }
  };
  const user = [{ role: "user", content: "Hello" }];
  const send: Readonly<Record<FormatName, () => Promise<number | undefined>>> = {
    native: () => post("/v1/messages", { messages: user, max_tokens: maxTokens }),
    chat: () => post("/v1/chat/completions", { messages: user, max_tokens: maxTokens }),
    Responses: () => post("/v1/responses", { input: "Hello", max_output_tokens: maxTokens }),
    gRPC: call,
  };
  return {
    requestId,
    ended: send[format](),
    received: (wanted) => {
      if (text.includes(wanted)) return Promise.resolve();
      return new Promise((resolve) => waiting.push({ text: wanted, resolve }));
    },
    leave: () => leaving.abort(),
  };
}
