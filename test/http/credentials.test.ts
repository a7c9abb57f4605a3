// Which header holds the key, by endpoint.

import { describe, expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import {
  type CredentialForm,
  type NativeBearer,
  readCredential,
} from "../../src/http/credentials.ts";

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
  gives: string;
};
const cases: Case[] = [
  {
    name: "native takes the native header",
    form: "native",
    headers: { ...old, "x-api-key": key },
    gives: key,
  },
  {
    name: "blanks around a key do not matter",
    form: "native",
    headers: { ...old, "x-api-key": `  ${key}\t` },
    gives: key,
  },
  {
    name: "beside a native key any other credential is ignored",
    form: "native",
    headers: { ...old, "x-api-key": key, authorization: "Bearer junk, junk" },
    gives: key,
  },
  {
    name: "a bad native key is not replaced by a good Bearer",
    form: "native",
    headers: { ...modern, "x-api-key": "a,b", authorization: `Bearer ${key}` },
    gives: "invalid_key",
  },
  {
    name: "the newest SDK's Bearer works on native",
    form: "native",
    headers: { ...modern, authorization: `Bearer ${key}` },
    gives: key,
  },
  {
    name: "so does that of later ones",
    form: "native",
    headers: { "vendor-version": "2027-01-01", authorization: `bearer ${key}` },
    gives: key,
  },
  {
    name: "a blank native header counts as none",
    form: "native",
    headers: { ...modern, "x-api-key": "  ", authorization: `Bearer ${key}` },
    gives: key,
  },
  {
    name: "Bearer of older versions is the wrong form",
    form: "native",
    headers: { ...old, authorization: `Bearer ${key}` },
    gives: "wrong_credential_header",
  },
  {
    name: "so is Bearer without a version",
    form: "native",
    headers: { authorization: `Bearer ${key}` },
    gives: "wrong_credential_header",
  },
  {
    name: "so is Bearer with a version that is no date",
    form: "native",
    headers: { "anthropic-version": "z", authorization: `Bearer ${key}` },
    gives: "wrong_credential_header",
  },
  {
    name: "so is Bearer with two versions",
    form: "native",
    headers: { ...modern, "vendor-version": "2023-06-01", authorization: `Bearer ${key}` },
    gives: "wrong_credential_header",
  },
  {
    name: "another vendor's token is not a key",
    form: "native",
    headers: { ...modern, authorization: "Bearer oauth-token" },
    gives: "invalid_key",
  },
  { name: "nothing is nothing", form: "native", headers: { ...old }, gives: "missing_key" },
  {
    name: "an operator may take every Bearer",
    form: "native",
    headers: { ...old, authorization: `Bearer ${key}` },
    bearer: "always",
    gives: key,
  },
  {
    name: "or none",
    form: "native",
    headers: { ...modern, authorization: `Bearer ${key}` },
    bearer: "never",
    gives: "wrong_credential_header",
  },
  {
    name: "chat takes Bearer",
    form: "chat",
    headers: { authorization: `Bearer ${key}` },
    gives: key,
  },
  {
    name: "in any case, with any blanks",
    form: "chat",
    headers: { authorization: ` bEaReR \t ${key} ` },
    gives: key,
  },
  {
    name: "chat does not take the native header",
    form: "chat",
    headers: { "x-api-key": key },
    gives: "wrong_credential_header",
  },
  {
    name: "chat ignores it beside Bearer",
    form: "chat",
    headers: { "x-api-key": "other", authorization: `Bearer ${key}` },
    gives: key,
  },
  {
    name: "another scheme is the wrong form",
    form: "chat",
    headers: { authorization: "Basic abc" },
    gives: "wrong_credential_header",
  },
  {
    name: "so is a key without a scheme",
    form: "chat",
    headers: { authorization: key },
    gives: "wrong_credential_header",
  },
  {
    name: "a scheme alone is nothing",
    form: "chat",
    headers: { authorization: "Bearer " },
    gives: "missing_key",
  },
  {
    name: "a list is no key",
    form: "chat",
    headers: { authorization: `Bearer ${key},${key}` },
    gives: "invalid_key",
  },
  {
    name: "two words are no key",
    form: "chat",
    headers: { authorization: `Bearer ${key} ${key}` },
    gives: "invalid_key",
  },
  {
    name: "ten kilobytes are no key",
    form: "chat",
    headers: { authorization: `Bearer ${key.padEnd(10_240, "a")}` },
    gives: "invalid_key",
  },
  {
    name: "look-alikes are no key",
    form: "chat",
    headers: { authorization: "Bearer sk-gw2-1\u00e0bc" },
    gives: "invalid_key",
  },
  {
    name: "shared endpoints take the native header",
    form: "either",
    headers: { "x-api-key": key },
    gives: key,
  },
  {
    name: "or Bearer, whatever the version",
    form: "either",
    headers: { authorization: `Bearer ${key}` },
    gives: key,
  },
  {
    name: "and of both the native one",
    form: "either",
    headers: { "x-api-key": key, authorization: "Bearer other" },
    gives: key,
  },
];

describe("the key of a request", () => {
  test.each(cases)("$name", ({ form, headers, bearer, gives }) =>
    expect(read(form, headers, bearer)).toBe(gives),
  );

  test("two Authorization headers are no key, though Node shows the first alone", () => {
    const raw = ["Authorization", `Bearer ${key}`, "Host", "x", "authorization", "Bearer other"];
    expect(read("chat", { authorization: `Bearer ${key}` }, "auto", raw)).toBe("invalid_key");
  });
});
