import { create, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { MessageSchema } from "../../gen/gateway/inference/v1/content_pb.ts";
import { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { fieldsMax, hasMoreFields } from "../../src/contract/decode-request.ts";
import { startGrpcServer } from "../support/grpc-server.ts";
import { callPlain, plainClient, reasonOf } from "../support/plain-grpc-client.ts";
import { emptyAnswers, key, scriptedServices } from "../support/scripted-services.ts";

const bytesOf = (extensions: JsonObject) =>
  toBinary(MessageSchema, create(MessageSchema, { extensions }));
const members = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, 1]));

const cases: { name: string; bytes: Uint8Array; fields: number }[] = [
  // Each entry has itself, its key, its value and the number in it. The Struct adds one.
  { name: "members of a Struct", bytes: bytesOf(members(50)), fields: 1 + 50 * 4 },
  { name: "elements of a list", bytes: bytesOf({ a: Array(50).fill(1) }), fields: 1 + 4 + 50 * 2 },
  {
    name: "messages and blocks",
    bytes: toBinary(
      GenerateRequestSchema,
      create(GenerateRequestSchema, {
        model: "m",
        messages: Array(20).fill(
          create(MessageSchema, {
            role: 1,
            content: [{ kind: { case: "text", value: { text: "x".repeat(99) } } }],
          }),
        ),
      }),
    ),
    fields: 1 + 20 * 5,
  },
];
const types = [MessageSchema, MessageSchema, GenerateRequestSchema];

for (const [index, { name, bytes, fields }] of cases.entries()) {
  test(`${name} are counted, wherever they are`, () => {
    const type = types[index] ?? MessageSchema;
    expect(hasMoreFields(type, bytes, fields - 1, 401)).toBe(true);
    expect(hasMoreFields(type, bytes, fields, 401)).toBe(false);
  });
}

test("invalid or endlessly nested bytes are left to the decoder", () => {
  expect(hasMoreFields(MessageSchema, Buffer.alloc(1_000, 0xff), 100, 401)).toBe(false);
  // By its lengths, each Value holds a list of one Value, ten thousand levels deep.
  const deep = Buffer.from("7a".concat("ff7f0a".repeat(10_000)), "hex");
  expect(hasMoreFields(MessageSchema, deep, 10_000, 401)).toBe(false);
});

test("a gRPC request with too many fields is rejected before it is decoded", async () => {
  const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  // An empty block is two bytes.
  const blocks = Buffer.from("1200".repeat(fieldsMax), "hex");
  const length: number[] = [];
  for (let left = blocks.length; left > 0; left >>>= 7)
    length.push((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
  const bytes = Buffer.concat([Buffer.from([0x0a, 1, 0x6d, 0x1a, ...length]), blocks]);
  const generate = "/gateway.inference.v1.InferenceService/Generate";
  const { code, error } = await callPlain(plainClient(address), generate, bytes, {
    authorization: `Bearer ${key}`,
  });
  expect([code, reasonOf(error)]).toEqual([status.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE"]);
});
