// Several gateway processes on one database, and one Redis when there is a binary of it, as an
// operator would run them.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { defaultCatalogWithoutPauses } from "./catalog.ts";
import { type ChildGateway, startChildGateway } from "./child-gateway.ts";
import { freshDatabase } from "./database.ts";
import { redisBinary } from "./programs.ts";
import { startRedis, type TestRedis } from "./redis.ts";

export type Cluster = {
  readonly nodes: readonly ChildGateway[];
  /** Undefined where no binary is installed. */
  readonly redis: TestRedis | undefined;
  /** Calls a method such as `gateway.keys.v1.KeysService/CreateKey` as the operator, at a node. */
  admin(method: string, ask: JsonObject, node?: number): Promise<JsonObject>;
  /** A funded account. Figures are credits. */
  account(credits: { v1?: number; v2?: number }): Promise<string>;
  /** A key of it. Remembered for `secretsIn`. */
  key(ask: JsonObject): Promise<{ keyId: string; secret: string }>;
  rotate(keyId: string): Promise<string>;
  /** Parts of secrets that this text holds although it should hold none. */
  secretsIn(text: string): string[];
  /** Violations that the verifier finds. */
  verifyLedger(): Promise<JsonValue>;
  stop(): Promise<void>;
};

const adminToken = "the-admin-token-of-several-nodes";

export async function startCluster(count: number): Promise<Cluster> {
  const database = await freshDatabase();
  const redis = redisBinary ? await startRedis() : undefined;
  const folder = await mkdtemp(join(tmpdir(), "gateways-"));
  const catalogFile = join(folder, "catalog.yaml");
  await writeFile(catalogFile, defaultCatalogWithoutPauses());
  const env = {
    DATABASE_URL: database.url,
    ADMIN_TOKEN: adminToken,
    CONFIG: catalogFile,
    LOG_LEVEL: "debug",
    DATA_DIR: folder,
    ...(redis && { REDIS_URL: redis.url }),
  };
  const nodes = await Promise.all(Array.from({ length: count }, () => startChildGateway(env)));
  const secrets = [adminToken];

  const admin = async (method: string, ask: JsonObject, node = 0): Promise<JsonObject> => {
    const response = await fetch(`${nodes[node]?.address}/${method}`, {
      method: "POST",
      headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
      body: JSON.stringify(ask),
    });
    const answer: unknown = await response.json();
    if (!response.ok) throw new Error(`${method}: ${JSON.stringify(answer)}`);
    return objectOf(answer);
  };

  return {
    nodes,
    redis,
    admin,
    async account(credits) {
      const created = await admin("gateway.billing.v1.BillingService/CreateAccount", {
        name: "several nodes",
      });
      const accountId = String(objectOf(created.account).accountId);
      for (const [family, amount] of Object.entries(credits)) {
        await admin("gateway.billing.v1.BillingService/CreateTransfer", {
          accountId,
          family: `FAMILY_${family.toUpperCase()}`,
          kind: "TRANSFER_KIND_BONUS",
          amountMicrocredits: String(amount * 1_000_000),
          idempotencyKey: family,
        });
      }
      return accountId;
    },
    async key(ask) {
      const created = await admin("gateway.keys.v1.KeysService/CreateKey", {
        family: "FAMILY_V1",
        ...ask,
      });
      const secret = String(created.secret);
      secrets.push(secret);
      return { keyId: String(objectOf(created.key).keyId), secret };
    },
    async rotate(keyId) {
      const secret = String(
        (await admin("gateway.keys.v1.KeysService/RotateKey", { keyId })).secret,
      );
      secrets.push(secret);
      return secret;
    },
    // The random part alone would be as bad.
    secretsIn: (text) =>
      secrets.map((one) => one.slice(12, -4)).filter((one) => text.includes(one)),
    async verifyLedger() {
      return (await admin("gateway.billing.v1.BillingService/VerifyLedger", {})).violations ?? [];
    },
    async stop() {
      await Promise.all(nodes.map((node) => node.end("SIGTERM")));
      await redis?.stop();
      await database.drop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export function objectOf(value: unknown): JsonObject {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error("not an object");
  return { ...value };
}
