// Opens the database of the ledger: migrates it as its owner, and connects in the role of the
// gateway.

import type { Log } from "../base/log.ts";
import { keepMonthsAhead, migrate } from "./migrate.ts";
import { type Owner, ownerOf } from "./owner.ts";
import { lastMonthOf, readPartitions } from "./partitions.ts";
import { connectPostgres, type Postgres } from "./postgres.ts";
import { gatewayRole, mayTakeRole } from "./role.ts";
import { Servers } from "./servers.ts";

export type { Owner } from "./owner.ts";

export type OpenLedger = {
  readonly postgres: Postgres;
  /** What an administrator has to run, so that the gateway can take its role. Empty: it has it. */
  readonly roleStatements: readonly string[];
  /** Adds partitions for the months ahead. */
  keepMonthsAhead(): Promise<void>;
  /** The last month with a partition, as `lastMonthOf`. */
  readLastMonth(): Promise<number>;
  /** Connects as the owner of the tables, for as long as `work` takes. */
  asOwner<T>(work: (owner: Owner) => Promise<T>): Promise<T>;
};

/**
 * `url`: of the gateway. `ownerUrl`: of the owner of the tables, who may migrate them.
 */
export async function openLedger(
  { url, ownerUrl }: { url: string; ownerUrl: string | undefined },
  log: Log,
): Promise<OpenLedger> {
  // Without an owner of its own, the user of the gateway is the one who migrates.
  const user = ownerUrl === undefined ? {} : { user: await userAt(url) };
  const { roleStatements } = await migrate(ownerUrl ?? url, user);
  // The role may come from another database of this server, and have no rights here.
  const isReady = roleStatements.length === 0;
  const role = isReady && (await mayTakeRole(url)) ? gatewayRole : undefined;
  const postgres = connectPostgres(url, { log, role });
  return {
    postgres,
    roleStatements: role === undefined ? roleStatements : [],
    keepMonthsAhead: () => keepMonthsAhead(ownerUrl ?? url),
    async readLastMonth() {
      return lastMonthOf(await postgres.run(readPartitions));
    },
    async asOwner(work) {
      const owner = await ownerOf(ownerUrl ?? url);
      return work(owner).finally(() => owner.end());
    },
  };
}

async function userAt(url: string): Promise<string> {
  const { client } = await new Servers(url).connect();
  try {
    const { rows } = await client.query<{ name: string }>("select session_user::text as name");
    return rows[0]?.name ?? "";
  } finally {
    await client.end();
  }
}
