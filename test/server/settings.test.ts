// What follows from the settings: the address of gRPC that people are shown.

import { expect, test } from "vitest";
import { readConfig } from "../../src/config/environment.ts";
import { createSettings } from "../../src/server/settings.ts";
import { fastCatalog } from "../support/gateway.ts";

for (const [env, address] of [
  [{}, "localhost:50051"],
  [{ GRPC_HOST: "::1", GRPC_PORT: "50060" }, "localhost:50060"],
  [{ PUBLIC_URL: "https://gateway.example.com" }, ""],
  [{ PUBLIC_URL: "https://gateway.example.com", GRPC_HOST: "localhost" }, ""],
  [{ PUBLIC_URL: "https://gateway.example.com", GRPC_HOST: "::1" }, ""],
  [
    { PUBLIC_URL: "https://gateway.example.com:8443", GRPC_HOST: "0.0.0.0", GRPC_PORT: "6000" },
    "gateway.example.com:6000",
  ],
  [{ GRPC_HOST: "::1%lo" }, "localhost:50051"],
  [{ PUBLIC_URL: "https://gateway.example.com", GRPC_HOST: "::1%lo" }, ""],
  [
    {
      ...{ ROLE: "core", PUBLIC_URL: "https://gateway.example.com", GRPC_HOST: "10.0.0.5" },
      ...{ GRPC_ALLOW_PLAINTEXT: "true", ADMIN_TOKEN: "a".repeat(32) },
    },
    "",
  ],
] as const)
  test(`with ${JSON.stringify(env)} people reach gRPC at "${address}"`, () => {
    const settings = createSettings({ config: readConfig({ ...env }), catalog: fastCatalog() });
    expect(settings.grpcAddress()).toBe(address);
  });

test("a port that the system chose is the one that is shown", () => {
  const config = readConfig({ GRPC_PORT: "0" });
  const settings = createSettings({ config, catalog: fastCatalog() });
  settings.servesGrpcOn(40_123);
  expect(settings.grpcAddress()).toBe("localhost:40123");
});
