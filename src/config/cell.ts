// What the payments of a cell are made of: its own names of processors, and its own keys for coins.

import { createHash } from "node:crypto";
import { plainCell } from "../base/cells.ts";
import { readAccountKey } from "./account-key.ts";
import type { PaymentSettings } from "./payments.ts";

/** The first index of hardened children. */
const hardened = 0x8000_0000;

/**
 * Throws what belongs to another cell. A webhook finds its cell by the name of the processor, and
 * two cells with the same addresses would take each other's coins.
 */
export function checkCell(cell: string, settings: PaymentSettings | undefined): void {
  if (cell === plainCell || !settings) return;
  const stranger = settings.processors.find(
    ({ type, name }) => type !== "simulated" && type !== "onchain" && !name.endsWith(`-${cell}`),
  );
  if (stranger)
    throw new Error(
      `payments: the name of the processor ${stranger.name} must end with -${cell}, as CELL says`,
    );
  for (const key of keysOf(settings))
    if (readAccountKey(key).index !== hardened + Number(cell))
      throw new Error(
        `payments: account_key must be of account ${Number(cell)}' of its wallet, as CELL says`,
      );
}

/** Digests of the keys for coins. */
export function chainKeysOf(settings: PaymentSettings | undefined): string[] {
  if (!settings) return [];
  return keysOf(settings).map((key) => createHash("sha256").update(key).digest("hex").slice(0, 16));
}

function keysOf({ processors }: PaymentSettings): string[] {
  return processors.flatMap((one) =>
    one.type === "onchain"
      ? [one.bitcoin?.accountKey, one.evm?.accountKey].filter((key) => key !== undefined)
      : [],
  );
}
