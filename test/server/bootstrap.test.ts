import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { createBilling } from "../../src/billing/billing.ts";
import {
  type Core,
  type Implementation,
  implement,
  localCore,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createKeys } from "../../src/keys/keys.ts";
import { findAdminToken, firstKeysPath, renderBanner, seed } from "../../src/server/bootstrap.ts";
import { freshDatabase } from "../support/database.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** The keys and billing services on an empty database, and a data directory. */
async function newPlace() {
  const database = await freshDatabase();
  cleanups.push(() => database.drop());
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-first-"));
  cleanups.push(() => rmSync(dataDir, { recursive: true }));
  const adminToken = await findAdminToken(dataDir, undefined);
  const log = createLog("silent");
  const { postgres } = database;
  const keys = createKeys({ postgres, adminToken, resolveModel: () => undefined, log });
  const billing = createBilling({ postgres, priceOf: () => undefined, log, onLost: () => {} });
  const nothing = implement<Implementation<typeof InferenceService>>(
    InferenceService,
    () => () => Promise.reject(),
  );
  const core = localCore({
    keys: intercept(KeysService, keys.service, keys.authenticate, log),
    billing: intercept(BillingService, billing.service, keys.authenticate, log),
    inference: nothing,
  });
  return { core, dataDir, adminToken };
}

function bearer(secret: string | undefined) {
  return { headers: { authorization: `Bearer ${secret}` } };
}

async function expectComplete({
  core,
  dataDir,
  adminToken,
}: Awaited<ReturnType<typeof newPlace>>): Promise<void> {
  const { v1, v2, accountId, ...rest } = JSON.parse(readFileSync(firstKeysPath(dataDir), "utf8"));
  expect(rest).toEqual({ adminToken });
  for (const secret of [v1, v2]) {
    const { key } = await core.keys.authenticate({}, bearer(secret));
    expect(key).toMatchObject({ accountId, family: secret === v1 ? 1 : 2 });
    const { pools } = await core.billing.getPools({}, bearer(secret));
    expect(pools.map((pool) => pool.postedMicrocredits)).toEqual([1_000_000_000n, 1_000_000_000n]);
  }
  const { accounts } = await core.billing.listAccounts({}, bearer(adminToken));
  expect(accounts.map(({ name }) => name)).toEqual(["default"]);
  const { keys } = await core.keys.listKeys({ accountId }, bearer(adminToken));
  expect(keys).toHaveLength(2);
}

test("a first start makes an account with credits in both pools, a key for each and an admin token", async () => {
  const place = await newPlace();
  const keys = await seed(place.core, place.adminToken, place.dataDir);
  expect(keys?.v1).toMatch(/^sk-gw2-1/);
  expect(keys?.v2).toMatch(/^sk-gw2-2/);
  expect(statSync(firstKeysPath(place.dataDir)).mode & 0o777).toBe(0o600);
  await expectComplete(place);
});

test("a later start makes nothing and shows nothing", async () => {
  const place = await newPlace();
  await seed(place.core, place.adminToken, place.dataDir);
  const file = readFileSync(firstKeysPath(place.dataDir), "utf8");
  expect(await seed(place.core, place.adminToken, place.dataDir)).toBeUndefined();
  expect(readFileSync(firstKeysPath(place.dataDir), "utf8")).toBe(file);
  expect(await findAdminToken(place.dataDir, undefined)).toBe(place.adminToken);
  await expectComplete(place);
});

test("a deleted file changes no key", async () => {
  const place = await newPlace();
  const keys = await seed(place.core, place.adminToken, place.dataDir);
  rmSync(firstKeysPath(place.dataDir));
  expect(await seed(place.core, place.adminToken, place.dataDir)).toBeUndefined();
  expect((await place.core.keys.authenticate({}, bearer(keys?.v1))).key?.accountId).toBe(
    keys?.accountId,
  );
});

// Dies before the n-th call, and after it: the call was made, and its answer lost.
for (let calls = 0; calls < 8; calls++) {
  for (const answered of [false, true]) {
    test(`a first start cut off ${answered ? "after" : "before"} its call ${calls + 1} is completed by the next`, async () => {
      const place = await newPlace();
      const cut = cutOff(place.core, calls, answered);
      await expect(seed(cut, place.adminToken, place.dataDir)).rejects.toThrow("cut off");
      await seed(place.core, place.adminToken, place.dataDir);
      await expectComplete(place);
    });
  }
}

function cutOff(core: Core, callsBefore: number, answered: boolean): Core {
  let calls = 0;
  const wrap = <T extends object>(client: T): T =>
    new Proxy(client, {
      get(target, name) {
        const method: unknown = Reflect.get(target, name);
        if (typeof method !== "function") return method;
        return async (...args: unknown[]) => {
          const isLast = calls++ >= callsBefore;
          if (isLast && !answered) throw new Error("cut off");
          const answer = await method.apply(target, args);
          if (isLast) throw new Error("cut off");
          return answer;
        };
      },
    });
  return { billing: wrap(core.billing), keys: wrap(core.keys), inference: core.inference };
}

test("a configured admin token wins over the one in the file", async () => {
  const { dataDir } = await newPlace();
  expect(await findAdminToken(dataDir, "configured")).toBe("configured");
});

test("a damaged file is named, and its content is not repeated", async () => {
  const { dataDir } = await newPlace();
  writeFileSync(firstKeysPath(dataDir), '{"adminToken": "secret');
  const failure = await findAdminToken(dataDir, undefined).catch((error: Error) => error.message);
  expect(failure).toContain("first-keys.json is not valid JSON");
  expect(failure).not.toContain("secret");
});

test("the banner can be pasted: it holds the address, the keys and a curl line", () => {
  const banner = renderBanner(
    { v1: "one", v2: "two", adminToken: "three", accountId: "acc" },
    "http://127.0.0.1:8080",
    "./data",
  );
  for (const part of ["http://127.0.0.1:8080/v1/messages", "one", "two", "three", "curl"])
    expect(banner).toContain(part);
});
