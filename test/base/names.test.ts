// The rules of names, and how a name of before these rules is shown.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { checkName, checkOptionalName, shownName, toName } from "../../src/base/names.ts";

const refused: [string, string][] = [
  ["an empty one", ""],
  ["a blank", " "],
  ["a blank at the beginning", " name"],
  ["a blank at the end", "name "],
  ["a wide blank at the end", "name\u{3000}"],
  ["a line break", "two\nlines"],
  ["a tab", "a\tb"],
  ["a bell", "a\u{7}b"],
  ["what ends a line elsewhere", "a\u{2028}b"],
  ["U+0000", "a\0b"],
  ["a turn of the direction", "invoice\u{202E}fdp"],
  ["an isolated turn", "a\u{2066}b"],
  ["a blank without width", "a\u{200B}b"],
  ["a joiner without width", "a\u{200D}b"],
  ["a soft hyphen", "a\u{AD}b"],
  ["a byte order mark", "\u{FEFF}name"],
  ["a letter of tags", "a\u{E0041}"],
  ["letters that nobody sees", "\u{3164}\u{115F}"],
  ["a Braille pattern without dots", "\u{2800}"],
  ["half a character", "a\u{D83D}"],
];
test.for(refused)("refused is %s", ([, name]) => {
  expect(() => checkName("key.name", name)).toThrow(/^key\.name: /);
});

test.for([
  "a",
  "Ada Lovelace",
  "القاهرة",
  "東京 支店",
  "é and e\u{301}",
  "❤\u{FE0F} 🚀",
  "<b>&amp;</b>",
  "=1+1",
  "👍".repeat(200),
])("taken as it is: %s", (name) => {
  expect(checkName("name", name)).toBe(name);
});

test("a name that may be left out is empty, or follows the rules", () => {
  expect(checkOptionalName("name", "")).toBe("");
  expect(checkOptionalName("name", "Ada")).toBe("Ada");
  expect(() => checkOptionalName("name", " ")).toThrow("name: ");
});

describe("of any text", () => {
  const anyText = fc.oneof(
    fc.string({ unit: "binary", maxLength: 300 }),
    fc.string({
      unit: fc.constantFrom("a", " ", "\u{202E}", "\u{200B}", "\n", "\0", "\u{D800}"),
    }),
  );

  test("what is shown has no character that nobody sees, and a good name is shown as it is", () => {
    fc.assert(
      fc.property(anyText, (text) => {
        const shown = shownName(text);
        expect(shown).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|^\s|\s$/u);
        expect(shown.isWellFormed()).toBe(true);
        const isGood = (() => {
          try {
            return checkName("name", text) === text;
          } catch {
            return false;
          }
        })();
        if (isGood) expect(shown).toBe(text);
      }),
    );
  });

  test("two different ones are shown differently, if neither has an escape of its own", () => {
    const plain = anyText.filter((text) => !text.includes("\\"));
    fc.assert(
      fc.property(plain, plain, (one, other) => {
        expect(shownName(one) === shownName(other)).toBe(one === other);
      }),
    );
  });

  test("what another system calls somebody becomes a name, or none", () => {
    fc.assert(
      fc.property(anyText, (text) => {
        const name = toName(text);
        expect(checkOptionalName("name", name)).toBe(name);
      }),
    );
  });
});

test("an old name is shown with the numbers of what is not seen", () => {
  expect(shownName("invoice\u{202E}fdp ")).toBe("invoice\\u{202E}fdp\\u{20}");
});
