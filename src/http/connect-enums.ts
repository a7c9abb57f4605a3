// Enum values that a JSON request names and no proto lists. The JSON parser drops them together
// with unknown members, and the call would run as if nothing had been said; so they are looked for
// while the body passes by.

import type { DescField, DescMessage } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { ApiError } from "../base/errors.ts";
import { recursionLimit, requestBytesMax } from "../contract/message-limits.ts";
import { hasMoreItems, jsonItemsMax, tooManyItems } from "../formats/json.ts";
import { toConnectError } from "./connect-error.ts";

type Handler = ConnectRouter["handlers"][number];

/** The same handler, refusing JSON requests with an unlisted enum name. */
export function checkEnumNames(handler: Handler): Handler {
  const { input } = handler.method;
  const checked = async (request: Parameters<Handler>[0]) => {
    const type = request.header.get("content-type") ?? "";
    const { body } = request;
    if (!/^application\/(?:connect\+|grpc-web\+)?json\b/i.test(type) || !isBytes(body))
      return handler(request);
    // A stream's only request lies in an envelope of five bytes.
    const offset = type.startsWith("application/json") ? 0 : 5;
    return handler({
      ...request,
      body: checkBody(body, offset, input, requestBytesMax(handler.method)),
    });
  };
  return Object.assign(checked, handler);
}

type Bytes = AsyncIterable<Uint8Array>;

function isBytes(body: Parameters<Handler>[0]["body"]): body is Bytes {
  return typeof body === "object" && body !== null && Symbol.asyncIterator in body;
}

/** Hands the body on when it is complete, or when it is too large in any case. */
async function* checkBody(
  body: Bytes,
  offset: number,
  input: DescMessage,
  bytesMax: number,
): AsyncGenerator<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.byteLength;
    if (length > bytesMax + offset) yield* chunks.splice(0);
  }
  if (chunks.length < 1) return;
  const whole = Buffer.concat(chunks);
  if (length <= bytesMax + offset) refuseUnlistedNames(input, whole.subarray(offset));
  yield whole;
}

function refuseUnlistedNames(input: DescMessage, text: Buffer): void {
  // The same request has more members in this form than in a public one: a Block has its kind as an
  // object of its own.
  if (hasMoreItems(text, 2 * jsonItemsMax)) throw toConnectError(tooManyItems(2 * jsonItemsMax));
  let request: unknown;
  try {
    request = JSON.parse(text.toString());
  } catch {
    // No JSON: the parser behind says it better.
    return;
  }
  const found = findUnlistedName(input, request);
  if (!found) return;
  const field = found.path.join("").slice(1);
  throw toConnectError(
    new ApiError("invalid_request", {
      field,
      allowed: found.allowed,
      message: `${field}: there is no such value`,
    }),
  );
}

type Found = { path: string[]; allowed: string[] };

function findUnlistedName(type: DescMessage, value: unknown, depth = 0): Found | undefined {
  // What is deeper is refused by the parser.
  if (depth > recursionLimit || type.typeName.startsWith("google.protobuf.")) return undefined;
  if (typeof value !== "object" || value === null) return undefined;
  for (const [name, member] of Object.entries(value)) {
    const field = type.fields.find((one) => one.jsonName === name || one.name === name);
    const found = field && findInField(field, member, depth + 1);
    if (found) return { ...found, path: [`.${field.name}`, ...found.path] };
  }
  return undefined;
}

function findInField(field: DescField, value: unknown, depth: number): Found | undefined {
  if (!Array.isArray(value)) return findInValue(field, value, depth);
  for (const [index, item] of value.entries()) {
    const found = findInValue(field, item, depth);
    if (found) return { ...found, path: [`[${index}]`, ...found.path] };
  }
  return undefined;
}

function findInValue(field: DescField, value: unknown, depth: number): Found | undefined {
  if (field.message) return findUnlistedName(field.message, value, depth);
  if (!field.enum || typeof value !== "string") return undefined;
  const allowed = field.enum.values.map((one) => one.name);
  return allowed.includes(value) ? undefined : { path: [], allowed };
}
