// Comments in the protos: they are the reference of the API.

import type { DescMethod } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { comments } from "../../gen/comments.ts";
import { ReasonSchema } from "../../gen/gateway/common/v1/error_pb.ts";
import { errorsOfAll, errorsText } from "../support/method-errors.ts";
import { ourEnums, ourFields, ourMessages, ourMethods, shortName } from "../support/protos.ts";

const methodOf = new Set(ourMethods.flatMap(({ input, output }) => [input, output]));

test("messages, fields and enums have comments, but for those of methods, which say it", () => {
  const found = [
    ...ourMessages.filter((one) => !methodOf.has(one)).map(({ typeName }) => typeName),
    ...ourFields.map(({ parent, name }) => `${parent.typeName}.${name}`),
    ...ourEnums.flatMap(({ typeName, values }) => [
      typeName,
      ...values.map(({ name }) => `${typeName}.${name}`),
    ]),
  ].filter((name) => !comments[name]);
  expect(found).toEqual([]);
});

const errorsOf = ({ parent, name }: DescMethod) => errorsText(`${parent.typeName}.${name}`);

test("a method says which errors it has of its own", () => {
  const found = ourMethods.filter((method) => errorsOf(method) === undefined);
  expect(found.map(({ name }) => name)).toEqual([]);
});

test("a method names its errors as the list of reasons has them, and not by another method", () => {
  const reasons = new Set(ReasonSchema.values.map(({ localName }) => localName));
  const found = ourMethods.flatMap((method) => {
    const errors = errorsOf(method) ?? "";
    const names = errors.match(/\b[A-Z][A-Z_]{3,}\b/g) ?? [];
    const isNone = errors.startsWith("none of its own.");
    const unknown = names.filter((name) => !reasons.has(name));
    return names.length === 0 && !isNone ? [method.name] : unknown;
  });
  expect(found).toEqual([]);
});

test("the errors of every method stand once, and are reasons", () => {
  const reasons = new Set(ReasonSchema.values.map(({ localName }) => localName));
  expect(errorsOfAll.size).toBeGreaterThan(15);
  expect([...errorsOfAll].filter((name) => !reasons.has(name))).toEqual([]);
});

test("a method that takes an idempotency key says what another body under the same one gets", () => {
  const found = ourMethods.filter(
    (method) =>
      method.input.field.idempotencyKey && !errorsOf(method)?.includes("IDEMPOTENCY_KEY_REUSED"),
  );
  expect(found.map(({ name }) => name)).toEqual([]);
});

test("no type has the name of another one", () => {
  const names = [...ourMessages, ...ourEnums].map(shortName);
  const twice = names.filter((name, index) => names.indexOf(name) !== index);
  expect(twice).toEqual([]);
});
