// The time zone in which the console shows times: that of the browser, until the person chooses
// one. Both may change while the page is open: whatever shows a time is drawn anew then.

import { computed, signal } from "@preact/signals";

const key = "gateway-zone";
export const utc = "UTC";

/** A name such as "Europe/Berlin". Empty: as the browser. */
export const chosenZone = signal("");
export const browserZone = signal(utc);
/** The zone of every time on screen that is not labelled otherwise. */
export const shownZone = computed(() => chosenZone.value || browserZone.value);

export function setZone(next: string): void {
  if (next === "") localStorage.removeItem(key);
  else localStorage.setItem(key, next);
  followZone();
}

/** Every zone that the browser lists, and UTC, which not all of them do. */
export function zones(): string[] {
  return [...new Set([utc, ...Intl.supportedValuesOf("timeZone")])];
}

/** Reads what the browser has now, and what the person chose, in this tab or another one. */
export function followZone(): void {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  browserZone.value = isZone(timeZone) ? timeZone : utc;
  const kept = localStorage.getItem(key) ?? "";
  chosenZone.value = isZone(kept) ? kept : "";
}

/** Browsers differ in the zones that they know, and a machine may have none. */
function isZone(name: string): boolean {
  try {
    return name !== "" && new Intl.DateTimeFormat("en", { timeZone: name }) !== undefined;
  } catch {
    return false;
  }
}
