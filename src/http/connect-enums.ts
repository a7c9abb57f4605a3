// Rejects JSON requests with unlisted enum names. The JSON parser ignores them, as it ignores
// unknown members, and the call would run as if the field were absent.

import type { DescField, DescMessage } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { ApiError } from "../base/errors.ts";
import { recursionLimit, requestBytesMax } from "../contract/message-limits.ts";
import { hasMoreItems, jsonItemsMax, tooManyItems } from "../formats/json.ts";
import { toConnectError } from "./connect-error.ts";

type Handler = ConnectRouter["handlers"][number];

/** The same handler. It rejects JSON requests with an unlisted enum name. */
export function checkEnumNames(handler: Handler): Handler {
  const { input } = handler.method;
  const checked = async (request: Parameters<Handler>[0]) => {
    const type = request.header.get("content-type") ?? "";
    const { body } = request;
    if (!/^application\/(?:connect\+|grpc-web\+)?json\b/i.test(type) || !isBytes(body))
      return handler(request);
    // The only request of a server stream comes after an envelope of five bytes.
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

/** Passes a complete body on after the check. Connect rejects a body that is too large. */
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
  if (length <= bytesMax + offset) rejectUnlistedNames(input, whole.subarray(offset));
  yield whole;
}

function rejectUnlistedNames(input: DescMessage, text: Buffer): void {
  // The limit is twice that of the public formats: here each block holds its kind as one more
  // object.
  if (hasMoreItems(text, 2 * jsonItemsMax)) throw toConnectError(tooManyItems(2 * jsonItemsMax));
  let request: unknown;
  try {
    request = JSON.parse(text.toString());
  } catch {
    // Not JSON. Connect's own parser reports it.
    return;
  }
  const found = findUnlistedName(input, request);
  if (!found) return;
  const field = found.path.join("").slice(1);
  throw toConnectError(
    new ApiError("invalid_request", {
      field,
      allowed: found.allowed,
      message: `${field}: is not a listed value`,
    }),
  );
}

type Found = { path: string[]; allowed: string[] };

function findUnlistedName(type: DescMessage, value: unknown, depth = 0): Found | undefined {
  // The parser rejects deeper messages.
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
