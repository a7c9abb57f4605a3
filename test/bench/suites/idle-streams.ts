// Memory of open streams without traffic, like those of a model that thinks: with a prompt of 1 KB,
// and with one of 200 KB, as coding assistants send.

import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { type BenchProcess, Lab, served, urlOf } from "../lab.ts";
import { residentBytes } from "../measure.ts";
import { type Result, single } from "../report.ts";

const counts = [1_000, 5_000];
const openWithinMs = 60_000;
const large = { promptBytes: 200_000, count: 500, perSecond: 25 };

export async function idleStreams(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const gateway = await lab.gateway(provider);
  const job = { url: urlOf(gateway), path: "/v1/messages", headers: nativeHeaders(gateway) };
  // The process allocates here what it needs once.
  await lab.load({
    ...job,
    bodies: [nativeBody("native", 1_000, true)],
    requests: 1_500,
    concurrency: 64,
  });

  const rows = [];
  const faults: string[] = [];
  const notes: string[] = [];
  const taken: { count: number; bytes: number }[] = [
    { count: 0, bytes: await settledBytes(gateway) },
  ];
  for (const count of counts) {
    // Each takes a descriptor towards the client and one towards the provider.
    if (openFilesMax() < 2 * count + 500) {
      notes.push(
        `${count} streams left out: only ${openFilesMax()} files may be open (ulimit -Hn)`,
      );
      continue;
    }
    const loading = lab.load({
      ...job,
      bodies: [nativeBody("native-idle", 1_000, true)],
      requests: count,
      concurrency: count,
    });
    const isOpen = await untilWaiting(provider, count);
    taken.push({ count, bytes: await settledBytes(gateway) });
    await fetch(`${urlOf(provider)}/release`);
    const { statuses } = await loading;
    if (!isOpen || statuses["200"] !== count)
      faults.push(`${count} streams: ${JSON.stringify(statuses)}`);
  }
  const [before, ...open] = taken;
  const last = open.at(-1);
  for (const { count, bytes } of open) {
    const each = (bytes - (before?.bytes ?? 0)) / count / 1000;
    const must = count === last?.count ? "≤ 46 KB" : "";
    rows.push({
      measure: `memory per open stream, ${count} of them`,
      value: single(each),
      unit: "KB",
      must,
    });
  }
  const [first] = open;
  if (first && last && last !== first) {
    const each = (last.bytes - first.bytes) / (last.count - first.count) / 1000;
    rows.push({ measure: `memory of each further one`, value: single(each), unit: "KB" });
  }
  const withLarge = await largePrompts(lab, provider);
  if (withLarge.fault !== undefined) faults.push(withLarge.fault);
  rows.push({
    measure: "memory per open stream with a prompt of 200 KB",
    value: single(withLarge.each / 1000),
    unit: "KB",
  });
  rows.push({
    measure: "memory without them",
    value: single((before?.bytes ?? 0) / 1e6),
    unit: "MB",
  });
  return { rows, notes, faults: [...faults, ...(await lab.faults(provider))] };
}

/** Bytes of each stream with a large prompt, in a gateway of their own. */
async function largePrompts(
  lab: Lab,
  provider: BenchProcess,
): Promise<{ each: number; fault?: string }> {
  const { count, perSecond, promptBytes } = large;
  const gateway = await lab.gateway(provider);
  const send = (
    model: string,
    job: { requests: number; concurrency: number; perSecond?: number },
  ) =>
    lab.load({
      url: urlOf(gateway),
      path: "/v1/messages",
      headers: nativeHeaders(gateway),
      bodies: [nativeBody(model, promptBytes, true)],
      ...job,
    });
  await send("native", { requests: 500, concurrency: 8 });
  const before = await settledBytes(gateway);
  const loading = send("native-idle", { requests: count, concurrency: count, perSecond });
  const isOpen = await untilWaiting(provider, count);
  const each = ((await settledBytes(gateway)) - before) / count;
  await fetch(`${urlOf(provider)}/release`);
  const { statuses } = await loading;
  if (isOpen && statuses["200"] === count) return { each };
  return { each, fault: `large prompts: ${JSON.stringify(statuses)}` };
}

async function untilWaiting(provider: BenchProcess, count: number): Promise<boolean> {
  const deadline = performance.now() + openWithinMs;
  while (performance.now() < deadline) {
    const { waiting } = await served(provider);
    if (waiting === count) return true;
    await delay(100);
  }
  return false;
}

/** Resident bytes once they change by less than a percent a second; ten seconds at most. */
async function settledBytes({ pid }: BenchProcess): Promise<number> {
  let bytes = residentBytes(pid);
  for (let second = 0; second < 10; second++) {
    await delay(1_000);
    const before = bytes;
    bytes = residentBytes(pid);
    if (Math.abs(bytes - before) < before / 100) break;
  }
  return bytes;
}

function openFilesMax(): number {
  return Number(
    /^Max open files\s+\d+\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1] ??
      Number.POSITIVE_INFINITY,
  );
}
