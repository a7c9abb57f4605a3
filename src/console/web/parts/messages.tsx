// What is said at the foot of the page: that something was done, or why it was not.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import type { CallError } from "../api.ts";
import { words } from "../words.ts";
import { Icon } from "./icon.tsx";

type Message = { readonly text: string; readonly isProblem: boolean; readonly requestId: string };

const message = signal<Message | undefined>(undefined);
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

/** Says for some seconds that something was done. */
export function tell(text: string): void {
  clearTimeout(timer);
  message.value = { text, isProblem: false, requestId: "" };
  timer = setTimeout(silence, 6000);
}

export function silence(): void {
  message.value = undefined;
}

export function Messages(): JSX.Element {
  const shown = message.value;
  return (
    <div class="messages" aria-live="polite">
      {shown && (
        <p class={shown.isProblem ? "message bad" : "message"}>
          <Icon name={shown.isProblem ? "warning" : "done"} />
          <span>{shown.text}</span>
          <button type="button" class="button quiet" onClick={silence}>
            {words.common.close}
          </button>
        </p>
      )}
    </div>
  );
}
