// What a database sets for everybody does not change how the gateway reads and writes values.

import { expect, onTestFinished, test } from "vitest";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { emptyDatabase } from "../support/database.ts";
import { startTestGateway } from "../support/gateway.ts";
import { query } from "../support/query.ts";

const foreign = [
  ["datestyle", "'German'"],
  ["intervalstyle", "'sql_standard'"],
  ["timezone", "'America/St_Johns'"],
  ["bytea_output", "'escape'"],
  ["extra_float_digits", "-5"],
] as const;

test("a gateway starts, charges and reports on a database with German dates and foreign forms", async () => {
  const database = await emptyDatabase();
  onTestFinished(() => database.drop());
  const owner = connectPostgres(database.url);
  const name = new URL(database.url).pathname.slice(1);
  for (const [setting, value] of foreign)
    await query(owner, { name: "", text: `alter database ${name} set ${setting} = ${value}` }, []);
  await owner.close();
  // A new connection: the settings are those of before otherwise.
  const strange = connectPostgres(database.url);
  const [shown] = await query(strange, { name: "", text: "show datestyle" }, []);
  expect(shown).toEqual({ DateStyle: "ISO, DMY" });
  await strange.close();

  const gateway = await startTestGateway({ env: { DATABASE_URL: database.url } });
  onTestFinished(() => gateway.stop());
  const headers = { "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" };
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 50,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  expect(answer.status).toBe(200);
  const id = answer.headers.get("request-id");
  const read = async (path: string) => (await fetch(gateway.address + path, { headers })).json();
  const receipt = await read(`/v1/receipts/${id}`);
  expect(receipt).toMatchObject({ request_id: id, outcome: "COMPLETED" });
  expect(Date.now() - Date.parse(Object(receipt).settled_at)).toBeLessThan(60_000);
  expect(await read("/v1/usage")).toMatchObject({ data: [{ requests: 1 }] });
  const { core, call } = gateway.admin;
  const { violations } = await core.billing.verifyLedger({}, call);
  expect(violations).toEqual([]);
});
