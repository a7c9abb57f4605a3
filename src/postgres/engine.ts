// The database engines that the ledger runs on, and what each of them can do.

import type { ClientBase } from "pg";
import type { LedgerEngine } from "../config/environment.ts";

export type Traits = {
  /** Run as tests run it. */
  readonly isTested: boolean;
  /** Has settings of PostgreSQL's planner that suit our statements. */
  readonly hasPlannerSettings: boolean;
  /** Knows the collation "C" in table definitions. */
  readonly hasCollationC: boolean;
  /** Divides a table into partitions as PostgreSQL does. */
  readonly hasPartitions: boolean;
  /** Runs the statements of `sql/distributed/` where there is one. */
  readonly isDistributed: boolean;
  /** Its servers connect to each other in the role of the statement, which then must log in. */
  readonly hasRolesLogIn: boolean;
  /** A migration `0001_x.sql` is followed by `0001_x.<variant>.sql`. */
  readonly variant?: "postgres" | "citus";
};

export const traitsOf: Readonly<Record<LedgerEngine, Traits>> = {
  postgres: {
    isTested: true,
    hasPlannerSettings: true,
    hasCollationC: true,
    hasPartitions: true,
    isDistributed: false,
    hasRolesLogIn: false,
    variant: "postgres",
  },
  // No triggers on distributed tables.
  citus: {
    isTested: true,
    hasPlannerSettings: false,
    hasCollationC: true,
    hasPartitions: true,
    isDistributed: true,
    hasRolesLogIn: true,
    variant: "citus",
  },
  yugabyte: {
    isTested: false,
    hasPlannerSettings: false,
    hasCollationC: true,
    hasPartitions: true,
    isDistributed: false,
    hasRolesLogIn: false,
    variant: "postgres",
  },
  cockroach: {
    isTested: false,
    hasPlannerSettings: false,
    hasCollationC: false,
    hasPartitions: false,
    isDistributed: false,
    hasRolesLogIn: false,
  },
};

/** The configured engine. Without one: Citus where its extension is, otherwise PostgreSQL. */
export async function findEngine(
  client: ClientBase,
  configured: LedgerEngine | undefined,
): Promise<LedgerEngine> {
  if (configured !== undefined) return configured;
  const { rowCount } = await client.query("select 1 from pg_extension where extname = 'citus'");
  return rowCount === 0 ? "postgres" : "citus";
}

/** A table definition as `engine` takes it. */
export function definitionFor(engine: LedgerEngine, sql: string): string {
  const { hasCollationC, hasPartitions } = traitsOf[engine];
  const collated = hasCollationC ? sql : sql.replaceAll(' collate "C"', "");
  return hasPartitions ? collated : collated.replaceAll(" partition by range (month)", "");
}
