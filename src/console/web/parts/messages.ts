// What is said at the foot of the page: that something was done, or why it was not.

import { signal } from "@preact/signals";
import type { CallError } from "../api.ts";

type Message = {
  readonly text: string;
  readonly isProblem: boolean;
  readonly requestId: string;
  readonly undo?: (() => Promise<void>) | undefined;
};

/** What is said now. */
export const message = signal<Message | undefined>(undefined);
let timer: ReturnType<typeof setTimeout> | undefined;

/** Says why something failed, until it is closed. */
export function report(problem: CallError | string): void {
  clearTimeout(timer);
  const isText = typeof problem === "string";
  message.value = {
    text: isText ? problem : problem.message,
    isProblem: true,
    requestId: isText ? "" : problem.requestId,
  };
}

/** Says for some seconds that something was done, and offers to undo it. */
export function notify(text: string, undo?: () => Promise<void>): void {
  clearTimeout(timer);
  message.value = { text, isProblem: false, requestId: "", undo };
  timer = setTimeout(silence, 6000);
}

export function silence(): void {
  message.value = undefined;
}
