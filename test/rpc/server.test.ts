// What any gRPC client meets: a plain grpc-js client that shares no code with the server.

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { Reason, RefusalSchema } from "../../gen/gateway/common/v1/refusal_pb.ts";
import { StatusSchema } from "../../gen/gateway/common/v1/status_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  GenerateRequestSchema,
  type GenerateResponse,
  GenerateResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { emptyAnswers, key, scriptedServices } from "./scripted.ts";
import { serve } from "./serve.ts";

const request = create(GenerateRequestSchema, {
  model: "sonnet",
  messages: [{ role: Role.USER, content: [{ kind: { case: "text", value: { text: "Hello" } } }] }],
});

function plainClient(address: string): Client {
  const client = new Client(address, credentials.createInsecure());
  onTestFinished(() => client.close());
  return client;
}

function generate(client: Client, headers: Record<string, string>): Promise<GenerateResponse[]> {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
  const call = client.makeServerStreamRequest(
    "/gateway.inference.v1.InferenceService/Generate",
    (message: typeof request) => Buffer.from(toBinary(GenerateRequestSchema, message)),
    (bytes) => fromBinary(GenerateResponseSchema, bytes),
    request,
    metadata,
  );
  return call.toArray();
}

test("Generate streams its messages in order to a plain gRPC client", async () => {
  const seen: unknown[] = [];
  const { address } = await serve(
    scriptedServices({
      ...emptyAnswers(),
      async *stream(_desc, asked) {
        seen.push(asked);
        yield create(GenerateResponseSchema, { kind: { case: "admission", value: { requestId: "req_12345678" } } });
        yield create(GenerateResponseSchema, {
          kind: { case: "events", value: { events: [{ kind: { case: "ping", value: {} } }] } },
        });
        yield create(GenerateResponseSchema, { kind: { case: "receipt", value: {} } });
      },
    }),
  );
  const answers = await generate(plainClient(address), { authorization: `Bearer ${key}` });
  expect(answers.map((answer) => answer.kind.case)).toEqual(["admission", "events", "receipt"]);
  expect(seen).toEqual([request]);
});

test.for([
  { name: "no credential", headers: {}, reason: Reason.MISSING_KEY },
  { name: "an unknown credential", headers: { authorization: "Bearer sk-gw2-1nobody" }, reason: Reason.INVALID_KEY },
])("Generate with $name is refused with the typed detail in the standard trailer", async ({ headers, reason }) => {
  const { address } = await serve(scriptedServices(emptyAnswers()));
  const failure: ServiceError = await generate(plainClient(address), headers).then(
    () => expect.unreachable("it answered"),
    (error) => error,
  );
  expect(failure.code).toBe(status.UNAUTHENTICATED);
  const [trailer] = failure.metadata.get("grpc-status-details-bin");
  const told = fromBinary(StatusSchema, Buffer.from(trailer ?? ""));
  expect(told.code).toBe(status.UNAUTHENTICATED);
  const details = told.details.map((any) => anyUnpack(any, RefusalSchema));
  expect(details).toMatchObject([{ reason, message: failure.details }]);
});
