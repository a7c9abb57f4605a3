// Tells whether a process of this machine has ended: the start after a crash need not wait until
// the silence of its predecessor proves it dead.

import { readFileSync, readlinkSync } from "node:fs";

// The id of the boot is random, so no other machine has it. In another namespace the same process
// has another id, or another time of its start.
const machine = identifyMachine();

/**
 * Names this process to all processes that can look it up: those of the same boot of the same
 * machine, in the same container. Empty where the system does not tell (other than Linux).
 */
export function identifyProcess(): string {
  const state = readState(process.pid);
  return machine && state ? `${machine}/${process.pid}/${state.startedAt}` : "";
}

/**
 * True if the process that `identifyProcess` named has ended. False if it runs, and if it cannot be
 * looked up from here.
 */
export function hasEnded(identity: string): boolean {
  const [, of, pid, startedAt] = /^(.+)\/(\d+)\/(\d+)$/.exec(identity) ?? [];
  if (of === undefined || of !== machine) return false;
  if (!exists(Number(pid))) return true;
  const state = readState(Number(pid));
  // Another process may have the same id by now. A zombie has ended; its parent has yet to notice.
  return state !== undefined && (state.startedAt !== startedAt || /[ZX]/.test(state.status));
}

// `/proc` may hide the processes of other users. A signal tells that one exists.
function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return !(error instanceof Error && "code" in error && error.code === "ESRCH");
  }
}

/** From `/proc`: the status is a letter, the start is counted from the boot. */
function readState(pid: number): { status: string; startedAt: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name, in parentheses, may contain anything. The status is field 3, the start field 22.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const [status, startedAt] = [fields[0], fields[19]];
    return status && startedAt ? { status, startedAt } : undefined;
  } catch {
    return undefined;
  }
}

// Where `/proc` belongs to another namespace than our process ids, it tells of other processes:
// those of the same id outside. Then a living process would look like one that has ended.
function identifyMachine(): string | undefined {
  try {
    if (readlinkSync("/proc/self") !== String(process.pid)) return undefined;
    const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return [bootId, readlinkSync("/proc/self/ns/pid"), readlinkSync("/proc/self/ns/time")].join(
      "/",
    );
  } catch {
    return undefined;
  }
}
