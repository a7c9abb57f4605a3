// The standard details of an error over gRPC and Connect, and the ApiError that they stand for.
// `proto/gateway/common/v1/error.proto` documents which fact is in which detail.

import { create, type DescMessage, fromJson, type Message, toJson } from "@bufbuild/protobuf";
import { type Any, anyUnpack, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { ErrorDetailSchema, LimitMetric } from "../../gen/gateway/common/v1/error_pb.ts";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  QuotaFailureSchema,
  RetryInfoSchema,
} from "../../gen/google/rpc/error_details_pb.ts";
import { ApiError, isErrorReason, type Limit, type LimitName } from "./errors.ts";
import { familyName, familyOf } from "./families.ts";

/** `ErrorInfo.domain`. Proxies can add an ErrorInfo of another domain. */
const domain = "model-gateway";
const sentenceCharactersMax = 500;

/** One detail, in the shape that Connect takes. */
export type ErrorDetail = { desc: DescMessage; value: Message };

/**
 * The details of an error, ErrorInfo first. Throws if a number does not fit its field or a time is
 * outside the years 1 to 9999.
 */
export function toDetails({ reason, message, facts }: ApiError): ErrorDetail[] {
  const { field, allowed = [], retryAfterMs, limit, providerAnswer } = facts;
  const details: ErrorDetail[] = [];
  const add = <D extends DescMessage>(desc: D, value: Parameters<typeof create<D>>[1]) =>
    details.push({ desc, value: create(desc, value) });

  add(ErrorInfoSchema, {
    reason: reason.toUpperCase(),
    domain,
    ...(limit && { metadata: metadataOf(limit) }),
  });
  if (retryAfterMs !== undefined)
    add(RetryInfoSchema, { retryDelay: durationOf(Math.ceil(retryAfterMs)) });
  if (field !== undefined) {
    const description = shorten(message);
    add(BadRequestSchema, { fieldViolations: [{ field: field.toWellFormed(), description }] });
  }
  if (limit) {
    const family = limit.family && familyName(limit.family);
    const violation = {
      quotaMetric: limit.name,
      quotaValue: limit.limit,
      ...(family && { quotaDimensions: { family } }),
    };
    add(QuotaFailureSchema, { violations: [violation] });
  }
  if (allowed.length > 0 || providerAnswer)
    add(ErrorDetailSchema, { allowed: [...allowed], ...(providerAnswer && { providerAnswer }) });
  return details;
}

/**
 * The error with this message and these details. A reason that this version does not know becomes
 * `internal`, and a limit that it does not know is left out. Undefined: the details are not those
 * of an ApiError. Throws for details that cannot be decoded.
 */
export function fromDetails(message: string, details: readonly Any[]): ApiError | undefined {
  const find = <D extends DescMessage>(desc: D) =>
    details.map((any) => anyUnpack(any, desc)).find((detail) => detail !== undefined);
  const info = find(ErrorInfoSchema);
  if (info?.domain !== domain) return undefined;

  const reason = info.reason.toLowerCase();
  const delay = find(RetryInfoSchema)?.retryDelay;
  const violation = find(BadRequestSchema)?.fieldViolations[0];
  const quota = find(QuotaFailureSchema)?.violations[0];
  const name = quota?.quotaMetric ?? "";
  const { allowed = [], providerAnswer } = find(ErrorDetailSchema) ?? {};
  return new ApiError(isErrorReason(reason) ? reason : "internal", {
    message,
    ...(violation && { field: violation.field }),
    ...(allowed.length > 0 && { allowed }),
    ...(delay && { retryAfterMs: Number(delay.seconds) * 1000 + delay.nanos / 1_000_000 }),
    ...(quota &&
      isLimitName(name) && {
        limit: {
          name,
          limit: quota.quotaValue,
          ...familyIn(quota.quotaDimensions),
          ...factsIn(info.metadata),
        },
      }),
    ...(providerAnswer && {
      providerAnswer: {
        status: providerAnswer.status,
        ...(providerAnswer.body && { body: providerAnswer.body }),
      },
    }),
  });
}

const limitNames = new Set(Object.keys(LimitMetric).map((name) => name.toLowerCase()));

function isLimitName(name: string): name is LimitName {
  return limitNames.has(name) && name !== "unspecified";
}

/** The first 500 characters, for places of limited size. */
export function shorten(sentence: string): string {
  return sentence.slice(0, sentenceCharactersMax).toWellFormed();
}

function metadataOf({ used, remaining, resetsAt, exhausted }: Limit): Record<string, string> {
  return {
    ...(used !== undefined && { used: String(used) }),
    ...(remaining !== undefined && { remaining: String(remaining) }),
    ...(resetsAt && { resetsAt: toJson(TimestampSchema, create(TimestampSchema, resetsAt)) }),
    ...(exhausted && { exhausted: "true" }),
  };
}

function factsIn({ used, remaining, resetsAt, exhausted }: Record<string, string>): Partial<Limit> {
  return {
    ...(used !== undefined && { used: BigInt(used) }),
    ...(remaining !== undefined && { remaining: BigInt(remaining) }),
    ...(resetsAt !== undefined && { resetsAt: fromJson(TimestampSchema, resetsAt) }),
    ...(exhausted === "true" && { exhausted: true }),
  };
}

function familyIn({ family }: Record<string, string>): Partial<Limit> {
  return family === "v1" || family === "v2" ? { family: familyOf(family) } : {};
}

function durationOf(ms: number): { seconds: bigint; nanos: number } {
  return { seconds: BigInt(Math.floor(ms / 1000)), nanos: (ms % 1000) * 1_000_000 };
}
