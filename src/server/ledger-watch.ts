// Watches, once a minute, whether the ledger would survive the loss of its primary, and how old the
// oldest snapshot is, which keeps old versions of rows and so slows requests down. Reports at the
// start whether this process lacks its role, and could change the past of the ledger.

import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { UnusableDatabase } from "../postgres/preflight.ts";

const everyMs = 60_000;

export class LedgerWatch {
  readonly #postgres: Postgres;
  readonly #log: Log;
  readonly #task: Task;
  #problem: string | undefined;
  #syncStandbys: number | undefined;
  #oldestSnapshotS: number | undefined;

  constructor(postgres: Postgres, log: Log) {
    this.#postgres = postgres;
    this.#log = log;
    this.#task = new Task({
      run: async () => void (await this.check()),
      firstMs: everyMs,
      everyMs,
      report: {
        // Those who need the database report that it is away.
        failed: () => {
          this.#syncStandbys = undefined;
          this.#oldestSnapshotS = undefined;
        },
      },
    });
  }

  /**
   * Connected synchronous standbys, for the metric `gateway_ledger_sync_standbys`. Undefined where
   * the role may not ask, and while the database is unreachable.
   */
  get syncStandbys(): number | undefined {
    return this.#syncStandbys;
  }

  /** For the metric `gateway_ledger_oldest_snapshot_seconds`. Undefined: the database is away. */
  get oldestSnapshotS(): number | undefined {
    return this.#oldestSnapshotS;
  }

  /** Why a commit would not survive the loss of its server. Undefined: it would. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Throws `UnusableDatabase` when `requireSync` and a commit is on one server alone. */
  async start({
    requireSync,
    roleStatements = [],
  }: {
    requireSync: boolean;
    /** What gives the gateway its role. Empty: it has it. */
    roleStatements?: readonly string[];
  }): Promise<void> {
    const { isSynchronous, problem } = await this.check();
    if (requireSync && !isSynchronous)
      throw new UnusableDatabase(
        `REQUIRE_SYNC=true, and commits are on one server alone: ${problem ?? "it has no standby"}`,
      );
    await this.#reportRights(roleStatements);
    this.#task.start();
  }

  /** Waits for nothing: a look that is under way changes nothing. */
  stop(): void {
    void this.#task.stop();
  }

  /** Reads the state once, and logs when it has changed. */
  async check() {
    const durability = await this.#postgres.readDurability();
    this.#syncStandbys = durability.syncStandbys;
    this.#oldestSnapshotS = durability.oldestSnapshotS;
    if (durability.problem !== this.#problem) this.#report(durability.problem);
    this.#problem = durability.problem;
    return durability;
  }

  #report(problem: string | undefined): void {
    if (problem === undefined) {
      this.#log.info("commits of the ledger are on a synchronous standby again");
      return;
    }
    this.#log.warn(
      { code: "ledger_not_synchronous", problem },
      "a failover would lose the last charges, purchases and revocations: replicate synchronously",
    );
  }

  async #reportRights(statements: readonly string[]): Promise<void> {
    const tables = await this.#postgres.readChangeable();
    if (tables.length === 0 && statements.length === 0) return;
    if (tables.length === 0) {
      this.#log.warn(
        { code: "ledger_role_missing", statements },
        "the user of DATABASE_URL cannot take the role of the gateway; run these statements as an administrator",
      );
      return;
    }
    this.#log.warn(
      { code: "ledger_may_be_changed", tables, statements },
      "the role of DATABASE_URL may change what is append-only; run these statements as its owner",
    );
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** run the statements of the line as the owner of the tables */
    ledger_may_be_changed: true;
    /** a failover would lose charges; set up synchronous replication, or bring the standby back */
    ledger_not_synchronous: true;
    /** run the statements of the line as an administrator of the database */
    ledger_role_missing: true;
  }
}
