// The memory of a gateway process after a burst of large requests.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startChildGateway } from "../support/child-gateway.ts";
import { freshDatabase } from "../support/database.ts";

async function residentMebibytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
}

test.skipIf(process.platform !== "linux")(
  "is back at 1.5 times its idle value soon after large requests, whole and unfinished",
  { timeout: 900_000 },
  async () => {
    const database = await freshDatabase();
    const dataDir = await mkdtemp(join(tmpdir(), "gateway-data-"));
    const gateway = await startChildGateway({
      DATABASE_URL: database.url,
      ADMIN_TOKEN: "the-admin-token-of-a-test",
      SEED: "true",
      DATA_DIR: dataDir,
      LOG_LEVEL: "warn",
    });
    onTestFinished(async () => {
      await gateway.end("SIGTERM");
      await database.drop();
      await rm(dataDir, { recursive: true, force: true });
    });
    const { v1, v2 } = JSON.parse(await readFile(join(dataDir, "first-keys.json"), "utf8"));
    const pid = gateway.process.pid ?? 0;
    const send = async (key: string, content: unknown, signal: AbortSignal | null = null) => {
      const response = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": key,
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "haiku",
          max_tokens: 10,
          messages: [{ role: "user", content }],
        }),
        signal,
      });
      await response.text();
      return response.status;
    };
    for (let index = 0; index < 100; index++) await send(v1, "Hello");
    const idle = await residentMebibytes(pid);

    const text = "a b ".repeat(7_500_000);
    const parts = Array(19_000).fill({ type: "text", text: "x".repeat(10) });
    const burst: Promise<number>[] = [];
    for (const key of [v1, v2]) {
      for (let index = 0; index < 6; index++) {
        burst.push(send(key, text), send(key, parts));
        const abandoned = send(key, text, AbortSignal.timeout(50 * (index + 1)));
        burst.push(abandoned.catch(() => 0));
      }
    }
    const statuses = new Set(await Promise.all(burst));
    // Too long for the model, without room in the memory, answered, hung up.
    expect([...statuses].filter((status) => ![0, 200, 400, 402, 429].includes(status))).toEqual([]);
    const gatewayMemory = () => residentMebibytes(pid);
    await expect
      .poll(gatewayMemory, { timeout: 540_000, interval: 1_000 })
      .toBeLessThanOrEqual(1.5 * idle);
    expect(await send(v1, "Hello")).toBe(200);
  },
);
