// A long file in a gateway of its own: what it costs, whatever its length.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { Authenticator } from "../support/authenticator.ts";
import { writeCharges } from "../support/charges.ts";
import { startChildGateway } from "../support/child-gateway.ts";
import { freshDatabase } from "../support/database.ts";
import { pathOf } from "../support/paths.ts";

/** Charges of the second file, of which a gateway writes 5 million at most. */
const count = Number(process.env.EXPORTED_CHARGES ?? 1_000_000);

/** The most memory that the process had so far. */
async function mostMebibytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1024;
}

test.skipIf(process.platform !== "linux")(
  "a file takes no memory by its length",
  { timeout: 1_800_000 },
  async () => {
    const database = await freshDatabase();
    const dataDir = await mkdtemp(join(tmpdir(), "gateway-data-"));
    const gateway = await startChildGateway({
      ...{ DATABASE_URL: database.url, ADMIN_TOKEN: "the-admin-token-of-a-test" },
      ...{ SEED: "true", DATA_DIR: dataDir, LOG_LEVEL: "warn" },
    });
    const db = new Client({ connectionString: database.url });
    await db.connect();
    onTestFinished(async () => {
      await db.end();
      await gateway.end("SIGTERM");
      await database.drop();
      await rm(dataDir, { recursive: true, force: true });
    });
    const { accountId, ownerLink } = JSON.parse(
      await readFile(join(dataDir, "first-keys.json"), "utf8"),
    );
    const cookie = await signIn(ownerLink, gateway.address);
    const pid = gateway.process.pid ?? 0;

    const read = async (keyId: string, rows: number) => {
      const payer = { accountId, family: "v1", keyId } as const;
      const run = async (text: string, values: unknown[] = []) =>
        void (await db.query(text, values));
      const from = new Date(Date.now() - 20 * 86_400_000);
      await writeCharges(run, { payer, count: rows, from, stepMs: 100 });
      const started = performance.now();
      const path = `charges.csv?account=${accountId}&key=${keyId}`;
      const answer = await fetch(`${gateway.address}/console/export/${path}`, {
        headers: { cookie, "sec-fetch-site": "same-origin" },
      });
      expect(answer.status).toBe(200);
      let [lines, bytes] = [0, 0];
      for await (const part of answer.body ?? []) {
        bytes += part.length;
        for (let at = part.indexOf(10); at >= 0; at = part.indexOf(10, at + 1)) lines++;
      }
      expect(lines).toBe(rows + 1);
      return { bytes, seconds: (performance.now() - started) / 1000 };
    };

    // Until here the heap grows to what any file needs, garbage included.
    await read("key_of_some", count / 2);
    const before = await mostMebibytes(pid);
    const { bytes, seconds } = await read("key_of_many", count);
    const grown = (await mostMebibytes(pid)) - before;
    console.info(
      `${count} charges, ${Math.round(bytes / 2 ** 20)} MiB in ${Math.round(seconds)} s, ` +
        `the most memory grew by ${Math.round(grown)} MiB`,
    );
    expect(grown).toBeLessThan(bytes / 2 ** 20 / 2);
  },
);

async function signIn(link: string, address: string): Promise<string> {
  const { origin, hash } = new URL(link);
  const device = new Authenticator(origin);
  const post = (method: string, body: object) =>
    fetch(`${address}${pathOf(method)}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const linkToken = hash.slice(1);
  const begun = Object(await (await post("BeginPasskey", { linkToken, login: "olga" })).json());
  const passkeyAnswerJson = device.register(begun.passkeyOptionsJson);
  const redeemed = await post("RedeemLink", {
    ...{ token: linkToken, login: "olga", passkeyAnswerJson },
  });
  expect(redeemed.status).toBe(200);
  return redeemed.headers.get("set-cookie")?.split(";")[0] ?? "";
}
