// Errors as Connect and gRPC-web carry them. `grpc/status.ts` does the same for gRPC.

import { ConnectError } from "@connectrpc/connect";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import {
  codeToHttpStatus,
  createEndStreamSerialization,
  endStreamFlag,
  errorToJsonBytes,
} from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { toDetails } from "../base/error-details.ts";
import { errorCatalog, toApiError } from "../base/errors.ts";

/** Code, message and standard details of an error. */
export function toConnectError(thrown: unknown): ConnectError {
  const error = toApiError(thrown);
  const { rpc } = errorCatalog[error.reason];
  return new ConnectError(error.message, rpc, undefined, toDetails(error), error);
}

/** An HTTP response that carries an error to a client of one of the protocols. */
export type ConnectErrorResponse = {
  readonly status: number;
  readonly header: Headers;
  readonly body: Uint8Array;
};

/** The error as a client expects it that sent this content type. */
export function toConnectResponse(error: ConnectError, contentType: string): ConnectErrorResponse {
  const type = contentType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (type === "application/connect+json" || type === "application/connect+proto") {
    const end = createEndStreamSerialization(undefined).serialize({
      error,
      metadata: new Headers(),
    });
    const header = new Headers({ "content-type": type });
    return { status: 200, header, body: encodeEnvelope(endStreamFlag, end) };
  }
  if (type.startsWith("application/grpc")) {
    const header = new Headers({ "content-type": type });
    setTrailerStatus(header, error);
    return { status: 200, header, body: new Uint8Array() };
  }
  return { ...toUnaryResponse(error), status: codeToHttpStatus(error.code) };
}

/** The JSON body of a call without streams. */
export function toUnaryResponse(
  error: ConnectError,
): Pick<ConnectErrorResponse, "header" | "body"> {
  const body = errorToJsonBytes(error, undefined);
  const header = new Headers({
    "content-type": "application/json",
    "content-length": String(body.byteLength),
  });
  return { header, body };
}
