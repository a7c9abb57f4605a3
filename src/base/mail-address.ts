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
