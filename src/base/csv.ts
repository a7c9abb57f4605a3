// Lines of CSV (RFC 4180).

export type Cell = string | number | bigint;

/** The cells as one line. Texts that need it are quoted; see `textCell` for those of customers. */
export function csvLine(cells: readonly Cell[]): string {
  return `${cells.join(",")}\r\n`;
}

// A spreadsheet takes such a text for a formula, the wide forms too, and runs it.
const formula = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;

/** A text that customers or operators choose. One that looks like a formula gets a `'` in front. */
export function textCell(text: string): string {
  const shown = formula.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
}
