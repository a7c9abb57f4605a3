// Names and texts that people give. Names are those of accounts, keys, persons, passkeys, tokens
// and promotions. One that looks like another, or like nothing, deceives people who read a list.

import { invalidField } from "./errors.ts";

const lengthMax = 200;

// Control characters, and what has no width or turns the direction of a line.
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;
/** What a reader sees. U+2800 is a pattern of Braille without a dot. */
const visible = /[^\p{White_Space}\p{Default_Ignorable_Code_Point}\u{2800}]/u;

/** The name of something, whose length was checked. Throws `invalid_request`. */
export function checkName(field: string, name: string): string {
  if (!name.isWellFormed() || hidden.test(name))
    throw invalidField(field, "must not hold control characters, or others that nobody sees");
  if (!visible.test(name)) throw invalidField(field, "has to have a character that can be seen");
  if (name !== name.trim()) throw invalidField(field, "must not begin or end with a blank");
  return name;
}

/** The same for a name that may be left out. Empty: none is given. */
export function checkOptionalName(field: string, name: string): string {
  return name === "" ? "" : checkName(field, name);
}

/** The text, which may have several lines. Its length was checked. Throws `invalid_request`. */
export function checkText(field: string, text: string): string {
  if (!text.isWellFormed() || /[^\P{Cc}\n]/u.test(text))
    throw invalidField(field, "must not hold control characters");
  return text;
}

/** What another system calls somebody, as a name. Empty: it is none. */
export function toName(text: string): string {
  const plain = text.toWellFormed().replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ");
  const name = [...plain.slice(0, 2 * lengthMax)].slice(0, lengthMax).join("").trim();
  return visible.test(name) ? name : "";
}

const escaped = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]|^\p{White_Space}|\p{White_Space}$/gu;

/** A name as it is shown. One of before these rules has its unseen characters as `\u{202E}`. */
export function shownName(name: string): string {
  return name.replace(
    escaped,
    (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`,
  );
}
