// Errors as gRPC carries them: code, message, and a google.rpc.Status with the standard details in
// the trailer `grpc-status-details-bin`.

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import { fromDetails, shorten, toDetails } from "../base/error-details.ts";
import { ApiError, errorCatalog, toApiError } from "../base/errors.ts";

const trailer = "grpc-status-details-bin";
// Many clients reject more than 8 KiB of trailers, and base64 adds a third.
const statusBytesMax = 4 * 1024;

/**
 * The status that the server sends for an error. Facts that do not fit into the trailer are left
 * out, the longest first. Never throws.
 */
export function toStatus(thrown: unknown): { code: number; details: string; metadata: Metadata } {
  const error = toApiError(thrown);
  const metadata = new Metadata();
  metadata.set(trailer, encodeStatus(error));
  return { code: errorCatalog[error.reason].rpc, details: shorten(error.message), metadata };
}

function encodeStatus(error: ApiError): Buffer {
  for (const candidate of shorterAndShorter(error)) {
    try {
      const bytes = toBinary(
        StatusSchema,
        create(StatusSchema, {
          code: errorCatalog[error.reason].rpc,
          message: candidate.message.toWellFormed(),
          details: toDetails(candidate).map(({ desc, value }) => anyPack(desc, value)),
        }),
      );
      if (bytes.byteLength <= statusBytesMax) return Buffer.from(bytes);
    } catch {
      // A number does not fit its field. A later candidate leaves it out.
    }
  }
  return Buffer.alloc(0);
}

function* shorterAndShorter(error: ApiError): Generator<ApiError> {
  yield error;
  const { field, allowed, limit, retryAfterMs, providerAnswer } = error.facts;
  const least = {
    message: shorten(error.message),
    ...(limit && { limit }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    ...(providerAnswer && { providerAnswer: { status: providerAnswer.status } }),
  };
  yield new ApiError(error.reason, {
    ...least,
    ...(field !== undefined && { field }),
    ...(allowed && { allowed }),
  });
  yield new ApiError(error.reason, {
    ...least,
    ...(field !== undefined && { field: shorten(field) }),
  });
  yield new ApiError(error.reason, { message: least.message });
}

/** How long to wait after a core was unreachable: about as long as one takes to start. */
const unreachableRetryAfterMs = 1_000;

/** The ApiError of a failed call. */
export function fromStatus(failure: ServiceError): ApiError {
  const sent = decodeStatus(failure.metadata);
  if (sent) return sent;
  // Without our details, the status comes from the transport and not from a service.
  switch (failure.code) {
    case status.DEADLINE_EXCEEDED:
      return new ApiError("timeout", { message: "The deadline passed.", cause: failure });
    case status.RESOURCE_EXHAUSTED:
      return new ApiError("request_too_large", { cause: failure });
    case status.UNIMPLEMENTED:
      return new ApiError("unimplemented", { cause: failure });
    case status.INVALID_ARGUMENT:
      return new ApiError("invalid_request", { cause: failure });
    default:
      // A lost connection shows as UNAVAILABLE, CANCELLED, INTERNAL or UNKNOWN, depending on which
      // end noticed it first.
      return new ApiError("gateway_unavailable", {
        retryAfterMs: unreachableRetryAfterMs,
        cause: failure,
      });
  }
}

function decodeStatus(metadata: Metadata): ApiError | undefined {
  const [bytes] = metadata.get(trailer);
  if (!(bytes instanceof Buffer)) return undefined;
  try {
    const { message, details } = fromBinary(StatusSchema, bytes);
    return fromDetails(message, details);
  } catch {
    // Not a google.rpc.Status, or not one of ours. Only the code is usable.
    return undefined;
  }
}
