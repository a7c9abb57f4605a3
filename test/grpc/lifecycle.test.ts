// The life of the gRPC listener: its addresses, TLS, its health service, and its drain.

import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "node:tls";
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { GenerateResponseSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { toApiError } from "../../src/base/errors.ts";
import { allServices, serviceTypes } from "../../src/contract/contract.ts";
import type { grpcCore } from "../../src/grpc/client.ts";
import { createGrpcServer, type GrpcServerParts } from "../../src/grpc/grpc.ts";
import { createHealth } from "../../src/grpc/health.ts";
import { serverCredentials } from "../../src/grpc/tls.ts";
import { watchCertificate } from "../../src/server/certificate-watch.ts";
import { createAuthority } from "../support/certificates.ts";
import { ManualClock, passDuring, passUntil } from "../support/clock.ts";
import { allReady, connectGrpc, connectGrpcWith, startGrpcServer } from "../support/grpc-server.ts";
import { callPlain, plainClient } from "../support/plain-grpc-client.ts";
import {
  authenticate,
  emptyAnswers,
  key,
  type Script,
  scriptedServices,
} from "../support/scripted-services.ts";

const asCustomer = { headers: { authorization: `Bearer ${key}` } };
const hello = { model: "sonnet", messages: [{}] };

function serverWith(parts: Partial<GrpcServerParts>) {
  const services = scriptedServices(emptyAnswers());
  const server = createGrpcServer({
    services,
    authenticate,
    readiness: allReady,
    allowPlaintext: false,
    ...parts,
  });
  onTestFinished(() => server.drain(0));
  return server;
}

describe("listening", () => {
  test.for(["0.0.0.0", "::", "192.0.2.1", "example.test"])(
    "plaintext on %s is refused",
    async (host) => {
      await expect(serverWith({}).listen(host, 0)).rejects.toThrow(/without TLS/);
    },
  );

  test.for(["127.0.0.1", "127.8.8.8", "::1", "localhost"])("plaintext on %s is allowed", (host) => {
    expect(() => serverCredentials(host, undefined, false)).not.toThrow();
  });

  test("plaintext on other addresses needs GRPC_ALLOW_PLAINTEXT", () => {
    expect(() => serverCredentials("0.0.0.0", undefined, true)).not.toThrow();
  });

  test("a port in use is an error", async () => {
    const { port } = await startGrpcServer(scriptedServices(emptyAnswers()));
    await expect(serverWith({}).listen("127.0.0.1", port)).rejects.toThrow(/EADDRINUSE/);
  });
});

describe("TLS", () => {
  const authority = createAuthority("ours");
  const serverPair = authority.issue("server");
  const clientPair = authority.issue("client");
  const stranger = createAuthority("theirs").issue("client");

  async function poolsOver(
    tls: GrpcServerParts["tls"],
    client: Parameters<typeof grpcCore>[0]["tls"],
  ): Promise<string> {
    const port = await serverWith({ ...(tls && { tls }) }).listen("127.0.0.1", 0);
    const clock = new ManualClock();
    const core = connectGrpcWith({
      addresses: [`localhost:${port}`],
      ...(client && { tls: client }),
      clock,
    });
    const answer = core.billing.getPools({}, asCustomer).then(
      () => "answered",
      (error) => toApiError(error).reason,
    );
    return passDuring(() => clock.endPause(), answer);
  }

  test("serves clients that trust its authority, and no plaintext clients", async () => {
    expect(await poolsOver(serverPair, { authorities: authority.certificate })).toBe("answered");
    expect(await poolsOver(serverPair, undefined)).toBe("gateway_unavailable");
    expect(await poolsOver(serverPair, {})).toBe("gateway_unavailable");
  });

  test("with a client authority it serves only clients with a certificate of that authority", async () => {
    const mutual = { ...serverPair, clientAuthorities: authority.certificate };
    expect(
      await poolsOver(mutual, { authorities: authority.certificate, identity: clientPair }),
    ).toBe("answered");
    expect(await poolsOver(mutual, { authorities: authority.certificate })).toBe(
      "gateway_unavailable",
    );
    expect(
      await poolsOver(mutual, { authorities: authority.certificate, identity: stranger }),
    ).toBe("gateway_unavailable");
  });
});

const folders = [
  "billing",
  "keys",
  "inference",
  "people",
  "payments",
  "alerts",
  "operations",
] as const;

describe("health", () => {
  const check = async (address: string, service: string) => {
    const { code, answers } = await callPlain(
      plainClient(address),
      "/grpc.health.v1.Health/Check",
      healthRequest(service),
    );
    return code === status.OK ? servingStatus(answers[0]) : status[code];
  };

  test("is reported for each service and for all, without a credential", async () => {
    const readiness = async () => ({
      billing: true,
      keys: true,
      inference: false,
      people: true,
      payments: true,
      alerts: true,
      operations: true,
    });
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()), { readiness });
    expect(await check(address, "gateway.billing.v1.BillingService")).toBe("SERVING");
    expect(await check(address, "gateway.keys.v1.KeysService")).toBe("SERVING");
    expect(await check(address, "gateway.inference.v1.InferenceService")).toBe("NOT_SERVING");
    expect(await check(address, "")).toBe("NOT_SERVING");
    expect(await check(address, "gateway.other.v1.Service")).toBe("NOT_FOUND");
  });

  test.each(folders)("of all services waits for those of %s", async (folder) => {
    const ready = Object.fromEntries(folders.map((one) => [one, one !== folder]));
    const readiness = async () => ({ ...(await allReady()), ...ready });
    const { address } = await startGrpcServer(scriptedServices(emptyAnswers()), { readiness });
    for (const one of folders)
      for (const { typeName } of serviceTypes[one].services)
        expect(await check(address, typeName)).toBe(one === folder ? "NOT_SERVING" : "SERVING");
    expect(await check(address, "")).toBe("NOT_SERVING");
  });

  test("follows the readiness of the parts, and a failed check counts as not ready", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const readiness = vi.fn(allReady);
    const health = createHealth(readiness);
    const seen: string[] = [];
    vi.spyOn(health.implementation, "setStatus").mockImplementation(
      (service, now) => void seen.push(`${service || "all"} ${now}`),
    );
    await health.follow();
    expect(seen).toContain("all SERVING");
    seen.length = 0;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(seen).toEqual([]);
    readiness.mockRejectedValue(new Error("the database is gone"));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(seen).toHaveLength(allServices.length + 1);
    expect(seen).toContain("all NOT_SERVING");
    health.stop();
    readiness.mockImplementation(allReady);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(seen).toHaveLength(allServices.length + 1);
  });
});

describe("draining", () => {
  test("lets active calls finish, rejects new ones, and reports the health to watchers", async () => {
    const gate = Promise.withResolvers<void>();
    const { server, address } = await startGrpcServer(
      scriptedServices({
        ...emptyAnswers(),
        async *stream() {
          yield create(GenerateResponseSchema, { kind: { case: "admission", value: {} } });
          await gate.promise;
          yield create(GenerateResponseSchema, { kind: { case: "receipt", value: {} } });
        },
      }),
    );
    const watched = watchHealth(address);
    expect((await watched.next()).value).toBe("SERVING");
    const running = connectGrpc(address)
      .inference.generate(hello, asCustomer)
      [Symbol.asyncIterator]();
    expect((await running.next()).value?.kind.case).toBe("admission");

    let drained = false;
    const draining = server.drain(60_000).then(() => {
      drained = true;
    });
    expect((await watched.next()).value).toBe("NOT_SERVING");
    await watched.return(undefined);
    const clock = new ManualClock();
    const { billing } = connectGrpcWith({ addresses: [address], clock });
    const late = await passDuring(
      () => clock.endPause(),
      billing.getPools({}, asCustomer).catch(toApiError),
    );
    expect(late).toMatchObject({ reason: "gateway_unavailable" });
    expect(drained).toBe(false);

    gate.resolve();
    expect((await running.next()).value?.kind.case).toBe("receipt");
    expect((await running.next()).done).toBe(true);
    await draining;
  });

  test("aborts the remaining calls at its limit, and waits until they have cleaned up", async () => {
    const cleaned: string[] = [];
    const script: Script = {
      ...emptyAnswers(),
      async *stream(_desc, _request, call) {
        yield create(GenerateResponseSchema, { kind: { case: "admission", value: {} } });
        try {
          await new Promise((_resolve, reject) =>
            call.signal.addEventListener("abort", () => reject(call.signal.reason)),
          );
        } finally {
          await Promise.resolve();
          cleaned.push("settled");
        }
      },
    };
    const { server, address } = await startGrpcServer(scriptedServices(script));
    const running = connectGrpc(address)
      .inference.generate(hello, asCustomer)
      [Symbol.asyncIterator]();
    await running.next();
    const end = running.next().catch(toApiError);
    await server.drain(0);
    expect(cleaned).toEqual(["settled"]);
    expect(await end).toMatchObject({ reason: "gateway_unavailable" });
  });
});

// A HealthCheckRequest holds one text, the answer one number.
function healthRequest(service: string): Buffer {
  return Buffer.concat([Buffer.from([0x0a, Buffer.byteLength(service)]), Buffer.from(service)]);
}

function servingStatus(answer: Buffer | undefined): string | undefined {
  return ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"][answer?.[1] ?? 0];
}

/** The health statuses that a watcher of the whole server receives, in order. */
async function* watchHealth(address: string): AsyncGenerator<string | undefined> {
  const call = plainClient(address).makeServerStreamRequest(
    "/grpc.health.v1.Health/Watch",
    (bytes: Buffer) => bytes,
    (bytes) => bytes,
    healthRequest(""),
  );
  for await (const answer of call) yield servingStatus(answer);
}

describe("a certificate whose files change", () => {
  const [ours, theirs] = [createAuthority("ours"), createAuthority("theirs")];
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "gateway-certificate-"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const files = () => ({
    certificate: join(folder, "tls.crt"),
    privateKey: join(folder, "tls.key"),
    authorities: "",
  });
  const put = async ({ certificate, privateKey }: ReturnType<typeof ours.issue>) => {
    await writeFile(files().certificate, certificate);
    await writeFile(files().privateKey, privateKey);
  };

  /** The name in the certificate that a new connection gets. */
  async function nameAt(port: number): Promise<string | undefined> {
    const ca = [ours.certificate, theirs.certificate];
    const socket = connect({ port, host: "localhost", ca, ALPNProtocols: ["h2"] });
    await once(socket, "secureConnect");
    const { subject } = socket.getPeerCertificate();
    socket.destroy();
    return String(subject.CN);
  }

  test("is used by new connections, and one that cannot be used leaves the old one", async () => {
    const lines: { code?: string; msg?: string }[] = [];
    const log = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
    const first = ours.issue("first");
    await put(first);
    const server = serverWith({ tls: first });
    const port = await server.listen("127.0.0.1", 0);
    const clock = new ManualClock();
    if (!server.certificate) throw new Error("plaintext");
    const watch = watchCertificate(server.certificate, files(), {
      ...{ log, clock, of: "gRPC listener" as const },
    });
    onTestFinished(() => watch.stop());
    const look = () => clock.advance(10_000);
    expect(await nameAt(port)).toBe("first");

    const second = theirs.issue("second", { hours: 5 });
    await put(second);
    await passUntil(look, async () => expect(await nameAt(port)).toBe("second"));
    expect(server.certificate.endsAt?.getTime()).toBeGreaterThan(Date.now() + 4 * 3_600_000);

    // The key of another certificate, as in the middle of a renewal; then no file at all.
    await writeFile(files().privateKey, first.privateKey);
    await passUntil(look, () => expect(lines.at(-1)?.code).toBe("certificate_rejected"));
    expect(await nameAt(port)).toBe("second");
    await rm(files().certificate);
    await look();
    await put(ours.issue("third"));
    await passUntil(look, async () => expect(await nameAt(port)).toBe("third"));
    expect(lines.filter(({ code }) => code === "certificate_rejected")).toHaveLength(1);
    expect(lines.map(({ msg }) => msg)).toContain(
      "the files of the certificate are in order again",
    );
  });

  test("is used by new connections of a client, too", async () => {
    const tls = { ...ours.issue("server"), clientAuthorities: ours.certificate };
    const port = await serverWith({ tls }).listen("127.0.0.1", 0);
    const clock = new ManualClock();
    // The server refuses the first one: it is of another authority.
    const first = theirs.issue("first");
    const core = connectGrpcWith({
      addresses: [`localhost:${port}`],
      tls: { authorities: ours.certificate, identity: first },
      clock,
    });
    const call = () =>
      core.billing.getPools({}, asCustomer).then(
        () => "answered",
        (error) => toApiError(error).reason,
      );
    expect(await passDuring(() => clock.endPause(), call())).toBe("gateway_unavailable");

    const authorities = join(folder, "ca.crt");
    await writeFile(authorities, ours.certificate);
    await put(ours.issue("second"));
    if (!core.certificate) throw new Error("plaintext");
    const log = pino({ level: "silent" });
    const parts = { log, clock: new ManualClock(), of: "client" as const };
    const watch = watchCertificate(core.certificate, { ...files(), authorities }, parts);
    onTestFinished(() => watch.stop());
    await passUntil(
      () => parts.clock.advance(10_000),
      async () => expect(await passDuring(() => clock.endPause(), call())).toBe("answered"),
    );
  });
});
