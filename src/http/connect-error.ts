// Errors as Connect and gRPC-web carry them. `grpc/status.ts` does the same for gRPC.

import { ConnectError } from "@connectrpc/connect";
import { toDetails } from "../base/error-details.ts";
import { errorCatalog, toApiError } from "../base/errors.ts";

/** Code, message and standard details of an error. */
export function toConnectError(thrown: unknown): ConnectError {
  const error = toApiError(thrown);
  const { rpc } = errorCatalog[error.reason];
  return new ConnectError(error.message, rpc, undefined, toDetails(error), error);
}
