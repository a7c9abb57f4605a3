// Ids of items. Those of a provider go to its client as they came, and back. Those that the gateway
// makes for answers of other formats mean nothing to a provider, so they are recognised.

import { randomId } from "../../base/ids.ts";

const mark = "gw";

/** A new id of an item; `kind` is `msg`, `rs`, `fc` or the like. */
export function newItemId(kind: string): string {
  return randomId(`${kind}_${mark}`);
}

/** True for an id that `newItemId` made, or that looks like it. */
export function isOwnId(id: unknown): boolean {
  return typeof id === "string" && ownForm.test(id);
}

const ownForm = new RegExp(`^[a-z]{2,3}_${mark}[0-9A-Za-z]{16,}$`);
