// The one interface between doors and services, and its local binding: a client that calls the service objects of this process
// directly, messages by reference. The gRPC binding is `rpc/client.ts`. Both fail with `Refusal` only.

import { create, type DescMessage, type DescService, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions, Client } from "@connectrpc/connect";
import { BillingService } from "../gen/gateway/billing/v1/billing_pb.ts";
import { InferenceService } from "../gen/gateway/inference/v1/inference_pb.ts";
import { KeysService } from "../gen/gateway/keys/v1/keys_pb.ts";
import { boundMethod, type Call, type Implementation, implement } from "./service.ts";

/** The descriptors of the three services. */
export const serviceTypes = { billing: BillingService, keys: KeysService, inference: InferenceService } as const;
type ServiceTypes = typeof serviceTypes;

/** Clients of the three services. Credentials travel as `authorization: Bearer …` in the call's headers. */
export type Core = { [N in keyof ServiceTypes]: Client<ServiceTypes[N]> };

/** The three service objects, guarded. */
export type Services = { [N in keyof ServiceTypes]: Implementation<ServiceTypes[N]> };

/** A Core that calls the given services in this process. */
export function localCore(services: Services): Core {
  return {
    billing: localClient(BillingService, services.billing),
    keys: localClient(KeysService, services.keys),
    inference: localClient(InferenceService, services.inference),
  };
}

function localClient<S extends DescService>(service: S, implementation: Implementation<S>): Client<S> {
  return implement<Client<S>>(service, (desc) => {
    const { run } = boundMethod(implementation, desc);
    return (request: MessageInitShape<DescMessage>, options?: CallOptions) => run(create(desc.input, request), callOf(options));
  });
}

const noHeaders = new Headers();
const never = new AbortController().signal;

function callOf(options: CallOptions | undefined): Call {
  const headers = options?.headers;
  const timeoutMs = options?.timeoutMs ?? 0;
  const signals = [options?.signal, timeoutMs > 0 ? AbortSignal.timeout(timeoutMs) : undefined].filter(
    (one) => one !== undefined,
  );
  return {
    signal: signals.length > 1 ? AbortSignal.any(signals) : (signals[0] ?? never),
    requestHeader: headers === undefined ? noHeaders : headers instanceof Headers ? headers : new Headers(headers),
  };
}
