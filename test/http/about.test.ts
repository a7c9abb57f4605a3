// The answers that tell a newcomer what is served here: the facts at `/`, the list in a 404, the
// descriptors for tools. And a call whose deadline has passed costs nothing.

import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { clientOver } from "../support/bindings.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

async function curl(...args: string[]): Promise<unknown> {
  const { stdout } = await promisify(execFile)("buf", ["curl", ...args]);
  return JSON.parse(stdout);
}

const served = [
  "POST /v1/messages",
  "POST /v1/messages/count_tokens",
  "POST /v1/chat/completions",
  "POST /v1/responses",
  "GET /v1/models",
  "GET /v1/models/info",
  "GET /v1/models/{id}",
  "GET /v1/credits",
  "GET /v1/usage",
  "GET /v1/dashboard/billing/subscription",
  "GET /v1/dashboard/billing/usage",
  "GET /v1/dashboard/billing/credit_grants",
  "GET /v1/receipts",
  "GET /v1/receipts/{requestId}",
  "GET /healthz",
  "GET /health",
  "GET /api/hello",
  "GET /",
  "GET /protos/descriptor.binpb",
  "GET /openapi.json",
  "GET /docs",
  "POST /gateway.accounts.v1.AccountsService/{method}",
  "POST /gateway.billing.v1.BillingService/{method}",
  "POST /gateway.billing.v1.PriceListsService/{method}",
  "POST /gateway.usage.v1.UsageService/{method}",
  "POST /gateway.verification.v1.VerificationService/{method}",
  "POST /gateway.keys.v1.KeysService/{method}",
  "POST /gateway.keys.v1.ManagementKeysService/{method}",
  "POST /gateway.inference.v1.InferenceService/{method}",
  "POST /gateway.people.v1.SignInService/{method}",
  "POST /gateway.people.v1.ProfileService/{method}",
  "POST /gateway.people.v1.MembersService/{method}",
  "POST /gateway.people.v1.ViewsService/{method}",
  "POST /gateway.people.v1.PeopleService/{method}",
  "POST /gateway.people.v1.AdminTokensService/{method}",
  "POST /gateway.audit.v1.AuditService/{method}",
  "POST /gateway.payments.v1.PaymentsService/{method}",
  "POST /gateway.payments.v1.PaymentDeskService/{method}",
  "POST /gateway.payments.v1.SweepsService/{method}",
  "POST /gateway.payments.v1.PromotionsService/{method}",
  "POST /gateway.alerts.v1.AlertsService/{method}",
  "POST /gateway.operations.v1.OperationsService/{method}",
  "POST /gateway.operations.v1.SupportService/{method}",
  "POST /gateway.approvals.v1.ApprovalsService/{method}",
  "POST /gateway.sales.v1.SalesService/{method}",
];

test("a 404 lists every path that is served, and no other", async () => {
  for (const path of ["/nowhere", "/v1/responses/resp_1", "/index.html"]) {
    const response = await fetch(gateway.address + path);
    const body: unknown = await response.json();
    expect(response.status).toBe(404);
    const listed = Object(body).error.message.split(" Served are ")[1].slice(0, -1).split(", ");
    expect(listed.sort()).toEqual([...served].sort());
  }
  for (const one of served) {
    const [method = "", path = ""] = one.split(" ");
    const real = path.replace("{method}", "GetPools").replace(/\{\w+\}/, "x");
    const response = await fetch(gateway.address + real, { method });
    expect(await response.text()).not.toContain("No such path.");
  }
});

test("GET / leads a browser to the console, and tells a program what this is", async () => {
  const headers = { accept: "text/html,*/*;q=0.8" };
  const page = await fetch(gateway.address, { headers, redirect: "manual" });
  expect([page.status, page.headers.get("location")]).toEqual([302, "/console/"]);

  const plain = await fetch(gateway.address);
  expect([plain.status, plain.headers.get("content-type")]).toEqual([200, "application/json"]);
  expect(await plain.json()).toMatchObject({ service: "model-gateway", paths: served });
  expect(await (await fetch(gateway.address, { method: "HEAD" })).text()).toBe("");
});

test("the descriptor set has every service with its error details", async () => {
  const response = await fetch(`${gateway.address}/protos/descriptor.binpb`);
  expect([response.status, response.headers.get("content-type")]).toEqual([
    200,
    "application/x-protobuf",
  ]);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const { file } = fromBinary(FileDescriptorSetSchema, bytes);
  expect(file.flatMap((one) => one.service.map(({ name }) => name)).sort()).toEqual([
    "AccountsService",
    "AdminTokensService",
    "AlertsService",
    "ApprovalsService",
    "AuditService",
    "BillingService",
    "InferenceService",
    "KeysService",
    "ManagementKeysService",
    "MembersService",
    "OperationsService",
    "PaymentDeskService",
    "PaymentsService",
    "PeopleService",
    "PriceListsService",
    "ProfileService",
    "PromotionsService",
    "SalesService",
    "SignInService",
    "SupportService",
    "SweepsService",
    "UsageService",
    "VerificationService",
    "ViewsService",
  ]);
  const names = file.map(({ name }) => name);
  expect(names).toContain("google/rpc/error_details.proto");
  // A file comes after those that it imports.
  for (const [index, { dependency }] of file.entries())
    for (const name of dependency) expect(names.slice(0, index)).toContain(name);
});

test("`buf curl --schema` calls Connect with the descriptor set, by address or as a file", async () => {
  const url = `${gateway.address}/protos/descriptor.binpb`;
  const folder = await mkdtemp(join(tmpdir(), "gateway-descriptor-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, "gateway.binpb");
  await writeFile(path, Buffer.from(await (await fetch(url)).arrayBuffer()));
  for (const schema of [url, path]) {
    const answer = await curl(
      ...["--schema", schema, "--header", `authorization: Bearer ${gateway.v1}`, "--data", "{}"],
      `${gateway.address}/gateway.billing.v1.BillingService/GetPools`,
    );
    expect(answer).toMatchObject({ pools: [{ family: "FAMILY_V1" }] });
  }
});

test("the reflection path over HTTP names the address of the gRPC port", async () => {
  const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  const response = await fetch(gateway.address + path, { method: "POST" });
  const body: unknown = await response.json();
  expect(response.status).toBe(501);
  expect(body).toMatchObject({ code: "unimplemented" });
  expect(Object(body).message).toContain(`gRPC at ${gateway.grpcAddress}`);
});

test("a call with a deadline of zero is charged nothing, and leaves no receipt", async () => {
  const transport = createConnectTransport({ baseUrl: gateway.address, httpVersion: "1.1" });
  const inference = clientOver(serviceTypes.inference, transport);
  const billing = clientOver(serviceTypes.billing, transport);
  const authorization = `Bearer ${gateway.v1}`;
  const requestId = "req_deadline-of-zero";
  const headers = { authorization, "x-request-id": requestId, "connect-timeout-ms": "0" };
  const content = [{ kind: { case: "text" as const, value: { text: "Hello" } } }];
  const request = { model: "haiku", maxTokens: 100, messages: [{ role: Role.USER, content }] };
  const before = await billing.getPools({}, { headers: { authorization } });
  const read = async () => {
    for await (const _ of inference.generate(request, { headers })) expect.unreachable("an answer");
  };
  await expect(read()).rejects.toMatchObject({ code: Code.DeadlineExceeded });
  expect(await billing.getPools({}, { headers: { authorization } })).toEqual(before);
  await expect(
    billing.getReceipt({ requestId }, { headers: { authorization } }),
  ).rejects.toMatchObject({ code: Code.NotFound });
});
