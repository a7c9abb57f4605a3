// `npm start` with the embedded database to the first answer: with an empty data directory, and
// again with the one that is there. With its parts, as the log of the gateway has them.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 7;
const root = join(import.meta.dirname, "../../..");

/** The log lines at which a part of the start ends, in order. */
const parts = [
  ["npm and Node, to the first line of the log", "starting"],
  ["the database accepts connections", "the embedded PostgreSQL accepts connections"],
  ["imports, where they take longer than that", "services imported"],
  ["the ledger is migrated", "ledger migrated"],
  ["services, listeners, first keys", "ready"],
] as const;

type Start = {
  /** Milliseconds from the start of npm to the end of each part. */
  readonly partMs: readonly number[];
  readonly answerMs: number;
};

export async function start(): Promise<Result> {
  const starts = { first: [] as Start[], later: [] as Start[] };
  const folder = await mkdtemp(join(tmpdir(), "bench-start-"));
  try {
    for (let round = 0; round < rounds; round++) {
      const dataDir = join(folder, String(round));
      starts.first.push(await startOnce(dataDir));
      starts.later.push(await startOnce(dataDir));
    }
  } finally {
    // Not after each round: ext4 does not give the inodes of removed files to new ones for five
    // minutes, and looks at each of them for every file of the next round.
    await rm(folder, { recursive: true, force: true });
  }
  const rows = (Object.entries(starts) as [string, Start[]][]).flatMap(([name, all]): Row[] => [
    {
      measure: `${name} start to the first answer`,
      value: spreadOf(all.map(({ answerMs }) => answerMs)),
      unit: "ms",
      must: "≤ 2500",
    },
    ...parts.map(([measure], index): Row => {
      const took = ({ partMs }: Start) => (partMs[index] ?? 0) - (partMs[index - 1] ?? 0);
      return { measure: `  ${measure}`, value: spreadOf(all.map(took)), unit: "ms" };
    }),
  ]);
  return { rows, faults: [] };
}

/** Starts a gateway, sends a paid request, and ends it. */
async function startOnce(folder: string): Promise<Start> {
  const beganMs = Date.now();
  const child = spawn("npm", ["start"], {
    cwd: root,
    env: { ...process.env, DATA_DIR: folder, PORT: "0", GRPC_PORT: "0", LOG_LEVEL: "debug" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = once(child, "close");
  let [printed, logged] = ["", ""];
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    logged += text;
  });
  const address = await new Promise<string>((resolve, reject) => {
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
      const found = /The model gateway runs at (\S+)/.exec(printed)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.once("close", () => reject(new Error(`the gateway did not start:\n${logged}`)));
  });
  await pay(address, folder);
  const answerMs = Date.now() - beganMs;
  // npm passes it on. The pipes close when the gateway has ended.
  child.kill("SIGTERM");
  await ended;
  const lines = logged.split("\n").filter((line) => line.startsWith("{"));
  const times = new Map(lines.map((line) => JSON.parse(line)).map(({ msg, time }) => [msg, time]));
  let before = 0;
  const partMs = parts.map(([, message]) => {
    before = Math.max(before, Number(times.get(message) ?? 0) - beganMs);
    return before;
  });
  return { partMs, answerMs };
}

async function pay(address: string, folder: string): Promise<void> {
  const { v1 } = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8"));
  const answer = await fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": String(v1),
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 10,
      messages: [{ role: "user", content: "[[simulate first_token_ms=0 token_ms=0]]" }],
    }),
  });
  if (answer.status !== 200) throw new Error(`the first request got ${answer.status}`);
  await answer.text();
}
