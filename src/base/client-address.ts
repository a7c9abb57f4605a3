// What an address stands for: a client, this machine, or a proxy of the operator.

import { BlockList, isIPv6 } from "node:net";

/**
 * The network of a client: its IPv4 address, or the 64-bit network of its IPv6 address. An IPv6
 * client owns at least that network, so it would never run out of single addresses.
 */
export function networkOf(address: string): string {
  // The colon first: most addresses have none, and `isIPv6` is a regular expression of 2 µs.
  if (!address.includes(":") || !isIPv6(address)) return address;
  const mapped = /^::ffff:([\d.]+)$/i.exec(address);
  if (mapped?.[1]) return mapped[1];
  const [head = "", tail] = address.split("%")[0]?.split("::") ?? [];
  const groups = head === "" ? [] : head.split(":");
  const missing =
    tail === undefined ? 0 : 8 - groups.length - (tail === "" ? 0 : tail.split(":").length);
  const all = [...groups, ...Array<string>(missing).fill("0"), ...(tail ? tail.split(":") : [])];
  return all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}

/** True for the addresses of a set. */
export type AddressMatcher = (address: string) => boolean;

/** This machine, as IPv4 and IPv6 write it. */
export const loopbackRanges = ["127.0.0.0/8", "::1"] as const;

/** Matches addresses in these addresses and CIDR ranges, also in the IPv6 form of IPv4. */
export function matchAddresses(ranges: readonly string[]): AddressMatcher {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", prefix] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return (address) => {
    const plain = address.split("%")[0] ?? "";
    return list.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
  };
}
