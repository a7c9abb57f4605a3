// Tags as clients send them: what is a tag, what is refused, and where the fault is.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import {
  addHeaderTags,
  checkTags,
  parseTags,
  tagsOfMetadata,
  tagsText,
  withoutTags,
} from "../../src/base/tags.ts";

/** The field and the message of the error that `work` throws. */
function faultOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof ApiError && error.reason === "invalid_request")
      return `${error.facts.field}: ${error.message.replace(/^[^:]*: /, "")}`;
    throw error;
  }
  return "";
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const key = fc
  .tuple(
    fc.constantFrom(...letters),
    fc.string({ unit: fc.constantFrom(...letters, "_", ".", "-"), maxLength: 31 }),
  )
  .map((parts) => parts.join(""));
const value = fc
  .string({ unit: "grapheme", minLength: 1, maxLength: 60 })
  .map((text) => text.replace(/[\p{Cc},]/gu, "x").trim())
  .filter((text) => text !== "" && text !== "(other)" && [...text].length <= 64);
const tags = fc.dictionary(key, value, { maxKeys: 10 });

test("what one way can say, the others can say too", () => {
  fc.assert(
    fc.property(tags, (some) => {
      const text = tagsText(some);
      const header = Buffer.from(text).toString("latin1");
      const metadata = Object.entries(some).map(([name, one]) => [`tag.${name}`, one]);
      expect(parseTags(text, "tag")).toEqual(some);
      expect({ ...addHeaderTags({}, header) }).toEqual(some);
      expect(tagsOfMetadata(Object.fromEntries(metadata))).toEqual(some);
      expect(checkTags(some, "tags")).toEqual(some);
    }),
  );
});

test("whatever the text, it is tags within the limits or an error that is short", () => {
  const parts = fc.constantFrom(
    "=",
    ",",
    "a",
    "tag.",
    " ",
    "\n",
    "\0",
    "\ud800",
    "é",
    "x".repeat(70),
  );
  fc.assert(
    fc.property(fc.array(parts, { maxLength: 60 }), (some) => {
      const text = some.join("");
      for (const read of [
        () => parseTags(text, "tag"),
        () => tagsOfMetadata({ [`tag.${text}`]: "a", "tag.b": text }),
        () => addHeaderTags({}, text),
      ]) {
        let found: Readonly<Record<string, string>> = {};
        const fault = faultOf(() => {
          found = read();
        });
        expect(fault.length).toBeLessThan(200);
        expect(Object.keys(found).length).toBeLessThanOrEqual(10);
        for (const [name, one] of Object.entries(found)) {
          expect(name).toMatch(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/);
          expect([...one].length).toBeLessThanOrEqual(64);
          expect(one).toMatch(/^[^\p{Cc},]+$/u);
        }
      }
    }),
  );
});

describe("the header", () => {
  const refused: readonly [name: string, header: string, fault: string][] = [
    ["a tag without a value", "team=", "the tag team has no value"],
    ["no equal sign", "team=a,env", "tag 2 is not a key, an equal sign and a value"],
    ["a key of 33 characters", `${"k".repeat(33)}=a`, "the key of a tag is 1 to 32 of"],
    ["a key with a blank", "cost center=a", "the key of a tag is 1 to 32 of"],
    ["the name of a prototype", "__proto__=a", "the key of a tag is 1 to 32 of"],
    ["a value of 65 characters", `team=${"v".repeat(65)}`, "has more than 64 characters"],
    ["a value of 10 KB", `team=${"v".repeat(10_240)}`, "has more than 64 characters"],
    ["a tag twice", "team=a,team=b", "names the tag team twice"],
    ["a tab in a value", "team=a\tb", "has a line break or control character"],
    ["eleven tags", Array.from({ length: 11 }, (_, n) => `k${n}=v`).join(), "more than 10 tags"],
    ["a thousand tags", "a=b,".repeat(1_000), "more than 10 tags"],
    ["the name of all other values", "team=(other)", "stands for the values"],
    ["bytes that are not UTF-8", "team=\xf6", "is not UTF-8"],
  ];
  for (const [name, header, fault] of refused)
    test(`refuses ${name}`, () => {
      const found = faultOf(() => addHeaderTags({}, header));
      expect(found).toMatch(/^x-gateway-tags: /);
      expect(found).toContain(fault);
    });

  test("may have blanks, empty elements, and equal signs in values", () => {
    expect(parseTags(" team = a=b , , env=ci,", "tag")).toEqual({ team: "a=b", env: "ci" });
    expect(parseTags(" ", "tag")).toEqual({});
  });

  test("adds to the tags of the request, which count more", () => {
    expect(addHeaderTags({ team: "b" }, "team=a,env=ci")).toEqual({ team: "b", env: "ci" });
    expect(addHeaderTags({ team: "b" }, undefined)).toEqual({ team: "b" });
    const nine = Object.fromEntries(Array.from({ length: 9 }, (_, n) => [`k${n}`, "v"]));
    expect(faultOf(() => addHeaderTags(nine, "a=b,c=d"))).toContain("with those of the body");
    expect(Object.keys(addHeaderTags(nine, "k0=b,c=d"))).toHaveLength(10);
  });
});

describe("metadata", () => {
  test("has tags among other members, which are left alone", () => {
    const metadata = { user_id: "u", "tag.team": " a ", "tag.n": 5, "Tag.x": "y", nested: {} };
    expect(tagsOfMetadata(metadata)).toEqual({ team: "a" });
    expect(withoutTags(metadata)).toEqual({ user_id: "u", "Tag.x": "y", nested: {} });
    for (const none of [undefined, null, "tag.team", ["tag.team"], 5, {}])
      expect(tagsOfMetadata(none)).toEqual({});
  });

  test("errors name the member, and a name that is no key is not repeated", () => {
    expect(faultOf(() => tagsOfMetadata({ "tag.team": "a,b" }))).toBe(
      "metadata.tag.team: the value of the tag team has a comma",
    );
    expect(faultOf(() => tagsOfMetadata({ "tag.team": "a\nb" }))).toContain("line break");
    expect(faultOf(() => tagsOfMetadata({ "tag.team": "" }))).toContain("has no value");
    expect(faultOf(() => tagsOfMetadata({ [`tag.${"k".repeat(10_240)}`]: "a" }))).toMatch(
      /^metadata: the key of a tag is 1 to 32 of/,
    );
    const many = Object.fromEntries(Array.from({ length: 11 }, (_, n) => [`tag.k${n}`, "v"]));
    expect(faultOf(() => tagsOfMetadata(many))).toBe("metadata: has more than 10 tags");
  });

  test("a value has up to 64 characters, however many units each takes", () => {
    expect(tagsOfMetadata({ "tag.a": "😀".repeat(64) })).toEqual({ a: "😀".repeat(64) });
    expect(faultOf(() => tagsOfMetadata({ "tag.a": "😀".repeat(65) }))).toContain("64 characters");
  });
});
