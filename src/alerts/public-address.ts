// Which addresses a webhook of a customer may have. A post from inside the operator's network must
// reach nothing there.

import { isIPv6 } from "node:net";
import { matchAddresses } from "../base/client-address.ts";

// IPv4: all but the special-purpose ranges (IANA registry, RFC 6890 and later).
const isSpecialIpv4 = matchAddresses([
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.31.196.0/24",
  "192.52.193.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "192.175.48.0/24",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/3",
]);

// IPv6: only global unicast. So loopback, link-local, ULA, IPv4 in IPv6 (`::ffff:0:0/96`), NAT64
// (`64:ff9b::/96`) and multicast are out, as are the special ranges within: IETF protocols with
// Teredo, documentation, and 6to4, which stands for an IPv4 address.
const isGlobalIpv6 = matchAddresses(["2000::/3"]);
const isSpecialIpv6 = matchAddresses([
  "2001::/23",
  "2001:db8::/32",
  "2002::/16",
  "2620:4f:8000::/48",
  "3fff::/20",
]);

/** True if everybody on the internet reaches the same host at this IP address. */
export function isPublicAddress(address: string): boolean {
  if (isIPv6(address))
    return !address.includes("%") && isGlobalIpv6(address) && !isSpecialIpv6(address);
  return !isSpecialIpv4(address);
}
