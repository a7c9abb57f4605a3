// What an address stands for: a client, this machine, or a proxy of the operator.

import { BlockList, isIPv4, isIPv6, SocketAddress } from "node:net";
import { type Clock, systemClock } from "./clock.ts";
import { invalidField } from "./errors.ts";

/**
 * The network of a client: its IPv4 address, or the 64-bit network of its IPv6 address. An IPv6
 * client owns at least that network, so it would never run out of single addresses.
 */
export function networkOf(address: string): string {
  // The colon first: most addresses have none, and `isIPv6` is a regular expression of 2 µs.
  if (!address.includes(":") || !isIPv6(address)) return address;
  const mapped = /^::ffff:([\d.]+)$/i.exec(address);
  if (mapped?.[1]) return mapped[1];
  return groupsOf(address.split("%")[0] ?? "")
    .slice(0, 4)
    .map((group) => group.toString(16))
    .join(":");
}

/** The eight groups of an IPv6 address. */
function groupsOf(address: string): number[] {
  const [head = "", tail] = address.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const missing = tail === undefined ? 0 : 8 - left.length - right.length;
  const all = [...left, ...Array<string>(missing).fill("0"), ...right];
  return all.map((group) => Number.parseInt(group, 16));
}

/**
 * The one form of an address that a listener or a proxy names: without port, brackets and zone,
 * IPv4 in its own form. Undefined: it is no address.
 */
export function plainAddress(text: string): string | undefined {
  if (isIPv4(text)) return text;
  const bare = /^\[(.*)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
  if (isIPv4(bare)) return bare;
  if (!isIPv6(bare)) return undefined;
  // As the system writes it: short, in small letters, without the zone.
  const { address } = new SocketAddress({ address: bare.split("%")[0] ?? "", family: "ipv6" });
  return /^::ffff:([\d.]+)$/.exec(address)?.[1] ?? address;
}

/** True for the addresses of a set. */
export type AddressMatcher = (address: string) => boolean;

/** This machine, as IPv4 and IPv6 write it. */
export const loopbackRanges = ["127.0.0.0/8", "::1"] as const;

/**
 * Matches addresses in these addresses and CIDR ranges, in each form that `plainAddress` reads. No
 * IPv4 address is in a range of IPv6.
 */
export function matchAddresses(ranges: readonly string[]): AddressMatcher {
  const lists = { ipv4: new BlockList(), ipv6: new BlockList() };
  for (const range of ranges) {
    const [address = "", prefix] = range.split("/");
    const family = familyOf(address);
    if (prefix === undefined) lists[family].addAddress(address, family);
    else lists[family].addSubnet(address, Number(prefix), family);
  }
  return (address) => {
    const plain = plainAddress(address);
    if (plain === undefined) return false;
    const family = familyOf(plain);
    return lists[family].check(plain, family);
  };
}

/** The same for a list that, if it is empty, allows every address. Undefined: it does. */
export function matcherOf(allowed: readonly string[]): AddressMatcher | undefined {
  return allowed.length === 0 ? undefined : matchAddresses(allowed);
}

function familyOf(address: string): "ipv4" | "ipv6" {
  return address.includes(":") ? "ipv6" : "ipv4";
}

/**
 * The one form of an address or CIDR range: a mapped one is IPv4, and a range of one address is
 * that address. Or its fault, which continues the name of a field.
 */
export function readRange(text: string): { range: string } | { fault: string } {
  const [, given = "", prefix] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const [bare = ""] = given.split("%");
  if (bare !== given && isIPv6(bare))
    return { fault: `has a zone, which other machines do not know: write ${bare}` };
  const isAddress = isIPv4(given) || isIPv6(given);
  const address = isAddress ? plainAddress(given) : undefined;
  if (address === undefined)
    return { fault: "is no address and no range such as 203.0.113.7, 10.0.0.0/8 or 2001:db8::/32" };
  const bitsMax = address.includes(":") ? 128 : 32;
  // A mapped range counts the 96 bits in front of IPv4.
  const shift = given.includes(":") && bitsMax === 32 ? 96 : 0;
  const bits = prefix === undefined ? bitsMax : Number(prefix) - shift;
  if (bits < 0 || bits > bitsMax)
    return { fault: `has a prefix that is not from ${shift} to ${shift + bitsMax}` };
  if (bits === bitsMax) return { range: address };
  const network = networkAddress(address, bits);
  const range = `${network}/${bits}`;
  return network === address ? { range } : { fault: `is an address in a range: write ${range}` };
}

/** A credential that was used from an address that its list does not allow. */
export type MisplacedUse = {
  /** Empty: an admin token. */
  readonly accountId: string;
  readonly id: string;
  readonly name: string;
  readonly hint: string;
  /** In its one form. */
  readonly address: string;
};

/** More of them in one day are no leaked keys, but a list that is wrong. */
const misplacedMax = 10_000;

/**
 * The misplaced uses that this process has seen, one of each credential and UTC day. Those of
 * yesterday are kept: the last look of a day is before its end.
 */
export class MisplacedUses {
  readonly #clock: Clock;
  #day = "";
  #today = new Map<string, MisplacedUse>();
  #yesterday = new Map<string, MisplacedUse>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  note(use: MisplacedUse): void {
    this.#turn();
    if (this.#today.size < misplacedMax && !this.#today.has(use.id)) this.#today.set(use.id, use);
  }

  /** `day`: such as 2026-11-27. */
  list(): readonly (MisplacedUse & { readonly day: string })[] {
    this.#turn();
    const before = dayOf(Date.parse(this.#day) - dayMs);
    return [
      ...[...this.#yesterday.values()].map((use) => ({ ...use, day: before })),
      ...[...this.#today.values()].map((use) => ({ ...use, day: this.#day })),
    ];
  }

  #turn(): void {
    const today = dayOf(this.#clock.now());
    if (this.#day === today) return;
    const isNext = dayOf(this.#clock.now() - dayMs) === this.#day;
    this.#yesterday = isNext ? this.#today : new Map();
    this.#today = new Map();
    this.#day = today;
  }
}

const dayMs = 86_400_000;
const dayOf = (atMs: number) => new Date(atMs).toISOString().slice(0, 10);

/** The list of a credential, each entry in its one form. Throws `invalid_request`. */
export function checkAddresses(field: string, list: readonly string[]): string[] {
  const ranges = list.map((text, index) => {
    const read = readRange(text);
    if ("fault" in read) throw invalidField(`${field}[${index}]`, read.fault);
    return read.range;
  });
  return [...new Set(ranges)];
}

/** The first address of the range of an address in its one form. */
function networkAddress(address: string, bits: number): string {
  const isV4 = !address.includes(":");
  const size = isV4 ? 8 : 16;
  const parts = isV4 ? address.split(".").map(Number) : groupsOf(v6Groups(address));
  const masked = parts.map((part, index) => {
    const kept = Math.min(Math.max(bits - index * size, 0), size);
    return part & ((0xffff << (size - kept)) & 0xffff);
  });
  if (isV4) return masked.join(".");
  const full = masked.map((group) => group.toString(16)).join(":");
  return new SocketAddress({ address: full, family: "ipv6" }).address;
}

/** An IPv6 address whose last two groups are written as IPv4, in groups alone. */
function v6Groups(address: string): string {
  return address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, a, b, c, d) =>
    [Number(a) * 256 + Number(b), Number(c) * 256 + Number(d)]
      .map((group) => group.toString(16))
      .join(":"),
  );
}
