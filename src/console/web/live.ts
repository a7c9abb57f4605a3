// The figures of a page are read together and shown together, so that no two of them differ in age:
// when a charge was settled, when the person did something, and every ten seconds.

import { batch, signal } from "@preact/signals";
import type { StreamState } from "./api.ts";

/** Something on screen that is read with the others. */
export type Live = {
  /** Reads it. Resolves with what shows the answer. Never rejects. */
  read(): Promise<() => void>;
  /** Since it was last read, in milliseconds. */
  ageMs(): number;
};

/** When the figures on screen were last read. Undefined: not yet. */
export const readAt = signal<Date | undefined>(undefined);
/** The stream that says when charges are settled. */
export const following = signal<StreamState>("closed");

/** Charges come up to 20 times a second: so long they wait for each other. */
const leastMs = 1_500;
/** Credits are also held and freed without a charge. */
const mostMs = 10_000;
/** What was read just before something else came on screen is not read again with it. */
const newMs = 1_500;

const shown = new Set<Live>();
/** What the next reading is for. */
let wanted: "nothing" | "what is missing" | "everything" = "nothing";
let dueAt = Number.POSITIVE_INFINITY;
let isReading = false;
let readEndedAt = Number.NEGATIVE_INFINITY;
let timer: ReturnType<typeof setTimeout> | undefined;

/** It is on screen from now on. Returns the end of that. */
export function show(one: Live): () => void {
  shown.add(one);
  if (wanted === "nothing") wanted = "what is missing";
  readBy(performance.now());
  return () => shown.delete(one);
}

/** A charge was settled: everything on screen may have moved. */
export function chargesMoved(): void {
  wanted = "everything";
  readBy(readEndedAt + leastMs);
}

/** The person did something, or came back: everything is read at once. */
export function readNow(): void {
  wanted = "everything";
  readBy(performance.now());
}

function readBy(atMs: number): void {
  dueAt = Math.min(dueAt, atMs);
  if (isReading) return;
  clearTimeout(timer);
  timer = setTimeout(() => void read(), Math.max(0, dueAt - performance.now()));
}

async function read(): Promise<void> {
  dueAt = Number.POSITIVE_INFINITY;
  // On return to the page, `readNow` goes on.
  if (document.visibilityState !== "visible" || shown.size === 0) return;
  const isPart = wanted === "what is missing";
  // At first, what the session brought is shown at once, however long the page took to begin.
  const isFirst = readAt.value === undefined;
  const oldMs = isFirst ? Number.POSITIVE_INFINITY : newMs;
  const needed = [...shown].filter((one) => !isPart || one.ageMs() >= oldMs);
  wanted = "nothing";
  isReading = true;
  const answers = await Promise.all(needed.map((one) => one.read()));
  isReading = false;
  readEndedAt = performance.now();
  batch(() => {
    for (const showAnswer of answers) showAnswer();
    if (needed.length > 0) readAt.value = new Date();
  });
  const isUneven = isFirst && [...shown].some((one) => one.ageMs() > newMs);
  readBy(readEndedAt + (isUneven ? leastMs : mostMs));
}
