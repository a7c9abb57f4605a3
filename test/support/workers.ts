// Gateways with several worker processes, and what their logs say of them.

import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { ChildGateway } from "./child-gateway.ts";

export type LogLine = { readonly [name: string]: unknown; readonly msg?: string };

/** The complete lines that the parent and its workers have logged. Throws if one is not JSON. */
export function logLines({ stderr }: Pick<ChildGateway, "stderr">): LogLine[] {
  return stderr()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

/** Process ids of the workers that got ready, oldest first. */
export function workerPids(gateway: ChildGateway): number[] {
  return logLines(gateway)
    .filter(({ msg }) => msg === "worker ready")
    .map(({ pid }) => Number(pid));
}

/** Resolves when the log has `count` lines with this message. */
export async function logged(gateway: ChildGateway, message: string, count = 1): Promise<void> {
  const found = () => logLines(gateway).filter(({ msg }) => msg?.includes(message)).length;
  while (found() < count) {
    if (gateway.process.exitCode !== null) throw new Error(`ended:\n${gateway.stderr()}`);
    await delay(10);
  }
}

/** True while the process runs. One that has exited gets signals until its parent asks for it. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    if (process.platform !== "linux") return true;
    // The name of the program, which may contain anything, is in parentheses.
    return !/\) [ZX] [^)]*$/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
