// No secret that was issued is anywhere but in the one answer that gave it: not in a log, a table,
// an audit event or a later answer. And the same service behind a facade and a core.

import { Client as Connection } from "pg";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Log } from "../../src/base/log.ts";
import { readConfig } from "../../src/config/environment.ts";
import { createInstallation } from "../../src/people/people.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { Authenticator } from "../support/authenticator.ts";
import { contentKey } from "../support/content-key.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { fastCatalog } from "../support/gateway.ts";
import { pathOf } from "../support/paths.ts";
import { query } from "../support/query.ts";

const origin = "http://localhost:8080";
const adminToken = "the-admin-token-of-a-test";
const lines: string[] = [];
const log: Log = pino({ level: "trace" }, { write: (line: string) => void lines.push(line) });
let database: FreshDatabase;
let core: Gateway;
let facade: Gateway;
beforeAll(async () => {
  database = await freshDatabase();
  const start = (env: NodeJS.ProcessEnv) => {
    const ports = { PORT: "0", GRPC_PORT: "0", PUBLIC_URL: origin };
    const all = { ...ports, DATA_DIR: "/nonexistent", CONTENT_KEY: contentKey, ...env };
    return startGateway({ config: readConfig(all), catalog: fastCatalog(), env: {}, log });
  };
  core = await start({ ROLE: "core", DATABASE_URL: database.url, ADMIN_TOKEN: adminToken });
  facade = await start({ ROLE: "facade", CORE_ADDRESS: core.grpcAddress });
});
afterAll(async () => {
  await facade.stop();
  await core.stop();
  await database.drop();
});

const answers: string[] = [];

async function call(method: string, body: object, cookie = "") {
  const response = await fetch(`${facade.httpAddress}${pathOf(method)}`, {
    method: "POST",
    headers: { "content-type": "application/json", origin, cookie, "user-agent": "a test" },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  const setCookie = response.headers.get("set-cookie")?.split(";")[0] ?? "";
  return { status: response.status, text, json: Object(JSON.parse(text)), setCookie };
}

/** An answer that gives no secret. */
async function plain(method: string, body: object, cookie = "") {
  const answer = await call(method, body, cookie);
  answers.push(answer.text);
  return answer;
}

test("what was issued through a facade is nowhere else", async () => {
  const { postgres } = database;
  const installation = createInstallation({ postgres, publicUrl: () => new URL(origin) });
  const insertAccount = {
    name: "test/insert-account",
    text: "insert into accounts (account_id, name) values ('acc_a', 'account a')",
  };
  await query(database.postgres, insertAccount, []);
  await installation.claimFirstAccount("acc_a");
  const ownerToken = new URL(await installation.makeOwnerLink()).hash.slice(1);

  const device = new Authenticator(origin);
  const begun = await plain("BeginPasskey", { linkToken: ownerToken, login: "olga" });
  const redeemed = await plain("RedeemLink", {
    token: ownerToken,
    login: "olga",
    passkeyAnswerJson: device.register(begun.json.passkeyOptionsJson),
  });
  const cookie = redeemed.setCookie;
  expect(cookie).not.toBe("");
  const password = "the-password-of-olga-4711";
  expect((await plain("SetPassword", { password }, cookie)).status).toBe(200);
  const wrong = "a-wrong-password-of-olga";
  expect((await plain("SignInWithPassword", { login: "olga", password: wrong })).status).toBe(401);
  const signedIn = await plain("SignInWithPassword", { login: "olga", password });
  const invited = await call(
    "CreateInvitation",
    { accountId: "acc_a", role: "ACCOUNT_ROLE_VIEWER" },
    cookie,
  );
  const inviteToken = new URL(invited.json.link).hash.slice(1);
  const created = await call(
    "CreateKey",
    { accountId: "acc_a", family: "FAMILY_V1", settings: { name: "k" } },
    cookie,
  );
  expect(created.json.key.createdBy.personId).toMatch(/^per_/);
  const { passkeyOptionsJson } = (await plain("BeginSignIn", {})).json;
  const again = await plain("SignInWithPasskey", { answerJson: device.sign(passkeyOptionsJson) });
  for (const method of ["GetSession", "ListSessions"]) await plain(method, {}, cookie);
  await plain("ListMembers", { accountId: "acc_a" }, cookie);
  const events = await plain("ListAuditEvents", { accountId: "acc_a" }, cookie);
  expect(events.json.events.map(({ method }: { method: string }) => method)).toEqual(
    expect.arrayContaining(["CreateKey", "CreateInvitation", "RedeemLink"]),
  );
  await plain("ListPeople", {}, cookie);
  // Failures, too.
  await plain("RedeemLink", { token: ownerToken, login: "late", password });
  await plain("SignInWithPassword", { login: password, password: "typed into the wrong field" });
  await plain("GetSession", {}, `${cookie}x`);

  const secrets = [
    ...[ownerToken, inviteToken, password, wrong, created.json.secret, adminToken],
    ...[redeemed, signedIn, again].map(({ setCookie }) => setCookie.split("=")[1]),
  ];
  expect(new Set(secrets).size).toBe(9);
  const stored = await everyRow(database.url);
  // The search finds what is there.
  expect(stored).toContain("olga");
  expect(lines.join("")).toContain("audit");
  for (const secret of secrets) {
    expect(stored).not.toContain(secret);
    expect(lines.join("")).not.toContain(secret);
    expect(answers.join("")).not.toContain(secret);
  }
});

test("the address of a client is the peer's, unless the facade shows a certificate", async () => {
  const { rows } = await readRows(database.url, "select address from sessions");
  // The core has no GRPC_TLS_CLIENT_CA: it believes nobody, and sees the facade.
  for (const { address } of rows) expect(address).toMatch(/127\.0\.0\.1/);
});

async function readRows(url: string, text: string) {
  const connection = new Connection({ connectionString: url });
  await connection.connect();
  return connection.query(text).finally(() => connection.end());
}

/** Every row of every table, as text. */
async function everyRow(url: string): Promise<string> {
  const tables = await readRows(
    url,
    "select table_name from information_schema.tables where table_schema = 'public'",
  );
  const texts: string[] = [];
  for (const { table_name } of tables.rows) {
    const { rows } = await readRows(url, `select t::text as line from "${table_name}" t`);
    texts.push(...rows.map(({ line }) => line));
  }
  return texts.join("\n");
}
