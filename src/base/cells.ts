// Cells: whole installations side by side, each for some of the accounts, with a database of its
// own. One installation alone is the cell `00`. The first two of the random characters of a secret
// name the cell that made it.

import { randomId, randomSecret } from "./ids.ts";

/** The cell of an installation that has no others beside it. */
export const plainCell = "00";

const nameLength = 2;
const nameForm = /^\d{2}$/;

/** True for two digits. */
export function isCellName(text: string): boolean {
  return nameForm.test(text);
}

/** As `randomId`. The first two of the random characters name the cell. */
export function cellId(cell: string, prefix: string, length: number): string {
  return randomId(prefix + cell, length - nameLength);
}

/** As `randomSecret(32)`, 43 characters of base64url. The first two name the cell. */
export function cellToken(cell: string): string {
  return cell + randomSecret(32).slice(nameLength);
}

// Hints of secrets that were made before there were cells begin with two characters less.
const oldHintHead = 12;
const hintHead = 14;
const secretOfCell = /^(?:sk-gw2-.|mk-gw2-)\d{2}/;

/** The most of a beginning of a key's secret that its hint can have: see `keys/secret.ts`. */
export function hintHeadOf(text: string): string {
  return text.slice(0, secretOfCell.test(text) ? hintHead : oldHintHead);
}

/** The cell that the random part of a secret begins with. Undefined: the name of none. */
export function cellAt(random: string): string | undefined {
  const name = random.slice(0, nameLength);
  return isCellName(name) ? name : undefined;
}
