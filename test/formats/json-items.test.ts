import fc from "fast-check";
import { expect, test } from "vitest";
import { hasMoreItems } from "../../src/formats/json.ts";

/** Members and elements of a value, where an empty object or list counts as one. */
function countItems(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const items: unknown[] = Object.values(value);
  return items.reduce<number>((sum, item) => sum + countItems(item), Math.max(1, items.length));
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

test("the members and elements of any JSON are counted exactly", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 6 }), fc.boolean(), (text, isSpaced) => {
      const value: unknown = JSON.parse(text);
      const bytes = bytesOf(isSpaced ? JSON.stringify(value, undefined, 2) : text);
      const items = countItems(value);
      expect(hasMoreItems(bytes, items)).toBe(false);
      if (items > 0) expect(hasMoreItems(bytes, items - 1)).toBe(true);
    }),
  );
});

test("the content of strings is not counted, with any length and escapes", () => {
  const piece = fc.constantFrom('"', "\\", "\\\\\\", ",", "[{", "x".repeat(300), "😀", "\n");
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
      const bytes = bytesOf(JSON.stringify([pieces.join(""), { [pieces.join("")]: 1 }]));
      expect([hasMoreItems(bytes, 3), hasMoreItems(bytes, 2)]).toEqual([false, true]);
    }),
  );
});

test("an unterminated string ends the count", () => {
  for (const text of [
    '["',
    '["\\',
    `["${"x".repeat(1_000)}`,
    `["${"x".repeat(1_000)}\\`,
    `["${"\\".repeat(999)}"`,
  ]) {
    expect(hasMoreItems(bytesOf(text), 1)).toBe(false);
  }
});
