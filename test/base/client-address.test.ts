// Addresses and ranges: the one form of each, and which addresses a list allows.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkAddresses,
  MisplacedUses,
  matchAddresses,
  plainAddress,
  readRange,
} from "../../src/base/client-address.ts";
import { ManualClock } from "../support/clock.ts";

test.for([
  ["203.0.113.7", "203.0.113.7"],
  ["203.0.113.7:4711", "203.0.113.7"],
  ["::ffff:203.0.113.7", "203.0.113.7"],
  ["::FFFF:cb00:7107", "203.0.113.7"],
  ["[::ffff:203.0.113.7]:443", "203.0.113.7"],
  ["2001:DB8:0:0::1", "2001:db8::1"],
  ["[2001:db8::1]", "2001:db8::1"],
  ["[2001:db8::1]:443", "2001:db8::1"],
  ["fe80::1%eth0", "fe80::1"],
  ["[fe80::1%25eth0]:80", "fe80::1"],
  ["", undefined],
  ["unknown", undefined],
  ["_hidden", undefined],
  ["203.0.113", undefined],
  ["010.0.0.1", undefined],
  ["203.0.113.7, 10.0.0.1", undefined],
] as const)("the address %j is %j", ([text, expected]) => {
  expect(plainAddress(text)).toBe(expected);
});

test.for([
  ["10.0.0.0/8", "10.0.0.0/8"],
  ["0.0.0.0/0", "0.0.0.0/0"],
  ["203.0.113.7/32", "203.0.113.7"],
  ["::ffff:203.0.113.7", "203.0.113.7"],
  ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
  ["::ffff:0:0/96", "0.0.0.0/0"],
  ["2001:DB8::/32", "2001:db8::/32"],
  ["2001:db8:0:0:0:0:0:1/128", "2001:db8::1"],
  ["::/0", "::/0"],
])("the range %j is stored as %j", ([text = "", range]) => {
  expect(readRange(text)).toEqual({ range });
  expect(readRange(String(range))).toEqual({ range });
});

const malformed = "is no address and no range such as 203.0.113.7, 10.0.0.0/8 or 2001:db8::/32";
test.for([
  ["10.0.0.1/8", "is an address in a range: write 10.0.0.0/8"],
  ["203.0.113.255/31", "is an address in a range: write 203.0.113.254/31"],
  ["2001:db8::1/32", "is an address in a range: write 2001:db8::/32"],
  ["::ffff:10.0.0.1/104", "is an address in a range: write 10.0.0.0/8"],
  ["::1.2.3.4/96", "is an address in a range: write ::/96"],
  ["10.0.0.0/33", "has a prefix that is not from 0 to 32"],
  ["::/129", "has a prefix that is not from 0 to 128"],
  ["::ffff:10.0.0.0/8", "has a prefix that is not from 96 to 128"],
  ["fe80::1%eth0", "has a zone, which other machines do not know: write fe80::1"],
  ["fe80::%1/64", "has a zone, which other machines do not know: write fe80::"],
  ["<b>%1", "is no address and no range such as 203.0.113.7, 10.0.0.0/8 or 2001:db8::/32"],
  ...["", "10/8", "010.0.0.1", "10.0.0.0/", "10.0.0.0/8/8", "[::1]", "1.2.3.4:80", " 1.2.3.4"].map(
    (text) => [text, malformed],
  ),
])("the range %j is refused", ([text = "", fault]) => {
  expect(readRange(text)).toEqual({ fault });
});

describe("a list", () => {
  const lists = [
    ["203.0.113.7"],
    ["203.0.113.0/24", "2001:db8::/32"],
    ["10.0.0.0/8"],
    ["fe80::1"],
    ["::/0"],
    ["0.0.0.0/0"],
  ] as const;

  test.for([
    ["203.0.113.7", "yy...y"],
    ["203.0.113.7:80", "yy...y"],
    ["::ffff:203.0.113.7", "yy...y"],
    ["203.0.113.8", ".y...y"],
    ["10.255.255.255", "..y..y"],
    ["11.0.0.0", ".....y"],
    ["2001:db8:ffff::9", ".y..y."],
    ["[2001:db8::9]:8080", ".y..y."],
    ["2001:db9::", "....y."],
    ["fe80::1%wlan0", "...yy."],
    ["::1", "....y."],
    ["", "......"],
    ["unknown", "......"],
  ])("allows %j as the table says", ([address = "", expected]) => {
    const found = lists.map((list) => (matchAddresses(list)(address) ? "y" : "."));
    expect(found.join("")).toBe(expected);
  });

  test("of 100 mapped, scoped and plain entries allows each in every form, and no neighbour", () => {
    const hundred = Array.from({ length: 100 }, (_, index) =>
      index % 4 === 0
        ? `::ffff:10.0.${index}.0/120`
        : index % 4 === 1
          ? `::FFFF:0a01:${index.toString(16)}`
          : index % 4 === 2
            ? `fe80:0:0:${index.toString(16)}::1`
            : `192.0.2.${index}`,
    );
    const isAllowed = matchAddresses(checkAddresses("list", hundred));
    for (const index of Array(100).keys()) {
      const [inside, outside] = (
        [
          [`10.0.${index}.200`, `10.0.${index + 1}.200`],
          [`10.1.0.${index}`, `10.1.1.${index}`],
          [`fe80:0:0:${index.toString(16)}::1`, `fe80:0:0:${index.toString(16)}::2`],
          [`192.0.2.${index}`, `192.0.3.${index}`],
        ] as const
      )[index % 4] ?? ["", ""];
      const forms = (address: string) =>
        address.includes(":")
          ? [address, `${address}%eth0`, `[${address}%25en1]:443`, address.toUpperCase()]
          : [address, `${address}:80`, `::ffff:${address}`, `[::FFFF:${address}%3]:80`];
      expect(forms(inside).map((one) => isAllowed(one))).toEqual([true, true, true, true]);
      expect(forms(outside).map((one) => isAllowed(one))).toEqual([false, false, false, false]);
    }
  });

  test("has at most 100 entries, each of them once in its one form", () => {
    const hundred = Array.from({ length: 100 }, (_, index) =>
      index % 2 === 0 ? `::ffff:10.0.${index}.0/120` : `2001:DB8:${index}::/48`,
    );
    const stored = checkAddresses("allowed_addresses", [...hundred]);
    expect(stored).toHaveLength(100);
    expect(stored.slice(0, 2)).toEqual(["10.0.0.0/24", "2001:db8:1::/48"]);
    expect(checkAddresses("list", ["::ffff:1.2.3.4", "1.2.3.4", "1.2.3.4/32"])).toEqual([
      "1.2.3.4",
    ]);
    expect(() => checkAddresses("list", ["::1", "fe80::2%3"])).toThrow(
      "list[1]: has a zone, which other machines do not know: write fe80::2",
    );
  });
});

test("a range has the addresses that begin with its bits, and no others", () => {
  const byte = fc.integer({ min: 0, max: 255 });
  const address = fc.oneof(
    fc.tuple(byte, byte, byte, byte).map((bytes) => bytes.join(".")),
    fc.ipV6().map((text) => plainAddress(text) ?? "::"),
  );
  const bitsOf = (text: string) => {
    if (!text.includes(":"))
      return text
        .split(".")
        .map((one) => bin(Number(one), 8))
        .join("");
    const [head = "", tail = ""] = new URL(`http://[${text}]`).hostname.slice(1, -1).split("::");
    const groups = (part: string) => part.split(":").filter((one) => one !== "");
    const missing = 8 - groups(head).length - groups(tail).length;
    const all = [...groups(head), ...Array<string>(missing).fill("0"), ...groups(tail)];
    return all.map((one) => bin(Number.parseInt(one, 16), 16)).join("");
  };
  const bin = (value: number, size: number) => value.toString(2).padStart(size, "0");
  fc.assert(
    fc.property(address, address, fc.integer({ min: 0, max: 128 }), (of, other, prefix) => {
      const max = of.includes(":") ? 128 : 32;
      const bits = Math.min(prefix, max);
      const read = readRange(`${of}/${bits}`);
      const range = "range" in read ? read.range : (/write (\S+)$/.exec(read.fault)?.[1] ?? "");
      const isAllowed = matchAddresses([range]);
      expect(isAllowed(of)).toBe(true);
      const isSame = other.includes(":") === of.includes(":");
      const isIn = isSame && bitsOf(other).startsWith(bitsOf(of).slice(0, bits));
      expect(isAllowed(other)).toBe(isIn);
    }),
  );
});

test("misplaced uses are kept once for each credential and day, until the end of the next", () => {
  const clock = new ManualClock();
  const uses = new MisplacedUses(clock);
  const at = (time: string) => clock.skip(Date.parse(time) - clock.now());
  at("2026-11-27T23:59:59.999Z");
  const use = { accountId: "acc_a", id: "key_1", name: "a", hint: "h", address: "192.0.2.1" };
  uses.note(use);
  uses.note({ ...use, address: "192.0.2.2" });
  uses.note({ ...use, id: "key_2" });
  expect(uses.list().map(({ id, address }) => [id, address])).toEqual([
    ["key_1", "192.0.2.1"],
    ["key_2", "192.0.2.1"],
  ]);
  const days = () => uses.list().map(({ id, day }) => `${id} ${day}`);
  at("2026-11-28T00:00:20Z");
  uses.note(use);
  expect(days()).toEqual(["key_1 2026-11-27", "key_2 2026-11-27", "key_1 2026-11-28"]);
  at("2026-11-29T00:00:00Z");
  expect(days()).toEqual(["key_1 2026-11-28"]);
  at("2026-12-01T00:00:00Z");
  expect(days()).toEqual([]);
});
