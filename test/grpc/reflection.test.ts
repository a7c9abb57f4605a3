// Server reflection, as tools without proto files use it. `buf curl` stands for all such tools.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { GetPoolsResponseSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { methods } from "../support/bindings.ts";
import { startGrpcServer } from "../support/grpc-server.ts";
import { plainClient, plainMetadata } from "../support/plain-grpc-client.ts";
import { emptyAnswers, key, type Script, scriptedServices } from "../support/scripted-services.ts";

async function curl(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("buf", [
    "curl",
    "--protocol",
    "grpc",
    "--http2-prior-knowledge",
    ...args,
  ]);
  return stdout.trim();
}

test("a tool finds the health service, and calls it", async () => {
  const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  expect((await curl("--list-services", `http://${address}`)).split("\n")).toEqual([
    "gateway.accounts.v1.AccountsService",
    "gateway.alerts.v1.AlertsService",
    "gateway.approvals.v1.ApprovalsService",
    "gateway.audit.v1.AuditService",
    "gateway.billing.v1.BillingService",
    "gateway.billing.v1.PriceListsService",
    "gateway.inference.v1.InferenceService",
    "gateway.keys.v1.KeysService",
    "gateway.keys.v1.ManagementKeysService",
    "gateway.operations.v1.OperationsService",
    "gateway.operations.v1.SupportService",
    "gateway.payments.v1.PaymentDeskService",
    "gateway.payments.v1.PaymentsService",
    "gateway.payments.v1.PromotionsService",
    "gateway.payments.v1.SweepsService",
    "gateway.people.v1.AdminTokensService",
    "gateway.people.v1.MembersService",
    "gateway.people.v1.PeopleService",
    "gateway.people.v1.ProfileService",
    "gateway.people.v1.SignInService",
    "gateway.people.v1.ViewsService",
    "gateway.sales.v1.SalesService",
    "gateway.usage.v1.UsageService",
    "gateway.verification.v1.VerificationService",
    "grpc.health.v1.Health",
  ]);
  const answer = await curl("--data", "{}", `http://${address}/grpc.health.v1.Health/Check`);
  expect(JSON.parse(answer)).toEqual({ status: "SERVING" });
});

test("a tool finds every service and method", async () => {
  const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  const listed = await curl("--list-methods", `http://${address}`);
  expect(listed.split("\n").filter((one) => one.startsWith("gateway."))).toEqual(
    methods.map((desc) => `${desc.parent.typeName}/${desc.name}`).sort(),
  );
});

test.for(["v1", "v1alpha"])(
  "a tool calls with JSON and reads names, over reflection %s",
  async (version) => {
    const script: Script = {
      ...emptyAnswers(),
      unary: async () =>
        create(GetPoolsResponseSchema, { pools: [{ family: Family.V2, postedMicrocredits: 5n }] }),
    };
    const { address } = await startGrpcServer(scriptedServices(script));
    const answer = await curl(
      ...[
        "--reflect-protocol",
        `grpc-${version}`,
        "--header",
        `authorization: Bearer ${key}`,
        "--data",
        '{"account_id": "acc_1"}',
      ],
      `http://${address}/gateway.billing.v1.BillingService/GetPools`,
    );
    expect(JSON.parse(answer)).toEqual({
      pools: [{ family: "FAMILY_V2", postedMicrocredits: "5" }],
    });
  },
);

test("a tool streams", async () => {
  const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  const answer = await curl(
    ...[
      "--header",
      `authorization: Bearer ${key}`,
      "--data",
      '{"model": "sonnet", "messages": [{"role": "ROLE_USER"}]}',
    ],
    `http://${address}/gateway.inference.v1.InferenceService/Generate`,
  );
  expect(answer.split("\n")).toEqual(["{}", "{}", "{}"]);
});

test("a tool shows the reason of a failed call", async () => {
  const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  const failed = curl("--data", "{}", `http://${address}/gateway.keys.v1.KeysService/GetKey`);
  await expect(failed).rejects.toMatchObject({
    stderr: expect.stringMatching(/unauthenticated[\s\S]*google\.rpc\.ErrorInfo/),
  });
});

test.for([
  ["google.rpc.Status", "google/rpc/status.proto"],
  ["google.rpc.ErrorInfo", "google/rpc/error_details.proto"],
  ["gateway.common.v1.ErrorDetail", "gateway/common/v1/error.proto"],
] as const)("a tool can look up the error type %s", async ([type, file]) => {
  const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  // A ServerReflectionRequest whose field 4, `file_containing_symbol`, is the type.
  const request = Buffer.concat([Buffer.from([0x22, type.length]), Buffer.from(type)]);
  const call = plainClient(address).makeBidiStreamRequest(
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    (bytes: Buffer) => bytes,
    (bytes) => bytes,
    plainMetadata({}),
  );
  call.end(request);
  const answers: Buffer[] = await call.toArray();
  expect(Buffer.concat(answers).toString("latin1")).toContain(file);
});
