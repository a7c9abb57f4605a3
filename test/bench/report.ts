// One row of the table, and how a table is printed.

import type { Spread } from "./measure.ts";

export type Row = {
  readonly measure: string;
  readonly value: Spread;
  readonly unit?: string;
  /** What it must be, for the reader; nothing is asserted. */
  readonly must?: string;
};

/** Above this spread between rounds a figure says more about the machine than about the gateway. */
const wideSpread = 0.5;

export function single(figure: number): Spread {
  return { median: figure, min: figure, max: figure };
}

export function printRows(suite: string, rows: readonly Row[]): void {
  console.log(`\n${suite}`);
  for (const { measure, value, unit = "", must = "" } of rows) {
    const spread = value.min === value.max ? "" : `(${show(value.min)} to ${show(value.max)})`;
    const isWide = (value.max - value.min) / value.median > wideSpread;
    const remark = isWide ? "spread too wide: the machine is busy" : must && `must ${must}`;
    console.log(`  ${measure.padEnd(58)} ${`${show(value.median)} ${unit}`.padEnd(14)} ${spread.padEnd(22)} ${remark}`);
  }
}

function show(figure: number): string {
  if (!Number.isFinite(figure)) return "-";
  if (Math.abs(figure) >= 100) return String(Math.round(figure));
  return figure.toFixed(Math.abs(figure) >= 10 ? 1 : 2);
}
