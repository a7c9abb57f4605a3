// A failure as gRPC tells it: code, sentence, and the typed Refusal inside the google.rpc.Status of
// the standard trailer.

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyPack, anyUnpack } from "@bufbuild/protobuf/wkt";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import {
  type Refusal as RefusalDetail,
  RefusalSchema,
} from "../../gen/gateway/common/v1/refusal_pb.ts";
import { StatusSchema } from "../../gen/gateway/common/v1/status_pb.ts";
import { ApiError, errorCatalog, toApiError } from "../base/errors.ts";

const trailer = "grpc-status-details-bin";
// Many clients refuse more than 8 KiB of trailers, and base64 adds a third.
const detailBytesMax = 4 * 1024;
const sentenceCharactersMax = 500;

/**
 * What the server sends for a failure. Facts that do not fit into the trailers are left out, the
 * longest first. Never throws.
 */
export function toStatus(error: unknown): { code: number; details: string; metadata: Metadata } {
  const apiError = toApiError(error);
  const code = errorCatalog[apiError.reason].rpc;
  const message = apiError.message.toWellFormed();
  const metadata = new Metadata();
  metadata.set(trailer, encodeDetail(code, message, apiError));
  return { code, details: shorten(message), metadata };
}

function encodeDetail(code: number, message: string, apiError: ApiError): Buffer {
  const { reason } = errorCatalog[apiError.reason];
  const { retryAfter, limit, providerAnswer, field, allowed } = apiError.toDetail();
  const least = {
    reason,
    message: shorten(message),
    ...(retryAfter && { retryAfter }),
    ...(limit && { limit }),
  };
  const candidates = [
    { ...least, message, field, allowed, ...(providerAnswer && { providerAnswer }) },
    {
      ...least,
      field,
      allowed,
      ...(providerAnswer && { providerAnswer: { status: providerAnswer.status } }),
    },
    {
      ...least,
      field: shorten(field),
      ...(providerAnswer && { providerAnswer: { status: providerAnswer.status } }),
    },
    { reason },
  ];
  for (const candidate of candidates) {
    try {
      const details = [anyPack(RefusalSchema, create(RefusalSchema, candidate))];
      const bytes = toBinary(
        StatusSchema,
        create(StatusSchema, { code, message: shorten(message), details }),
      );
      if (bytes.byteLength <= detailBytesMax) return Buffer.from(bytes);
    } catch {
      // A figure that its field cannot hold. The failure is told without it.
    }
  }
  return Buffer.alloc(0);
}

function shorten(sentence: string): string {
  return sentence.slice(0, sentenceCharactersMax).toWellFormed();
}

/**
 * Earliest useful time to try a core again that was not reached: about as long as one takes to
 * start.
 */
const unreachableRetryAfterMs = 1_000;

/** The error that a failed call stands for. */
export function fromStatus(error: ServiceError): ApiError {
  const detail = findDetail(error.metadata);
  if (detail) return ApiError.fromDetail(detail);
  // Without a detail it is the transport that speaks, not a service.
  switch (error.code) {
    case status.DEADLINE_EXCEEDED:
      return new ApiError("timeout", { message: "The deadline passed.", cause: error });
    case status.RESOURCE_EXHAUSTED:
      return new ApiError("request_too_large", { cause: error });
    case status.UNIMPLEMENTED:
      return new ApiError("unimplemented", { cause: error });
    case status.INVALID_ARGUMENT:
      return new ApiError("invalid_request", { cause: error });
    default:
      // A connection that breaks shows as UNAVAILABLE, CANCELLED, INTERNAL or UNKNOWN, whichever
      // end noticed first.
      return new ApiError("gateway_unavailable", {
        retryAfterMs: unreachableRetryAfterMs,
        cause: error,
      });
  }
}

function findDetail(metadata: Metadata): RefusalDetail | undefined {
  const [bytes] = metadata.get(trailer);
  if (!(bytes instanceof Buffer)) return undefined;
  try {
    for (const any of fromBinary(StatusSchema, bytes).details) {
      const detail = anyUnpack(any, RefusalSchema);
      if (detail) return detail;
    }
  } catch {
    // Not a google.rpc.Status. The code alone has to do.
  }
  return undefined;
}
