// Sends charges to a sink as they are settled, in the order of their settlement, one process at a
// time, and beside the requests. A cursor in the database says how far the sink is.
//
// A charge is sent before the cursor moves: a process that dies in between sends it twice, and the
// sink knows it by its position (files) or by its request (ClickHouse).

import * as sql from "../../gen/sql/history.ts";
import type { Log } from "../base/log.ts";
import { Outbound } from "../base/outbound.ts";
import { Task } from "../base/task.ts";
import type { SinkSettings } from "../config/environment.ts";
import { Horizon, settlementMsMax } from "../postgres/horizon.ts";
import { Lease } from "../postgres/lease.ts";
import { isUnreachable } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { lastOf, type Place } from "./digest.ts";
import { clickhouseWriter } from "./sink-clickhouse.ts";
import { filesWriter } from "./sink-files.ts";
import type { Batch, FilePosition, SinkWriter } from "./sink-writer.ts";

const chargesPerBatch = 2_000;
const everyMs = 5_000;
// A batch is written within a minute, or given up.
const leaseMs = 120_000;
const everyMsMax = 60_000;

export class Sink {
  readonly #db: Runner;
  readonly #name: string;
  readonly #writer: SinkWriter;
  readonly #lease: Lease;
  readonly #horizon: Horizon;
  readonly #marginMs: number;
  readonly #sending: Task;
  #lag: number | undefined;
  /** Charges that this process has sent. */
  sent = 0;
  /** Attempts that failed. */
  failed = 0;

  constructor({
    db,
    log,
    settings,
    outbound = new Outbound(),
    margin = settlementMsMax,
  }: {
    db: Runner;
    log: Log;
    settings: SinkSettings;
    /** Default: it is called directly. */
    outbound?: Outbound | undefined;
    /** Milliseconds. */
    margin?: number;
  }) {
    this.#db = db;
    this.#name = settings.name;
    this.#marginMs = margin;
    this.#writer =
      settings.kind === "files"
        ? filesWriter(settings.folder)
        : clickhouseWriter(settings, outbound);
    this.#lease = new Lease(db, {
      task: `sink ${settings.name}`,
      ms: leaseMs,
    });
    this.#horizon = new Horizon(db);
    this.#sending = new Task({
      run: (stopping) => this.run(stopping),
      everyMs,
      everyMsMax,
      report: {
        failed: (err, isFirst) => {
          this.failed += 1;
          if (isFirst && !isUnreachable(err))
            log.warn(
              { code: "sink_failed", sink: settings.name, err },
              "charges do not get to the sink; they are sent when it takes them again",
            );
        },
        recovered: () => log.info({ sink: settings.name }, "the sink takes charges again"),
      },
    });
  }

  /**
   * Seconds since the first charge was settled that the sink lacks. Undefined while another process
   * sends.
   */
  get lag(): number | undefined {
    return this.#lag;
  }

  start(): void {
    this.#sending.start();
  }

  async stop(): Promise<void> {
    await this.#sending.stop();
    await this.#lease.release().catch(() => undefined);
  }

  /** Sends what can be sent now, unless another process does. */
  async run(stopping?: AbortSignal): Promise<void> {
    if (!(await this.#lease.take())) {
      this.#lag = undefined;
      return;
    }
    const until = await this.#horizon.read();
    const sink = this.#name;
    await this.#db.run(sql.addCursor, { sink });
    for (let isWhole = false; !isWhole && !stopping?.aborted; ) {
      const cursor = await this.#db.run(sql.readCursor, { sink });
      if (!cursor) throw new Error(`no cursor of the sink ${sink}`);
      const lag = await this.#db.run(sql.readLag, cursor);
      this.#lag = lag?.seconds ?? 0;
      if (until === undefined || !lag) return;
      isWhole = !(await this.#sendPage(cursor, until));
    }
  }

  /** Sends one page. Returns whether there may be more. */
  async #sendPage(cursor: sql.ReadCursorRow, until: string): Promise<boolean> {
    let place: Place = cursor;
    let position: FilePosition = cursor;
    const page = { ...place, until, marginMs: this.#marginMs, rows: chargesPerBatch };
    let charges = 0;
    for (const row of await this.#db.run(sql.readSettledLines, page)) {
      if (!(await this.#lease.take())) return false;
      position = await this.#write(row, position);
      if (!(await this.#move(place, row, position))) return false;
      place = row;
      charges += row.charges;
      this.sent += row.charges;
    }
    return charges === chargesPerBatch;
  }

  /** As the writer does. Its errors look like none of the database. */
  async #write(batch: Batch, position: FilePosition): Promise<FilePosition> {
    return this.#writer.write(batch, position).catch((cause: unknown) => {
      throw new Error(cause instanceof Error ? cause.message : String(cause), { cause });
    });
  }

  async #move(from: Place, to: Place, { file, bytes }: FilePosition): Promise<boolean> {
    const move = { sink: this.#name, ...from, ...lastOf(to), file, bytes };
    return (await this.#db.run(sql.moveCursor, move)) > 0;
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * charges wait in the ledger until the sink takes them, and none is lost; look at the sink of
     * `EXPORT_SINK`
     */
    sink_failed: true;
  }
}
