// Calls of services without the interceptor in front, as if it had admitted them.

import { create } from "@bufbuild/protobuf";
import { CallersSchema } from "../../gen/gateway/common/v1/options_pb.ts";
import type { AuthenticatedCall, Caller } from "../../src/contract/contract.ts";

/** A call by `caller`. */
export function callBy(caller: Caller, more: Partial<AuthenticatedCall> = {}): AuthenticatedCall {
  return {
    signal: new AbortController().signal,
    requestHeader: new Headers(),
    caller,
    allowed: create(CallersSchema, { key: true }),
    accountId: "",
    ...more,
  };
}
