// The result of a suite, and the table that is printed from it.

import type { Spread } from "./measure.ts";

export type Row = {
  readonly measure: string;
  readonly value: Spread;
  readonly unit?: string;
  /** The target, for the reader; nothing is asserted. */
  readonly must?: string;
};

/** `faults` make a run void: a charge that differs from the served usage, for example. */
export type Result = {
  readonly rows: readonly Row[];
  readonly faults: readonly string[];
  readonly notes?: readonly string[];
};

/** Above this spread between rounds a figure describes the machine, not the gateway. */
const wideSpread = 0.5;

export function single(figure: number): Spread {
  return { median: figure, min: figure, max: figure };
}

export function printResult(
  suite: string,
  seconds: number,
  { rows, faults, notes = [] }: Result,
): void {
  console.log(`\n${suite} (${Math.round(seconds)} s)`);
  for (const { measure, value, unit = "", must = "" } of rows) {
    const spread = value.min === value.max ? "" : `(${show(value.min)} to ${show(value.max)})`;
    const isWide = value.max - value.min > wideSpread * Math.abs(value.median);
    const remarks = [
      must && `must ${must}`,
      isWide ? "spread too wide: the machine is busy" : "",
    ].filter((one) => one !== "");
    console.log(
      `  ${measure.padEnd(62)} ${`${show(value.median)} ${unit}`.padEnd(14)} ${spread.padEnd(22)} ${remarks.join("; ")}`.trimEnd(),
    );
  }
  for (const note of notes) console.log(`  ${note}`);
  if (faults.length > 0) console.log(`  VOID: ${faults.slice(0, 5).join("; ")}`);
}

function show(figure: number): string {
  if (!Number.isFinite(figure)) return "-";
  if (Math.abs(figure) >= 100) return String(Math.round(figure));
  return figure.toFixed(Math.abs(figure) >= 10 ? 1 : 2);
}
