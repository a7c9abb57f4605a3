// The suites look at the errors that methods throw: what a comment does not name fails their file.

import { expect, test } from "vitest";
import { ApiError, type ErrorReason } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type AuthenticatedCall,
  type Implementation,
  implement,
  localClient,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { throwUndocumented } from "../support/observe-errors.ts";
import { authenticate, callersByKind } from "../support/scripted-services.ts";

const options = { headers: { authorization: callersByKind["admin token"].credential } };

async function fail(method: "getKey" | "pauseKey", reason: ErrorReason): Promise<void> {
  const implementation = implement<Implementation<typeof serviceTypes.keys, AuthenticatedCall>>(
    serviceTypes.keys,
    () => () => Promise.reject(new ApiError(reason)),
  );
  const parts = { authenticate, log: createLog("silent") };
  const service = intercept(serviceTypes.keys, implementation, parts);
  const client = localClient(serviceTypes.keys, service);
  await expect(client[method]({ keyId: "key_1" }, options)).rejects.toThrow();
}

test("an error that the comment of its method does not name is found", async () => {
  await fail("getKey", "last_one");
  await expect(throwUndocumented()).rejects.toThrow("gateway.keys.v1.KeysService.GetKey LAST_ONE");
});

test("an error that the comment names, and one of every method, are not", async () => {
  await fail("pauseKey", "key_not_active");
  await fail("pauseKey", "database_unavailable");
  await expect(throwUndocumented()).resolves.toBeUndefined();
});
