// Whether active requests may go on after a change, and who a credential is, without a database.

import { create } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { environmentToken, type KeyCaller } from "../../src/contract/contract.ts";
import { createAuthentication } from "../../src/keys/authenticate.ts";
import { LastUse } from "../../src/keys/last-use.ts";
import { RevocationCheck } from "../../src/keys/revocation.ts";
import { digestSecret, mintSecret } from "../../src/keys/secret.ts";
import type { FoundSecret } from "../../src/keys/store.ts";
import { Metrics } from "../../src/metrics/metrics.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";
import { bearer, errorOf } from "../support/keys.ts";

type Live = Awaited<ReturnType<ConstructorParameters<typeof RevocationCheck>[0]>>;

describe("active requests", () => {
  const live: Live = new Map([
    ["sec_live", undefined],
    ["sec_suspended", "account_suspended"],
  ]);
  const read = vi.fn<(keyId: string) => Promise<Live>>();
  let clock: ManualClock;
  let check: RevocationCheck;
  beforeEach(() => {
    read.mockReset().mockImplementation(async () => live);
    clock = new ManualClock();
    check = new RevocationCheck(read, clock);
  });

  test("go on with a live secret, and end with a revoked one or a suspended account", async () => {
    const refusals = ["sec_live", "sec_suspended", "sec_gone"].map((id) =>
      check.refusalOf("k", id),
    );
    expect(await Promise.all(refusals)).toEqual([undefined, "account_suspended", "revoked_key"]);
    // They share a read; later ones, and other keys, have their own.
    expect(read.mock.calls).toEqual([["k"]]);
    await Promise.all([check.refusalOf("k", "sec_live"), check.refusalOf("other", "sec_live")]);
    expect(read.mock.calls).toEqual([["k"], ["k"], ["other"]]);
  });

  test("share no read that began before a change, also when that ends later", async () => {
    const reads = [1, 2].map(() => Promise.withResolvers<Live>());
    for (const { promise } of reads) read.mockReturnValueOnce(promise);
    const before = check.refusalOf("k", "sec_live");
    check.forget("k");
    const after = check.refusalOf("k", "sec_live");
    reads[0]?.resolve(live);
    expect(await before).toBeUndefined();
    await runPendingTasks();
    const joined = check.refusalOf("k", "sec_live");
    reads[1]?.resolve(new Map());
    expect(await Promise.all([after, joined])).toEqual(["revoked_key", "revoked_key"]);
    expect(read).toHaveBeenCalledTimes(2);
  });

  test("wait a minute for a database that is away, and not for another failure", async () => {
    const away = new ApiError("database_unavailable");
    read.mockRejectedValue(away);
    const refusal = check.refusalOf("k", "sec_live");
    const failed = expect(refusal).rejects.toBe(away);
    await clock.advance(239 * 250 - 1);
    expect(read).toHaveBeenCalledTimes(239);
    await clock.advance(1);
    await failed;
    expect(read).toHaveBeenCalledTimes(240);
    expect(clock.pending).toBe(0);

    read.mockRejectedValueOnce(away).mockRejectedValueOnce(away).mockResolvedValueOnce(live);
    const again = check.refusalOf("k", "sec_suspended");
    await clock.advance(500);
    expect(await again).toBe("account_suspended");

    const fault = new Error("a fault");
    read.mockReset().mockRejectedValueOnce(fault);
    await expect(check.refusalOf("k", "sec_live")).rejects.toBe(fault);
    expect(read).toHaveBeenCalledTimes(1);
  });
});

describe("a credential", () => {
  const secret = mintSecret(Family.V1);
  const caller: KeyCaller = { kind: "key", key: create(KeySchema), secret: create(SecretSchema) };
  const found: FoundSecret = {
    ...{ digest: digestSecret(secret), ownerId: "key_1", readAt: 0, expiresInMs: undefined },
    ...{ caller, secretId: "sec_1", refusal: undefined, paused: false, isAllowedAt: undefined },
    ...{ expiresFirst: "key", useIsDue: true },
  };
  const onUse = vi.fn<(secretId: string) => void>();
  const onAdminUse = vi.fn<() => void>();
  const authenticationOf = (more: Partial<FoundSecret> = {}, adminToken = "the token") =>
    createAuthentication({
      ...{ adminToken, onUse, onAdminUse, clock: new ManualClock() },
      findSecrets: async (digests) =>
        digests.includes(found.digest) ? [{ ...found, ...more }] : [],
    }).authenticate;
  beforeEach(() => {
    onUse.mockClear();
    onAdminUse.mockClear();
  });

  test.for<[string, Partial<FoundSecret>, string | undefined]>([
    ["as it is", {}, undefined],
    ["for another millisecond", { expiresInMs: 1 }, undefined],
    ["of a revoked key", { refusal: "revoked_key", paused: true, expiresInMs: 0 }, "revoked_key"],
    ["of a suspended account", { refusal: "account_suspended" }, "account_suspended"],
    ["of an expired key", { expiresInMs: 0, paused: true }, "key_expired"],
    ["that expired itself", { expiresInMs: -1, expiresFirst: "secret" }, "invalid_key"],
    ["of a paused key", { paused: true }, "key_paused"],
  ])("%s is its caller, or refused, and its use is recorded when it is due", async (one) => {
    const [, more, reason] = one;
    const authenticate = authenticationOf(more);
    if (reason === undefined) expect(await authenticate(bearer(secret))).toBe(caller);
    else expect(await errorOf(authenticate(bearer(secret)))).toBe(reason);
    expect(onUse.mock.calls).toEqual(reason === undefined ? [["sec_1"]] : []);
    onUse.mockClear();
    await authenticationOf({ ...more, useIsDue: false })(bearer(secret)).catch(() => undefined);
    expect(onUse).not.toHaveBeenCalled();
  });

  const header = (value: string) => new Headers({ authorization: value });
  test.for<[string, string | undefined]>([
    [`Bearer ${secret}`, undefined],
    [`  bEARER   ${secret}  `, undefined],
    ["", "missing_key"],
    ["   ", "missing_key"],
    ["Bearer", "missing_key"],
    ["Bearer  ", "missing_key"],
    [secret, "invalid_key"],
    [`Basic ${secret}`, "invalid_key"],
    [`Bearer ${secret} x`, "invalid_key"],
    [`Bearer ${secret},x`, "invalid_key"],
    [`Bearer ${mintSecret(Family.V1)}`, "invalid_key"],
    ["Bearer the", "invalid_key"],
  ])("in a header is read as it is meant: row %#", async ([value, reason]) => {
    const read = authenticationOf()(header(value));
    if (reason === undefined) expect(await read).toBe(caller);
    else expect(await errorOf(read)).toBe(reason);
    expect(onAdminUse).not.toHaveBeenCalled();
  });

  test("of 512 characters may be the operator's, and a longer one is none", async () => {
    const token = "t".repeat(512 - "Bearer ".length);
    const authenticate = authenticationOf({}, token);
    expect(await authenticate(bearer(token))).toBe(environmentToken);
    expect(onAdminUse).toHaveBeenCalledTimes(1);
    expect(await errorOf(authenticationOf({}, `${token}t`)(bearer(`${token}t`)))).toBe(
      "invalid_key",
    );
    expect(await errorOf(authenticationOf({}, "")(bearer("x")))).toBe("invalid_key");
    expect(await errorOf(authenticationOf()(new Headers()))).toBe("missing_key");
  });
});

describe("a secret that was read", () => {
  const secret = mintSecret(Family.V1);
  const caller: KeyCaller = { kind: "key", key: create(KeySchema), secret: create(SecretSchema) };
  const found: FoundSecret = {
    ...{ digest: digestSecret(secret), ownerId: "key_1", readAt: 0, expiresInMs: undefined },
    ...{ caller, secretId: "sec_1", refusal: undefined, paused: false, isAllowedAt: undefined },
    ...{ expiresFirst: "key", useIsDue: false },
  };

  test("is known for five seconds, read again in the background, and forgotten with its key", async () => {
    const clock = new ManualClock({ creeps: true });
    const metrics = new Metrics();
    const read = vi.fn(async (digests: readonly string[]) =>
      digests.includes(found.digest) ? [{ ...found, readAt: clock.now() }] : [],
    );
    const { authenticate, forget } = createAuthentication({
      ...{ adminToken: "the,token", findSecrets: read, onUse: () => undefined, clock, metrics },
    });
    const reads = async () => {
      await clock.advance(100);
      return read.mock.calls.length;
    };
    expect(await authenticate(bearer(secret))).toBe(caller);
    expect(await authenticate(bearer(secret))).toBe(caller);
    expect(await reads()).toBe(1);
    const other = mintSecret(Family.V2);
    for (let time = 0; time < 2; time++)
      expect(await errorOf(authenticate(bearer(other)))).toBe("invalid_key");
    expect(await reads()).toBe(2);
    // Texts that are no secrets cost no look-up, and one with a comma is several values.
    for (const text of ["no secret", "the,token"])
      expect(await errorOf(authenticate(bearer(text)))).toBe("invalid_key");
    expect(await reads()).toBe(2);

    await clock.advance(5_000);
    expect(await authenticate(bearer(secret))).toBe(caller);
    expect(await reads()).toBe(3);
    forget("key_1");
    expect(await authenticate(bearer(secret))).toBe(caller);
    expect(await reads()).toBe(4);
    const counts = ["hit", "miss", "invalid"].map(
      (result) => metrics.counter("gateway_key_cache_total", [result]).value,
    );
    expect(counts).toEqual([2, 2, 2]);
  });

  test("waits so long for a database that is away", async () => {
    const clock = new ManualClock();
    const away = new ApiError("database_unavailable");
    const { authenticate } = createAuthentication({
      ...{ adminToken: "", onUse: () => undefined, clock, maxWaitMs: 700 },
      findSecrets: () => Promise.reject(away),
    });
    const failed = vi.fn();
    authenticate(bearer(secret)).catch(failed);
    await clock.advance(600);
    expect(failed).not.toHaveBeenCalled();
    await clock.advance(1_000);
    expect(failed).toHaveBeenCalledWith(away);
  });
});

describe("last uses", () => {
  const log = createLog("silent");
  const added = async (count: number) => {
    const written: string[][] = [];
    const lastUse = new LastUse(async (ids) => written.push([...ids]), log);
    for (let id = 0; id < count; id++) lastUse.add(`sec_${id}`);
    // Known already.
    lastUse.add("sec_0");
    await lastUse.stop();
    return written;
  };

  test("are all written, 5,000 in a statement, each once", async () => {
    for (const [count, sizes] of [
      [1, [1]],
      [5_000, [5_000]],
      [5_001, [5_000, 1]],
      [12_000, [5_000, 5_000, 2_000]],
    ] as const) {
      const written = await added(count);
      expect(written.map(({ length }) => length)).toEqual(sizes);
      expect(new Set(written.flat()).size).toBe(count);
    }
  });

  test("are 100,000 at most until they are written", async () => {
    expect((await added(100_002)).flat()).toHaveLength(100_000);
  });
});
