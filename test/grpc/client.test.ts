// Core over gRPC, as a facade uses it while cores start, stop and fail.

import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { create } from "@bufbuild/protobuf";
import { describe, expect, onTestFinished, test } from "vitest";
import { GenerateResponseSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import { type Core, localCore } from "../../src/contract/contract.ts";
import { createGrpcServer } from "../../src/grpc/grpc.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { allReady, connectGrpc, connectGrpcWith, startGrpcServer } from "../support/grpc-server.ts";
import {
  authenticate,
  emptyAnswers,
  key,
  type Script,
  scriptedServices,
} from "../support/scripted-services.ts";

const asCustomer = { headers: { authorization: `Bearer ${key}` } };
const hello = { model: "sonnet", messages: [{}] };

/** A core that answers with its own name. */
function named(name: string): Script {
  return {
    ...emptyAnswers(),
    async *stream() {
      yield create(GenerateResponseSchema, { kind: { case: "admission", value: { model: name } } });
    },
  };
}

async function whoAnswers(core: Core): Promise<string> {
  try {
    for await (const { kind } of core.inference.generate(hello, asCustomer))
      if (kind.case === "admission") return kind.value.model;
    return "nobody";
  } catch (error) {
    return toApiError(error).reason;
  }
}

/** Calls until this many different answers have arrived. */
async function answersOf(core: Core, count: number): Promise<Set<string>> {
  const seen = new Set<string>();
  await expect.poll(async () => seen.add(await whoAnswers(core)).size, { interval: 5 }).toBe(count);
  return seen;
}

describe("several cores", () => {
  test("take calls in turn", async () => {
    const one = await startGrpcServer(scriptedServices(named("one")));
    const two = await startGrpcServer(scriptedServices(named("two")));
    const core = connectGrpc(one.address, two.address);
    await answersOf(core, 2);
    // Both are connected, so the calls alternate from now on.
    const turns = [
      await whoAnswers(core),
      await whoAnswers(core),
      await whoAnswers(core),
      await whoAnswers(core),
    ];
    expect(turns.slice(0, 2)).toEqual(turns.slice(2));
    expect(new Set(turns)).toEqual(new Set(["one", "two"]));
  });

  test("continue to serve when one stops, without a failed call", async () => {
    const one = await startGrpcServer(scriptedServices(named("one")));
    const two = await startGrpcServer(scriptedServices(named("two")));
    const core = connectGrpc(one.address, two.address);
    await answersOf(core, 2);
    await one.server.drain(1_000);
    await expect.poll(() => whoAnswers(core)).toBe("two");
    const later = await Promise.all(Array.from({ length: 20 }, () => whoAnswers(core)));
    expect(new Set(later)).toEqual(new Set(["two"]));
  });
});

describe("an unreachable core", () => {
  test("fails as unavailable, with a time to retry", async () => {
    const gone = await startGrpcServer(scriptedServices(emptyAnswers()));
    await gone.server.drain(0);
    const clock = new ManualClock();
    const { billing } = connectGrpcWith({ addresses: [gone.address], clock });
    const failure = await passDuring(
      () => clock.endPause(),
      billing.getPools({}, asCustomer).catch((error: unknown) => error),
    );
    expect(clock.now()).toBe(1_000);
    expect(failure).toBeInstanceOf(ApiError);
    expect(failure).toMatchObject({
      reason: "gateway_unavailable",
      facts: { retryAfterMs: 1_000 },
    });
  });

  test("is called again by the same client when it has restarted", async () => {
    const first = await startGrpcServer(scriptedServices(named("first")));
    const clock = new ManualClock();
    const core = connectGrpcWith({ addresses: [first.address], clock });
    const asked = () => passDuring(() => clock.endPause(), whoAnswers(core));
    expect(await asked()).toBe("first");
    await first.server.drain(0);
    expect(await asked()).toBe("gateway_unavailable");

    const second = createGrpcServer({
      services: scriptedServices(named("second")),
      authenticate,
      readiness: allReady,
      allowPlaintext: false,
    });
    onTestFinished(() => second.drain(0));
    await second.listen("127.0.0.1", first.port);
    await expect.poll(asked).toBe("second");
  });

  test("delays calls that were not sent yet, until it has restarted", async () => {
    const first = await startGrpcServer(scriptedServices(named("first")));
    const core = connectGrpc(first.address);
    expect(await whoAnswers(core)).toBe("first");
    await first.server.drain(0);
    const calls = Promise.all([whoAnswers(core), core.billing.getPools({}, asCustomer)]);
    const second = createGrpcServer({
      services: scriptedServices(named("second")),
      authenticate,
      readiness: allReady,
      allowPlaintext: false,
    });
    onTestFinished(() => second.drain(0));
    await second.listen("127.0.0.1", first.port);
    expect((await calls)[0]).toBe("second");
  });

  test("ends its active streams with the same error when it stops", async () => {
    const { server, address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream(_desc, _request, call) {
          yield create(GenerateResponseSchema, { kind: { case: "admission", value: {} } });
          // Ends like a complete answer.
          await new Promise((resolve) =>
            call.signal.addEventListener("abort", () => setImmediate(resolve)),
          );
        },
      }),
    );
    const stream = connectGrpc(address)
      .inference.generate(hello, asCustomer)
      [Symbol.asyncIterator]();
    expect((await stream.next()).value?.kind.case).toBe("admission");
    const next = stream.next().catch((error: unknown) => error);
    await server.drain(0);
    expect(await next).toMatchObject({ reason: "gateway_unavailable" });
  });

  test("ends its active streams with an error when its connection breaks, and the server cancels the calls", async () => {
    const reached = Promise.withResolvers<void>();
    const cancelled = Promise.withResolvers<void>();
    const { port } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream(_desc, _request, call) {
          yield create(GenerateResponseSchema, { kind: { case: "admission", value: {} } });
          await new Promise((_resolve, reject) =>
            call.signal.addEventListener("abort", () => reject(call.signal.reason)),
          );
        },
        unary: async (desc, _request, call) => {
          reached.resolve();
          await new Promise<void>((resolve) =>
            call.signal.addEventListener("abort", () => resolve()),
          );
          cancelled.resolve();
          return create(desc.output);
        },
      }),
    );
    const wire = await openWire(port);
    const core = connectGrpc(wire.address);
    const stream = core.inference.generate(hello, asCustomer)[Symbol.asyncIterator]();
    await stream.next();
    const unary = core.billing.getPools({}, asCustomer).catch((error: unknown) => error);
    const next = stream.next().catch((error: unknown) => error);
    await reached.promise;
    wire.cut();
    expect(await next).toMatchObject({
      reason: "gateway_unavailable",
      facts: { retryAfterMs: 1_000 },
    });
    expect(await unary).toMatchObject({
      reason: "gateway_unavailable",
      facts: { retryAfterMs: 1_000 },
    });
    await cancelled.promise;
  });
});

/** A proxy to a local port whose connections can be cut, as when a process is killed. */
async function openWire(port: number): Promise<{ address: string; cut(): void }> {
  const sockets: Socket[] = [];
  const relay = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const socket of [near, far]) socket.on("error", () => {});
    near.pipe(far).pipe(near);
    sockets.push(near, far);
  });
  const cut = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  await once(relay.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    cut();
    relay.close();
  });
  const bound = relay.address();
  return { address: typeof bound === "object" && bound ? `127.0.0.1:${bound.port}` : "", cut };
}

describe("as in the same process", () => {
  const cores = async (script: Script) => {
    const services = scriptedServices(script);
    return [localCore(services), connectGrpc((await startGrpcServer(services)).address)];
  };

  test("a credential that is invalid as a header is a wrong credential", async () => {
    for (const core of await cores(emptyAnswers())) {
      const call = core.billing.getPools({}, { headers: { authorization: "Bearer schlüssel" } });
      await expect(call).rejects.toMatchObject({ reason: "invalid_key" });
    }
  });

  test("messages that were sent before an error arrive before it", async () => {
    const script: Script = {
      ...emptyAnswers(),
      async *stream(desc) {
        for (let index = 0; index < 100; index++) yield create(desc.output);
        throw new ApiError("overloaded");
      },
    };
    for (const core of await cores(script)) {
      let count = 0;
      const reading = (async () => {
        for await (const _message of core.inference.generate(hello, asCustomer)) {
          count++;
          await Promise.resolve();
        }
      })();
      await expect(reading).rejects.toMatchObject({ reason: "overloaded" });
      expect(count).toBe(100);
    }
  });

  test("an answer of many megabytes arrives", async () => {
    const model = "x".repeat(20 * 1024 * 1024);
    for (const core of await cores(named(model)))
      expect((await whoAnswers(core)).length).toBe(model.length);
  });

  test("a reader that stops ends the call", async () => {
    let ended = 0;
    const script: Script = {
      ...emptyAnswers(),
      async *stream(desc) {
        try {
          for (;;) yield create(desc.output);
        } finally {
          ended++;
        }
      },
    };
    for (const core of await cores(script))
      for await (const _message of core.inference.generate(hello, asCustomer)) break;
    await expect.poll(() => ended).toBe(2);
  });

  test("headers reach the service", async () => {
    const seen: (string | null)[] = [];
    const script: Script = {
      ...emptyAnswers(),
      unary: async (desc, _request, call) => {
        seen.push(call.requestHeader.get("x-request-id"));
        return create(desc.output);
      },
    };
    for (const core of await cores(script)) {
      await core.billing.getPools(
        {},
        { headers: { ...asCustomer.headers, "x-request-id": "req_12345678" } },
      );
    }
    expect(seen).toEqual(["req_12345678", "req_12345678"]);
  });
});

test("a client needs an address", () => {
  expect(() => connectGrpc()).toThrow(/address/);
});
