// Names in the protos: words, units, and the value of enums that stands for none. The lists are of
// those that do not follow the rules yet; an entry that does must go.

import { ScalarType } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { comments } from "../../gen/comments.ts";
import { fieldName, ourEnums, ourFields, ourMessages, shortName } from "../support/protos.ts";

/** Words that no field may have as its name. Go writes fields with a capital: it reserves none. */
const reservedWords = new Set([
  // Python
  ...["and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif"],
  ...["else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda"],
  ...["nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield"],
  // C++
  ...["alignas", "alignof", "asm", "auto", "bool", "case", "catch", "char", "concept", "const"],
  ...["constexpr", "decltype", "default", "delete", "do", "double", "enum", "explicit", "export"],
  ...["extern", "false", "float", "friend", "goto", "inline", "int", "long", "mutable"],
  ...["namespace", "new", "noexcept", "nullptr", "operator", "private", "protected", "public"],
  ...["register", "requires", "short", "signed", "sizeof", "static", "struct", "switch"],
  ...["template", "this", "throw", "true", "typedef", "typeid", "typename", "union", "unsigned"],
  ...["using", "virtual", "void", "volatile", "xor"],
  // Java
  ...["abstract", "boolean", "byte", "extends", "final", "implements", "instanceof", "interface"],
  ...["native", "null", "package", "strictfp", "super", "synchronized", "throws", "transient"],
  // C#
  ...["base", "checked", "decimal", "delegate", "event", "fixed", "foreach", "implicit"],
  ...["internal", "lock", "object", "out", "override", "params", "readonly", "ref", "sbyte"],
  ...["sealed", "stackalloc", "string", "uint", "ulong", "unchecked", "unsafe", "ushort"],
]);

/** Types that every file of Java or C# sees: a type of ours would hide them. */
const typesOfLanguages = new Set([
  ...["Boolean", "Byte", "Character", "Class", "Double", "Enum", "Error", "Exception", "Float"],
  ...["Integer", "Iterable", "Long", "Math", "Module", "Number", "Object", "Override", "Package"],
  ...["Process", "Record", "Runnable", "Runtime", "Short", "String", "System", "Thread", "Void"],
]);

test("no type has the name of one that Java or C# has everywhere", () => {
  const names = [...ourMessages, ...ourEnums].map(shortName);
  expect(names.filter((name) => typesOfLanguages.has(name))).toEqual([]);
});

test("no field has a name that a language reserves", () => {
  const found = ourFields.filter(({ name }) => reservedWords.has(name));
  expect(found.map(fieldName)).toEqual([]);
});

const numbers = new Set([
  ...[ScalarType.INT32, ScalarType.INT64, ScalarType.UINT32, ScalarType.UINT64],
  ...[ScalarType.DOUBLE, ScalarType.FLOAT],
]);
const isNumber = (scalar: ScalarType | undefined) => scalar !== undefined && numbers.has(scalar);

test("a number of money has its unit in its name", () => {
  const money = /(^|_)(\w*credits|\w*dollars|usd|cents|price|amount|bonus)(_|$)/;
  const units = /_(micro|nano)credits$|_(micro|pico)dollars$|^(micro|nano)credits$|^microdollars$/;
  const found = ourFields.filter(
    ({ name, scalar }) => isNumber(scalar) && money.test(name) && !units.test(name),
  );
  expect(found.map(fieldName)).toEqual([]);
});

const otherTimes = [
  ...["BeginSweepRequest.until", "ExportAccountResponse.archived_before", "Liabilities.day"],
  ...["ListAlertsResponse.webhook_failing_since", "ListChargesResponse.archived_before"],
  ...["ListChargesResponse.searched_to"],
  "Sweep.until",
];

test("a time ends in _at or _until, and a span is a Duration", () => {
  const times = ourFields.filter(
    ({ name, message }) =>
      message?.typeName === "google.protobuf.Timestamp" && !/_(at|until)$/.test(name),
  );
  const spans = ourFields.filter(
    ({ name, scalar }) => isNumber(scalar) && /_(ms|millis|seconds|minutes|hours)$/.test(name),
  );
  expect([...times, ...spans].map(fieldName).sort()).toEqual(otherTimes);
});

/** Roles and scopes, of which none is one; no format; and content as it is without a form. */
const meaningZero = ["AccountRole", "AdminScope", "ContentForm", "Format", "OperatorRole"];

test("the value 0 of an enum is UNSPECIFIED, and means nothing of its own but in roles and formats", () => {
  const wrong = ourEnums.filter(({ values: [zero] }) => !zero?.name.endsWith("_UNSPECIFIED"));
  expect(wrong.map(shortName)).toEqual([]);
  const meaning = ourEnums.filter(({ typeName, values: [zero] }) => {
    const comment = comments[`${typeName}.${zero?.name ?? ""}`];
    return comment !== undefined && comment !== "Not set.";
  });
  expect(meaning.map(shortName).sort()).toEqual(meaningZero);
});
