// Services that another process implements: each call goes on as it is, with the client of ours.

import type { Message } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { clientOf, forwardedHeaders, nameClient } from "./callers.ts";
import {
  boundMethod,
  type Call,
  type Core,
  type Implementation,
  implement,
  type Methods,
  type Services,
  serviceTypes,
} from "./contract.ts";

/** The services of a core, for a listener of this process. */
export function forwardTo(core: Core): Services {
  return {
    billing: forward(serviceTypes.billing, core.billing),
    keys: forward(serviceTypes.keys, core.keys),
    inference: forward(serviceTypes.inference, core.inference),
    people: forward(serviceTypes.people, core.people),
    payments: forward(serviceTypes.payments, core.payments),
    alerts: forward(serviceTypes.alerts, core.alerts),
    operations: forward(serviceTypes.operations, core.operations),
  };
}

function forward<S extends Methods>(
  service: S,
  client: Implementation<S, CallOptions>,
): Implementation<S> {
  return implement<Implementation<S>>(service, (desc) => {
    const { run } = boundMethod(client, desc);
    return (request: Message, call: Call) => run(request, forwardedCall(call));
  });
}

/** The same call, by this process. */
export function forwardedCall(
  call: Pick<Call, "requestHeader" | "namesClient" | "peer"> & Partial<Pick<Call, "signal">>,
): CallOptions {
  const headers = new Headers();
  nameClient(headers, clientOf(call));
  for (const name of forwardedHeaders) {
    const value = call.requestHeader.get(name);
    if (value !== null) headers.set(name, value);
  }
  return { headers, ...(call.signal && { signal: call.signal }) };
}
