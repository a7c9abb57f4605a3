// On which server of a distributed engine the rows of an account are. Nothing depends on it but the
// time that a commit takes: it may be out of date.

import { BoundedMap } from "../base/bounded-map.ts";
import type { Statement, Tx } from "../postgres/postgres.ts";

// All tables of accounts are placed like their pools.
const findServer: Statement = {
  name: "billing/find-server",
  text: `
    select min(groupid)::text as server
    from pg_dist_placement
    where shardid = get_shard_id_for_distribution_column('pools', $1::text)`,
};

/** Accounts are moved seldom, and by hand. */
const knownMs = 60_000;
const accountsMax = 100_000;

export class Placement {
  readonly #db: Tx;
  /** By account. */
  readonly #known = new BoundedMap<string, { readonly server: string; readonly atMs: number }>(
    accountsMax,
  );

  constructor(db: Tx) {
    this.#db = db;
  }

  /** Names the server of an account. While the database is unreachable, the last one known. */
  async serverOf(accountId: string): Promise<string> {
    const known = this.#known.get(accountId);
    const nowMs = performance.now();
    if (known && nowMs - known.atMs < knownMs) return known.server;
    try {
      const [row] = await this.#db.query<{ server: string | null }>(findServer, [accountId]);
      const server = row?.server ?? "";
      this.#known.set(accountId, { server, atMs: nowMs });
      return server;
    } catch {
      return known?.server ?? "";
    }
  }
}
