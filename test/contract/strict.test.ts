// What is not understood is refused: members of JSON and fields of protobuf, of every method and at
// every depth, made from the descriptors.

import {
  create,
  type DescField,
  type DescMessage,
  type DescMethod,
  fromBinary,
  getOption,
  type JsonObject,
  type JsonValue,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { describe, expect, test } from "vitest";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { audited, lenient } from "../../gen/gateway/common/v1/options_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { UsageService } from "../../gen/gateway/usage/v1/usage_pb.ts";
import type { ApiError } from "../../src/base/errors.ts";
import { allServices } from "../../src/contract/contract.ts";
import { refuseUnknownFields } from "../../src/contract/validate.ts";
import { refuseUnknownNames } from "../../src/http/connect-names.ts";
import { apiErrorOf } from "../support/bindings.ts";

const methods = allServices.flatMap((service): readonly DescMethod[] => [...service.methods]);

/** A way from a message to one inside it. Each type is entered once on a way. */
type Path = readonly DescField[];

function pathsOf(type: DescMessage, seen: readonly DescMessage[] = []): Path[] {
  if (seen.includes(type)) return [];
  return [
    [],
    ...type.fields.flatMap((field) =>
      field.message && !field.message.typeName.startsWith("google.protobuf.")
        ? pathsOf(field.message, [...seen, type]).map((path) => [field, ...path])
        : [],
    ),
  ];
}

/** The member names of a way, as errors write it. */
function nameOf(path: Path): string {
  const place = { list: "[0]", map: '["one"]', message: "" } as const;
  return path
    .map(
      (field) =>
        `.${field.name}${field.fieldKind in place ? Reflect.get(place, field.fieldKind) : ""}`,
    )
    .join("");
}

/** JSON with `inner` at the end of the way. */
function jsonAt([field, ...rest]: Path, inner: JsonObject): JsonObject {
  if (!field) return inner;
  const value: JsonValue = jsonAt(rest, inner);
  const wrapped = { list: [value], map: { one: value }, message: value };
  return { [field.jsonName]: Reflect.get(wrapped, field.fieldKind) };
}

/** Bytes of a message with the field 50000, which nobody knows, at the end of the way. */
function bytesAt([field, ...rest]: Path): Uint8Array {
  const writer = new BinaryWriter();
  if (!field) return writer.tag(50_000, WireType.Varint).uint32(1).finish();
  writer.tag(field.number, WireType.LengthDelimited);
  if (field.fieldKind !== "map") return writer.bytes(bytesAt(rest)).finish();
  const entry = new BinaryWriter()
    .tag(1, WireType.LengthDelimited)
    .string("one")
    .tag(2, WireType.LengthDelimited)
    .bytes(bytesAt(rest));
  return writer.bytes(entry.finish()).finish();
}

function jsonError(method: DescMethod, json: JsonValue | string): ApiError | undefined {
  const text = typeof json === "string" ? json : JSON.stringify(json);
  try {
    refuseUnknownNames(method, Buffer.from(text));
    return undefined;
  } catch (error) {
    return apiErrorOf(error);
  }
}

test("only generation and counting are lenient: bodies of clients that are newer than we are", () => {
  const { generate, countTokens } = InferenceService.method;
  expect(methods.filter((desc) => getOption(desc, lenient))).toEqual([generate, countTokens]);
});

for (const desc of methods) {
  const isLenient = getOption(desc, lenient);
  const paths = pathsOf(desc.input);
  test(`${desc.name} ${isLenient ? "ignores" : "refuses"} an unknown member of JSON at each of ${paths.length} places`, () => {
    for (const path of paths) {
      const found = jsonError(desc, jsonAt(path, { notYetInvented: [1, { a: null }] }));
      if (isLenient) expect(found).toBeUndefined();
      else
        expect([found?.reason, found?.facts.field]).toEqual([
          "invalid_request",
          `${nameOf(path)}.notYetInvented`.slice(1),
        ]);
    }
  });

  if (getOption(desc, audited))
    test(`${desc.name} refuses an unknown field of protobuf at each of ${paths.length} places`, () => {
      for (const path of paths) {
        const request = fromBinary(desc.input, bytesAt(path));
        const type = path.at(-1)?.message ?? desc.input;
        expect(() => refuseUnknownFields(desc.input, request)).toThrow(
          `Field 50000 of ${type.typeName} is not known here.`,
        );
      }
      expect(refuseUnknownFields(desc.input, create(desc.input))).toBeUndefined();
    });
}

describe("a misspelt member gets the nearest name", () => {
  const { createKey, rotateKey, updateKey, listKeys } = KeysService.method;
  test.for<[DescMethod, JsonObject, string]>([
    [
      createKey,
      { settings: { monthlyCap: "5" } },
      "settings.monthlyCap: is not a member of gateway.keys.v1.KeySettings; did you mean monthlyCapMicrocredits?",
    ],
    [createKey, { rpm: 5 }, "rpm: is not a member of gateway.keys.v1.CreateKeyRequest"],
    [createKey, { settings: { request_per_minute: 5 } }, "did you mean requests_per_minute?"],
    [
      rotateKey,
      { overlapSeconds: 0 },
      "overlapSeconds: is not a member of gateway.keys.v1.RotateKeyRequest; did you mean overlap?",
    ],
    [
      updateKey,
      { settings: { allowedModel: ["opus"] } },
      "settings.allowedModel: is not a member of gateway.keys.v1.KeySettings; did you mean allowedModels?",
    ],
    [listKeys, { account: "acc_1" }, "did you mean accountId?"],
  ])("%s", ([method, json, message]) => {
    expect(jsonError(method, json)?.message).toContain(message);
  });
});

describe("also refused is", () => {
  const { createKey, updateKey } = KeysService.method;

  test("a member that is given under both of its names", () => {
    const twice = { accountId: "acc_1", account_id: "acc_2" };
    expect(jsonError(createKey, twice)).toMatchObject({
      facts: { field: "account_id" },
      message: "account_id: is given twice, as accountId and account_id",
    });
    expect(
      jsonError(updateKey, { settings: { allowedModels: [], allowed_models: [] } })?.facts.field,
    ).toBe("settings.allowed_models");
  });

  test("__proto__, and what an object has without being given it", () => {
    for (const name of ["__proto__", "constructor", "toString"])
      expect(jsonError(createKey, `{"${name}": {"a": 1}}`)?.facts.field).toBe(name);
  });

  test("the first of ten thousand", () => {
    const many = Object.fromEntries(
      Array.from({ length: 10_000 }, (_, index) => [`no${index}`, 1]),
    );
    expect(jsonError(createKey, many)?.facts.field).toBe("no0");
  });

  test("the name of an extension", () => {
    expect(jsonError(createKey, { "[gateway.common.v1.lenient]": true })?.reason).toBe(
      "invalid_request",
    );
  });
});

test("both names of each member are taken, and the data in maps and standard types are their own", () => {
  const { createTransfer } = BillingService.method;
  const { queryUsage } = UsageService.method;
  expect(jsonError(createTransfer, { accountId: "a", idempotency_key: "i" })).toBeUndefined();
  expect(jsonError(queryUsage, { start_at: "2026-11-01T00:00:00Z" })).toBeUndefined();
  const { generate } = InferenceService.method;
  const full = toJson(
    generate.input,
    fromBinary(generate.input, toBinary(generate.input, create(generate.input))),
  );
  expect(jsonError(generate, full)).toBeUndefined();
});
