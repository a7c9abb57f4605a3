// The gRPC listener as a client in any language uses it.

import { create, fromBinary, type JsonObject, type Message, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { ErrorDetailSchema } from "../../gen/gateway/common/v1/error_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type GenerateRequest,
  GenerateRequestSchema,
  type GenerateResponse,
  GenerateResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { startGrpcServer } from "../support/grpc-server.ts";
import {
  callPlain,
  findDetail,
  plainClient,
  plainMetadata,
  reasonOf,
} from "../support/plain-grpc-client.ts";
import { emptyAnswers, key, scriptedServices } from "../support/scripted-services.ts";
import { settled } from "../support/settled.ts";

const generate = "/gateway.inference.v1.InferenceService/Generate";
const countTokens = "/gateway.inference.v1.InferenceService/CountTokens";
const getPools = "/gateway.billing.v1.BillingService/GetPools";
const asCustomer = { authorization: `Bearer ${key}` };
const mebibyte = 1024 * 1024;

const hello = create(GenerateRequestSchema, {
  model: "sonnet",
  messages: [{ role: Role.USER, content: [{ kind: { case: "text", value: { text: "Hello" } } }] }],
});
const helloBytes = toBinary(GenerateRequestSchema, hello);

describe("a plain gRPC client", () => {
  test("calls Generate and gets its messages in order", async () => {
    const seen: Message[] = [];
    const kinds: GenerateResponse["kind"]["case"][] = ["admission", "events", "receipt"];
    const { address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream(_desc, received) {
          seen.push(received);
          for (const kind of kinds)
            if (kind) yield create(GenerateResponseSchema, { kind: { case: kind, value: {} } });
        },
      }),
    );
    const { code, answers } = await callPlain(
      plainClient(address),
      generate,
      helloBytes,
      asCustomer,
    );
    expect(code).toBe(status.OK);
    expect(answers.map((bytes) => fromBinary(GenerateResponseSchema, bytes).kind.case)).toEqual(
      kinds,
    );
    expect(seen).toEqual([hello]);
  });

  test("receives the error in the standard trailer, also after messages", async () => {
    const { address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream(desc) {
          yield create(desc.output);
          throw new ApiError("upstream_error", {
            message: "Der Anbieter schweigt – leider.",
            retryAfterMs: 2500,
          });
        },
      }),
    );
    const { code, details, error, answers } = await callPlain(
      plainClient(address),
      generate,
      helloBytes,
      asCustomer,
    );
    expect([code, details, answers.length]).toEqual([
      status.UNAVAILABLE,
      "Der Anbieter schweigt – leider.",
      1,
    ]);
    expect(error?.message).toBe(details);
    expect(findDetail(error, RetryInfoSchema)?.retryDelay).toMatchObject({
      seconds: 2n,
      nanos: 500_000_000,
    });
    expect(reasonOf(error)).toBe("UPSTREAM_ERROR");
  });

  test.for([
    { name: "without a credential", headers: {}, reason: "MISSING_KEY" },
    {
      name: "with an unknown credential",
      headers: { authorization: "Bearer sk-gw2-1nobody" },
      reason: "INVALID_KEY",
    },
    {
      name: "with another scheme",
      headers: { authorization: `Basic ${key}` },
      reason: "INVALID_KEY",
    },
  ])("is refused $name", async ({ headers, reason }) => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const { code, error } = await callPlain(plainClient(address), generate, helloBytes, headers);
    expect([code, reasonOf(error)]).toEqual([status.UNAUTHENTICATED, reason]);
  });

  test("is rejected before its request is read", async () => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    // These bytes are not a message. A server that read them would return another error.
    const { error } = await callPlain(
      plainClient(address),
      generate,
      Buffer.alloc(40 * mebibyte, 7),
    );
    expect(reasonOf(error)).toBe("MISSING_KEY");
  });

  test("gets error facts of any length, shortened to fit into its trailers", async () => {
    const long = "é".repeat(100_000);
    const { address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        unary: () =>
          Promise.reject(
            new ApiError("upstream_refused", {
              message: `${long}\ud800`,
              field: long,
              allowed: [long],
              retryAfterMs: 1_500,
              providerAnswer: { status: 400, body: { long } },
            }),
          ),
      }),
    );
    const { code, error } = await callPlain(
      plainClient(address),
      getPools,
      new Uint8Array(),
      asCustomer,
    );
    expect([code, reasonOf(error)]).toEqual([status.INVALID_ARGUMENT, "UPSTREAM_REFUSED"]);
    expect(findDetail(error, ErrorDetailSchema)?.providerAnswer).toMatchObject({ status: 400 });
    expect(findDetail(error, RetryInfoSchema)?.retryDelay).toMatchObject({
      ...{ seconds: 1n, nanos: 500_000_000 },
    });
    expect(error?.message).toMatch(/^é{100}/);
  });

  test("gets an error without the number that exceeds its field", async () => {
    const limit = { name: "requests_per_minute" as const, limit: 2n ** 70n };
    const script = {
      ...emptyAnswers(),
      unary: () => Promise.reject(new ApiError("rate_limited", { limit })),
    };
    const { address } = await startGrpcServer(scriptedServices(script));
    const { code, error } = await callPlain(
      plainClient(address),
      getPools,
      new Uint8Array(),
      asCustomer,
    );
    expect([code, reasonOf(error)]).toEqual([status.RESOURCE_EXHAUSTED, "RATE_LIMITED"]);
  });

  test("gets an error for a method that does not exist", async () => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const { code } = await callPlain(
      plainClient(address),
      "/gateway.keys.v1.KeysService/Steal",
      helloBytes,
      asCustomer,
    );
    expect(code).toBe(status.UNIMPLEMENTED);
  });
});

describe("requests", () => {
  /** JSON with this many levels, as a member of the request. */
  function deepRequest(levels: number): Uint8Array {
    let inner: JsonObject = { end: true };
    for (let level = 1; level < levels; level++) inner = { a: inner };
    const request: GenerateRequest = create(GenerateRequestSchema, { ...hello, extensions: inner });
    return toBinary(GenerateRequestSchema, request);
  }

  test.for([
    {
      name: "of a megabyte",
      path: getPools,
      bytes: mebibyte + 1,
      code: status.RESOURCE_EXHAUSTED,
      reason: "REQUEST_TOO_LARGE",
    },
    {
      name: "of 48 megabytes",
      path: generate,
      bytes: 48 * mebibyte + 1,
      code: status.RESOURCE_EXHAUSTED,
      reason: undefined,
    },
    {
      name: "of 48 megabytes",
      path: countTokens,
      bytes: 48 * mebibyte + 1,
      code: status.RESOURCE_EXHAUSTED,
      reason: undefined,
    },
  ])("above the limit $name are refused: $path", async ({ path, bytes, code, reason }) => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const outcome = await callPlain(plainClient(address), path, Buffer.alloc(bytes), asCustomer);
    expect([outcome.code, reasonOf(outcome.error)]).toEqual([code, reason]);
  });

  test("of 40 megabytes reach Generate", async () => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const text = "x".repeat(40 * mebibyte);
    const request = create(GenerateRequestSchema, {
      model: "sonnet",
      messages: [{ role: Role.USER, content: [{ kind: { case: "text", value: { text } } }] }],
    });
    const { code } = await callPlain(
      plainClient(address),
      generate,
      toBinary(GenerateRequestSchema, request),
      asCustomer,
    );
    expect(code).toBe(status.OK);
  });

  test("nested as deep as the public formats allow are accepted, deeper ones are rejected", async () => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const client = plainClient(address);
    // The request itself is the first of the 200 levels.
    expect((await callPlain(client, generate, deepRequest(199), asCustomer)).code).toBe(status.OK);
    for (const levels of [201, 1_000]) {
      const { code, error } = await callPlain(client, generate, deepRequest(levels), asCustomer);
      expect([code, reasonOf(error)]).toEqual([status.INVALID_ARGUMENT, "INVALID_REQUEST"]);
    }
  });

  test.for<[string, number[]]>([
    ["that break off", [0x0a, 0x05, 0x61]],
    ["with a wrong wire type", [0x0b, 0x01]],
    ["with a number where a text belongs", [0x08, 0x01]],
    ["with a tag of zero", [0x00, 0x00]],
    ["with text that is no UTF-8", [0x0a, 0x02, 0xc3, 0x28]],
    ["that open a million groups", Array(1_000_000).fill(0x0b)],
    ["that are no protobuf at all", [...Buffer.from('{"account_id":"x"}')]],
  ])("%s are refused", async ([, bytes]) => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const { code, error } = await callPlain(
      plainClient(address),
      getPools,
      Buffer.from(bytes),
      asCustomer,
    );
    expect([code, reasonOf(error)]).toEqual([status.INVALID_ARGUMENT, "INVALID_REQUEST"]);
  });

  test("with too much metadata are rejected", async () => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const { code, error } = await callPlain(plainClient(address), getPools, new Uint8Array(), {
      ...asCustomer,
      "x-much": "x".repeat(20_000),
    });
    expect([code, reasonOf(error)]).toEqual([status.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE"]);
  });

  test("with binary metadata are served without it", async () => {
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()));
    const headers = { ...asCustomer, "trace-bin": Buffer.from([0, 255]) };
    expect((await callPlain(plainClient(address), getPools, new Uint8Array(), headers)).code).toBe(
      status.OK,
    );
  });

  test("whose deadline has passed do not run", async () => {
    let ran = false;
    const { address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        unary: async (desc) => {
          ran = true;
          return create(desc.output);
        },
      }),
    );
    const { code } = await callPlain(
      plainClient(address),
      getPools,
      new Uint8Array(),
      asCustomer,
      Date.now() - 1000,
    );
    expect([code, ran]).toEqual([status.DEADLINE_EXCEEDED, false]);
  });
});

describe("a slow reader", () => {
  test("stops the producer, and reads every message in the end", async () => {
    const megabyte = "x".repeat(mebibyte);
    const total = 64;
    let produced = 0;
    const { address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream() {
          for (; produced < total; produced++) {
            yield create(GenerateResponseSchema, {
              kind: { case: "admission", value: { requestId: megabyte } },
            });
          }
        },
      }),
    );
    const client = plainClient(address, { "grpc.max_receive_message_length": -1 });
    const call = client.makeServerStreamRequest(
      generate,
      (bytes: Uint8Array) => Buffer.from(bytes),
      (bytes) => bytes.length,
      helloBytes,
      plainMetadata(asCustomer),
    );
    const reader = call[Symbol.asyncIterator]();
    await reader.next();
    // The producer is stopped if its position does not change for a while. One message is read
    // ahead of the one that waits.
    const whenStopped = await settled(() => produced);
    expect(whenStopped - 1).toBeLessThan(total / 2);
    let read = 1;
    while (!(await reader.next()).done) read++;
    expect(read).toBe(total);
  });

  test("that hangs up ends the producer that waits for it", async () => {
    let isEnded = false;
    const { address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream() {
          try {
            for (;;)
              yield create(GenerateResponseSchema, {
                kind: { case: "admission", value: { requestId: "x".repeat(mebibyte) } },
              });
          } finally {
            isEnded = true;
          }
        },
      }),
    );
    const call = plainClient(address).makeServerStreamRequest(
      generate,
      (bytes: Uint8Array) => Buffer.from(bytes),
      (bytes) => bytes,
      helloBytes,
      plainMetadata(asCustomer),
    );
    call.on("error", () => {});
    await call[Symbol.asyncIterator]().next();
    expect(isEnded).toBe(false);
    call.cancel();
    await expect.poll(() => isEnded).toBe(true);
  });
});
