// The small form of the suites of processes: two workers on one port, of which one leaves.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startChildGateway } from "../support/child-gateway.ts";
import { freshDatabase } from "../support/database.ts";
import { isAlive, logged, workerPids } from "../support/workers.ts";

test("two workers serve one port, one that gets SIGTERM is replaced, and all end with their parent", async () => {
  const database = await freshDatabase();
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-canary-"));
  onTestFinished(async () => {
    rmSync(dataDir, { recursive: true, force: true });
    await database.drop();
  });
  const gateway = await startChildGateway({
    WORKERS: "2",
    DATABASE_URL: database.url,
    ADMIN_TOKEN: "the-admin-token-of-a-canary",
    DATA_DIR: dataDir,
  });
  const isServed = async () => {
    const { status } = await fetch(`${gateway.address}/healthz`, {
      headers: { connection: "close" },
    });
    return status === 200;
  };
  await logged(gateway, "worker ready", 2);
  expect(await isServed()).toBe(true);
  const [first = 0] = workerPids(gateway);
  process.kill(first, "SIGTERM");
  await logged(gateway, "worker ready", 3);
  await expect.poll(() => isAlive(first)).toBe(false);
  expect(await isServed()).toBe(true);
  expect(await gateway.end("SIGTERM")).toMatchObject({ code: 0 });
  expect(workerPids(gateway).filter(isAlive)).toEqual([]);
});
