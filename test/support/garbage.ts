// The garbage collector, for tests that measure memory.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Returns the function that collects all garbage at once. */
export function exposeGc(): () => void {
  setFlagsFromString("--expose-gc");
  const gc: unknown = runInNewContext("gc");
  if (typeof gc !== "function") throw new Error("V8 exposes no collector");
  return () => void gc();
}
