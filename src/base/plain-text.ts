// What people chose, such as names, in texts that others receive.

/**
 * Letters, digits and few signs, in one line of at most 60: a stranger could send addresses and
 * advertisements in our name otherwise. `more`: further signs that stay.
 */
export function plainText(text: string, more = ""): string {
  const kept = [...text].map((one) =>
    /[\p{L}\p{N} &'-]/u.test(one) || more.includes(one) ? one : " ",
  );
  return kept.join("").replace(/\s+/g, " ").trim().slice(0, 60);
}
