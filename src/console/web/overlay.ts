// What is open above every page: the palette, or the glossary.

import { signal } from "@preact/signals";
import type { GlossaryTerm } from "./words-glossary.ts";

export type Overlay =
  /** `typed`: what was typed before it stood there. */
  | { readonly kind: "palette"; readonly typed?: string }
  /** `term`: the line to begin with. */
  | { readonly kind: "glossary"; readonly term?: GlossaryTerm };

export const overlay = signal<Overlay | undefined>(undefined);
