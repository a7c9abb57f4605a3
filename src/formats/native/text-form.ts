// How the native format writes a text delta.

import type { TextForm } from "../text-run.ts";

const forms: TextForm[] = [];
/** Answers have few blocks; a provider's number may be anything. */
const formsMax = 64;

/** The form of a text delta of block `index`, as this gateway writes it. */
export function textFormOf(index: number): TextForm {
  const known = forms[index];
  if (known) return known;
  const before = `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":{"type":"text_delta","text":"`;
  const form = { before, after: '"}}\n\n', index };
  if (index < formsMax) forms[index] = form;
  return form;
}
