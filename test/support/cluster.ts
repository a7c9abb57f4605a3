// Several gateway processes on one database, as an operator runs them, with one Redis where it is
// installed.

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
  /** Undefined when Redis is not installed. */
  readonly redis: TestRedis | undefined;
  /** Calls a method such as `gateway.keys.v1.KeysService/CreateKey` as the operator, at a node. */
  admin(method: string, request: JsonObject, node?: number): Promise<JsonObject>;
  /** A new account with these credits. */
  account(credits: { v1?: number; v2?: number }): Promise<string>;
  /** A new key. `secretsIn` looks for its secret, too. */
  key(request: JsonObject): Promise<{ keyId: string; secret: string }>;
  rotate(keyId: string): Promise<string>;
  /** The secrets, without their prefix, that leaked into this text. */
  secretsIn(text: string): string[];
  /** The violations that the verifier finds. */
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

  const admin = async (method: string, request: JsonObject, node = 0): Promise<JsonObject> => {
    const response = await fetch(`${nodes[node]?.address}/${method}`, {
      method: "POST",
      headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
      body: JSON.stringify(request),
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
      const created = await admin("gateway.accounts.v1.AccountsService/CreateAccount", {
        settings: { name: "several nodes" },
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
    async key({ accountId = "", family = "FAMILY_V1", ...settings }) {
      const created = await admin("gateway.keys.v1.KeysService/CreateKey", {
        accountId,
        family,
        settings: { name: "a key", ...settings },
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
    // The random part of a secret alone would be a leak as well.
    secretsIn: (text) =>
      secrets.map((one) => one.slice(12, -4)).filter((one) => text.includes(one)),
    async verifyLedger() {
      return (
        (await admin("gateway.verification.v1.VerificationService/VerifyLedger", {})).violations ??
        []
      );
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
