// Writes one JSON line for each event to stderr. (The banner of the first start goes to stdout.)
// Prompts, answers and credentials are never logged: callers pass ids and numbers only, and the
// redaction below is a second safeguard.

import { type Logger, pino } from "pino";
import { LineWriter } from "./stderr.ts";

/** Writes a line with a code, which says what an operator does about it. */
type LogCoded = (fields: LogFields, message: string) => void;
type LogFields = { readonly code: LogCode; readonly [name: string]: unknown };

export type Log = Omit<Logger, "warn" | "error" | "fatal"> & {
  readonly warn: LogCoded;
  readonly error: LogCoded;
  readonly fatal: LogCoded;
};

/**
 * A logger with one of pino's levels. `silent` writes nothing. `worker`: the number of this worker
 * process, which every line then carries.
 */
export function createLog(level: string, worker?: number): Log {
  const isAlone = worker === undefined;
  return pino(
    {
      level,
      base: isAlone ? null : { worker },
      redact: {
        paths: ["*.authorization", '*["x-api-key"]', "*.secret", "*.password"],
        censor: "[redacted]",
      },
    },
    new LineWriter(
      // Workers write to one pipe. A pipe takes up to 4,096 bytes at once (PIPE_BUF); longer writes
      // of several processes may mix.
      isAlone ? { minLength: 12_288 } : { minLength: 3_072, maxWrite: 4_096 },
    ),
  );
}

/**
 * The stable codes of lines of level 40 and above, and what an operator does about each. The table
 * in docs/watching.md is generated from this list.
 */
export const logCodes = {
  admin_token_made:
    "the admin token that the first start made was lost; take the new one from the file that " +
    "the line names",
  alert_not_delivered:
    "an alert did not reach its receiver by mail, and is tried again; look at SMTP_URL and the " +
    "mail server",
  alerts_unread:
    "alerts could not be found or delivered at this moment, and are looked for again; look at the " +
    "database if it continues",
  approval_bypassed:
    "a token of the machine gave away more than a person may alone; ask who used it",
  audit_not_stored:
    "the row of an administrative act is missing in `audit_events`, and the line `audit` has " +
    "it; look at the database",
  background_task_failed:
    "a task that repeats every second failed, and is repeated; look at the database if it " +
    "goes on",
  certificate_refused:
    "the database or a core is not reached over TLS, for the reason in the line: its certificate " +
    "has ended, is for other names or of an authority that is not known here, or it takes no TLS; " +
    "correct it there, or the parameters of `DATABASE_URL` or `CORE_TLS_CA`",
  certificate_rejected:
    "the files of GRPC_TLS_CERT, GRPC_TLS_KEY or GRPC_TLS_CLIENT_CA, or of CORE_TLS_CERT, " +
    "CORE_TLS_KEY or CORE_TLS_CA, cannot be read, or do not fit together, and the certificate of " +
    "before is in use; correct them",
  chain_payments_waiting:
    "what arrived without an order is credited late, and it is repeated; look at the database if " +
    "it goes on",
  chain_unread:
    "payments on a chain are credited late, and nothing is lost; look at its node: its address, " +
    "whether it is behind, and whether it is of that chain",
  changes_unread:
    "changes of keys or people are seen late, for paid requests never; look at the database",
  charges_unread: "a stream of charges stands still; look at the database",
  client_addresses_unknown:
    "set `GRPC_TLS_CLIENT_CA`, or accept that all people share the address of the facade",
  config_rejected: "correct the configuration file and send SIGHUP again; the old file is in use",
  console_not_bundled:
    "people cannot open the console, and the next one who does makes the gateway try again; look " +
    "at the error, and reinstall the packages",
  config_unreadable:
    "make the configuration file readable and send the signal again; the old file is in use",
  database_awaited:
    "nothing if the database is starting: a start waits for it for DATABASE_WAIT_SECONDS; " +
    "otherwise look at the database, and at DATABASE_URL",
  declared_dead:
    "this process was silent for 12 seconds, and its requests were settled by others; look " +
    "for pauses of the machine and of the network to the database",
  deposit_of_another_order:
    "two orders name one deposit; look at both at the processor before crediting anything by " +
    "hand",
  descriptors_few:
    "raise the limit of open files (`LimitNOFILE` of the unit, `ulimit -n`), or lower " +
    "`concurrency` of the providers: at full load calls would fail for want of descriptors",
  descriptors_short:
    "calls get 503 until others end, and no provider is blamed; raise the limit of open files " +
    "(`LimitNOFILE` of the unit, `ulimit -n`), and look at who holds so many connections",
  drain_limit_reached:
    "answers were cut at the end of a process; raise `DRAIN_LIMIT_SECONDS` if they may take " +
    "longer",
  embedded_database_ended:
    "the embedded database was killed or crashed, and is started again; its log (postgres.log) " +
    "and that of the machine may say why",
  embedded_database_gone:
    "the embedded database was killed while the gateway ran; its log (postgres.log) may say why",
  embedded_database_lost:
    "the embedded database did not start six times in a row, and the gateway ends with 1; look at " +
    "postgres.log, and at the disk, and let a supervisor start the gateway again",
  embedded_database_not_started:
    "it is tried again after a pause; look at postgres.log, and at the disk",
  embedded_database_slow: "the embedded database takes long to stop; wait, or look at its disk",
  grant_not_posted:
    "credits of a payment are posted late, and it is repeated; look at the database if it " +
    "goes on",
  history_failed:
    "past months are neither closed nor removed; look at the error, and at the rights of " +
    "`MIGRATION_DATABASE_URL`",
  hold_not_shrunk:
    "a running request holds more credits than it needs until its end; look at the database " +
    "if it goes on",
  internal_error: "a bug: report the line, which names the method or the request",
  key_unread:
    "a changed key could not be read, so its running requests go on; look at the database and " +
    "revoke the key again",
  last_use_not_stored: "the last use of keys is stored late; look at the database if it goes on",
  ledger_blocked:
    "something locks the pools of accounts; look for long transactions in `pg_stat_activity`",
  ledger_may_be_changed: "run the statements of the line as the owner of the tables",
  ledger_months_missing:
    "give `MIGRATION_DATABASE_URL` the rights of the owner; without the partition of a month " +
    "nothing is charged in it",
  ledger_moved: "nothing: another server of the list was promoted",
  ledger_not_synchronous:
    "a failover would lose charges; set up synchronous replication, or bring the standby back",
  ledger_role_missing: "run the statements of the line as an administrator of the database",
  ledger_two_primaries:
    "stop the servers that the line names in `others`, now: they accept writes that will be " +
    "lost",
  ledger_stalled:
    "the database answers and takes no writes, for the reason in the line, such as a full disk; " +
    "requests wait or get 503, and are charged once it does",
  ledger_unreachable: "requests get 503; bring the database back. `/health` says what is wrong",
  limits_degraded:
    "Redis does not answer, and each process enforces its share of every limit; bring Redis " +
    "back",
  limits_divided:
    "several gateways use one ledger without Redis, and each admits its share of every rate " +
    "limit; set `REDIS_URL`",
  mail_not_sent: "a mail failed; the line says whether it is tried again. Look at the mail server",
  mail_outcome_not_stored: "a mail may be sent twice; look at the database",
  mails_unread: "mails wait; look at the database",
  month_not_removed:
    "charges stay longer than `RETENTION_MONTHS`, and the line says why; export the month if it " +
    "is not exported",
  no_operator: "run `npm run sign-in-link` for the first operator",
  node_not_removed:
    "a dead process is still listed, and it is repeated; look at the database if it goes on",
  oidc_metadata_unread:
    "people cannot sign in at that company; look at its address and certificate",
  oidc_sign_in_failed:
    "one sign-in failed; if all fail, compare client id, secret and redirect address",
  one_operator: "nobody can approve what waits; make somebody else an operator admin",
  order_not_opened: "the buyer was asked to choose another way to pay; look at the processor",
  order_work_failed: "repeated by itself; look at the processor and the database if it goes on",
  orders_unread: "payments are credited late; look at the database",
  orphan_not_settled:
    "a request of a dead process keeps its hold, and it is repeated; look at the error of the " +
    "line",
  process_paused:
    "the machine stopped this process for seconds; look for swapping, overcommitted hosts and " +
    "suspended machines",
  processor_silent:
    "a payment processor did not answer, and is asked again; look at its status page if it " +
    "goes on",
  provider_alarm:
    "only you can repair it: the provider refuses the credential or the account, lacks the " +
    "model, refuses a member that the gateway sets, or its certificate is not accepted",
  provider_call_failed:
    "another provider was tried if the model has one; look at the provider if many fail",
  provider_not_closed: "nothing: connections of a removed provider ended with an error",
  provider_past_grant:
    "a provider generated more than it was allowed, and you pay for it; ask it why",
  provider_paused:
    "the provider limits us and named a time; until then a tenth of the calls go there",
  provider_reported_zero:
    "a provider reports no input tokens, so prompts are free; set `zero_usage: missing` for " +
    "the model",
  provider_unusable: "the last calls to a provider for a model all failed; look at its status page",
  proxy_not_trusted:
    "if `peer` is your proxy, set TRUSTED_PROXIES as `set` says: its clients share one address and " +
    "one limit until then; otherwise nothing, a client made the header up",
  rate_source_failed:
    "no quote is given unless two sources answer; look at the address and the path of the source",
  rate_unknown:
    "no coin of that kind is quoted, and late payments in it wait for a person; look at the " +
    "sources of rates, which are too few or differ by more than 1 %",
  rates_not_kept:
    "what arrives now may wait for a person later, since its rate is unknown; look at the database",
  rates_without_history:
    "name `history_url` and `history_path` of two sources of each coin, or expect to decide about " +
    "what arrives while the gateway is away",
  redis_unreachable: "bring Redis back, or correct `REDIS_URL`",
  rejections_not_counted: "reports of errors lack requests; look at the database if it goes on",
  request_id_used_twice:
    "a hold was released without a charge; a caller repeats ids over months, which it must " +
    "not",
  requests_reaped:
    "a process died, and its requests were settled by their last recorded usage; find out why " +
    "it died",
  retention_failed: "old sessions and addresses stay another day; look at the database",
  settlements_left:
    "a process stopped while the ledger was away; the others settle its requests when it is " +
    "back",
  sign_up_account_missing:
    "create the account that `sign_up` names, or correct the configuration file",
  signal_ignored: "send SIGUSR2 to the parent of several workers, not to this process",
  sink_failed:
    "charges wait in the ledger until the sink takes them, and none is lost; look at the sink of " +
    "`EXPORT_SINK`",
  stop_failed: "look at the error; the next start repairs what was left",
  traces_not_exported: "traces are lost, and nothing else; look at the collector",
  uncaught_exception:
    "a bug: report the line. The process ends, and the others settle its requests",
  usage_day_mended:
    "nothing, once: the sums of a day were written anew from its hours. A bug if it comes " +
    "again",
  usage_day_not_closed: "reports over days grow slow if it goes on; look at the database",
  usage_day_reopened: "nothing: a request of a past day was settled late",
  verification_not_stored:
    "the ledger was checked, and operators do not see the result; look at the database",
  webhooks_not_removed: "old webhooks stay longer; look at the database if it goes on",
  worker_died: "look at the lines before it, and at the memory of the machine",
  worker_killed: "a worker did not end in time; its requests are settled by the others",
  worker_not_ready: "the old workers stay; the line says what the new one lacks",
  worker_not_started: "the line says why; it is tried again",
  workers_ended: "the gateway has ended; a supervisor must start it again",
} as const satisfies Readonly<Record<string, string>>;

export type LogCode = keyof typeof logCodes;
