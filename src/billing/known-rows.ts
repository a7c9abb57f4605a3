// Rows of pools and keys as this process last saw them. A request that is alone in its batch is
// decided on them, and its hold is written in the same round trip, guarded by their values: where
// one is another by now, nothing is written, and a batch with two round trips decides.

import * as sql from "../../gen/sql/billing.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import {
  type AdmissionRequest,
  type Admitted,
  admit,
  type HoldRequest,
  type Ledger,
  nodeOf,
  poolOf,
} from "./admission.ts";
import { type Sequence, sequence } from "./batch-queue.ts";
import { storedTags } from "./rows.ts";
import type { Charge } from "./settlement.ts";

/** An active pool without a debt and limits. */
type KnownPool = {
  posted: bigint;
  held: bigint;
  /** The last batch found it as it was known, so nobody else changes it. */
  readonly isOwn: boolean;
};

/** An active key without limits, whose manager has none either. */
type KnownKey = { readonly allowedModels: string[] };

/** Pools, and keys, that are known at once. */
const knownMax = 20_000;

export class KnownRows {
  readonly #pools = new BoundedMap<string, KnownPool>(knownMax);
  readonly #keys = new BoundedMap<string, KnownKey>(knownMax);

  /**
   * Takes the rows that a batch has locked and read. The returned function takes the pools again,
   * as the batch leaves them.
   */
  see(pools: readonly sql.LockPoolsRow[], keys: readonly sql.ReadKeysRow[]): () => void {
    const own = new Set<sql.LockPoolsRow>();
    for (const row of pools) {
      const known = this.#pools.get(poolOf(row));
      if (known?.posted === row.posted && known.held === row.held) own.add(row);
    }
    for (const { keyId, status, allowedModels, budget, managerBudget } of keys) {
      const isPlain = status === "active" && budget === null && managerBudget === null;
      if (isPlain) this.#keys.set(keyId, { allowedModels });
      else this.#keys.delete(keyId);
    }
    return () => {
      for (const row of pools) {
        const { posted, held, inDebt, accountStatus, budget } = row;
        const isPlain = !inDebt && accountStatus === "active" && budget === null;
        if (isPlain) this.#pools.set(poolOf(row), { posted, held, isOwn: own.has(row) });
        else this.#pools.delete(poolOf(row));
      }
    };
  }

  /** A hold became a charge. */
  charge({ hold: { payer }, amountMicro, holdMicro }: Charge): void {
    const pool = this.#pools.get(poolOf(payer));
    if (!pool) return;
    pool.posted -= amountMicro;
    pool.held -= holdMicro;
  }

  /**
   * Admits a request by the known rows. Undefined: they do not say that it may start. The sequence
   * has no outcome where the rows are others by now; it has written nothing then.
   */
  admission(request: AdmissionRequest, nodeId: string): Sequence<Admitted | undefined> | undefined {
    if (request.kind !== "place" || request.hasNewId !== true) return undefined;
    const { payer } = request;
    const name = poolOf(payer);
    const pool = this.#pools.get(name);
    const key = this.#keys.get(payer.keyId);
    if (!pool?.isOwn || !key) return undefined;
    const { posted, held } = pool;
    const admitted = admit(ledgerOf(request, nodeId, { posted, held }, key), request);
    if (admitted.kind !== "held") return undefined;
    const { hold } = admitted;
    return sequence(
      [
        sql.lockPool.with(payer),
        sql.placeHold.with({
          ...payer,
          posted,
          held,
          allowedModels: key.allowedModels,
          secretId: payer.secretId ?? null,
          nodeId,
          ownerId: nodeOf(request, nodeId),
          requestId: request.requestId,
          model: request.model,
          amount: hold.amountMicro,
          priceVersion: request.price.priceVersion,
          nonce: request.nonce,
          deadlineMs: request.deadlineMs,
          grantedOutput: hold.grantedOutput,
          tags: storedTags(hold),
          madeBy: hold.madeBy ?? null,
        }),
      ],
      ([, [placed]]): Admitted | undefined => {
        if (!placed) return undefined;
        const { admittedAt, month } = placed;
        pool.held += hold.amountMicro;
        return { ...admitted, hold: { ...hold, admittedAt, month } };
      },
    );
  }
}

/** The known rows as a batch would have read them. The times are those of the write. */
function ledgerOf(
  { payer }: HoldRequest,
  nodeId: string,
  pool: { posted: bigint; held: bigint },
  { allowedModels }: KnownKey,
): Ledger {
  return {
    at: new Date(0),
    month: "",
    nodeId,
    pools: new Map([[poolOf(payer), { ...pool, inDebt: false, accountStatus: "active" }]]),
    keys: new Map([[payer.keyId, { status: "active", allowedModels, manager: null }]]),
    budgets: new Map(),
    deadSecrets: new Map(),
    usedRequests: new Map(),
    growing: new Map(),
  };
}
