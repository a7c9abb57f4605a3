// The smallest call to each provider of a file.

import { afterEach, beforeEach, expect, test } from "vitest";
import { Outbound } from "../../src/base/outbound.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { checkProviders } from "../../src/providers/check-providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeAnswer } from "../support/provider-answers.ts";

const key = "a-credential-of-the-operator";

let well: FakeProvider;
let ill: FakeProvider;
beforeEach(async () => {
  [well, ill] = [await startFakeProvider(), await startFakeProvider()];
  well.always(nativeAnswer({ text: ["Hello"] }));
});
afterEach(() => Promise.all([well.stop(), ill.stop()]));

const text = () =>
  catalogFor({
    well: { kind: "anthropic", url: well.url, more: "credential_env: KEY" },
    ill: { kind: "anthropic", url: ill.url, more: "credential_env: KEY" },
    simulated: "simulated",
    spare: { kind: "openai", url: ill.url },
  }).replaceAll(/, \[\{ provider: spare[^\]]*\]/g, "");

const checkAll = (file = text(), env: NodeJS.ProcessEnv = { KEY: key }) =>
  collect(checkProviders(readCatalogFile(file), { env, outbound: new Outbound() }));

async function collect<T>(all: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const one of all) found.push(one);
  return found;
}

test("each provider with a route gets one call for its cheapest model, and answers for itself", async () => {
  ill.always(errorAnswer(500, "api_error", `the disk is full, ${key}`));
  const checks = await checkAll();
  expect(checks).toMatchObject([
    { provider: "well", isAnswered: true, status: 200, reason: "" },
    {
      ...{ provider: "ill", isAnswered: false, status: 500 },
      reason: "api_error: the disk is full, [redacted]",
    },
    { provider: "simulated", isAnswered: true },
  ]);
  for (const { modelId, model, ms } of checks) {
    expect([modelId, model]).toEqual(["model-haiku-4.5", "provider-model"]);
    expect(Number.isInteger(ms)).toBe(true);
  }
  expect(well.requests.map(({ body }) => body)).toMatchObject([
    { model: "provider-model", max_tokens: 16, messages: [{ role: "user" }] },
  ]);
  expect(ill.requests.length).toBe(1);
});

test.for([
  [400, errorAnswer(400, "invalid_request_error", "no such region"), /^no such region$/],
  [401, errorAnswer(401, "authentication_error", "bad key"), /^authentication_error: bad key$/],
  [404, errorAnswer(404, "not_found_error", "model: x"), /model: x/],
  [429, errorAnswer(429, "rate_limit_error", "too many"), /^rate_limit_error: too many$/],
  [200, { end: "reset" }, /ECONNRESET|other side closed/],
] as const)(
  "a failure with status %s has the provider's words",
  async ([status, script, reason]) => {
    ill.always(script);
    const [, failed] = await checkAll();
    expect(failed).toMatchObject({ provider: "ill", isAnswered: false, status });
    expect(failed?.reason).toMatch(reason);
    expect(ill.requests.length).toBe(1);
  },
);

test("a file whose credential is missing is not called at all", async () => {
  await expect(checkAll(text(), {})).rejects.toThrow("KEY holds no credential");
  expect(well.requests).toEqual([]);
});
