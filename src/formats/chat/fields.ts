// Readers of the members of a body, which check their types. Null counts as absent, because clients
// of this format send it for absent members. All throw `invalid_request`; `at` is the path of the
// member, such as `messages[1].content`.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  type CacheControl,
  CacheControlSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { ApiError, invalidField } from "../../base/errors.ts";
import { countMax, countUpToMax, isObject } from "../json.ts";

/** The error for the member at a path; an empty path means the whole body. */
export function invalid(at: string, problem: string, allowed?: readonly string[]): ApiError {
  return at === ""
    ? new ApiError("invalid_request", { message: problem })
    : invalidField(at, problem, allowed);
}

export function objectAt(value: JsonValue | undefined, at: string): JsonObject {
  if (!isObject(value)) throw invalid(at, "must be an object");
  return value;
}

export function optionalObject(value: JsonValue | undefined, at: string): JsonObject | undefined {
  return value === undefined || value === null ? undefined : objectAt(value, at);
}

export function optionalArray(value: JsonValue | undefined, at: string): JsonValue[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw invalid(at, "must be an array");
  return value;
}

export function textAt(value: JsonValue | undefined, at: string): string {
  if (typeof value !== "string") throw invalid(at, "must be a string");
  return value;
}

export function optionalText(value: JsonValue | undefined, at: string): string | undefined {
  return value === undefined || value === null ? undefined : textAt(value, at);
}

export function optionalBoolean(value: JsonValue | undefined, at: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "boolean") throw invalid(at, "must be true or false");
  return value;
}

export function optionalNumber(
  value: JsonValue | undefined,
  at: string,
  range: { min: number; max: number },
): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number" || value < range.min || value > range.max) {
    throw invalid(at, `must be a number from ${range.min} to ${range.max}`);
  }
  return value;
}

export function optionalInteger(
  value: JsonValue | undefined,
  at: string,
  min: number,
): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > countMax) {
    throw invalid(at, `must be an integer of at least ${min}`);
  }
  return value;
}

/** A limit of output tokens. What no model has means as much as the largest that it can say. */
export function optionalLimit(value: JsonValue | undefined, at: string): number | undefined {
  return optionalInteger(countUpToMax(value) ?? value, at, 1);
}

/** The texts of a list of parts. */
export function textsOf(content: readonly JsonValue[]): string[] {
  return content.flatMap((part) =>
    isObject(part) && typeof part.text === "string" && part.text !== "" ? [part.text] : [],
  );
}

/**
 * The cache mark of a part, message or tool, if it has one. `cache_control` is a native member that
 * several editors also add in this format.
 */
export function decodeCacheMark(owner: JsonObject, at: string): CacheControl | undefined {
  const mark = optionalObject(owner.cache_control, `${at}.cache_control`);
  return (
    mark && create(CacheControlSchema, { ttl: optionalText(mark.ttl, `${at}.cache_control.ttl`) })
  );
}

/** Moves a message's own mark to its last block, which is the end of the marked prefix. */
export function markLast(blocks: Block[], mark: CacheControl | undefined): Block[] {
  const last = blocks.at(-1);
  if (mark && last && !last.cacheControl) last.cacheControl = mark;
  return blocks;
}

/** The mark as an object to spread into a part; empty without a mark. */
export function encodeCacheMark(mark: CacheControl | undefined): { cache_control?: JsonValue } {
  if (!mark) return {};
  return {
    cache_control:
      mark.ttl === undefined ? { type: "ephemeral" } : { type: "ephemeral", ttl: mark.ttl },
  };
}
