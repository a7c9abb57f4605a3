// What the admission and the receipt of a request tell in headers.

import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { credits } from "../decimal.ts";
import type { Envelope } from "./problem.ts";
import { rateHeaders } from "./rate-headers.ts";

/** Headers of an admitted request, in either mode. */
export function admissionHeaders(envelope: Envelope, admission: Admission): Record<string, string> {
  const { rateLimit, grantedMaxTokens, requestedMaxTokens } = admission;
  const headers: Record<string, string> = {};
  if (grantedMaxTokens < requestedMaxTokens) headers["x-gateway-max-tokens"] = String(grantedMaxTokens);
  if (rateLimit) {
    const resetsAt = rateLimit.resetsAt && timestampDate(rateLimit.resetsAt);
    Object.assign(headers, rateHeaders(envelope, { ...rateLimit, resetsAt }));
  }
  return headers;
}

/** Headers of a plain answer, whose cost is known before it leaves. */
export function receiptHeaders(receipt: Receipt): Record<string, string> {
  return { "x-gateway-cost-credits": credits(receipt.amountMicrocredits) };
}
