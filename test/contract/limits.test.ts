// The limits of fields, as the protos state them: which rules there may be, and what breaks one.

import {
  create,
  type DescMessage,
  hasOption,
  type MessageInitShape,
  setExtension,
} from "@bufbuild/protobuf";
import { durationFromMs, FieldOptionsSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import {
  FieldRulesSchema,
  Ignore,
  message as messageRules,
  oneof as oneofRules,
} from "../../gen/buf/validate/validate_pb.ts";
import { AlertSettingsSchema } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { InputCategory, PlaceHoldRequestSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { form } from "../../gen/gateway/common/v1/options_pb.ts";
import { ManagementScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  ChangeKeysRequestSchema,
  CreateKeyRequestSchema,
  KeySettingsSchema,
  RotateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { CreateManagementKeyRequestSchema } from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import { SetPasswordRequestSchema } from "../../gen/gateway/people/v1/profile_pb.ts";
import {
  ListChargesRequestSchema,
  QueryUsageRequestSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { describedFiles } from "../../src/contract/descriptors.ts";
import { compileLimits, limitsOf, readLimits } from "../../src/contract/limits.ts";
import { checkRequest } from "../../src/contract/validate.ts";

function messagesIn(types: readonly DescMessage[]): DescMessage[] {
  return types.flatMap((type) => [type, ...messagesIn(type.nestedMessages)]);
}

const messages = messagesIn(
  describedFiles()
    .filter(({ name }) => name.startsWith("gateway/"))
    .flatMap((file) => file.messages),
);

describe("the rules of our protos", () => {
  test("are those that are evaluated here, in every field", () => {
    const fields = messages.flatMap((type) => type.fields);
    for (const field of fields) compileLimits(field);
    expect(fields.filter((field) => limitsOf(field)).length).toBeGreaterThan(200);
  });

  test("are of fields alone, and of no message or oneof", () => {
    expect(messages.filter((type) => hasOption(type, messageRules))).toEqual([]);
    const oneofs = messages.flatMap((type) => type.oneofs);
    expect(oneofs.filter((one) => hasOption(one, oneofRules))).toEqual([]);
  });

  const { name, tags } = KeySettingsSchema.field;
  test.for<[string, MessageInitShape<typeof FieldRulesSchema>]>([
    ["cel", { cel: [{ id: "a", expression: "true" }] }],
    ["cel_expression", { celExpression: ["true"] }],
    ["const", { type: { case: "string", value: { const: "a" } } }],
    ["prefix", { type: { case: "string", value: { prefix: "a" } } }],
    ["email", { type: { case: "string", value: { wellKnown: { case: "email", value: true } } } }],
    ["gt", { type: { case: "int64", value: { greaterThan: { case: "gt", value: 1n } } } }],
    ["lt", { type: { case: "uint32", value: { lessThan: { case: "lt", value: 1 } } } }],
    ["in", { type: { case: "int32", value: { in: [1] } } }],
    ["defined_only", { type: { case: "enum", value: { definedOnly: true } } }],
    [
      "lt_now",
      { type: { case: "timestamp", value: { lessThan: { case: "ltNow", value: true } } } },
    ],
    [
      "cel",
      { type: { case: "repeated", value: { items: { cel: [{ id: "a", expression: "true" }] } } } },
    ],
    ["bool", { type: { case: "bool", value: { const: true } } }],
  ])("%s is no rule here", ([rule, init]) => {
    const rules = create(FieldRulesSchema, init);
    const expected = rule === "bool" ? "const" : rule;
    expect(() => readLimits(name, rules)).toThrow(`the rule ${expected} is not evaluated here`);
  });

  test("those of extensions are none here", () => {
    const rules = create(FieldRulesSchema);
    rules.$unknown = [{ no: 5000, wireType: 0, data: new Uint8Array([1]) }];
    expect(() => readLimits(name, rules)).toThrow("the rule of an extension is not evaluated");
  });

  test("cannot be ignored all at once", () => {
    const rules = create(FieldRulesSchema, { ignore: Ignore.ALWAYS });
    expect(() => readLimits(name, rules)).toThrow("ignores all of its rules");
  });

  const ofPattern = (pattern: string) =>
    create(FieldRulesSchema, { type: { case: "string", value: { pattern } } });

  test.for([
    ...["^(?=a)b$", "^(?!a)b$", "^(?<=a)b$", "^(a)\\1$", "^\\s$", "^\\p{L}$", "^é$", "^a.b$"],
    ...["a", "^a", "a$", "^[^é]$", "^a\\b$", "^(?<a>b)$", "^(?P<a>b)$", "^(?i)a$"],
  ])("%s is no pattern that all clients read alike", (pattern) => {
    expect(() => readLimits(tags, ofPattern(pattern))).toThrow("is no portable pattern");
  });

  test("have words for each pattern", () => {
    expect(readLimits(tags, ofPattern("^[a-z]{1,9}$")).form).toContain("1 to 32 of a-z");
    expect(() => readLimits(name, ofPattern("^[a-z]{1,9}$"))).toThrow("has no form in words");
    const options = create(FieldOptionsSchema);
    setExtension(options, form, "1 to 9 of a-z");
    const named = { ...name, proto: { ...name.proto, options } };
    expect(readLimits(named, ofPattern("^[a-z]{1,9}$")).form).toBe("1 to 9 of a-z");
  });
});

/** The error of a request. Undefined: it is valid. */
function errorOf<T extends DescMessage>(type: T, init: MessageInitShape<T>): string | undefined {
  try {
    checkRequest(type, create(type, init));
    return undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    expect(error.reason).toBe("invalid_request");
    expect(error.message).toContain(`${error.facts.field}: `);
    return error.message;
  }
}

describe("the sentence of an error comes from the rule", () => {
  const family = Family.V1;
  const key = { family, settings: { name: "a" } };
  const form64 = "8 to 64 of a-z, A-Z, 0-9, `_`, `-`";
  const hold = {
    ...{ requestId: "req_12345678", keyId: "key_1", model: "opus", nonce: "12345678" },
    mostExpensiveInput: InputCategory.PLAIN,
  };
  const tagForm = "1 to 32 of a-z, A-Z, 0-9, `_`, `.`, `-`, and begins with a letter or digit";
  const scope = ManagementScope.READ;
  const cases: [string | undefined, string | undefined][] = [
    [errorOf(CreateKeyRequestSchema, key), undefined],
    [errorOf(CreateKeyRequestSchema, { family }), "settings: is required"],
    [
      errorOf(CreateKeyRequestSchema, { ...key, settings: { name: "a".repeat(201) } }),
      "settings.name: has more than 200 characters",
    ],
    [
      errorOf(CreateKeyRequestSchema, { ...key, settings: { requestsPerMinute: 1_000_001 } }),
      "settings.requests_per_minute: is at most 1,000,000",
    ],
    [
      errorOf(CreateKeyRequestSchema, { ...key, settings: { dailyCapMicrocredits: -1n } }),
      "settings.daily_cap_microcredits: is from 0 to 9,007,199,254,740,992",
    ],
    [
      errorOf(CreateKeyRequestSchema, {
        ...key,
        settings: { allowedModels: Array(101).fill("a") },
      }),
      "settings.allowed_models: has more than 100 entries",
    ],
    [
      errorOf(CreateKeyRequestSchema, {
        family,
        settings: { expiresAt: timestampFromDate(new Date(0)) },
      }),
      "settings.expires_at: has to be in the future",
    ],
    [
      errorOf(CreateKeyRequestSchema, { ...key, settings: { tags: { "a b": "c" } } }),
      `settings.tags: the key of an entry is ${tagForm}`,
    ],
    [
      errorOf(CreateKeyRequestSchema, { ...key, settings: { tags: { a: "" } } }),
      "settings.tags: the value of an entry has fewer than 1 character",
    ],
    [errorOf(QueryUsageRequestSchema, { tags: { a: "b", c: "d" } }), "tags: has more than 1 entry"],
    [
      errorOf(QueryUsageRequestSchema, { groupBy: [1, 0] }),
      "group_by[1]: USAGE_GROUP_UNSPECIFIED is not taken here",
    ],
    [errorOf(QueryUsageRequestSchema, { groupByTag: " " }), `group_by_tag: is ${tagForm}`],
    [
      errorOf(ListChargesRequestSchema, { filter: { minChargedMicrocredits: -1n } }),
      "filter.min_charged_microcredits: is at least 0",
    ],
    [
      errorOf(ChangeKeysRequestSchema, {
        keys: [{ keyId: "key_1" }],
        change: { case: "tags", value: { remove: ["a", ""] } },
      }),
      `tags.remove[1]: is ${tagForm}`,
    ],
    [
      errorOf(CreateManagementKeyRequestSchema, {
        settings: { name: "a", scopes: [scope, scope] },
      }),
      "settings.scopes[1]: is there a second time",
    ],
    [errorOf(PlaceHoldRequestSchema, hold), undefined],
    [errorOf(PlaceHoldRequestSchema, { ...hold, nonce: "1234567" }), `nonce: is ${form64}`],
    [errorOf(PlaceHoldRequestSchema, { ...hold, nonce: "12345678\n" }), `nonce: is ${form64}`],
    [
      errorOf(PlaceHoldRequestSchema, { ...hold, deadline: durationFromMs(999) }),
      "deadline: is from 1 to 86,400 seconds",
    ],
    [errorOf(AlertSettingsSchema, { percents: [80, 101] }), "percents[1]: is from 1 to 100"],
    [
      errorOf(SetPasswordRequestSchema, { password: "a".repeat(11) }),
      "password: has fewer than 12 characters",
    ],
    [errorOf(SetPasswordRequestSchema, { password: "" }), undefined],
  ];
  test.for(cases)("%#: %s", ([found, expected]) => {
    expect(found).toBe(expected);
  });

  test("a length counts characters, also those of two units", () => {
    const named = (name: string) => errorOf(CreateKeyRequestSchema, { ...key, settings: { name } });
    expect(named("😀".repeat(200))).toBeUndefined();
    expect(named("😀".repeat(201))).toBe("settings.name: has more than 200 characters");
  });
});

describe("times and durations", () => {
  const rotate = (overlap: { seconds: bigint; nanos: number }) =>
    errorOf(RotateKeyRequestSchema, { keyId: "key_1", overlap });
  const from = (at: { seconds: bigint; nanos: number }) =>
    errorOf(QueryUsageRequestSchema, { startAt: at });

  test("that a Timestamp cannot have are refused", () => {
    const first = timestampFromDate(new Date("0001-01-01T00:00:00Z")).seconds;
    const last = timestampFromDate(new Date("9999-12-31T23:59:59Z")).seconds;
    expect([
      from({ seconds: first, nanos: 0 }),
      from({ seconds: last, nanos: 999_999_999 }),
    ]).toEqual([undefined, undefined]);
    for (const at of [
      { seconds: first - 1n, nanos: 0 },
      { seconds: last + 1n, nanos: 0 },
      { seconds: 0n, nanos: -1 },
      { seconds: 0n, nanos: 1_000_000_000 },
    ])
      expect(from(at)).toBe("start_at: is not in the years 1 to 9999");
  });

  test("that a Duration cannot have are refused", () => {
    expect(rotate({ seconds: 604_800n, nanos: 0 })).toBeUndefined();
    expect(rotate({ seconds: 604_800n, nanos: 1 })).toBe("overlap: is from 0 to 604,800 seconds");
    expect(rotate({ seconds: 1n, nanos: -1 })).toBe("overlap: is no duration");
    expect(rotate({ seconds: 0n, nanos: 1_000_000_000 })).toBe("overlap: is no duration");
  });
});
