import { expect, test } from "vitest";
import { encodeBase62 } from "../../src/base/base62.ts";

test("a number in base 62 is padded with zeros and sorts as text", () => {
  const texts = [0, 9, 10, 61, 62, 2 ** 32 - 1].map((value) => encodeBase62(value, 6));
  expect(texts).toStrictEqual(["000000", "000009", "00000A", "00000z", "000010", "4gfFC3"]);
  expect(texts).toStrictEqual(texts.toSorted());
});
