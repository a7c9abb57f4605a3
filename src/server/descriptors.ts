// How many descriptors this process may have, and how many its providers may make it need.

import { readFileSync } from "node:fs";
import type { Log } from "../base/log.ts";
import type { CatalogFile } from "../config/catalog.ts";

/**
 * Warns if the calls that the configuration allows at once need more descriptors than the process
 * may have: each has the connection of its client and that to its provider.
 */
export function checkDescriptors({ providers }: Pick<CatalogFile, "providers">, log: Log): void {
  const calls = Object.values(providers)
    .filter(({ kind }) => kind !== "simulated")
    .reduce((sum, { concurrency }) => sum + concurrency, 0);
  const limit = readLimit();
  if (limit !== undefined && limit < 2 * calls)
    log.warn(
      { code: "descriptors_few", limit, needed: 2 * calls },
      "the limit of open files is below twice the `concurrency` of all providers",
    );
}

/** Undefined where the system does not say it (other than Linux), or there is none. */
function readLimit(): number | undefined {
  try {
    const text = readFileSync("/proc/self/limits", "utf8");
    const limit = /^Max open files +(\d+)/m.exec(text)?.[1];
    return limit === undefined ? undefined : Number(limit);
  } catch {
    return undefined;
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * raise the limit of open files (`LimitNOFILE` of the unit, `ulimit -n`), or lower
     * `concurrency` of the providers: at full load calls would fail for want of descriptors
     */
    descriptors_few: true;
  }
}
