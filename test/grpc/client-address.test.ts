// Which headers reach the services, and whom they believe about the client of a call.

import { create } from "@bufbuild/protobuf";
import { expect, onTestFinished, test } from "vitest";
import { type Client, clientOf } from "../../src/contract/callers.ts";
import type { AuthenticatedCall } from "../../src/contract/contract.ts";
import { type BindingName, startBindings } from "../support/bindings.ts";
import { createAuthority } from "../support/certificates.ts";
import {
  authenticate,
  callersByKind,
  emptyAnswers,
  scriptedServices,
} from "../support/scripted-services.ts";

/** Calls over every binding, and what the service saw of the last one. */
async function startSeeing(tls?: Parameters<typeof startBindings>[2]) {
  let last: AuthenticatedCall | undefined;
  const services = scriptedServices({
    ...emptyAnswers(),
    unary: async (desc, _request, call) => {
      last = call;
      return create(desc.output);
    },
  });
  const bindings = await startBindings(services, authenticate, tls);
  onTestFinished(() => bindings.close());
  return async (binding: BindingName, headers: Record<string, string>) => {
    const { credential } = callersByKind.owner;
    await bindings[binding].billing.getPools(
      {},
      { headers: { authorization: credential, ...headers } },
    );
    return last ?? expect.unreachable("the service was not called");
  };
}

const claimed = { "x-client-address": "203.0.113.9", "x-client-agent": "a browser" };
const believed: Client = { address: "203.0.113.9", agent: "a browser" };

test("the local binding is believed", async () => {
  const call = await startSeeing();
  expect(clientOf(await call("local", claimed))).toEqual(believed);
});

test("a gRPC caller without a certificate is its own client", async () => {
  const call = await startSeeing();
  const { address, agent } = clientOf(await call("gRPC", claimed));
  expect(address).toBe("127.0.0.1");
  expect(agent).toContain("grpc-node-js");
});

test("a gRPC caller with a certificate of GRPC_TLS_CLIENT_CA is believed", async () => {
  const authority = createAuthority("test authority");
  const call = await startSeeing({
    server: { ...authority.issue("core"), clientAuthorities: authority.certificate },
    client: { authorities: authority.certificate, identity: authority.issue("facade") },
  });
  expect(clientOf(await call("gRPC", claimed))).toEqual(believed);
});

test("a gRPC caller over TLS without client certificates is its own client", async () => {
  const authority = createAuthority("test authority");
  const call = await startSeeing({
    server: authority.issue("core"),
    client: { authorities: authority.certificate },
  });
  expect(clientOf(await call("gRPC", claimed)).address).toBe("127.0.0.1");
});

test.for<BindingName>(["Connect with JSON", "Connect with protobuf", "gRPC-web"])(
  "over %s the listener names the client, and forwards no cookie",
  async (binding) => {
    const call = await startSeeing();
    const sent = { ...claimed, cookie: "__Host-session=secret", "user-agent": "a tool" };
    const seen = await call(binding, { ...sent, "x-request-id": "req_12345678" });
    expect(clientOf(seen)).toEqual({ address: "127.0.0.1", agent: "a tool" });
    expect.assert(seen.requestHeader instanceof Headers);
    expect([...seen.requestHeader.keys()].sort()).toEqual([
      "authorization",
      "x-client-address",
      "x-client-agent",
      "x-request-id",
    ]);
  },
);
