// Connect's own clients with each listener, as other services and browsers use them.

import { create } from "@bufbuild/protobuf";
import { ConnectError, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GetPoolsResponseSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { GenerateResponseSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { type Bindings, clientOver, startBindings } from "../support/bindings.ts";
import { key, type Script, scriptedServices } from "../support/scripted-services.ts";

const script: Script = {
  unary: async (desc) =>
    desc.name === "GetPools"
      ? create(GetPoolsResponseSchema, {
          pools: [{ family: Family.V2, postedMicrocredits: 9_007_199_254_740_993n }],
        })
      : create(desc.output),
  async *stream() {
    yield create(GenerateResponseSchema, {
      kind: { case: "admission", value: { requestId: "req_12345678" } },
    });
    throw new ApiError("upstream_error");
  },
};

let bindings: Bindings;
beforeAll(async () => {
  bindings = await startBindings(scriptedServices(script));
});
afterAll(() => bindings.close());

const asCustomer = { headers: { authorization: `Bearer ${key}` } };

describe("a Connect client", () => {
  const transports: Record<string, () => Transport> = {
    gRPC: () => createGrpcTransport({ baseUrl: bindings.grpcUrl }),
    Connect: () => createConnectTransport({ baseUrl: bindings.httpUrl, httpVersion: "1.1" }),
    "gRPC-web": () => createGrpcWebTransport({ baseUrl: bindings.httpUrl, httpVersion: "1.1" }),
  };

  for (const [name, open] of Object.entries(transports)) {
    test(`over ${name} reads answers, streams and the detail of a failure`, async () => {
      const transport = open();
      const billing = clientOver(serviceTypes.billing, transport);
      const { pools } = await billing.getPools({}, asCustomer);
      expect(pools[0]?.postedMicrocredits).toBe(9_007_199_254_740_993n);

      const inference = clientOver(serviceTypes.inference, transport);
      const kinds: unknown[] = [];
      const failure = await (async () => {
        for await (const { kind } of inference.generate({ model: "m", messages: [{}] }, asCustomer))
          kinds.push(kind.case);
      })().catch(ConnectError.from);
      expect(kinds).toEqual(["admission"]);
      expect(failure?.findDetails(ErrorInfoSchema)).toMatchObject([
        { reason: "UPSTREAM_ERROR", domain: "model-gateway" },
      ]);
    });
  }
});
