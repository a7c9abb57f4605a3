// Requests of the bench.

import type { GatewayProcess } from "./lab.ts";

/** A native request with about `bytes` of text. */
export function nativeBody(model: string, bytes: number, stream: boolean): string {
  return JSON.stringify({
    model,
    max_tokens: 1000,
    stream,
    messages: [{ role: "user", content: "x".repeat(bytes) }],
  });
}

export function chatBody(model: string, bytes: number, stream: boolean): string {
  const usage = stream ? { stream_options: { include_usage: true } } : {};
  return JSON.stringify({
    model,
    max_tokens: 1000,
    stream,
    ...usage,
    messages: [{ role: "user", content: "x".repeat(bytes) }],
  });
}

export function responsesBody(model: string, bytes: number, stream: boolean): string {
  return JSON.stringify({ model, max_output_tokens: 1000, stream, input: "x".repeat(bytes) });
}

export function nativeHeaders(gateway: GatewayProcess): Record<string, string> {
  return {
    "x-api-key": gateway.key,
    "anthropic-version": "2023-06-01",
    "content-type": "application/json",
  };
}

export function chatHeaders(gateway: GatewayProcess): Record<string, string> {
  return { authorization: `Bearer ${gateway.key}`, "content-type": "application/json" };
}

export const plainHeaders = { "content-type": "application/json" };
