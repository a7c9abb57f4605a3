// Every metric that the gateway exports. The table in docs/operating/watching.md is generated from
// this list.
//
// No label is an account, a key, a request id, or text of a client.

/** How the values of several workers become one. `each`: not at all, with the label `worker`. */
export type Merge = "sum" | "max" | "min" | "each";

export type Definition = {
  readonly kind: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly labels: readonly string[];
  /** Default: `sum`. */
  readonly merge?: Merge;
  /** Upper bounds of the buckets of a histogram. */
  readonly buckets?: readonly number[];
};

const seconds = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
];
const powersOf = (base: number, first: number, count: number) =>
  Array.from({ length: count }, (_, power) => first * base ** power);

const genaiLabels = [
  "gen_ai_operation_name",
  "gen_ai_provider_name",
  "gen_ai_request_model",
  "gen_ai_response_model",
] as const;
const genaiSeconds = powersOf(2, 0.01, 14);
const genaiTokens = powersOf(4, 1, 14);

export const definitions = {
  gateway_requests_total: {
    kind: "counter",
    help:
      "HTTP requests by their answer. outcome: that of the receipt, rejected or failed without " +
      "one, hung_up if the client left, free for what costs nothing",
    labels: ["route", "model", "status", "outcome"],
  },
  gateway_errors_total: {
    kind: "counter",
    help: "errors that callers got, by reason, over HTTP and gRPC",
    labels: ["reason"],
  },
  gateway_request_duration_seconds: {
    kind: "histogram",
    help: "from the headers of an HTTP request to the end of its answer",
    labels: ["route", "model", "stream"],
    buckets: seconds,
  },
  gateway_time_to_first_event_seconds: {
    kind: "histogram",
    help: "from the headers of an HTTP request to the first event of its stream",
    labels: ["model"],
    buckets: seconds,
  },
  gateway_overhead_seconds: {
    kind: "histogram",
    help:
      "what the gateway itself adds: the duration of a request of REST without its waits for the " +
      "client and for providers. In a facade also without those for its core",
    labels: ["route"],
    buckets: seconds,
  },
  gateway_open_requests: {
    kind: "gauge",
    help: "HTTP requests without the end of their answer. other: of Connect and the console",
    labels: ["route"],
  },
  gateway_charges_total: {
    kind: "counter",
    help: "charges, as in the ledger",
    labels: ["model", "family", "outcome"],
  },
  gateway_tokens_total: {
    kind: "counter",
    help: "charged tokens, by the categories of the price list",
    labels: ["model", "category"],
  },
  gateway_web_searches_total: {
    kind: "counter",
    help: "charged web searches",
    labels: ["model"],
  },
  gateway_charged_microcredits_total: {
    kind: "counter",
    help: "charged micro-credits",
    labels: ["model", "family"],
  },
  gateway_overrun_microcredits_total: {
    kind: "counter",
    help: "cost of usage beyond holds and grants, which nobody pays",
    labels: ["model"],
  },
  gateway_provider_attempts_total: {
    kind: "counter",
    help: "calls to providers, by outcome as in receipts",
    labels: ["provider", "model", "outcome"],
  },
  gateway_provider_duration_seconds: {
    kind: "histogram",
    help: "from the start of a call to a provider to its end",
    labels: ["provider", "model"],
    buckets: seconds,
  },
  gateway_provider_state: {
    kind: "gauge",
    help: "1: usable. 0: the last calls for each of its models failed, until one is answered",
    labels: ["provider"],
    merge: "min",
  },
  gateway_provider_share: {
    kind: "gauge",
    help: "the part of the calls that goes to a provider for a model; 1 unless most of them fail",
    labels: ["provider", "model"],
    merge: "min",
  },
  gateway_model_usable: {
    kind: "gauge",
    help: "1: a provider of the model may be called, and answered one of its last calls",
    labels: ["model"],
    merge: "min",
  },
  gateway_provider_concurrency: {
    kind: "gauge",
    help: "calls to a provider: busy, and waiting for its concurrency limit",
    labels: ["provider", "state"],
  },
  gateway_provider_zero_usage_total: {
    kind: "counter",
    help: "answers for which the provider reported 0 input tokens",
    labels: [],
  },
  gateway_carried_total: {
    kind: "counter",
    help:
      "what a client returned of a provider's reasoning: back, or left out because it was " +
      "foreign, of another model, changed, too old or too large; placeholder: it was missing",
    labels: ["result"],
  },
  gateway_left_out_total: {
    kind: "counter",
    help: "parts of requests that a provider did not get, or that stood in for others, by reason",
    labels: ["why"],
  },
  gateway_overlap_aborted_total: {
    kind: "counter",
    help: "provider calls that were stopped because their hold was not granted as expected",
    labels: [],
  },
  gateway_left_unpaid_total: {
    kind: "counter",
    help: "clients that left while a provider may have worked and their hold was being placed",
    labels: [],
  },
  gateway_ledger_batch_seconds: {
    kind: "histogram",
    help: "duration of a transaction of the ledger",
    labels: ["queue"],
    buckets: seconds,
  },
  gateway_ledger_batch_items: {
    kind: "histogram",
    help: "requests that share a transaction of the ledger",
    labels: ["queue"],
    buckets: powersOf(2, 1, 9),
  },
  gateway_ledger_queue: {
    kind: "gauge",
    help: "requests that wait for a transaction, or are in one",
    labels: ["queue"],
  },
  gateway_ledger_failures_total: {
    kind: "counter",
    help: "failed transactions: unsent, unconfirmed, blocked by a lock, or rejected for a value",
    labels: ["queue", "kind"],
  },
  gateway_ledger_up: {
    kind: "gauge",
    help: "1: the ledger takes heartbeats, admissions and settlements",
    labels: [],
    merge: "min",
  },
  gateway_unsettled_requests: {
    kind: "gauge",
    help: "ended answers that wait for their charge",
    labels: [],
  },
  gateway_reaped_total: {
    kind: "counter",
    help: "requests settled for dead processes, or past their deadline",
    labels: [],
  },
  gateway_ledger_sync_standbys: {
    kind: "gauge",
    help: "connected synchronous standbys. Absent where the role may not ask",
    labels: [],
    merge: "min",
  },
  gateway_ledger_oldest_snapshot_seconds: {
    kind: "gauge",
    help:
      "age of the oldest transaction in the ledger's database. While it lasts, the server keeps " +
      "old versions of rows, and busy accounts become slow. A user without the rights of " +
      "`pg_read_all_stats` sees its own transactions alone",
    labels: [],
    merge: "max",
  },
  gateway_history_months_due: {
    kind: "gauge",
    help:
      "past months whose charges `RETENTION_MONTHS` need not keep, and which are still here: an " +
      "export of them is missing, or a hold is open",
    labels: [],
    merge: "max",
  },
  gateway_sink_lag_seconds: {
    kind: "gauge",
    help:
      "since the first charge was settled that the sink lacks; a minute is usual. Of the process " +
      "that sends",
    labels: [],
    merge: "max",
  },
  gateway_sink_charges_total: {
    kind: "counter",
    help: "charges that were sent to the sink",
    labels: [],
  },
  gateway_sink_failures_total: {
    kind: "counter",
    help: "attempts to send charges to the sink that failed",
    labels: [],
  },
  gateway_sales_lag_seconds: {
    kind: "gauge",
    help:
      "since the first charge was settled that the sums of sales lack; two minutes are usual. Of " +
      "the process that adds",
    labels: [],
    merge: "max",
  },
  gateway_sales_charges_total: {
    kind: "counter",
    help: "charges that were added to the sums of sales",
    labels: [],
  },
  gateway_ledger_months_ahead: {
    kind: "gauge",
    help: "months after the current one that have partitions. Absent without partitions",
    labels: [],
    merge: "min",
  },
  gateway_ledger_violations: {
    kind: "gauge",
    help: "violations that the last check of the ledger found. Absent: it was never checked",
    labels: [],
    merge: "max",
  },
  gateway_ledger_verified_seconds: {
    kind: "gauge",
    help: "end of the last check of the ledger, in Unix time. Absent: it was never checked",
    labels: [],
    merge: "max",
  },
  gateway_certificate_end_seconds: {
    kind: "gauge",
    help:
      "end of the certificate of the gRPC listener, or of a facade for its core, in Unix time. " +
      "Absent without one",
    labels: [],
    merge: "min",
  },
  gateway_admin_token_used_seconds: {
    kind: "gauge",
    help: "when ADMIN_TOKEN was used last, in seconds since 1970. Absent: not since the start",
    labels: [],
    merge: "max",
  },
  gateway_limits_state: {
    kind: "gauge",
    help: "1 at the state of the rate limits: memory, redis or degraded",
    labels: ["state"],
    merge: "max",
  },
  gateway_key_cache_total: {
    kind: "counter",
    help: "look-ups of keys: hit, miss, or invalid (no such key)",
    labels: ["result"],
  },
  gateway_nodes: {
    kind: "gauge",
    help: "live processes on this ledger",
    labels: [],
    merge: "max",
  },
  gateway_draining: {
    kind: "gauge",
    help: "processes that are leaving",
    labels: [],
  },
  gateway_config_reloads_total: {
    kind: "counter",
    help: "reloads of the configuration file: taken, or rejected for a mistake",
    labels: ["result"],
    merge: "max",
  },
  gateway_build_info: {
    kind: "gauge",
    help: "always 1",
    labels: ["version", "node"],
    merge: "max",
  },
  process_cpu_seconds_total: {
    kind: "counter",
    help: "processor time of the process",
    labels: [],
    merge: "each",
  },
  process_resident_memory_bytes: {
    kind: "gauge",
    help: "resident memory of the process",
    labels: [],
    merge: "each",
  },
  process_start_time_seconds: {
    kind: "gauge",
    help: "start of the process, in Unix time",
    labels: [],
    merge: "each",
  },
  nodejs_eventloop_lag_p99_seconds: {
    kind: "gauge",
    help: "99th percentile of the delay of the event loop since the last scrape",
    labels: [],
    merge: "each",
  },
  nodejs_gc_seconds_total: {
    kind: "counter",
    help: "time in garbage collections",
    labels: ["kind"],
    merge: "each",
  },
  gen_ai_client_token_usage: {
    kind: "histogram",
    help: "tokens of an answer, towards the provider. input includes cached, output thinking",
    labels: [...genaiLabels, "gen_ai_token_type"],
    buckets: genaiTokens,
  },
  gen_ai_client_operation_duration_seconds: {
    kind: "histogram",
    help: "duration of a call to a provider",
    labels: [...genaiLabels, "error_type"],
    buckets: genaiSeconds,
  },
  gen_ai_server_request_duration_seconds: {
    kind: "histogram",
    help: "duration of a request, towards the client",
    labels: [...genaiLabels, "error_type"],
    buckets: genaiSeconds,
  },
  gen_ai_server_time_to_first_token_seconds: {
    kind: "histogram",
    help: "time to the first event of an answer, towards the client",
    labels: genaiLabels,
    buckets: [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
  },
  gen_ai_server_time_per_output_token_seconds: {
    kind: "histogram",
    help: "time for each output token after the first, of an answer that was completed",
    labels: genaiLabels,
    buckets: [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5],
  },
  gen_ai_client_inference_usage_input_tokens_total: {
    kind: "counter",
    help: "input tokens, cached ones included",
    labels: [...genaiLabels, "gen_ai_token_modality"],
  },
  gen_ai_client_inference_usage_output_tokens_total: {
    kind: "counter",
    help: "output tokens, thinking included",
    labels: [...genaiLabels, "gen_ai_token_modality"],
  },
  gen_ai_client_inference_usage_cache_read_input_tokens_total: {
    kind: "counter",
    help: "input tokens that were read from a cache",
    labels: [...genaiLabels, "gen_ai_token_modality"],
  },
  gen_ai_client_inference_usage_cache_write_input_tokens_total: {
    kind: "counter",
    help: "input tokens that were written to a cache",
    labels: [...genaiLabels, "gen_ai_token_modality"],
  },
  gen_ai_client_inference_usage_reasoning_output_tokens_total: {
    kind: "counter",
    help: "output tokens of thinking",
    labels: [...genaiLabels, "gen_ai_token_modality"],
  },
} as const satisfies Readonly<Record<string, Definition>>;

export type MetricName = keyof typeof definitions;
