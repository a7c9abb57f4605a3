import type { JSX } from "preact";
import { words } from "../words.ts";
import { Notice } from "./small.tsx";

const localNames = ["localhost", "127.0.0.1", "[::1]"];

/** Beside a link for somebody else: that it leads nowhere from another machine. */
export function LocalNote({ link }: { readonly link: string }): JSX.Element | null {
  if (!localNames.includes(new URL(link).hostname)) return null;
  return <Notice tone="warn">{words.members.localOnly}</Notice>;
}
