// The protocol of Connect with JSON, as far as the page needs it: a call is one POST, a stream is
// JSON in envelopes of five bytes more. The library for browsers does the same with a tenth of all
// bytes that the page may have.

import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromJson,
  type JsonValue,
  type MessageInitShape,
  type MessageShape,
  toJsonString,
} from "@bufbuild/protobuf";
import { CallError, type CallLimit } from "./call-error.ts";
import { words } from "./words.ts";

/** One call. Throws a CallError. */
export async function callOnce<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  signal: AbortSignal | undefined,
): Promise<MessageShape<O>> {
  const message = create(method.input, request);
  // Lists are shown whole where no page of them is asked for.
  if ("pageSize" in message) message.pageSize ||= 1000;
  const body = toJsonString(method.input, message);
  const response = await post(method, "application/json", body, signal);
  return fromJson(method.output, await readJson(response), { ignoreUnknownFields: true });
}

/** The messages of a stream, until it ends. Throws a CallError. */
export async function* openStream<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  signal: AbortSignal,
): AsyncGenerator<MessageShape<O>> {
  const body = envelope(toJsonString(method.input, create(method.input, request)));
  const response = await post(method, "application/connect+json", body, signal);
  const requestId = requestIdOf(response);
  for await (const { isEnd, text } of envelopesOf(response)) {
    const json: JsonValue = JSON.parse(text);
    if (!isEnd) {
      yield fromJson(method.output, json, { ignoreUnknownFields: true });
      continue;
    }
    const { error } = Object(json);
    if (error) throw toError(error, requestId);
    return;
  }
}

let aheadMs = 0;

/** The time at the gateway, as its last answer had it: to a second, whatever the clock here is. */
export function gatewayNow(): Date {
  return new Date(Date.now() + aheadMs);
}

async function post(
  method: DescMethod,
  type: string,
  body: string | Uint8Array<ArrayBuffer>,
  signal: AbortSignal | undefined,
): Promise<Response> {
  const url = `/${method.parent.typeName}/${method.name}`;
  const headers = { "content-type": type, "connect-protocol-version": "1" };
  const response = await fetch(url, {
    method: "POST",
    headers,
    body,
    ...(signal && { signal }),
  }).catch(() => {
    throw new CallError(words.common.offline, { reason: "offline" });
  });
  const sentAt = Date.parse(response.headers.get("date") ?? "");
  if (!Number.isNaN(sentAt)) aheadMs = sentAt - Date.now();
  if (response.ok) return response;
  // A proxy in between may answer in its own way.
  const json = await readJson(response).catch(() => ({}));
  throw toError(json, requestIdOf(response), response.status);
}

async function readJson(response: Response): Promise<JsonValue> {
  try {
    return await response.json();
  } catch {
    throw new CallError(words.common.offline, { reason: "offline" });
  }
}

function requestIdOf({ headers }: Response): string {
  return headers.get("x-request-id") ?? "";
}

const flagEnd = 2;
const headBytes = 5;

function envelope(text: string): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(text);
  const bytes = new Uint8Array(headBytes + data.length);
  new DataView(bytes.buffer).setUint32(1, data.length);
  bytes.set(data, headBytes);
  return bytes;
}

type Envelope = { readonly isEnd: boolean; readonly text: string };

async function* envelopesOf({ body }: Response): AsyncGenerator<Envelope> {
  const reader = body?.getReader();
  if (!reader) return;
  let left = new Uint8Array(0);
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new CallError(words.common.offline, { reason: "offline" });
      });
      if (done) return;
      const bytes = new Uint8Array(left.length + value.length);
      bytes.set(left);
      bytes.set(value, left.length);
      let at = 0;
      while (bytes.length - at >= headBytes) {
        const length = new DataView(bytes.buffer, at + 1).getUint32(0);
        const end = at + headBytes + length;
        if (end > bytes.length) break;
        const text = new TextDecoder().decode(bytes.subarray(at + headBytes, end));
        yield { isEnd: bytes[at] === flagEnd, text };
        at = end;
      }
      left = bytes.slice(at);
    }
  } finally {
    // Also when nobody wants to read on.
    await reader.cancel().catch(() => undefined);
  }
}

const statusesOfBusy = [429, 502, 503, 504];

/** The error of an answer. `error.proto` documents its details, whose JSON is in `debug`. */
function toError(json: unknown, requestId: string, status?: number): CallError {
  const { message, details } = Object(json);
  const facts = new Map<string, Record<string, unknown>>();
  if (Array.isArray(details))
    for (const detail of details) {
      const { type, debug } = Object(detail);
      if (typeof type === "string") facts.set(type, Object(debug));
    }
  const info = facts.get("google.rpc.ErrorInfo") ?? {};
  const text = typeof message === "string" ? message : "";
  if (info.domain !== "model-gateway") {
    const isBusy = status !== undefined && statusesOfBusy.includes(status);
    // Words of a decoder or a proxy, which are none for people.
    const said = status === 400 ? words.common.notUnderstood : words.common.unknownFailure;
    return isBusy
      ? new CallError(words.common.unavailable, { reason: "gateway_unavailable", requestId })
      : new CallError(said, { reason: "internal", requestId });
  }
  const { retryDelay } = facts.get("google.rpc.RetryInfo") ?? {};
  const [violation] = listOf(facts.get("google.rpc.BadRequest")?.fieldViolations);
  const [quota] = listOf(facts.get("google.rpc.QuotaFailure")?.violations);
  const reason = String(info.reason).toLowerCase();
  return new CallError(reason === "internal" ? words.common.internal : text, {
    reason,
    requestId,
    field: violation && String(violation.field),
    // "1.5s"
    retryAfterMs: retryDelay === undefined ? undefined : Number.parseFloat(`${retryDelay}`) * 1000,
    limit: quota && limitOf(quota, Object(info.metadata)),
  });
}

function listOf(value: unknown): readonly Record<string, unknown>[] {
  return Array.isArray(value) ? value : [];
}

function limitOf(
  { quotaMetric, quotaValue }: Record<string, unknown>,
  { used, resetsAt }: Record<string, unknown>,
): CallLimit {
  return {
    name: String(quotaMetric),
    size: integerOf(quotaValue) ?? 0n,
    used: integerOf(used),
    resetsAt: typeof resetsAt === "string" ? new Date(resetsAt) : undefined,
  };
}

function integerOf(value: unknown): bigint | undefined {
  return typeof value === "string" && /^-?\d+$/.test(value) ? BigInt(value) : undefined;
}
