// ADMIN_TOKEN where the database is elsewhere: needed until an operator can sign in, and ended by
// removing it from the settings.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { readConfig } from "../../src/config/environment.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { startGateway } from "../../src/server/gateway.ts";
import { Authenticator } from "../support/authenticator.ts";
import { apiErrorOf } from "../support/bindings.ts";
import { contentKey } from "../support/content-key.ts";
import { freshDatabase } from "../support/database.ts";
import { fastCatalog } from "../support/gateway.ts";

const adminToken = "the-admin-token-of-a-test";

test("ADMIN_TOKEN is needed until an operator can sign in, and ends with its setting", async () => {
  await using stack = new AsyncDisposableStack();
  const database = stack.adopt(await freshDatabase(), (one) => one.drop());
  const dataDir = await mkdtemp(join(tmpdir(), "gateway-data-"));
  stack.defer(() => rm(dataDir, { recursive: true, force: true }));
  /** Runs `work` with a gateway with these settings. */
  const withGateway = async (
    more: NodeJS.ProcessEnv,
    work: (core: ReturnType<typeof grpcCore>, metrics: string) => Promise<void>,
  ) => {
    const env = {
      ...{ DATABASE_URL: database.url, DATA_DIR: dataDir, CONTENT_KEY: contentKey },
      ...{ PORT: "0", GRPC_PORT: "0", METRICS_PORT: "0", SEED: "true", ...more },
    };
    const log = createLog("silent");
    const gateway = await startGateway({
      config: readConfig(env),
      catalog: fastCatalog(),
      env,
      log,
    });
    const core = grpcCore({ addresses: [gateway.grpcAddress ?? ""] });
    try {
      await work(core, gateway.metricsAddress ?? "");
    } finally {
      core.close();
      await gateway.stop();
    }
  };
  const asAdmin = { headers: { authorization: `Bearer ${adminToken}` } };
  const without = () => withGateway({}, async () => {});
  await expect(without()).rejects.toThrow("ADMIN_TOKEN is required with DATABASE_URL until");

  let asOperator = asAdmin;
  await withGateway({ ADMIN_TOKEN: adminToken }, async (core, metrics) => {
    const { ownerLink } = JSON.parse(await readFile(join(dataDir, "first-keys.json"), "utf8"));
    const linkToken = new URL(ownerLink).hash.slice(1);
    const device = new Authenticator(new URL(ownerLink).origin);
    const { passkeyOptionsJson } = await core.people.beginPasskey({ linkToken, login: "olga" });
    const passkeyAnswerJson = device.register(passkeyOptionsJson);
    const request = { token: linkToken, login: "olga", passkeyAnswerJson };
    const { grant } = await core.people.redeemLink(request);
    asOperator = { headers: { authorization: `Session ${grant?.token}` } };
    const beganAt = Date.now() / 1_000;
    await core.operations.getStatus({}, asAdmin);
    const used = async () =>
      Number((await core.operations.getStatus({}, asOperator)).adminTokenLastUsedAt?.seconds ?? 0n);
    await expect.poll(used).toBeGreaterThan(beganAt - 60);
    const text = await (await fetch(`${metrics}/metrics`)).text();
    const gauge = /^gateway_admin_token_used_seconds (\S+)$/m.exec(text)?.[1];
    expect(Number(gauge)).toBeGreaterThan(beganAt - 60);
    const { tokens } = await core.people.listAdminTokens({}, asOperator);
    expect(tokens).toMatchObject([{ name: "ADMIN_TOKEN", lastUsedAt: expect.anything() }]);
  });

  // The file of the first start has it still, and gives it back to nobody.
  await withGateway({}, async (core) => {
    const refused = await core.operations.getStatus({}, asAdmin).catch(apiErrorOf);
    expect(refused).toMatchObject({ reason: "invalid_key" });
    expect((await core.people.listAdminTokens({}, asOperator)).tokens).toEqual([]);
    expect((await core.operations.getStatus({}, asOperator)).adminTokenLastUsedAt).toBeDefined();
  });
});
