// What keeps the ledger as it was. A commit survives the loss of the primary only if a standby has
// it before it is acknowledged; the past is safe from us only if our role may not change it.

import type { Client } from "pg";
import { many } from "./statement.ts";

export type Durability = {
  /** True if every acknowledged commit is on a standby, too, as far as the role may see. */
  readonly isSynchronous: boolean;
  /** Why not. Undefined also for a lone server, which has nobody to lose commits to. */
  readonly problem: string | undefined;
  /** Connected synchronous standbys. Undefined where the role may not ask. */
  readonly syncStandbys: number | undefined;
  /**
   * Age of the oldest transaction that keeps the server from removing old versions of rows, as far
   * as the role may see. 0: there is none.
   */
  readonly oldestSnapshotS: number;
  /** Of the server, such as `18.4`. */
  readonly version: string;
};

type Row = {
  version: string;
  commit: string;
  names: string;
  may_ask: boolean;
  standbys: number;
  sync_standbys: number;
  oldest_snapshot_s: number;
};

// A role that may not read statistics sees the rows of pg_stat_replication, without their states.
const settings = `
  select current_setting('server_version') as version,
    current_setting('synchronous_commit') as commit,
    current_setting('synchronous_standby_names') as names,
    pg_has_role(current_user, 'pg_read_all_stats', 'usage') as may_ask,
    count(pid)::int as standbys,
    (count(pid) filter (where sync_state in ('sync', 'quorum')))::int as sync_standbys,
    (select coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8
     from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid()
       and (backend_xmin is not null or backend_xid is not null)) as oldest_snapshot_s
  from pg_stat_replication`;

/** The append-only tables that the role of a connection may change. */
export const changeable = many<undefined, { name: string }>(
  "postgres/changeable",
  `
    select name from unnest('{charges,transfers,price_versions,cost_versions}'::text[]) as name
    where has_table_privilege(current_user, name, 'UPDATE, DELETE, TRUNCATE')`,
  () => [],
  ([name]) => ({ name: String(name) }),
  "",
);

/** `isList`: the address names several servers, so there is a standby. */
export async function readDurability(client: Client, isList: boolean): Promise<Durability> {
  const { rows } = await client.query<Row>(settings);
  const [row] = rows;
  if (row === undefined) throw new Error("a query without groups returned no row");
  const problem = problemOf(row, isList);
  return {
    isSynchronous: problem === undefined && row.names !== "",
    problem,
    syncStandbys: row.may_ask ? row.sync_standbys : undefined,
    oldestSnapshotS: row.oldest_snapshot_s,
    version: row.version,
  };
}

function problemOf(
  { commit, names, may_ask, standbys, sync_standbys }: Row,
  isList: boolean,
): string | undefined {
  if (commit === "off" || commit === "local") return `synchronous_commit is ${commit}`;
  if (names === "" && (standbys > 0 || isList)) return "synchronous_standby_names is empty";
  if (names !== "" && may_ask && sync_standbys === 0) return "no synchronous standby is connected";
  return undefined;
}
