// The header that holds the key, by endpoint.

import { create } from "@bufbuild/protobuf";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { AuthenticateResponseSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { localCore } from "../../src/contract/contract.ts";
import {
  type CredentialForm,
  createFailedCredentials,
  createIdentifyCaller,
  type NativeBearer,
  readCredential,
  requireVersion,
} from "../../src/http/authenticate.ts";
import type { PayerChange } from "../../src/http/key-load.ts";
import { emptyAnswers, key as knownKey, scriptedServices } from "../support/scripted-services.ts";

const key = "sk-gw2-1abc";
const old = { "anthropic-version": "2023-06-01" };
const modern = { "anthropic-version": "2026-10-21" };

function read(
  form: CredentialForm,
  headers: Record<string, string>,
  nativeBearer: NativeBearer = "auto",
  raw: string[] = [],
): string {
  try {
    return readCredential(form, { headers, rawHeaders: raw }, nativeBearer);
  } catch (error) {
    if (error instanceof ApiError) return error.reason;
    throw error;
  }
}

type Case = {
  name: string;
  form: CredentialForm;
  headers: Record<string, string>;
  bearer?: NativeBearer;
  expected: string;
};
const cases: Case[] = [
  {
    name: "native: the native header holds the key",
    form: "native",
    headers: { ...old, "x-api-key": key },
    expected: key,
  },
  {
    name: "native: a key in quotes is wrong",
    form: "native",
    headers: { ...old, "x-api-key": `"${key}"` },
    expected: "invalid_key",
  },
  {
    name: "native: blanks around a key are ignored",
    form: "native",
    headers: { ...old, "x-api-key": `  ${key}\t` },
    expected: key,
  },
  {
    name: "native: any credential beside a native key is ignored",
    form: "native",
    headers: { ...old, "x-api-key": key, authorization: "Bearer junk, junk" },
    expected: key,
  },
  {
    name: "native: a malformed native key is not replaced by a good Bearer key",
    form: "native",
    headers: { ...modern, "x-api-key": "a,b", authorization: `Bearer ${key}` },
    expected: "invalid_key",
  },
  {
    name: "native: Bearer with the newest SDK's version is accepted",
    form: "native",
    headers: { ...modern, authorization: `Bearer ${key}` },
    expected: key,
  },
  {
    name: "native: Bearer with a later version is accepted",
    form: "native",
    headers: { "vendor-version": "2027-01-01", authorization: `bearer ${key}` },
    expected: key,
  },
  {
    name: "native: a blank native header counts as absent",
    form: "native",
    headers: { ...modern, "x-api-key": "  ", authorization: `Bearer ${key}` },
    expected: key,
  },
  {
    name: "native: Bearer with an older version is the wrong header",
    form: "native",
    headers: { ...old, authorization: `Bearer ${key}` },
    expected: "wrong_credential_header",
  },
  {
    name: "native: Bearer without a version is the wrong header",
    form: "native",
    headers: { authorization: `Bearer ${key}` },
    expected: "wrong_credential_header",
  },
  {
    name: "native: Bearer with a version that is no date is the wrong header",
    form: "native",
    headers: { "anthropic-version": "z", authorization: `Bearer ${key}` },
    expected: "wrong_credential_header",
  },
  {
    name: "native: Bearer with two different versions is the wrong header",
    form: "native",
    headers: { ...modern, "vendor-version": "2023-06-01", authorization: `Bearer ${key}` },
    expected: "wrong_credential_header",
  },
  {
    name: "native: another vendor's token is no valid key",
    form: "native",
    headers: { ...modern, authorization: "Bearer oauth-token" },
    expected: "invalid_key",
  },
  {
    name: "native: no header is a missing key",
    form: "native",
    headers: { ...old },
    expected: "missing_key",
  },
  {
    name: "native: the setting `always` accepts every Bearer key",
    form: "native",
    headers: { ...old, authorization: `Bearer ${key}` },
    bearer: "always",
    expected: key,
  },
  {
    name: "native: the setting `never` accepts no Bearer key",
    form: "native",
    headers: { ...modern, authorization: `Bearer ${key}` },
    bearer: "never",
    expected: "wrong_credential_header",
  },
  {
    name: "chat: Bearer holds the key",
    form: "chat",
    headers: { authorization: `Bearer ${key}` },
    expected: key,
  },
  {
    name: "chat: the scheme may be in any case, with any blanks",
    form: "chat",
    headers: { authorization: ` bEaReR \t ${key} ` },
    expected: key,
  },
  {
    name: "chat: the native header is the wrong header",
    form: "chat",
    headers: { "x-api-key": key },
    expected: "wrong_credential_header",
  },
  {
    name: "chat: the native header beside Bearer is ignored",
    form: "chat",
    headers: { "x-api-key": "other", authorization: `Bearer ${key}` },
    expected: key,
  },
  {
    name: "chat: another scheme is the wrong header",
    form: "chat",
    headers: { authorization: "Basic abc" },
    expected: "wrong_credential_header",
  },
  {
    name: "chat: a key without a scheme is the wrong header",
    form: "chat",
    headers: { authorization: key },
    expected: "wrong_credential_header",
  },
  {
    name: "chat: a scheme alone is a missing key",
    form: "chat",
    headers: { authorization: "Bearer " },
    expected: "missing_key",
  },
  {
    name: "chat: a list is no valid key",
    form: "chat",
    headers: { authorization: `Bearer ${key},${key}` },
    expected: "invalid_key",
  },
  {
    name: "chat: two words are no valid key",
    form: "chat",
    headers: { authorization: `Bearer ${key} ${key}` },
    expected: "invalid_key",
  },
  {
    name: "chat: ten kilobytes are no valid key",
    form: "chat",
    headers: { authorization: `Bearer ${key.padEnd(10_240, "a")}` },
    expected: "invalid_key",
  },
  {
    name: "chat: characters beyond ASCII are no valid key",
    form: "chat",
    headers: { authorization: "Bearer sk-gw2-1\u00e0bc" },
    expected: "invalid_key",
  },
  {
    name: "shared: the native header holds the key",
    form: "either",
    headers: { "x-api-key": key },
    expected: key,
  },
  {
    name: "shared: Bearer holds the key with any version",
    form: "either",
    headers: { authorization: `Bearer ${key}` },
    expected: key,
  },
  {
    name: "shared: the native header wins over Bearer",
    form: "either",
    headers: { "x-api-key": key, authorization: "Bearer other" },
    expected: key,
  },
];

describe("the key of a request", () => {
  test.each(cases)("$name", ({ form, headers, bearer, expected }) =>
    expect(read(form, headers, bearer)).toBe(expected),
  );

  test("two Authorization headers are no valid key, though Node exposes only the first", () => {
    const raw = ["Authorization", `Bearer ${key}`, "Host", "x", "authorization", "Bearer other"];
    expect(read("chat", { authorization: `Bearer ${key}` }, "auto", raw)).toBe("invalid_key");
  });
});

test("a key that was sent with its quotes is refused with the reason", () => {
  for (const quote of ['"', "'", "`"]) {
    const headers = { authorization: `Bearer ${quote}${key}${quote}` };
    expect(() => readCredential("chat", { headers, rawHeaders: [] }, "auto")).toThrow(
      /^Incorrect API key provided: .* quotes/,
    );
  }
});

test.each<[number, PayerChange]>([
  [2, { kind: "key", keyId: "key_2" }],
  [2, { kind: "budget", accountId: "acc_1" }],
  [1, { kind: "transfer", accountId: "acc_1" }],
  [1, { kind: "settlement", accountId: "acc_1" }],
])("a caller is read %i times where this changed in between: %o", async (times, change) => {
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  let reads = 0;
  const core = localCore(
    scriptedServices({
      ...emptyAnswers(),
      async unary() {
        reads += 1;
        return create(AuthenticateResponseSchema);
      },
    }),
  );
  let report = (_: PayerChange) => {};
  const identify = createIdentifyCaller(core, createFailedCredentials(), (listener) => {
    report = listener;
  });
  const authorization = `Bearer ${knownKey}`;
  const attempt = { authorization, address: "192.0.2.1", monthUsage: false };
  const call = { headers: { authorization } };
  await identify(attempt, call);
  await identify(attempt, call);
  expect(reads).toBe(1);
  report(change);
  await identify(attempt, call);
  expect(reads).toBe(times);
});

test.each([
  [{}, ""],
  [{ "anthropic-beta": "a,b" }, "a,b"],
  [{ "vendor-beta": "c" }, "c"],
  [{ "anthropic-beta": "a,b", "vendor-beta": "c" }, "a,b,c"],
  [{ "anthropic-beta": "a", "vendor-beta": "a" }, "a"],
])("the flags of %o are %s", (headers, beta) => {
  expect(requireVersion({ ...old, ...headers })).toEqual({ version: "2023-06-01", beta });
});
