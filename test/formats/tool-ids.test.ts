import { hash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { readClientTools } from "../../src/formats/responses/client-tools.ts";
import { isOwnId, newItemId } from "../../src/formats/responses/item-ids.ts";
import { fromNativeId, PairedIds, toNativeId } from "../../src/formats/tool-ids.ts";
import { flatName, shortName } from "../../src/formats/tool-names.ts";
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

test("an id of an item that the gateway made is known, and no other", () => {
  for (const kind of ["rs", "fc", "msg"]) {
    const id = newItemId(kind);
    expect([isOwnId(id), id.startsWith(`${kind}_`)]).toEqual([true, true]);
    expect(newItemId(kind)).not.toBe(id);
    for (const other of [`xx${id}`, `${id}-`, ` ${id}`, id.replace("_gw", "_wg"), id.slice(0, 15)])
      expect(isOwnId(other)).toBe(false);
  }
  const own = "a".repeat(16);
  const ids = [
    `fc_gw${own}`,
    `fc_gw${own.slice(1)}`,
    `m_gw${own}`,
    `item_gw${own}`,
    [`fc_gw${own}`],
  ];
  expect(ids.map(isOwnId)).toEqual([true, false, false, false, false]);
});

test("a tool of a namespace has one flat name, which is valid and of at most 64 characters", () => {
  const long = "n".repeat(58);
  expect(flatName("a b", undefined)).toBe("a b");
  expect(flatName("x".repeat(65), "")).toBe("x".repeat(65));
  expect(flatName("f", "ns")).toBe("ns__f");
  expect(flatName("ffff", long)).toBe(`${long}__ffff`);
  for (const [name, namespace] of [
    ["fffff", long],
    ["a.b", "ns"],
    ["a b", "ns"],
    ["a_b", "n.s"],
  ] as const) {
    const flat = flatName(name, namespace);
    expect(flat).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
    const [, start, digest] = /^(.*)_([0-9a-f]{8})$/.exec(flat) ?? [];
    expect(digest).toBe(hash("sha256", JSON.stringify([namespace, name])).slice(0, 8));
    expect(start).toBe(`${namespace}__${name}`.replace(/[^\w-]/g, "_").slice(0, 55));
  }
  expect(shortName("x".repeat(64))).toBe("x".repeat(64));
  expect(shortName("x".repeat(65))).not.toBe(shortName("x".repeat(66)));
});

test("the calls of tools in namespaces and of custom tools are known by their flat names", () => {
  const tools = [
    { type: "function", name: "plain" },
    { type: "custom", name: "free" },
    {
      type: "namespace",
      name: "ns",
      tools: [{ type: "function", name: "f" }, { type: "custom", name: "g" }, { name: 1 }, null],
    },
    { type: "namespace", name: 7, tools: [{ type: "custom", name: "lost" }] },
    { type: "namespace", name: "empty" },
    { type: "custom" },
    "text",
  ];
  expect(Object.fromEntries(readClientTools(tools))).toStrictEqual({
    free: { name: "free", kind: "custom" },
    ns__f: { name: "f", kind: "function", namespace: "ns" },
    ns__g: { name: "g", kind: "custom", namespace: "ns" },
  });
  expect(readClientTools([]).size).toBe(0);
});
