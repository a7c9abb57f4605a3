// Base 62: text of digits and letters only, which a double click selects whole.

/** The digits in ASCII order, so that numbers of equal length sort as text. */
export const base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** A whole number below `62 ** length`, padded with zeros to `length` characters. */
export function encodeBase62(value: number, length: number): string {
  let text = "";
  for (let rest = value; text.length < length; rest = Math.floor(rest / 62)) {
    text = base62Digits.charAt(rest % 62) + text;
  }
  return text;
}
