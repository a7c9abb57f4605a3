// A failure as Connect and gRPC-web tell it. `status.ts` is the twin of this file for gRPC.

import { ConnectError } from "@connectrpc/connect";
import { RefusalSchema } from "../../gen/gateway/common/v1/refusal_pb.ts";
import { errorCatalog, toApiError } from "../base/errors.ts";

/** Code, sentence and the typed detail of a failure. */
export function toConnectError(error: unknown): ConnectError {
  const apiError = toApiError(error);
  const detail = { desc: RefusalSchema, value: apiError.toDetail() };
  return new ConnectError(
    apiError.message,
    errorCatalog[apiError.reason].rpc,
    undefined,
    [detail],
    apiError,
  );
}
