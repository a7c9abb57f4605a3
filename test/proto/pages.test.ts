// Every list comes in pages, by one rule.

import { ScalarType } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { reportRowsMax } from "../../src/base/shown-figures.ts";
import { pageSizeMaxOf } from "../../src/contract/limits.ts";
import { beginsWith, ourMethods } from "../support/protos.ts";

/** Lists that have no pages, and why. */
const whole: Readonly<Record<string, string>> = {
  QueryLiabilities: "a day of each pool, of thirteen months at most",
  Search: "the best hits of each kind, of which `is_incomplete` says that there are more",
  FindRequests: "what has one id: seldom more than one request",
};

const lists = ourMethods.filter(({ name }) =>
  beginsWith(name, ["List", "Find", "Query", "Search"]),
);

test("lists without pages are the known ones", () => {
  const without = lists.filter(({ input }) => !input.field.pageSize).map(({ name }) => name);
  expect(without.sort()).toEqual(Object.keys(whole).sort());
});

describe.for(lists.filter(({ name }) => !(name in whole)))("$name", (method) => {
  const { name, input, output } = method;

  test("has a bound for its pages by the kind of its list", () => {
    const most = name === "FindAccounts" ? 200 : name.startsWith("Query") ? reportRowsMax : 1_000;
    expect(pageSizeMaxOf(method)).toBe(most);
  });

  test("takes the size and the token of a page, and answers the next token", () => {
    expect(input.field.pageSize?.scalar).toBe(ScalarType.UINT32);
    expect(input.field.pageToken?.scalar).toBe(ScalarType.STRING);
    expect(output.field.nextPageToken?.scalar).toBe(ScalarType.STRING);
  });
});

test("nothing else has the fields of a page", () => {
  const paged = ourMethods.filter(({ input }) => input.field.pageSize ?? input.field.pageToken);
  expect(paged.map(({ name }) => name).filter((name) => name in whole)).toEqual([]);
  expect(paged).toHaveLength(lists.length - Object.keys(whole).length);
});
