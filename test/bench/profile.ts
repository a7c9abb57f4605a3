// Takes a profile of a gateway by V8, and sums its time by part of the gateway.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { BenchProcess, GatewayProcess, Lab } from "./lab.ts";

type Frame = { readonly name: string; readonly url: string; readonly parent: number | undefined };
export type Profile = {
  /** By id. */
  readonly frames: ReadonlyMap<number, Frame>;
  /** Samples by the id of the innermost frame, with microseconds. */
  readonly times: ReadonlyMap<number, number>;
};

/** Takes a `.cpuprofile` apart, and keeps its last `lastMs` milliseconds. */
function readProfile(json: unknown, lastMs: number): Profile {
  const { nodes = [], samples = [], timeDeltas = [] } = Object(json);
  const frames = new Map<number, Frame>();
  for (const { id, callFrame } of nodes)
    frames.set(id, { name: callFrame.functionName, url: callFrame.url, parent: undefined });
  for (const { id, children = [] } of nodes) {
    for (const child of children) {
      const frame = frames.get(child);
      if (frame) frames.set(child, { ...frame, parent: id });
    }
  }
  const times = new Map<number, number>();
  let laterMicros = 0;
  for (let index = samples.length - 1; index >= 0 && laterMicros < lastMs * 1000; index--) {
    const id = samples[index];
    laterMicros += timeDeltas[index];
    times.set(id, (times.get(id) ?? 0) + timeDeltas[index]);
  }
  return { frames, times };
}

/**
 * Time of each part, largest first; idle time is left out. What the runtime does for a part counts
 * as that part's.
 */
export function timeByPart({ frames, times }: Profile): { part: string; time: number }[] {
  const sums = new Map<string, number>();
  for (const [id, time] of times) {
    const part = partOf(frames, id);
    if (part !== undefined) sums.set(part, (sums.get(part) ?? 0) + time);
  }
  return [...sums]
    .map(([part, time]) => ({ part, time }))
    .sort((one, other) => other.time - one.time);
}

/**
 * The share of the busy time, from 0 to 1, in code of the files whose paths from the root `isOf`
 * selects, and in what that code calls.
 */
export function shareOf({ frames, times }: Profile, isOf: (path: string) => boolean): number {
  let [of, busy] = [0, 0];
  for (const [id, time] of times) {
    const chain = chainOf(frames, id);
    if (chain[0]?.name === "(idle)") continue;
    busy += time;
    if (chain.some(({ url }) => url.startsWith("file:") && isOf(pathOf(url)))) of += time;
  }
  return of / busy;
}

/** A frame and those that called it, innermost first. */
function chainOf(frames: Profile["frames"], id: number): readonly Frame[] {
  const chain: Frame[] = [];
  for (let frame = frames.get(id); frame; ) {
    chain.push(frame);
    frame = frame.parent === undefined ? undefined : frames.get(frame.parent);
  }
  return chain;
}

function pathOf(url: string): string {
  const path = fileURLToPath(url);
  return path.startsWith(root) ? path.slice(root.length) : path;
}

/**
 * Runs a gateway under the profiler while `load` sends to it. Returns the profile of the second
 * call of `load`: in the first the code is compiled. From the sources, whose files are the parts.
 */
export async function profileGateway(
  lab: Lab,
  provider: BenchProcess,
  env: NodeJS.ProcessEnv,
  load: (gateway: GatewayProcess, isWarmUp: boolean) => Promise<unknown>,
): Promise<Profile> {
  const folder = await lab.folder();
  const gateway = await lab.gateway(provider, {
    main: "../../src/server/program.ts",
    flags: ["--cpu-prof", `--cpu-prof-dir=${folder}`],
    env,
  });
  await load(gateway, true);
  const started = performance.now();
  await load(gateway, false);
  await lab.end(gateway);
  const lastMs = performance.now() - started;
  const [file = ""] = await readdir(folder);
  return readProfile(JSON.parse(await readFile(join(folder, file), "utf8")), lastMs);
}

const root = fileURLToPath(new URL("../../", import.meta.url));

function partOf(frames: Profile["frames"], id: number): string | undefined {
  for (let at: number | undefined = id; at !== undefined; ) {
    const frame: Frame | undefined = frames.get(at);
    if (!frame) break;
    if (frame.name === "(idle)") return undefined;
    if (frame.name === "(garbage collector)") return "garbage collection";
    const path = frame.url.startsWith("file:") ? fileURLToPath(frame.url) : frame.url;
    const library = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1];
    if (library !== undefined) return library;
    if (path.startsWith(root)) return path.slice(root.length).split("/").slice(0, 2).join("/");
    at = frame.parent;
  }
  return "Node itself";
}
