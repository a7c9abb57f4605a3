// The version of a cost that a charge names: that of the conditions under which its last attempt
// was answered.

import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { costVersionOf, type PriceFacts, readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { nativeAnswer } from "../support/provider-answers.ts";

const when = "when: [{ speed: fast, multiply: 6 }, { geo: us, multiply: 1.1 }]";
let provider: FakeProvider;
let gateway: TestGateway;
let db: Client;
let versionOf: (facts: PriceFacts) => string;

beforeAll(async () => {
  provider = await startFakeProvider();
  const route = `{ provider: real, model: provider-model, cost: { input: 0.5, output: 2, ${when} } }`;
  const text = catalogFor({ real: { kind: "anthropic", url: provider.url } }, `[[${route}]]`);
  const catalog = readCatalogFile(text.replace("output: 3.50", `output: 3.50, ${when}`));
  const paid = catalog.models.find(({ id }) => id === "model-haiku-4.5")?.routes[0]?.[0]?.paid;
  versionOf = (facts) => costVersionOf(paid, facts);
  gateway = await startTestGateway({ catalog });
  db = new Client({ connectionString: gateway.databaseUrl });
  await db.connect();
});
afterAll(async () => {
  await db.end();
  await gateway.stop();
  await provider.stop();
});

/** The version of the last charge, of an answer whose usage says what was applied. */
async function charged(asked: object, applied: object): Promise<string> {
  const script = nativeAnswer({ text: ["Hi"] });
  const body = JSON.parse(String(script.writes?.[0]));
  const usage = { ...body.usage, ...applied };
  provider.play({ ...script, writes: [JSON.stringify({ ...body, usage })] });
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      ...{ model: "haiku", max_tokens: 50, messages: [{ role: "user", content: "Hello" }] },
      ...asked,
    }),
  });
  expect(answer.status, await answer.clone().text()).toBe(200);
  const { rows } = await db.query(
    `select attempts -> -1 ->> 'costVersion' as version from charges
     order by settled_at desc limit 1`,
  );
  return String(rows[0]?.version);
}

test("a charge names the cost of what was asked for, or of what the provider applied", async () => {
  expect(new Set([{}, { geo: "us" }, { speed: "fast" }].map(versionOf)).size).toBe(3);
  expect(await charged({}, {})).toBe(versionOf({}));
  expect(await charged({ inference_geo: "us" }, {})).toBe(versionOf({ geo: "us" }));
  expect(await charged({ inference_geo: "us" }, { inference_geo: "us" })).toBe(
    versionOf({ geo: "us" }),
  );
  expect(await charged({ speed: "fast" }, { speed: "standard" })).toBe(versionOf({}));
  // It is dearer for the operator, too, though the client pays the plain price.
  expect(await charged({}, { speed: "fast", inference_geo: "us" })).toBe(
    versionOf({ speed: "fast", geo: "us" }),
  );
});
