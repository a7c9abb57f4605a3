import { describe, expect, test } from "vitest";
import { answerFor, argumentsFor } from "../../src/providers/simulated/schema-values.ts";

describe("arguments of simulated tool calls", () => {
  const cases = [
    {
      name: "required properties",
      schema: { properties: { a: { type: "string" }, b: { type: "integer" } }, required: ["b"] },
      value: { b: 1 },
    },
    {
      name: "all properties if none is required",
      schema: { properties: { a: { type: "boolean" } } },
      value: { a: true },
    },
    {
      name: "a required property without a schema",
      schema: { required: ["a"] },
      value: { a: "a" },
    },
    {
      name: "constants, enums, examples and defaults",
      schema: {
        properties: {
          a: { const: 7 },
          b: { enum: ["x", "y"] },
          c: { examples: [2] },
          d: { default: null },
        },
      },
      value: { a: 7, b: "x", c: 2, d: null },
    },
    {
      name: "bounds of numbers",
      schema: {
        properties: {
          a: { type: "integer", minimum: 5 },
          b: { type: "number", exclusiveMinimum: 1, maximum: 1.5 },
          c: { type: "integer", multipleOf: 5, minimum: 7 },
          d: { type: "integer", maximum: -3 },
        },
      },
      value: { a: 5, b: 1.25, c: 10, d: -4 },
    },
    {
      name: "lengths and formats of texts",
      schema: {
        properties: {
          a: { type: "string", minLength: 4 },
          bbbb: { type: "string", maxLength: 2 },
          c: { type: "string", format: "date" },
        },
      },
      value: { a: "axxx", bbbb: "bb", c: "2026-01-02" },
    },
    {
      name: "lists",
      schema: {
        properties: {
          a: { type: "array", items: { type: "null" }, minItems: 2 },
          b: { type: "array", prefixItems: [{ type: "integer" }, { type: "boolean" }] },
          c: { type: "array", maxItems: 0 },
        },
      },
      value: { a: [null, null], b: [1, true], c: [] },
    },
    {
      name: "references and choices",
      schema: {
        $defs: { n: { type: "integer" } },
        properties: {
          a: { $ref: "#/$defs/n" },
          b: { anyOf: [{ type: "integer" }, { type: "null" }] },
          c: { type: ["null", "boolean"] },
        },
      },
      value: { a: 1, b: 1, c: true },
    },
    {
      name: "all of several schemas",
      schema: {
        allOf: [
          { properties: { a: { type: "string" } }, required: ["a"] },
          { properties: { b: { type: "null" } }, required: ["b"] },
        ],
      },
      value: { a: "a", b: null },
    },
    { name: "no schema", schema: undefined, value: {} },
    { name: "a schema of something else than an object", schema: { type: "string" }, value: {} },
  ];
  for (const { name, schema, value } of cases)
    test(`satisfy ${name}`, () => expect(argumentsFor(schema)).toEqual(value));

  test("are finite for a recursive schema", () => {
    const schema = {
      $defs: { node: { properties: { next: { $ref: "#/$defs/node" } }, required: ["next"] } },
      $ref: "#/$defs/node",
    };
    expect(JSON.stringify(answerFor(schema))).toContain("null");
  });

  test("exist for a schema without sense", () => {
    for (const schema of [
      { type: 7 },
      { $ref: "#/%zz/nothing" },
      { properties: [] },
      { allOf: [1] },
      { enum: [] },
      { type: "array", minItems: 1e9 },
      { required: [3] },
    ]) {
      expect(() => answerFor(schema)).not.toThrow();
    }
  });
});
