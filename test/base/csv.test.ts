// Lines of CSV: any text comes back from a parser, and none begins a formula.

import fc from "fast-check";
import { expect, test } from "vitest";
import { csvLine, textCell } from "../../src/base/csv.ts";

/** The cells of one line, as RFC 4180 reads them. */
function parse(line: string): string[] {
  const cells: string[] = [];
  let rest = line;
  for (;;) {
    const [whole = "", quoted, plain] = /^(?:"((?:[^"]|"")*)"|([^",\r\n]*))/.exec(rest) ?? [];
    cells.push(quoted?.replaceAll('""', '"') ?? plain ?? "");
    rest = rest.slice(whole.length);
    if (rest === "\r\n") return cells;
    if (!rest.startsWith(",")) throw new Error(`not CSV: ${JSON.stringify(line)}`);
    rest = rest.slice(1);
  }
}

const nasty = fc.constantFrom("=", "+", "-", "@", "\t", "\r", "\n", '"', ",", "'", "\uff1d", "a");
const text = fc.oneof(fc.string({ unit: "grapheme" }), fc.string({ unit: nasty, maxLength: 8 }));

test("any texts come back from a parser, with a ' in front of what would be a formula", () => {
  fc.assert(
    fc.property(fc.array(text, { minLength: 1, maxLength: 5 }), (texts) => {
      const cells = parse(csvLine(texts.map(textCell)));
      expect(cells).toHaveLength(texts.length);
      for (const [index, cell] of cells.entries()) {
        expect([texts[index], `'${texts[index]}`]).toContain(cell);
        expect(cell).not.toMatch(/^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/);
      }
    }),
    { numRuns: 2_000 },
  );
});

test("numbers are written as they are", () => {
  expect(csvLine([1, -2n, "0.5"])).toBe("1,-2,0.5\r\n");
});
