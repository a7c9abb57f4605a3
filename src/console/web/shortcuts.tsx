// The keys that work on every page, and what they open above it: ⌘K or Ctrl K the palette, `/` too;
// `?` the glossary; `g` and a letter a page. What they open is loaded by need.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { overlay } from "./overlay.ts";
import { Icon } from "./parts/icon.tsx";
import { useNeeded } from "./parts/later.tsx";
import { report } from "./parts/messages.ts";
import { go, hrefOf, segments } from "./router.ts";
import { operatorPart, preferredAccount } from "./session.ts";
import { words } from "./words.ts";

const close = () => {
  overlay.value = undefined;
};

export function Overlay(): JSX.Element | null {
  const open = overlay.value;
  useKeys();
  const { file, isMissing } = useNeeded(() => import("./later/overlays.ts"), open !== undefined);
  useEffect(() => {
    if (!isMissing) return;
    close();
    report(words.common.offline);
  }, [isMissing]);
  if (open?.kind === "glossary" && file) return <file.Glossary term={open.term} onClose={close} />;
  if (open?.kind === "palette" && file) return <file.Palette typed={open.typed} onClose={close} />;
  return null;
}

/** Opens the palette. People learn its keys here. */
export function FindButton(): JSX.Element {
  const keys = /Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘K" : "Ctrl K";
  return (
    <button
      type="button"
      class="find"
      aria-label={`${words.shell.find} ${keys}`}
      aria-keyshortcuts="Control+K Meta+K /"
      onClick={() => {
        overlay.value = { kind: "palette" };
      }}
    >
      <Icon name="search" />
      <span>{words.shell.find}</span> <kbd>{keys}</kbd>
    </button>
  );
}

const fields = "input, textarea, select, [contenteditable]";
/** So long after `g` the letter counts. */
const chordMs = 1_500;

/** Pages by the letter behind `g`. */
const pageOf: Readonly<Record<string, string>> = {
  ...{ o: "", c: "connect", m: "models", k: "keys", u: "usage", r: "requests" },
  ...{ b: "credits", s: "settings", a: "alerts", t: "try" },
};

function useKeys(): void {
  useEffect(() => {
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** When `g` was pressed. */
let chordAt = Number.NEGATIVE_INFINITY;

function press(event: KeyboardEvent): void {
  const { key } = event;
  const isDialogOpen = document.querySelector("dialog[open]") !== null;
  if (isPaletteKey(event)) {
    event.preventDefault();
    if (!isDialogOpen) overlay.value = { kind: "palette" };
    return;
  }
  // What is opened and not on screen is on its way.
  const open = isDialogOpen ? undefined : overlay.value;
  if (open && key === "Escape") {
    close();
    return;
  }
  if (isDialogOpen || !isPlain(event)) return;
  if (open?.kind === "palette") {
    // Nothing that is typed meanwhile is lost.
    if (key.length !== 1) return;
    overlay.value = { ...open, typed: (open.typed ?? "") + key };
    event.preventDefault();
    return;
  }
  const isChord = performance.now() - chordAt < chordMs;
  chordAt = key === "g" ? performance.now() : Number.NEGATIVE_INFINITY;
  const act = actOf(key, isChord);
  act?.();
  if (act) event.preventDefault();
}

function isPaletteKey({ key, metaKey, ctrlKey, altKey, shiftKey }: KeyboardEvent): boolean {
  return (metaKey || ctrlKey) && !altKey && !shiftKey && key.toLowerCase() === "k";
}

/** A key alone, and not one that goes into a field. */
function isPlain({ target, ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  const isTyping = target instanceof HTMLElement && target.matches(fields);
  return !isTyping && !ctrlKey && !metaKey && !altKey;
}

/** What a key does on a page. `isChord`: it follows `g`. Undefined: nothing. */
function actOf(key: string, isChord: boolean): (() => void) | undefined {
  const page = isChord && Object.hasOwn(pageOf, key) ? pageOf[key] : undefined;
  const [first = ""] = segments();
  const account = first === operatorPart ? preferredAccount() : first;
  if (page !== undefined && account !== undefined) return () => go(hrefOf(account, page));
  if (key !== "/" && key !== "?") return undefined;
  return () => {
    overlay.value = { kind: key === "/" ? "palette" : "glossary" };
  };
}
