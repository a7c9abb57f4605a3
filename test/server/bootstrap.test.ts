// The first start: the account, credits, keys and admin token that it creates, and its file.

import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { afterEach, expect, test } from "vitest";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys, createBilling } from "../../src/billing/billing.ts";
import {
  type Core,
  type Implementation,
  implement,
  localCore,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createKeys } from "../../src/keys/keys.ts";
import { createInstallation } from "../../src/people/people.ts";
import {
  findAdminToken,
  firstKeysPath,
  renderBanner,
  type SeedParts,
  saveAdminToken,
  seed,
} from "../../src/server/bootstrap.ts";
import { freshDatabase } from "../support/database.ts";
import { noAlerts, noOperations, noPayments, noPeople } from "../support/no-service.ts";
import { query } from "../support/query.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const renameAccount = {
  name: "test/rename-account",
  text: "update accounts set name = $2 where account_id = $1",
};

/** The keys and billing services on an empty database, and a data directory. */
async function newInstallation() {
  const database = await freshDatabase();
  cleanups.push(() => database.drop());
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-first-"));
  cleanups.push(() => rmSync(dataDir, { recursive: true }));
  const adminToken = await findAdminToken(dataDir, undefined);
  const log = createLog("silent");
  const { postgres } = database;
  const keys = createKeys({
    budgets: budgetsOfKeys,
    postgres,
    adminToken,
    resolveModel: () => undefined,
    log,
  });
  const billing = createBilling({ postgres, priceOf: () => undefined, log });
  const nothing = implement<Implementation<typeof InferenceService>>(
    InferenceService,
    () => () => Promise.reject(),
  );
  const core = localCore({
    keys: intercept(serviceTypes.keys, keys.service, { authenticate: keys.authenticate, log }),
    billing: intercept(serviceTypes.billing, billing.service, {
      authenticate: keys.authenticate,
      log,
    }),
    inference: nothing,
    people: noPeople,
    payments: noPayments,
    alerts: noAlerts,
    operations: noOperations,
  });
  const publicUrl = () => new URL("http://localhost:8080");
  const installation = createInstallation({ postgres, publicUrl });
  const rename = (accountId: string, name: string) =>
    query(postgres, renameAccount, [accountId, name]);
  const { ensureAccount } = billing;
  return { core, dataDir, adminToken, installation, ensureAccount, rename };
}

function bearer(secret: string | undefined) {
  return { headers: { authorization: `Bearer ${secret}` } };
}

async function expectComplete({
  core,
  dataDir,
  adminToken,
}: Awaited<ReturnType<typeof newInstallation>>): Promise<void> {
  const text = readFileSync(firstKeysPath(dataDir), "utf8");
  const { v1, v2, accountId, ownerLink, ...rest } = JSON.parse(text);
  expect(ownerLink).toMatch(/^http:\/\/localhost:8080\/console\/welcome#[\w-]{43}$/);
  expect(rest).toEqual({ adminToken });
  for (const secret of [v1, v2]) {
    const { key } = await core.keys.authenticate({}, bearer(secret));
    expect(key).toMatchObject({ accountId, family: secret === v1 ? 1 : 2 });
  }
  const { pools } = await core.billing.getPools({ accountId }, bearer(adminToken));
  expect(pools.map((pool) => pool.postedMicrocredits)).toEqual([1_000_000_000n, 1_000_000_000n]);
  const { accounts } = await core.billing.listAccounts({}, bearer(adminToken));
  expect(accounts.map(({ name }) => name)).toEqual(["default"]);
  const { keys } = await core.keys.listKeys({ accountId }, bearer(adminToken));
  expect(keys).toHaveLength(2);
}

test("a first start creates an account with credits in both pools, a key for each and an admin token", async () => {
  const installation = await newInstallation();
  const keys = await seed(installation);
  expect(keys?.v1).toMatch(/^sk-gw2-1/);
  expect(keys?.v2).toMatch(/^sk-gw2-2/);
  expect(statSync(firstKeysPath(installation.dataDir)).mode & 0o777).toBe(0o600);
  await expectComplete(installation);
});

test("a later start creates nothing and returns nothing", async () => {
  const installation = await newInstallation();
  await seed(installation);
  const file = readFileSync(firstKeysPath(installation.dataDir), "utf8");
  expect(await seed(installation)).toBeUndefined();
  expect(readFileSync(firstKeysPath(installation.dataDir), "utf8")).toBe(file);
  expect(await findAdminToken(installation.dataDir, undefined)).toBe(installation.adminToken);
  await expectComplete(installation);
});

test("deleting the file changes no key", async () => {
  const installation = await newInstallation();
  const keys = await seed(installation);
  rmSync(firstKeysPath(installation.dataDir));
  expect(await seed(installation)).toBeUndefined();
  expect((await installation.core.keys.authenticate({}, bearer(keys?.v1))).key?.accountId).toBe(
    keys?.accountId,
  );
});

// The start is interrupted before its n-th call, or after it: the call is made and its response
// lost.
for (let calls = 0; calls < 10; calls++) {
  for (const answered of [false, true]) {
    test(`a first start interrupted ${answered ? "after" : "before"} its call ${calls + 1} is completed by the next`, async () => {
      const installation = await newInstallation();
      const interrupted = interruptAt(installation, calls, answered);
      await expect(seed(interrupted)).rejects.toThrow("interrupted");
      await seed(installation);
      await expectComplete(installation);
    });
  }
}

function interruptAt(parts: SeedParts, callsBefore: number, answered: boolean): SeedParts {
  let calls = 0;
  const wrap = <T extends object>(client: T): T =>
    new Proxy(client, {
      get(target, name) {
        const method: unknown = Reflect.get(target, name);
        if (typeof method !== "function") return method;
        return async (...args: unknown[]) => {
          const isLast = calls++ >= callsBefore;
          if (isLast && !answered) throw new Error("interrupted");
          const answer = await method.apply(target, args);
          if (isLast) throw new Error("interrupted");
          return answer;
        };
      },
    });
  const { core, installation, ensureAccount } = parts;
  return {
    ...parts,
    core: { ...core, billing: wrap(core.billing), keys: wrap(core.keys) },
    installation: wrap(installation),
    ensureAccount: wrap({ ensureAccount }).ensureAccount,
  };
}

test("the file appears once, complete, after the credits are there", async () => {
  const installation = await newInstallation();
  const path = firstKeysPath(installation.dataDir);
  const seen: boolean[] = [];
  const watched = watchCalls(installation.core, () => seen.push(existsSync(path)));
  await seed({ ...installation, core: watched });
  expect(seen).toEqual(Array(6).fill(false));
  expect(readdirSync(installation.dataDir)).toEqual(["first-keys.json"]);
  await expectComplete(installation);
});

test("a torn file of an interrupted start is replaced", async () => {
  const installation = await newInstallation();
  writeFileSync(`${firstKeysPath(installation.dataDir)}.new`, '{"v1": "sk-');
  await seed(installation);
  expect(readdirSync(installation.dataDir)).toEqual(["first-keys.json"]);
  await expectComplete(installation);
});

test("a start that was interrupted before it named the file names it the next time", async () => {
  const installation = await newInstallation();
  const path = firstKeysPath(installation.dataDir);
  const keys = await seed(installation);
  renameSync(path, `${path}.new`);
  expect(await findAdminToken(installation.dataDir, undefined)).toBe(installation.adminToken);
  expect(await seed(installation)).toEqual(keys);
  await expectComplete(installation);
});

test("a lost admin token is replaced by a new one in the file, and the log names the file", async () => {
  const installation = await newInstallation();
  const { dataDir, adminToken } = installation;
  const { v1, v2, accountId } = (await seed(installation)) ?? {};
  const path = firstKeysPath(dataDir);
  const lines: string[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(line) });
  await saveAdminToken(dataDir, adminToken, log);
  expect(lines).toEqual([]);

  writeFileSync(path, JSON.stringify({ v1, v2, accountId }));
  const replaced = await findAdminToken(dataDir, undefined);
  expect(replaced).not.toBe(adminToken);
  await saveAdminToken(dataDir, replaced, log);
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual({
    v1,
    v2,
    accountId,
    adminToken: replaced,
  });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { file: path, msg: expect.stringContaining("a new one is in this file") },
  ]);
  expect(lines.join("")).not.toContain(replaced);
});

/** A Core that calls `onCall` before each call. */
function watchCalls(core: Core, onCall: () => void): Core {
  const wrap = <T extends object>(client: T): T =>
    new Proxy(client, {
      get(target, name) {
        onCall();
        return Reflect.get(target, name);
      },
    });
  return { ...core, billing: wrap(core.billing), keys: wrap(core.keys) };
}

test("a configured admin token wins over the one in the file", async () => {
  const { dataDir } = await newInstallation();
  expect(await findAdminToken(dataDir, "configured")).toBe("configured");
});

test("the error for a damaged file names it and does not repeat its content", async () => {
  const { dataDir } = await newInstallation();
  writeFileSync(firstKeysPath(dataDir), '{"adminToken": "secret');
  const failure = await findAdminToken(dataDir, undefined).catch((error: Error) => error.message);
  expect(failure).toContain("first-keys.json is not valid JSON");
  expect(failure).not.toContain("secret");
});

test("the banner has the address, the keys and a curl command", () => {
  const banner = renderBanner(
    { v1: "one", v2: "two", adminToken: "three", accountId: "acc", ownerLink: "four" },
    "http://127.0.0.1:8080",
    "./data",
    true,
  );
  for (const part of ["http://127.0.0.1:8080/v1/messages", "one", "two", "three", "four", "curl"])
    expect(banner).toContain(part);
});

test("without a terminal the path of the file is printed, and no secret", () => {
  const keys = { v1: "one", v2: "two", adminToken: "three", ownerLink: "http://localhost/#four" };
  const banner = renderBanner(keys, "http://127.0.0.1:8080", "./data", false);
  for (const secret of Object.values(keys)) expect(banner).not.toContain(secret);
  expect(banner).toContain("data/first-keys.json");
});

test("twenty processes that start at once find one admin token, which the file then has", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-first-"));
  cleanups.push(() => rmSync(dataDir, { recursive: true }));
  let saving = Promise.resolve();
  const tokens = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const token = await findAdminToken(dataDir, undefined);
      // One after the other, as their lease makes them.
      saving = saving.then(() => saveAdminToken(dataDir, token, createLog("silent")));
      await saving;
      return token;
    }),
  );
  expect(new Set(tokens).size).toBe(1);
  const file: unknown = JSON.parse(readFileSync(firstKeysPath(dataDir), "utf8"));
  expect(file).toEqual({ adminToken: tokens[0] });
  expect(readdirSync(dataDir)).toEqual(["first-keys.json"]);
});

test("the account of the first start is known by its id, whatever it or others are called", async () => {
  const parts = await newInstallation();
  const { core, adminToken } = parts;
  // A customer may call his account as ours is called.
  const call = bearer(adminToken);
  const { account } = await core.billing.createAccount({ settings: { name: "default" } }, call);
  const theirs = account?.accountId ?? "";
  const keys = await seed(parts);
  expect(keys?.accountId).not.toBe(theirs);
  const { pools } = await core.billing.getPools({ accountId: theirs }, call);
  expect(pools.map((pool) => pool.postedMicrocredits)).toEqual([0n, 0n]);
  await parts.rename(keys?.accountId ?? "", "another name");
  expect(await seed(parts)).toBeUndefined();
  const { accounts } = await core.billing.listAccounts({}, call);
  expect(accounts.map(({ name }) => name).sort()).toEqual(["another name", "default"]);
});
