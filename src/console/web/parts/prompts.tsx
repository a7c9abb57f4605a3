// The dialogs in which a call asks the person to sign in again, or to confirm who they are. The
// page below stays as it is, with what was typed.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import type { Prompts as Asked } from "../api.ts";
import { loadSession } from "../session.ts";
import { words } from "../words.ts";
import { Dialog } from "./dialog.tsx";
import { Ways } from "./ways.tsx";

type Question = {
  readonly kind: "signIn" | "confirm";
  readonly promise: Promise<void>;
  resolve(): void;
  reject(): void;
};

const question = signal<Question | undefined>(undefined);
/** The person closed the dialog: only what they do themselves opens it again. */
let isDeclined = false;

/** One dialog, however many calls ask for it. */
function ask(kind: Question["kind"]): Promise<void> {
  const open = question.value;
  if (open?.kind === kind) return open.promise;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const end = (settle: () => void) => () => {
    question.value = undefined;
    settle();
  };
  question.value = { kind, promise, resolve: end(resolve), reject: end(() => reject(kind)) };
  return promise;
}

export const prompts: Asked = {
  async signIn(isByItself) {
    if (isByItself && isDeclined) throw new Error("declined");
    await ask("signIn");
  },
  // What a page does by itself needs no confirmation.
  confirm: () => ask("confirm"),
};

export function Prompts(): JSX.Element | null {
  const open = question.value;
  if (!open) return null;
  const isConfirm = open.kind === "confirm";
  const done = async () => {
    await loadSession();
    isDeclined = false;
    open.resolve();
  };
  const decline = () => {
    isDeclined = !isConfirm;
    open.reject();
  };
  return (
    <Dialog title={isConfirm ? words.doors.confirmTitle : words.doors.endedTitle} onClose={decline}>
      <p class="muted">{isConfirm ? words.doors.confirm : words.doors.ended}</p>
      <Ways purpose={isConfirm ? "confirm" : "again"} onDone={done} />
    </Dialog>
  );
}
