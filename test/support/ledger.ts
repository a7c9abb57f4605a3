// The ledger over a fresh database, with accounts and keys to bill.

import { create } from "@bufbuild/protobuf";
import { InputCategory, TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Attempt, Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import { nanoOf, type Prices } from "../../src/base/cost.ts";
import type { FamilyName } from "../../src/base/families.ts";
import { newRequestId, timeOrderedId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { byCategory } from "../../src/base/token-categories.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { ClusterNode } from "../../src/billing/cluster-node.ts";
import { HoldKeeper } from "../../src/billing/holds.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { freshDatabase } from "./database.ts";
import { query } from "./query.ts";

/** Micro-credits per token of the model `model-test`, and of a web search. */
export const microEach = {
  input: 10n,
  output: 50n,
  cacheWrite5m: 12n,
  cacheWrite1h: 20n,
  cacheRead: 1n,
  thinking: 60n,
  webSearch: 2_000n,
};

export const price = priceVersion("model-test", pricesOf(microEach));

/** The prices of these micro-credits per token. */
export function pricesOf({ webSearch, ...micro }: Prices): Prices {
  return { ...byCategory((category) => nanoOf(micro[category])), webSearch };
}

export const log = createLog("silent");

export function usage(tokens: Partial<Omit<Usage, "$typeName" | "$unknown">>): Usage {
  return create(UsageSchema, tokens);
}

export function endingWith(tokens: Parameters<typeof usage>[0], attempts: Attempt[] = []) {
  return { usage: usage(tokens), outcome: Outcome.COMPLETED, basis: Basis.REPORTED, attempts };
}

/** A request of 100 input tokens at most and exactly `output` output tokens. */
export function holdRequest(
  payer: Payer,
  output: number,
  more: { requestId?: string; hasNewId?: boolean; nonce?: string; minOutput?: number } = {},
) {
  const bounds = {
    input: 100,
    mostExpensiveInput: InputCategory.PLAIN,
    webSearches: 0,
    minOutput: more.minOutput ?? output,
    maxOutput: output,
  };
  const { requestId = newRequestId(), hasNewId, nonce } = more;
  return {
    requestId,
    hasNewId,
    payer,
    model: "model-test",
    price,
    bounds,
    deadlineMs: 60_000,
    ...(nonce !== undefined && { nonce }),
  };
}

/** What `asking(payer, output)` holds. */
export function heldFor(output: number): bigint {
  return 100n * 10n + BigInt(output) * 60n;
}

type ClusterNodeParts = ConstructorParameters<typeof ClusterNode>[0];

type NodeOptions = Pick<
  ClusterNodeParts,
  "silentPollsMax" | "pollIntervalMs" | "orphansMax" | "clock"
> & {
  /**
   * True: sends heartbeats, as it must where another node polls it for longer than a few seconds.
   * Default: it polls, and is polled, only by the test.
   */
  ticks?: boolean;
};

/** Starts one node on the ledger at `url`, in this process. */
export async function startNode(url: string, { ticks = false, ...options }: NodeOptions = {}) {
  const postgres = connectPostgres(url);
  const store = createLedgerStore(postgres);
  let lost = 0;
  const node = new ClusterNode({ store, log, onLost: () => lost++, ...options });
  const holds = new HoldKeeper({
    postgres,
    store,
    log,
    nodeId: node.id,
    onLost: () => node.lose(),
    clock: options.clock,
  });
  if (ticks) await node.start(holds);
  else await store.registerNode(node.id(), "");
  return {
    postgres,
    store,
    node,
    holds,
    lostTimes: () => lost,
    async stop() {
      await holds.close();
      await node.stop();
      await postgres.close();
    },
  };
}

/**
 * A fresh ledger with one node. `payer` creates a key, and an account whose v1 pool has the given
 * micro-credits.
 */
export async function freshLedger(options: NodeOptions = {}) {
  const database = await freshDatabase();
  const node = await startNode(database.url, options);
  const run = <Row>(text: string, values: unknown[] = []) => {
    const statement = { name: "", text };
    return query<Row>(database.postgres, statement, values);
  };
  return {
    ...node,
    url: database.url,
    run,
    async payer(
      micro: bigint,
      key: {
        cap?: bigint;
        allowedModels?: string[];
        accountId?: string;
        family?: FamilyName;
      } = {},
    ): Promise<Payer> {
      const { family = "v1" } = key;
      const accountId = key.accountId ?? (await node.store.insertAccount("test")).accountId;
      if (micro > 0n) {
        await node.store.createTransfer({
          accountId,
          family,
          kind: TransferKind.BONUS,
          amountMicro: micro,
          idempotencyKey: newRequestId(),
          reason: "",
          actor: "test",
        });
      }
      const keyId = timeOrderedId("key_");
      await run(
        "insert into keys (key_id, account_id, family, name, allowed_models) values ($1, $2, $4, 'test', $3)",
        [keyId, accountId, key.allowedModels ?? [], family],
      );
      await run(
        "insert into budgets (account_id, family, payer, month_limit) values ($1, $2, $3, $4)",
        [accountId, family, keyId, key.cap ?? null],
      );
      return { accountId, family, keyId };
    },
    async pool({ accountId }: Payer) {
      const [pool] = await node.store.readPools(accountId);
      return { posted: pool?.postedMicrocredits, held: pool?.heldMicrocredits };
    },
    async close() {
      await node.stop();
      await database.drop();
    },
  };
}
