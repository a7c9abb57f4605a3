import { expect, test } from "vitest";
import {
  PriceSchema,
  UsageSchema,
  UsageTotalSchema,
} from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  byCategory,
  categoryColumns,
  expandCategories,
  tokenCategories,
} from "../../src/base/token-categories.ts";

for (const schema of [UsageSchema, UsageTotalSchema, PriceSchema]) {
  test(`${schema.name} has a field for each token category, named like its column`, () => {
    const fields = schema.fields.filter(({ name }) => name !== "price_version");
    const named = fields.map(({ localName, name }) => [localName, name]);
    expect(named.sort()).toEqual(Object.entries(categoryColumns).sort());
  });
}

test("every helper lists the categories in one order", () => {
  expect(Object.keys(categoryColumns)).toEqual([...tokenCategories]);
  expect(Object.values(byCategory((category) => category))).toEqual([...tokenCategories]);
});

test("a statement lists the columns and the parameters of all categories", () => {
  expect(expandCategories("select each_category(sum(c.#)::bigint as #), x")).toBe(
    "select sum(c.input)::bigint as input, sum(c.output)::bigint as output, " +
      "sum(c.thinking)::bigint as thinking, sum(c.cache_write_5m)::bigint as cache_write_5m, " +
      "sum(c.cache_write_1h)::bigint as cache_write_1h, sum(c.cache_read)::bigint as cache_read, x",
  );
  expect(expandCategories("values ($1, each_category($2::integer[]))")).toBe(
    "values ($1, $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], " +
      "$7::integer[])",
  );
});
