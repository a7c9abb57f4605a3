// A real Redis server per suite. Without an installed binary the suites that need one are skipped,
// and a warning explains how to install it.

import { type ChildProcess, spawn } from "node:child_process";
import { createConnection, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Redis as Connection } from "ioredis";
import { freePort } from "./ports.ts";
import { redisBinary } from "./programs.ts";

/** The reason for skipping a suite, with the remedy. */
export const redisMissing =
  "no redis-server on the PATH; install one to run this suite (Debian: apt-get install redis-server)";
if (!redisBinary) console.warn(`skipped: ${redisMissing}`);

export type TestRedis = {
  readonly url: string;
  readonly port: number;
  /** Kills the server, as a crash would. */
  kill(): Promise<void>;
  /** Starts it again, empty, on the same port. */
  restart(): Promise<void>;
  /** Stops the process with SIGSTOP; connections stay open. */
  pause(): void;
  resume(): void;
  flush(): Promise<void>;
  /** Runs a command, to inspect stored values. */
  command(name: string, ...args: string[]): Promise<unknown>;
  stop(): Promise<void>;
};

export async function startRedis(): Promise<TestRedis> {
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  let server = await launch(port);
  const connection = new Connection(url, { maxRetriesPerRequest: null });
  connection.on("error", () => {});

  const kill = async () => {
    if (server.exitCode !== null || server.signalCode !== null) return;
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGKILL");
    await ended;
  };
  return {
    url,
    port,
    kill,
    async restart() {
      await kill();
      server = await launch(port);
    },
    pause: () => void server.kill("SIGSTOP"),
    resume: () => void server.kill("SIGCONT"),
    async flush() {
      await connection.flushall();
    },
    command: (name, ...args) => connection.call(name, ...args),
    async stop() {
      connection.disconnect();
      await kill();
    },
  };
}

async function launch(port: number): Promise<ChildProcess> {
  if (!redisBinary) throw new Error(redisMissing);
  const args = ["--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
  const server = spawn(redisBinary, args, { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise<void>((resolve, reject) => {
    let output = "";
    server.once("exit", () => reject(new Error(`redis-server did not start:\n${output}`)));
    server.stdout?.on("data", (text: Buffer) => {
      output += text.toString();
      if (output.includes("Ready to accept connections")) resolve();
    });
  });
  return server;
}

/** A relay to a port that delays every read in both directions. */
export async function startSlowRelay(
  port: number,
  delayMs: number,
): Promise<{ port: number; stop(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const relay = createServer((near) => {
    const far = createConnection(port, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.setNoDelay(true);
      from.on("error", () => to.destroy());
      from.on("close", () => to.destroy());
      from.on("data", (bytes) => void delay(delayMs).then(() => to.write(bytes)));
    }
  });
  const relayPort = await new Promise<number>((resolve) => {
    relay.listen(0, "127.0.0.1", () => {
      const address = relay.address();
      resolve(typeof address === "object" && address ? address.port : 0);
    });
  });
  return {
    port: relayPort,
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => relay.close(resolve));
    },
  };
}
