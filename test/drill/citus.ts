// A drill by hand: pairs of a hold and its settlement on Citus, with one worker and with two.
//
//   node test/drill/citus.ts        # Debian's PostgreSQL 15 with Citus installed
//
// The output is a Markdown table. All servers and the ledger are on this machine.

import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { timeOrderedId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { openLedger } from "../../src/postgres/open-ledger.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { type PairKey, startPairs } from "../bench/pairs.ts";
import { startCitus } from "../support/debian.ts";

const accounts = 16;
const rounds = 3;

console.log("| workers | one pair alone, ms | pairs/s of 32 at once |");
console.log("|---|--:|--:|");
for (const workers of [1, 2]) {
  const citus = await startCitus(workers, ["fsync=on"]);
  const where = { url: citus.url, ownerUrl: undefined, engine: undefined };
  const { postgres } = await openLedger(where, createLog("warn"));
  const keys: PairKey[] = [];
  while (keys.length < accounts) keys.push(await addKey(postgres));
  const pairs = await startPairs(postgres);
  const run = async (count: number, width: number) => {
    const { perSecond } = await pairs.run({
      count,
      width,
      keyOf: (pair) => keys[pair % accounts] ?? fail(),
    });
    return perSecond;
  };
  // Opens the connections and fills the caches of plans.
  await run(accounts * 12, 8);
  const alone: number[] = [];
  const together: number[] = [];
  for (let round = 0; round < rounds; round++) {
    alone.push(1000 / (await run(100, 1)));
    together.push(await run(600, 32));
  }
  console.log(
    `| ${workers} | ${median(alone).toFixed(1)} | ${median(together).toFixed(0)} |` +
      ` (${alone.map((ms) => ms.toFixed(1))}; ${together.map((one) => one.toFixed(0))})`,
  );
  await pairs.stop();
  await postgres.close();
  await citus.stop();
}

async function addKey(postgres: Postgres): Promise<PairKey> {
  const store = createLedgerStore(postgres);
  const { accountId } = await store.insertAccount("drill");
  await store.createTransfer({
    accountId,
    family: "v1",
    kind: TransferKind.BONUS,
    amountMicro: 10n ** 15n,
    idempotencyKey: "drill",
    reason: "",
    actor: "drill",
  });
  const keyId = timeOrderedId("key_");
  const text = `insert into keys (key_id, account_id, "family", name) values ($1, $2, 'v1', 'drill')`;
  await postgres.query({ name: "", text }, [keyId, accountId]);
  return { accountId, keyId };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

function fail(): never {
  throw new Error("there is no such key");
}
