// Addresses: `/console/<account>/<page>?<filters>`. What a person looks at is in the address, so
// that a view can be sent to somebody else.

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import type { IconName } from "./parts/icon.tsx";

export type PageProps = {
  /** The parameters of the path, decoded. */
  readonly params: Readonly<Record<string, string>>;
};

export type PageEntry = {
  /** Below `/console/<account>/`. Parameters as in `keys/:keyId`. */
  readonly path: string;
  readonly component: ComponentType<PageProps>;
  /** Its place in the column. */
  readonly nav?: { readonly label: string; readonly icon: IconName };
  /** Who sees it in the column. Absent: everybody. */
  readonly isShown?: () => boolean;
};

/** The address on screen. */
export const address = signal(readAddress());

type Address = { readonly path: string; readonly search: string };

function readAddress(): Address {
  return { path: location.pathname, search: location.search };
}

/** The parts of the path below `/console/`: the account, and the path of the page. */
export function segments(): string[] {
  return address.value.path
    .split("/")
    .slice(2)
    .filter((part) => part !== "")
    .map(decode);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // An address that somebody typed.
    return text;
  }
}

/** The address of a page of the account on screen. Undefined and empty values are left out. */
export function href(
  path: string,
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  return hrefOf(segments()[0] ?? "", path, query);
}

/** The address of a page of an account. */
export function hrefOf(
  accountId: string,
  path: string,
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  const parts = ["console", accountId, ...path.split("/")].filter((part) => part !== "");
  return `/${parts.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

/** Goes to an address of the console. `replace`: without an entry in the history. */
export function go(to: string, { replace = false }: { replace?: boolean } = {}): void {
  if (replace) history.replaceState(history.state, "", to);
  else history.pushState(null, "", to);
  const before = address.value.path;
  address.value = readAddress();
  if (address.value.path !== before) scrollTo(0, 0);
}

/** What closes the dialogs that are open, unless somebody wants to keep what they hold. */
const dialogs: (() => void)[] = [];
/** The address on screen while the page itself goes back from the entry of a dialog. */
let leaving: string | undefined;

/**
 * Makes a dialog an entry of the history, so that the way back closes it. All that are open share
 * one. Returns what to call when it is closed.
 */
export function enterDialog(close: () => void): () => void {
  dialogs.push(close);
  settleEntry();
  return () => {
    dialogs.splice(dialogs.indexOf(close), 1);
    settleEntry();
  };
}

/** Later: one dialog may follow another, and what closes one may go to another page. */
function settleEntry(): void {
  setTimeout(() => {
    const isEntry = Object(history.state).isDialog === true;
    if (dialogs.length > 0 && !isEntry) history.pushState({ isDialog: true }, "");
    if (dialogs.length > 0 || !isEntry) return;
    leaving = shown();
    history.back();
  });
}

function shown(): string {
  return address.value.path + address.value.search;
}

function wentBack(): void {
  const top = dialogs.at(-1);
  const isSamePage = location.pathname === address.value.path;
  if (leaving !== undefined || (top && isSamePage)) {
    // The entry below takes the address that is on screen: it may have changed meanwhile.
    history.replaceState(null, "", leaving ?? shown());
    if (leaving === undefined) top?.();
    leaving = undefined;
  } else address.value = readAddress();
  settleEntry();
}

/** Follows links and the buttons of the browser. */
export function startRouter(): void {
  addEventListener("popstate", wentBack);
  addEventListener("click", (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.altKey || event.shiftKey)
      return;
    const link = event.composedPath().find((part) => part instanceof HTMLAnchorElement);
    if (!link || link.origin !== location.origin || link.target !== "" || link.download !== "")
      return;
    const isFile = /^\/console\/(export|oidc|assets|cell)\//.test(link.pathname);
    if (isFile || !link.pathname.startsWith("/console/") || event.defaultPrevented) return;
    // A link to a part of this page.
    if (link.hash !== "" && link.pathname === location.pathname) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

/**
 * The parameters of a path, if it has the form of `pattern`, such as `keys/:keyId`. `parts`: the
 * decoded parts of the path.
 */
export function match(
  pattern: string,
  parts: readonly string[],
): Readonly<Record<string, string>> | undefined {
  const wanted = pattern.split("/").filter((part) => part !== "");
  if (wanted.length !== parts.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, name] of wanted.entries()) {
    const part = parts[index] ?? "";
    if (name.startsWith(":")) params[name.slice(1)] = part;
    else if (name !== part) return undefined;
  }
  return params;
}

/** So long a person goes on typing into a filter: one entry of the history. */
const typingMs = 1_500;
let lastTyped = { names: "", path: "", at: Number.NEGATIVE_INFINITY };
let isTyped = false;

/** Changes the address by a field for text: what is typed soon after is the same entry. */
export function asTyped(change: () => void): void {
  isTyped = true;
  try {
    change();
  } finally {
    isTyped = false;
  }
}

/**
 * State in the query string: its values, and how to change some, each change an entry of the
 * history. What equals its default is not in the address. `replace`: without an entry.
 */
export function useQuery<Name extends string>(
  defaults: Readonly<Record<Name, string>>,
): readonly [
  Readonly<Record<Name, string>>,
  (changes: Readonly<Partial<Record<Name, string>>>, settings?: { replace?: boolean }) => void,
] {
  const search = new URLSearchParams(address.value.search);
  const values: Record<Name, string> = { ...defaults };
  for (const name in defaults) values[name] = search.get(name) ?? defaults[name];
  const set = (
    changes: Readonly<Partial<Record<Name, string>>>,
    { replace = false }: { replace?: boolean } = {},
  ) => {
    const next = new URLSearchParams(location.search);
    for (const name in defaults) {
      const value = changes[name];
      if (value === undefined) continue;
      if (value === defaults[name]) next.delete(name);
      else next.set(name, value);
    }
    const text = next.toString();
    const to = `${location.pathname}${text && `?${text}`}`;
    if (to === location.pathname + location.search) return;
    const names = Object.keys(changes).join();
    const { pathname: path } = location;
    const isSame = names === lastTyped.names && path === lastTyped.path;
    const goesOn = isTyped && isSame && performance.now() - lastTyped.at < typingMs;
    // Another change ends what was typed.
    lastTyped = { names: isTyped ? names : "", path, at: performance.now() };
    go(to, { replace: replace || goesOn });
  };
  return [values, set];
}
