import fc from "fast-check";
import { expect, test } from "vitest";
import { fromNativeId, PairedIds, toNativeId } from "../../src/formats/tool-ids.ts";
import { anyCallId, anyNativeId } from "../support/arbitraries.ts";

test("an id of any letters has a native form, which reads back", () => {
  const ids = fc.oneof(anyCallId, anyNativeId).filter((id) => !id.startsWith("id64_"));
  fc.assert(
    fc.property(ids, ids, (id, other) => {
      const native = toNativeId(id);
      expect(native).toMatch(/^[a-zA-Z0-9_-]+$/);
      expect(fromNativeId(native)).toBe(id);
      expect(native === toNativeId(other)).toBe(id === other);
      // One that fits stays as it came.
      if (/^[\w-]+$/.test(id)) expect(native).toBe(id);
    }),
  );
  expect(["a b", ""].map(toNativeId)).toEqual(["id64_YSBi", "id64_"]);
  expect(["id64_YSBi", "id64_"].map(fromNativeId)).toEqual(["a b", ""]);
});

test("an id that only looks like a native form stays as it came", () => {
  // The text of an id that fits, and one that is not written as base64url writes it.
  for (const id of ["id64_YWJj", "id64_YSBj!", "id64_YSB", "id65_YSBi", "call_1"])
    expect(fromNativeId(id)).toBe(id);
});

test("each result gets the new id of its own call, those of one id in their order", () => {
  const pairs = new PairedIds();
  pairs.addCall("a", "a1");
  pairs.addCall("b", "b1");
  pairs.addCall("a", "a2");
  expect(["a", "b", "a", "a", "b", "c"].map((id) => pairs.ofResult(id))).toEqual([
    ...["a1", "b1", "a2", "a2", "b1"],
    undefined,
  ]);
  pairs.addCall("a", "a3");
  expect(pairs.ofResult("a")).toBe("a3");
});
