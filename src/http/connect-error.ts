// A failure as Connect and gRPC-web tell it. `status.ts` is the twin of this file for gRPC.

import { ConnectError } from "@connectrpc/connect";
import { RefusalSchema } from "../../gen/gateway/common/v1/refusal_pb.ts";
import { refusals, toRefusal } from "../base/errors.ts";

/** Code, sentence and the typed detail of a failure. */
export function toConnectError(error: unknown): ConnectError {
  const refusal = toRefusal(error);
  const detail = { desc: RefusalSchema, value: refusal.toDetail() };
  return new ConnectError(refusal.message, refusals[refusal.refusal].rpc, undefined, [detail], refusal);
}
