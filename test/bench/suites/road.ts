// The road of a request: the files and functions that one warm streamed native request enters, in
// the order in which it enters the files. `docs/internals.md` tells the same as a list.

import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { type GatewayProcess, Lab, urlOf } from "../lab.ts";
import { type Result, single } from "../report.ts";
import type { Entered } from "../road-hooks.ts";

const rounds = 5;
/** From the top down, as the layout has them. */
const floors = [
  ["server"],
  ["http", "grpc", "console"],
  ["inference"],
  ["alerts", "billing", "history", "keys", "operations", "payments", "people", "rate-limits"],
  ["contract"],
  ["providers"],
  ["formats"],
  ["postgres", "redis", "mail", "metrics", "tracing"],
  ["config"],
  ["base"],
];

/** Files of ticks alone. On a slow machine one comes in each round. */
const ticks = new Set([
  ...["base/task.ts", "base/change-feed.ts"],
  ...["keys/store.ts", "people/store.ts", "postgres/session.ts"],
]);

export type Road = {
  /** Paths below `src`, in the order of their first function. */
  readonly files: readonly string[];
  readonly functions: number;
  /** How often the next function is of another folder than the one before. */
  readonly changes: number;
  /** The functions that are called from a folder below their own. */
  readonly climbs: readonly string[];
};

export async function road(): Promise<Result> {
  await using lab = new Lab();
  const { files, functions, changes, climbs } = await measureRoad(lab);
  return {
    rows: [
      { measure: "files", value: single(files.length), must: "≤ 70" },
      { measure: "functions", value: single(functions), must: "≤ 380" },
      { measure: "changes of folder", value: single(changes) },
      { measure: "climbs", value: single(climbs.length), must: "2" },
    ],
    faults: [],
    notes: [...files, ...climbs.map((one) => `climb: ${one}`)],
  };
}

/** Sends requests to a gateway that runs from its sources. */
export async function measureRoad(lab: Lab): Promise<Road> {
  const provider = await lab.provider();
  const file = join(await lab.folder(), "road.json");
  const gateway = await lab.gateway(provider, {
    main: "../../src/main.ts",
    flags: ["--import", fileURLToPath(new URL("../road-hooks.ts", import.meta.url))],
    env: { ROAD_FILE: file },
  });
  for (let count = 0; count < 30; count++) await send(gateway);
  const seen: Entered[][] = [];
  for (let round = 0; round < rounds; round++) {
    // What is remembered for seconds is remembered anew: a round of a busy machine lasts longer.
    await send(gateway);
    await take(gateway, file);
    await send(gateway);
    seen.push(await take(gateway, file));
  }
  // Ticks and sweeps come in some of the rounds only.
  const idOf = ({ file, name }: Entered) => `${file} ${name}`;
  const common = seen
    .map((round) => new Set(round.map(idOf)))
    .reduce((one, other) => one.intersection(other));
  const way = (seen[0] ?? []).filter((one) => common.has(idOf(one)) && !ticks.has(one.file));
  const climbs = way.filter(({ file, from }) => from !== "" && floorOf(file) < floorOf(from));
  return {
    files: [...new Set(way.map(({ file }) => file))],
    functions: new Set(way.map(idOf)).size,
    changes: way.filter((one, at) => at > 0 && folderOf(one.file) !== folderOf(way[at - 1]?.file))
      .length,
    climbs: [...new Set(climbs.map(({ file, name, from }) => `${from} → ${file} ${name}`))],
  };
}

async function send(gateway: GatewayProcess): Promise<void> {
  const answer = await fetch(`${urlOf(gateway)}/v1/messages`, {
    method: "POST",
    headers: nativeHeaders(gateway),
    body: nativeBody("native", 1_000, true),
  });
  if (answer.status !== 200) throw new Error(`status ${answer.status}`);
  await answer.text();
  // The log line and the timers of its end.
  await delay(50);
}

/** The functions that were entered since the last call. */
async function take({ pid }: GatewayProcess, file: string): Promise<Entered[]> {
  await rm(file, { force: true });
  process.kill(pid, "SIGWINCH");
  for (;;) {
    const text = await readFile(file, "utf8").catch(() => "");
    if (text.endsWith("]")) return JSON.parse(text);
    await delay(10);
  }
}

const folderOf = (file = "") => file.split("/")[0] ?? "";
const floorOf = (file: string) => floors.findIndex((floor) => floor.includes(folderOf(file)));
