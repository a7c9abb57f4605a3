// Reads a profile of V8 and sums its time by part of the gateway.

import { fileURLToPath } from "node:url";

type Frame = { readonly name: string; readonly url: string; readonly parent: number | undefined };
export type Profile = {
  /** By id. */
  readonly frames: ReadonlyMap<number, Frame>;
  /** Samples by the id of the innermost frame, with microseconds. */
  readonly times: ReadonlyMap<number, number>;
};

/** Takes a `.cpuprofile` apart, and keeps its last `lastMs` milliseconds. */
export function readProfile(json: unknown, lastMs: number): Profile {
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
