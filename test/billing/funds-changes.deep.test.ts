// Which processes learn that the credits of an account changed.

import { create } from "@bufbuild/protobuf";
import { describe, expect, test, vi } from "vitest";
import {
  CreateTransferRequestSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { createBilling } from "../../src/billing/billing.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { connectRedis } from "../../src/redis/redis.ts";
import { callBy } from "../support/calls.ts";
import { freshLedger, log } from "../support/ledger.ts";
import { redisBinary } from "../support/programs.ts";
import { redisMissing, startRedis } from "../support/redis.ts";

describe.skipIf(!redisBinary)(redisBinary ? "with Redis" : redisMissing, () => {
  test("a transfer is known on its process before its answer, and on the others soon", async () => {
    await using stack = new AsyncDisposableStack();
    const ledger = stack.adopt(await freshLedger(), (one) => one.close());
    const server = stack.adopt(await startRedis(), (one) => one.stop());
    const { accountId } = await ledger.payer(0n);
    const changes: string[][] = [[], []];
    const processes = changes.map((seen) => {
      const redis = stack.adopt(connectRedis(server.url, log), (one) => one.close());
      const billing = stack.adopt(
        createBilling({
          postgres: ledger.postgres,
          hints: redis,
          log,
          priceOf: () => undefined,
        }),
        (one) => one.stop(),
      );
      billing.onFundsChange((change) => seen.push(`${change.kind} ${change.accountId}`));
      return { redis, billing };
    });
    const [first] = processes;
    expect.assert(first);
    await vi.waitFor(async () => {
      const subscribers = await server.command("pubsub", "numsub", "gateway:transfers");
      expect(subscribers).toStrictEqual(["gateway:transfers", 2]);
      expect.assert(first.redis.connected);
    });

    const transfer = {
      accountId,
      family: Family.V1,
      kind: TransferKind.BONUS,
      amountMicrocredits: 1_000n,
      idempotencyKey: "once",
      reason: "",
    };
    const request = create(CreateTransferRequestSchema, transfer);
    await first.billing.service.createTransfer(request, callBy(environmentToken, { accountId }));
    expect(changes[0]?.[0]).toBe(`transfer ${accountId}`);
    await vi.waitFor(() => expect(changes[1]?.[0]).toBe(`transfer ${accountId}`));
  });
});
