// E-mail addresses, as the gateway stores them and sends mail to them.

import { domainToASCII } from "node:url";

const localForm = /^[a-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*$/;
const domainForm =
  /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/**
 * The address in lower case, with its domain in ASCII. Undefined: not a plain address. Display
 * names, quotes, comments, lists and line breaks are none, so it is safe in a header.
 */
export function readMailAddress(text: string): string | undefined {
  if (text.length > 254) return undefined;
  const trimmed = text.trim().toLowerCase();
  const at = trimmed.lastIndexOf("@");
  const [local, domain] = [trimmed.slice(0, at), domainToASCII(trimmed.slice(at + 1))];
  const isPlain = at > 0 && local.length <= 64 && localForm.test(local) && domainForm.test(domain);
  return isPlain ? `${local}@${domain}` : undefined;
}

/** The domain of an address that `readMailAddress` returned. */
export function domainOf(address: string): string {
  return address.slice(address.lastIndexOf("@") + 1);
}

/** Enough to tell two addresses of a customer apart, and too little to write to one. */
export function maskAddress(address: string): string {
  const [first = ""] = address;
  return `${first}…${address.slice(address.lastIndexOf("@"))}`;
}

// The name may be in quotes, and the sign may be as URLs write it. An apostrophe within a name is
// part of it; one around an address is a quote.
const addressForm =
  /(?:"[^"]+"|[^\s<>()[\]"',;:@]+(?:'[^\s<>()[\]"',;:@]+)*)(?:@|%40)[^\s<>()[\]"',;:@]+/gi;
// The search takes time with the square of a text without the sign.
const textMax = 1_000;

/**
 * Masks whatever has the form of an address in a text, of which it returns the first 1,000
 * characters. A mail server repeats the address that it refuses, or another one: of before a
 * change, or to which the mail was forwarded.
 */
export function maskAddresses(text: string): string {
  return text
    .slice(0, textMax)
    .replace(addressForm, (address) => maskAddress(address.replace("%40", "@")));
}
