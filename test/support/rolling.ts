// Two gateway processes on one database, which are replaced one after the other under load.

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Agent, request } from "undici";
import { defaultCatalogWithoutPauses } from "./catalog.ts";
import { type ChildGateway, startChildGateway } from "./child-gateway.ts";
import { freePort } from "./ports.ts";

export type RollingPair = {
  readonly ports: readonly number[];
  readonly secret: string;
  /**
   * Replaces each process `rounds` times: SIGTERM, its exit, a new one at the same port. `until`
   * resolves when the balancer knows of it. Returns the exit codes that are not 0.
   */
  replace(rounds: number, until: (port: number) => Promise<void>): Promise<unknown[]>;
  stop(): Promise<void>;
};

/** `env`: the settings of both beyond the usual, with DATABASE_URL. */
export async function startRollingPair(env: NodeJS.ProcessEnv): Promise<RollingPair> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-rolling-"));
  const dataDir = env.DATA_DIR ?? folder;
  const CONFIG = join(folder, "catalog.yaml");
  await writeFile(CONFIG, defaultCatalogWithoutPauses());
  const settings = {
    CONFIG,
    DATA_DIR: folder,
    LOG_LEVEL: "warn",
    SEED: "true",
    ADMIN_TOKEN: "the-admin-token-of-a-rolling-pair",
    ...env,
  };
  const ports = [await freePort(), await freePort()];
  const start = (port: number) => startChildGateway({ ...settings, PORT: String(port) });
  const processes = new Map<number, ChildGateway>();
  // One after the other: the first one migrates and seeds.
  for (const port of ports) processes.set(port, await start(port));
  const keys: unknown = JSON.parse(await readFile(join(dataDir, "first-keys.json"), "utf8"));
  return {
    ports,
    secret: String(Object(keys).v1),
    async replace(rounds, until) {
      const failed: unknown[] = [];
      for (const port of Array.from({ length: rounds }).flatMap(() => ports)) {
        const exit = await processes.get(port)?.end("SIGTERM");
        if (exit?.code !== 0) failed.push(exit);
        processes.set(port, await start(port));
        await until(port);
      }
      return failed;
    },
    async stop() {
      await Promise.all([...processes.values()].map((one) => one.end("SIGTERM")));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export type Load = {
  readonly sent: number;
  /** What went wrong, one entry for each request that failed. */
  readonly failures: readonly string[];
};

/**
 * Sends `perSecond` requests a second in `streams` series until `during` has ended, every other one
 * streamed, whether or not those before have been answered.
 */
export async function loadDuring(
  address: string,
  secret: string,
  { perSecond, streams }: { perSecond: number; streams: number },
  during: Promise<unknown>,
): Promise<Load> {
  const agent = new Agent({ connections: 64, pipelining: 1 });
  const failures: string[] = [];
  const open = new Set<Promise<void>>();
  let [sent, isOver] = [0, false];
  const over = during.finally(() => {
    isOver = true;
  });
  const pay = async (stream: boolean) => {
    const { statusCode, body } = await request(`${address}/v1/messages`, {
      method: "POST",
      dispatcher: agent,
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "haiku",
        max_tokens: 20,
        stream,
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    const text = await body.text();
    if (statusCode !== 200) throw new Error(`${statusCode} ${text}`);
    if (stream && !text.includes("message_stop")) throw new Error(`cut: ${text.slice(-200)}`);
  };
  const series = async () => {
    const intervalMs = (1_000 * streams) / perSecond;
    for (let dueMs = performance.now(); !isOver; dueMs += intervalMs) {
      await delay(Math.max(0, dueMs - performance.now()));
      sent += 1;
      const at = new Date().toISOString();
      const paying = pay(sent % 2 === 0)
        .catch((error: unknown) => void failures.push(`${at} ${String(error)}`))
        .finally(() => open.delete(paying));
      open.add(paying);
    }
  };
  await Promise.all([over, ...Array.from({ length: streams }, series)]);
  await Promise.all(open);
  await agent.close();
  return { sent, failures };
}
