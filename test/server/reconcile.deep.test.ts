// `npm run reconcile` against a ledger that was restored from an earlier state.

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startChildGateway } from "../support/child-gateway.ts";
import { startTestServer } from "../support/server-pair.ts";

/** The ledger, and the same as it was before the later requests. */
type Ledger = "gateway" | "restored";

const run = promisify(execFile);
let folder: string;
let database: Awaited<ReturnType<typeof startTestServer>>;
const logs: string[] = [];
let lostMicro = 0n;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-reconcile-"));
  database = await startTestServer();
  await serve("early", { v1: 2, v2: 1 });
  await database.server.query("create database restored template gateway", "postgres");
  await serve("late-1", { v1: 3, v2: 2 });
  await serve("late-2", { v1: 1, v2: 0 });
  lostMicro = (await spentMicro("gateway")) - (await spentMicro("restored"));
});
afterAll(async () => {
  await database.stop();
  await rm(folder, { recursive: true, force: true });
});

/** Serves paid requests with one gateway, and keeps its log. */
async function serve(name: string, requests: { v1: number; v2: number }): Promise<void> {
  const gateway = await startChildGateway({
    DATABASE_URL: database.server.url(),
    ADMIN_TOKEN: "the-admin-token-of-a-backup",
    DATA_DIR: folder,
    SEED: "true",
  });
  const keys: { v1: string; v2: string } = JSON.parse(
    await readFile(join(folder, "first-keys.json"), "utf8"),
  );
  for (const family of ["v1", "v2"] as const) {
    for (let number = 0; number < requests[family]; number++) {
      const response = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": keys[family],
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "haiku",
          max_tokens: 50,
          messages: [{ role: "user", content: `[[simulate tokens=${20 + number}]]` }],
        }),
      });
      expect(response.status).toBe(200);
      await response.text();
    }
  }
  const { stderr } = await gateway.end("SIGTERM");
  const path = join(folder, `${name}.log`);
  await writeFile(path, `The banner is no JSON.\n${stderr}`);
  logs.push(path);
}

async function spentMicro(ledger: Ledger): Promise<bigint> {
  const sql = "select sum(amount)::text as sum from charges";
  const [row] = await database.server.query<{ sum: string }>(sql, ledger);
  return BigInt(row?.sum ?? 0);
}

function postedMicro(ledger: Ledger): Promise<unknown[]> {
  const sql = "select account_id, family, posted::text from pools order by 1, 2";
  return database.server.query(sql, ledger);
}

/** Runs a command on the restored ledger. */
async function command(file: string, ...args: string[]) {
  return commandOn("restored", file, ...args);
}

async function commandOn(ledger: string, file: string, ...args: string[]) {
  const env = { ...process.env, DATABASE_URL: database.server.url(ledger) };
  const path = join(import.meta.dirname, "../../src/cli", file);
  const { stdout, stderr, code } = await run(process.execPath, [path, ...args], { env }).then(
    (output) => ({ ...output, code: 0 }),
    (error: { stdout: string; stderr: string; code: number }) => error,
  );
  return { lines: stdout.trim().split("\n"), stderr, code };
}

const lost = (lines: readonly string[]) => lines.filter((line) => line.endsWith(", lost"));

test("a ledger that lacks nothing is reported as such", async () => {
  const { lines, code } = await command("reconcile.ts", logs[0] ?? "");
  expect(lines).toEqual(["charges in the logs: 3, not in the ledger: 0"]);
  expect(code).toBe(0);
});

test("without --post the lost charges are listed, and nothing is booked", async () => {
  const before = await postedMicro("restored");
  const { lines, code } = await command("reconcile.ts", ...logs);
  expect(lost(lines)).toHaveLength(6);
  expect(lines).toContain("charges in the logs: 9, not in the ledger: 6");
  expect(lines.filter((line) => line.startsWith("to book with --post: "))).toHaveLength(2);
  expect(code).toBe(1);
  expect(await postedMicro("restored")).toEqual(before);
});

test("nothing is booked while a lost request holds credits, for which it will be charged", async () => {
  const restored = await database.server.query<{ id: string }>(
    "select request_id as id from charges",
    "restored",
  );
  const known = new Set(restored.map(({ id }) => id));
  const charges = await database.server.query<{ account: string; id: string; price: string }>(
    "select account_id as account, request_id as id, price_version as price from charges",
    "gateway",
  );
  const { account, id, price } = charges.find((one) => !known.has(one.id)) ?? {};
  await database.server.query(
    `insert into holds (account_id, request_id, family, key_id, model, month, amount,
       granted_output, price_version, node_id, nonce, admitted_at, deadline)
     values ('${account}', '${id}', 'v1', 'key', 'model', '2026-11-01', 0, 1, '${price}', 'gone',
       'nonce', now(), now())`,
    "restored",
  );
  const before = await postedMicro("restored");
  const { stderr, code } = await command("reconcile.ts", ...logs, "--post");
  expect(stderr).toContain("1 of these requests hold credits");
  expect(code).toBe(1);
  expect(await postedMicro("restored")).toEqual(before);
  await database.server.query("delete from holds", "restored");
});

test("with --post every pool is as before the loss, and a repeat books nothing", async () => {
  for (let time = 0; time < 2; time++) {
    const { lines, code } = await command("reconcile.ts", ...logs, "--post");
    expect(lines.filter((line) => line.startsWith("booked as reconcile/"))).toHaveLength(2);
    expect(code).toBe(0);
    expect(await postedMicro("restored")).toEqual(await postedMicro("gateway"));
  }
  const booked = await database.server.query<{ kind: string; amount: string; actor: string }>(
    "select kind, amount::text, actor from transfers where idempotency_key like 'reconcile/%'",
    "restored",
  );
  expect(booked.map(({ kind, actor }) => `${kind} ${actor}`)).toEqual(
    Array(2).fill("adjustment reconcile"),
  );
  expect(booked.reduce((sum, { amount }) => sum + BigInt(amount), 0n)).toBe(-lostMicro);
  expect((await command("verify-ledger.ts")).lines).toEqual(["the ledger is consistent"]);
});

test("the logs of some gateways, after those of all, book nothing and say why", async () => {
  const before = await postedMicro("restored");
  const { lines, code } = await command("reconcile.ts", logs[1] ?? "", "--post");
  expect(lines.filter((line) => line.startsWith("NOT booked: ")).join("\n")).toContain(
    "give the logs of all gateways at once",
  );
  expect(code).toBe(1);
  expect(await postedMicro("restored")).toEqual(before);
});

test("a damaged line is named with its place, and missing arguments with the usage", async () => {
  const path = join(folder, "damaged.log");
  const line = { msg: "request", amountMicrocredits: "5", requestId: "req_1", accountId: "acc_1" };
  await writeFile(path, `\n${JSON.stringify(line)}\n`);
  const damaged = await command("reconcile.ts", path);
  expect(damaged).toMatchObject({ code: 1, stderr: expect.stringContaining(`${path}:2: `) });
  expect(await command("reconcile.ts")).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("usage: "),
  });
});

test("what was revoked, suspended or disabled since is listed, and with --apply done again", async () => {
  await database.server.query("create database acted template restored", "postgres");
  const token = "the-admin-token-of-a-backup";
  const gateway = await startChildGateway({
    DATABASE_URL: database.server.url("acted"),
    ADMIN_TOKEN: token,
    DATA_DIR: folder,
  });
  const call = async (method: string, body: object) => {
    const response = await fetch(`${gateway.address}/gateway.${method}`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect([method, response.status]).toEqual([method, 200]);
    return Object(await response.json());
  };
  const create = async (name: string) => {
    const { account } = await call("accounts.v1.AccountsService/CreateAccount", {
      settings: { name },
    });
    return String(account.accountId);
  };
  const createKey = async (name: string) => {
    const body = { accountId: gone, family: "FAMILY_V1", settings: { name } };
    return (await call("keys.v1.KeysService/CreateKey", body)).key;
  };
  const [gone, back] = [await create("Gone"), await create("Back")];
  const [revoked, rotated] = [await createKey("revoked"), await createKey("rotated")];
  const body = { name: "program", scope: "ADMIN_SCOPE_READ" };
  const made = (await call("people.v1.AdminTokensService/CreateAdminToken", body)).token;
  await database.server.query(
    "insert into people (person_id, login, name) values ('per_1', 'ada', 'Ada')",
    "acted",
  );
  // A copy while the gateway runs, as a backup is one.
  await run(
    process.execPath,
    [join(import.meta.dirname, "../../src/cli/backup.ts"), join(folder, "b")],
    {
      env: { ...process.env, DATABASE_URL: database.server.url("acted") },
    },
  );
  await database.server.query("create database revived", "postgres");
  expect((await commandOn("revived", "restore.ts", join(folder, "b"))).code).toBe(0);

  await call("keys.v1.KeysService/RevokeKey", { keyId: revoked.keyId });
  await call("keys.v1.KeysService/RotateKey", { keyId: rotated.keyId });
  const secretId = rotated.secrets[0].secretId;
  await call("keys.v1.KeysService/RevokeSecret", { keyId: rotated.keyId, secretId });
  await call("people.v1.AdminTokensService/RevokeAdminToken", { tokenId: made.tokenId });
  for (const accountId of [gone, back])
    await call("accounts.v1.AccountsService/SuspendAccount", { accountId, reason: "a test" });
  await call("accounts.v1.AccountsService/ResumeAccount", { accountId: back, reason: "a test" });
  const path = join(folder, "acts.log");
  // Only a person who is an operator disables people.
  const disabled = { method: "UpdatePerson", outcome: "ok", actor: "person:per_2", msg: "audit" };
  const line = JSON.stringify({
    time: Date.now(),
    ...disabled,
    personId: "per_1",
    disabled: "true",
  });
  await writeFile(path, `${(await gateway.end("SIGTERM")).stderr}${line}\n`);

  const subjects = [
    `revoked: key ${revoked.keyId}`,
    `revoked: secret ${secretId}`,
    `revoked: admin token ${made.tokenId}`,
    "disabled: person per_1",
    `suspended: account ${gone}`,
  ];
  const listed = await commandOn("revived", "reconcile.ts", path);
  expect(listed.code).toBe(1);
  const toBeDone = subjects.map((subject) => {
    const [done, name] = subject.split(": ");
    return `to be ${done} with --apply: ${name}`;
  });
  expect(listed.lines.slice(1).sort()).toEqual(toBeDone.sort());
  const applied = await commandOn("revived", "reconcile.ts", path, "--apply");
  expect(applied.lines.slice(1).sort()).toEqual(subjects.sort());
  expect(applied.code).toBe(0);
  const repeated = await commandOn("revived", "reconcile.ts", path, "--apply");
  expect([repeated.code, repeated.lines.length]).toEqual([0, 1]);
});
