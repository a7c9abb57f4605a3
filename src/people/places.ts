// Whether somebody signs in from where he did not before.

import { networkOf } from "../base/client-address.ts";

/**
 * True if no earlier address is of the same network: providers change the last part of an address
 * from day to day.
 */
export function isNewPlace(address: string, earlier: readonly string[]): boolean {
  const place = placeOf(address);
  return !earlier.some((one) => placeOf(one) === place);
}

/** The first three parts: of IPv4 a /24, of IPv6 a /48. */
function placeOf(address: string): string {
  const client = networkOf(address);
  return client.split(client.includes(":") ? ":" : ".", 3).join(" ");
}
