// The id that names a request in its answer, its log line and its receipt.

import type { IncomingMessage } from "node:http";
import { isRequestId, newRequestId } from "../ids.ts";

/** The id that the client proposes, when it is well-formed, or a new one. */
export function requestIdOf(request: Pick<IncomingMessage, "headers">): string {
  const proposed = request.headers["x-request-id"];
  return typeof proposed === "string" && isRequestId(proposed) ? proposed : newRequestId();
}

/** Both names of the id: native clients read the first, chat clients the second. */
export function requestIdHeaders(requestId: string): { "request-id": string; "x-request-id": string } {
  return { "request-id": requestId, "x-request-id": requestId };
}
