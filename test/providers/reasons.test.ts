// Why a provider's calls fail, as operators see it and customers do not, and when it is unusable.

import { randomBytes } from "node:crypto";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeStream } from "../support/provider-answers.ts";
import { openProviders, readAll } from "../support/providers.ts";

const credential = "a-credential-of-the-operator-7f3a91";

let provider: FakeProvider;
let providers: ManagedProviders;
let clock: ManualClock;
beforeEach(async () => {
  provider = await startFakeProvider();
  clock = new ManualClock();
  const settings = "credential_env: KEY";
  const catalog = catalogFor({ real: { kind: "anthropic", url: provider.url, more: settings } });
  providers = openProviders(catalog, { clock, env: { KEY: credential } });
});
afterEach(async () => {
  await providers.close();
  await provider.stop();
});

/** Reads an answer, through the pauses before repeats. */
const read = () => passDuring(() => clock.endPause(2_000), readAll(providers, "Hi"));
const reason = () => providers.conditions()[0]?.lastFailure?.reason ?? "none";

test("the reason is the provider's own words, and the customer does not get them", async () => {
  provider.always(errorAnswer(500, "api_error", "the disk of shard 7 is full"));
  const { apiError } = await read();
  expect(providers.conditions()).toMatchObject([
    { lastFailure: { status: 500, reason: "api_error: the disk of shard 7 is full" } },
  ]);
  expect(JSON.stringify([apiError?.message, apiError?.facts])).not.toContain("shard 7");
});

test("secrets of the operator are not in the reason, in JSON or in a text", async () => {
  const leak = `key ${credential} of https://user:pass-word@proxy.example/?api_key=abc123 is bad`;
  const kept = "key [redacted] of https://[redacted]@proxy.example/?api_key=[redacted] is bad";
  provider.always(errorAnswer(500, "api_error", leak));
  await read();
  expect(reason()).toBe(`api_error: ${kept}`);
  provider.always({ status: 502, headers: { "content-type": "text/plain" }, writes: [leak] });
  await read();
  expect(reason()).toBe(kept);
});

test.for([
  ["a megabyte of text", Buffer.alloc(1 << 20, "proxy error "), /^(proxy error )+proxy/],
  ["a megabyte of JSON", Buffer.from(JSON.stringify({ error: "e".repeat(1 << 20) })), /^\{"error/],
  ["random bytes", randomBytes(4_096), /^[\P{C}]*$/u],
  ["nothing", Buffer.alloc(0), /^no body$/],
] as const)("an error body of %s gives a reason of one short line", async ([, body, shape]) => {
  provider.always({ status: 500, writes: [body] });
  await read();
  expect(reason()).toMatch(shape);
  expect(reason().length).toBeLessThanOrEqual(500);
});

test("a connection that fails is a reason, too", async () => {
  provider.always({ end: "reset" });
  await read();
  expect(reason()).toMatch(/other side closed|ECONNRESET/);
});

test("three calls without an answer make a model unusable until one is answered", async () => {
  const usable = () => providers.usableModels().every(([, isUsable]) => isUsable);
  const fail = async () => {
    provider.play(errorAnswer(401, "authentication_error", "no"));
    await read();
  };
  provider.play(nativeStream());
  await read();
  await clock.advance(30_000);
  for (let call = 0; call < 3; call++) await fail();
  // One of the last minute was answered.
  expect(providers.modelConditions()).toMatchObject([{ isUnusable: false, isAnswered: true }]);
  await clock.advance(59_000);
  await fail();
  await clock.advance(500);
  expect(providers.modelConditions()).toMatchObject([{ isUnusable: true, isAnswered: false }]);
  await clock.advance(600_000);
  expect([usable(), providers.isUsable()]).toEqual([false, true]);

  provider.play(nativeStream());
  await read();
  expect(providers.modelConditions()).toMatchObject([{ isUnusable: false, isAnswered: true }]);
  expect(usable()).toBe(true);
});
