// The body of a POST: received whole, within the memory budget of request bodies, and parsed. A key
// whose large requests pay for nothing waits before they are received.

import type { JsonValue } from "@bufbuild/protobuf";
import type { FastifyRequest } from "fastify";
import type { Clock } from "../base/clock.ts";
import { ApiError, type ErrorReason } from "../base/errors.ts";
import { waitFor } from "../base/stopwatch.ts";
import type { BodyMemory } from "./body-memory.ts";
import { parseBody } from "./parse-body.ts";
import { checkDeclared, declaredBytes, receiveBody } from "./receive-body.ts";
import { UnpaidWork, workMsOf } from "./unpaid-work.ts";

/**
 * Reads the body as a JSON value. Throws `invalid_request` and the errors of `receiveBody`. Sets
 * `context.bodyBytes`; `context.reservation`, which is released when a provider has taken the
 * request or the request has ended; and `context.endWork`.
 */
export type ReadJson = (
  request: Pick<FastifyRequest, "raw" | "context" | "ip">,
) => Promise<JsonValue>;

export function createReadJson(memory: BodyMemory, clock: Clock): ReadJson {
  const unpaidWork = new UnpaidWork(clock);
  return async ({ raw, context, ip }) => {
    checkDeclared(raw);
    requireJson(raw.headers["content-type"]);
    const keyId = context.identity?.caller.key?.keyId;
    const isPacked = raw.headers["content-encoding"] !== undefined;
    const beginning = unpaidWork.begin(keyId ?? "", isPacked ? undefined : declaredBytes(raw));
    const work = beginning instanceof Promise ? await beginning : beginning;
    let workMs = 0;
    context.endWork = (isPaid) => work.end(isPaid ? 0 : workMs);
    const reservation = memory.open({ keyId, address: ip });
    context.reservation = reservation;
    let received = 0;
    const onBytes = (bytes: number) => {
      received = bytes;
      workMs = workMsOf(bytes, undefined);
    };
    try {
      const receiving = receiveBody(raw, { reservation, clock, onBytes });
      const bytes =
        receiving instanceof Promise ? await waitFor(receiving, context.waits) : receiving;
      const { length } = bytes;
      context.bodyBytes = length;
      const parsing = parseBody(bytes);
      const { value, items } = parsing instanceof Promise ? await parsing : parsing;
      workMs = workMsOf(length, items);
      return value;
    } catch (error) {
      if (error instanceof ApiError && contentFaults.has(error.reason))
        context.bodyBytes ??= received;
      throw error;
    }
  };
}

/**
 * Reads a small body as its bytes, for example to check a signature over them. Throws
 * `request_too_large`, and the other errors of `receiveBody`.
 */
export type ReadRaw = (
  request: Pick<FastifyRequest, "raw" | "context" | "ip">,
  bytesMax: number,
) => Promise<Buffer>;

export function createReadRaw(memory: BodyMemory, clock: Clock): ReadRaw {
  return async ({ raw, context, ip }, bytesMax) => {
    checkDeclared(raw, bytesMax);
    // The bytes as they are sent are what is signed.
    if (raw.headers["content-encoding"] !== undefined)
      throw new ApiError("request_body_encoding_unsupported", {
        message: "This body must not be packed.",
        allowed: ["identity"],
      });
    const reservation = memory.open({ keyId: undefined, address: ip });
    try {
      const receiving = receiveBody(raw, { reservation, clock, onBytes: () => {}, bytesMax });
      const bytes = await waitFor(Promise.resolve(receiving), context.waits);
      context.bodyBytes = bytes.length;
      return bytes;
    } finally {
      reservation.release();
    }
  };
}

/** Faults of a body that show while it is read. */
const contentFaults = new Set<ErrorReason>([
  "request_too_large",
  "request_body_encoding_invalid",
  "request_body_too_large_after_decoding",
]);

function requireJson(contentType: string | undefined): void {
  if (contentType === "application/json") return;
  const type = contentType?.split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/json") {
    throw new ApiError("invalid_request", { message: "content-type: must be application/json" });
  }
  const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i.exec(contentType ?? "")?.[1]?.toLowerCase();
  if (charset !== undefined && charset !== "utf-8" && charset !== "utf8") {
    throw new ApiError("invalid_request", { message: "content-type: the charset must be utf-8" });
  }
}
