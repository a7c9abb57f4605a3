// Which server of a list to use. After a failover the old primary may come back and still take
// writes, so of several servers that do, the one on the newest timeline is the primary: PostgreSQL
// begins a new timeline with each promotion.

import { setTimeout as delay } from "node:timers/promises";
import { type Client, type ClientConfig, DatabaseError } from "pg";
import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import { TlsReport } from "../base/tls-problem.ts";
import { parseDatabaseUrl, type TargetServer } from "../config/database-url.ts";
import { isServerAtFault, NoServer } from "./failures.ts";
import { openClient, type Server, type SessionSettings } from "./session.ts";

/** A server that may be used. `timeline` and `cluster` are undefined where it cannot say them. */
type Candidate = {
  readonly server: Server;
  readonly timeline: number | undefined;
  readonly cluster: string | undefined;
};

/** How long a server may answer later than the first one. */
const laterMsMax = 500;
/** How often the other servers are asked whether one of them was promoted. */
const surveyEveryMs = 10_000;
/** Nobody waits for connections at the start, or those of an owner, as for those of a request. */
const patientMs = 15_000;

export class Servers {
  readonly target: TargetServer;
  readonly #list: readonly Server[];
  readonly #log: Log | undefined;
  readonly #tls: TlsReport;
  readonly #connectTimeoutMs: number;
  #chosen: Server | undefined;
  #choosing: Promise<Server> | undefined;
  /** The server that was chosen last. It is preferred among equals. */
  #last: Server | undefined;
  /** Of the server that was chosen last: a server with an older one is stale. */
  #timeline = 0;
  #cluster: string | undefined;
  readonly #surveys = new Task({
    run: async () => void (await this.#survey(surveyEveryMs / 2)),
    firstMs: surveyEveryMs,
    everyMs: surveyEveryMs,
    // Without any server, `choose` reports the error to those who need one.
    report: { failed() {} },
  });
  readonly #clients = new Map<Client, Server>();

  /**
   * Throws an Error for an address that `parseDatabaseUrl` refuses. `connectTimeoutMs`: how long a
   * connection may take.
   */
  constructor(url: string, log?: Log, connectTimeoutMs = patientMs) {
    const { servers, target } = parseDatabaseUrl(url);
    this.#list = servers;
    this.target = target;
    this.#log = log;
    this.#tls = new TlsReport(log);
    this.#connectTimeoutMs = connectTimeoutMs;
  }

  get isList(): boolean {
    return this.#list.length > 1;
  }

  /** The server to use now. Throws `NoServer`. */
  async choose(): Promise<Server> {
    const [only, ...others] = this.#list;
    if (only !== undefined && others.length === 0) return only;
    if (this.#chosen !== undefined) return this.#chosen;
    this.#choosing ??= this.#survey(laterMsMax).finally(() => {
      this.#choosing = undefined;
    });
    return this.#choosing;
  }

  /** Chooses again before the next connection: `server` failed. */
  suspect(server: Server, error?: unknown): void {
    this.#tls.failed(server.name, error);
    if (this.#chosen === server) this.#chosen = undefined;
  }

  /** True when another server was chosen instead. */
  isSuperseded(server: Server): boolean {
    return this.#last !== undefined && this.#last !== server;
  }

  /** Connects to the server of the moment. */
  async connect(
    settings?: SessionSettings,
    config?: ClientConfig,
  ): Promise<{ client: Client; server: Server }> {
    const server = await this.choose();
    try {
      const client = await openClient(server, this.target, settings, {
        connectionTimeoutMillis: this.#connectTimeoutMs,
        ...config,
      });
      this.track(client, server);
      return { client, server };
    } catch (error) {
      this.suspect(server, error);
      throw error;
    }
  }

  /** Breaks this connection as soon as another server is chosen. */
  track(client: Client, server: Server): void {
    this.#tls.passed();
    this.#clients.set(client, server);
    client.on("end", () => this.#clients.delete(client));
  }

  /** Looks for a newly promoted server from time to time, until `stop`. */
  watch(): void {
    if (!this.isList || this.target === "any") return;
    this.#surveys.start();
  }

  stop(): void {
    void this.#surveys.stop();
  }

  // Asks all servers at once. Waits for the slower ones for `laterMs` after the first that may be
  // used: a stale primary may be the first to answer.
  async #survey(laterMs: number): Promise<Server> {
    const candidates: Candidate[] = [];
    const problems = new Map<Server, string>();
    const first = Promise.withResolvers<void>();
    const all = Promise.all(
      this.#list.map(async (server) => {
        try {
          candidates.push(await examine(server, this.target, this.#connectTimeoutMs));
          first.resolve();
        } catch (error) {
          this.#tls.failed(server.name, error);
          problems.set(server, messageOf(error));
        }
      }),
    );
    await Promise.race([all, first.promise.then(() => delay(laterMs, undefined, { ref: false }))]);
    const clusters = new Set(candidates.flatMap(({ cluster }) => cluster ?? []));
    if (this.#cluster === undefined && clusters.size > 1)
      throw new NoServer("the servers of the list belong to different database clusters");
    const usable = candidates.filter(
      ({ timeline, cluster }) => !this.#isForeign(cluster) && !this.#isStale(timeline),
    );
    const best = usable.reduce<Candidate | undefined>(
      (one, other) => (one === undefined || this.#rank(other) > this.#rank(one) ? other : one),
      undefined,
    );
    for (const { server, timeline, cluster } of candidates) {
      if (this.#isForeign(cluster)) problems.set(server, "belongs to another database cluster");
      else if (this.#isStale(timeline)) problems.set(server, "is a primary from before a failover");
    }
    if (best === undefined) {
      const list = this.#list.map((one) => `${one.name} ${problems.get(one) ?? "did not answer"}`);
      throw new NoServer(`no server of the list can be used: ${list.join("; ")}`);
    }
    this.#reportOthers(best, candidates);
    this.#choose(best);
    return best.server;
  }

  #isForeign(cluster: string | undefined): boolean {
    return this.#cluster !== undefined && cluster !== undefined && cluster !== this.#cluster;
  }

  #isStale(timeline: number | undefined): boolean {
    return this.target !== "any" && timeline !== undefined && timeline < this.#timeline;
  }

  /** The newest timeline first, then the server of before, then the order of the list. */
  #rank({ server, timeline = 0 }: Candidate): number {
    const places = this.#list.length + 1;
    const place =
      server === this.#last ? places - 1 : this.#list.length - this.#list.indexOf(server) - 1;
    return this.target === "any" ? place : timeline * places + place;
  }

  #reportOthers(best: Candidate, candidates: readonly Candidate[]): void {
    if (this.target === "any") return;
    const others = candidates.filter((one) => one !== best).map(({ server }) => server.name);
    if (others.length === 0) return;
    this.#log?.error(
      { code: "ledger_two_primaries", server: best.server.name, others },
      "several servers of the ledger take writes: using the one that was promoted last; stop the others",
    );
  }

  #choose({ server, timeline = 0, cluster }: Candidate): void {
    const before = this.#last;
    this.#chosen = server;
    this.#last = server;
    this.#timeline = Math.max(this.#timeline, timeline);
    this.#cluster ??= cluster;
    if (before === server || before === undefined) return;
    this.#log?.warn(
      { code: "ledger_moved", server: server.name, before: before.name },
      "the ledger is on another server now",
    );
    // The server of before may hang, or still answer: its statements must not go on.
    for (const [client, other] of this.#clients)
      if (other !== server) client.connection.stream.destroy();
  }
}

/** Connects to one server and asks what it is. Throws when it is not of this `target`. */
async function examine(
  server: Server,
  target: TargetServer,
  connectionTimeoutMillis: number,
): Promise<Candidate> {
  const client = await openClient(server, target, {}, { connectionTimeoutMillis });
  try {
    const { rows } = await client.query<{ cluster: string; timeline: number | null }>(identity);
    const [row] = rows;
    return { server, cluster: row?.cluster, timeline: row?.timeline ?? undefined };
  } catch (error) {
    // Another engine, or a role that may not ask.
    if (!(error instanceof DatabaseError) || isServerAtFault(error)) throw error;
    return { server, cluster: undefined, timeline: undefined };
  } finally {
    // A server that hangs would keep us waiting here.
    void client.end().catch(() => undefined);
  }
}

// The name of a WAL file begins with its timeline. A checkpoint tells the new one only later.
const identity = `
  select system_identifier::text as cluster,
    case when not pg_is_in_recovery() then
      ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
    end as timeline
  from pg_control_system()`;

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error && typeof error.code === "string" ? `${error.code}: ` : "";
  return `(${code}${error.message})`;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** nothing: another server of the list was promoted */
    ledger_moved: true;
    /**
     * stop the servers that the line names in `others`, now: they accept writes that will be lost
     */
    ledger_two_primaries: true;
  }
}
