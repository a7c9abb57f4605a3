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

/** The cell that the random part of a secret begins with. Undefined: the name of none. */
export function cellAt(random: string): string | undefined {
  const name = random.slice(0, nameLength);
  return isCellName(name) ? name : undefined;
}
