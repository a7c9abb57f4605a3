// Counts the requests of the HTTP listener. Each kind of request has a row of counts, so that a
// request adds to fields: one look-up, and no label.

import type { FastifyReply, FastifyRequest } from "fastify";
import {
  type Outcome,
  OutcomeSchema,
  type Receipt,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Distribution, Metrics, Tally } from "../metrics/metrics.ts";
import { endOf, type RequestContext } from "./context.ts";

/** The counts of requests with the same route, model, status, outcome and form. */
type Row = {
  readonly requests: Tally;
  readonly duration: Distribution;
  readonly firstEvent: Distribution | undefined;
  readonly overhead: Distribution | undefined;
};

export class RequestMetrics {
  readonly #metrics: Metrics;
  readonly #rows = new Map<string, Row>();
  /** Open requests by route, of the routes of this listener. */
  readonly #open = new Map<string, Tally>();

  /** `openCount`: all open requests, with those of routes that were added from outside. */
  constructor(metrics: Metrics, openCount: () => number) {
    this.#metrics = metrics;
    metrics.read("gateway_open_requests", () => {
      const ours = [...this.#open].map(([route, { value }]) => ({
        labels: [route] as const,
        value,
      }));
      const sum = ours.reduce((total, { value }) => total + value, 0);
      return [...ours, { labels: ["other"], value: openCount() - sum }];
    });
  }

  /** A request of a route of this listener has begun. Call the result when it has ended. */
  begin(route: string): () => void {
    const open = this.#open.get(route) ?? { value: 0 };
    this.#open.set(route, open);
    open.value += 1;
    return () => {
      open.value -= 1;
    };
  }

  /**
   * Call it when the connection is done with the request. `startedMs`: when its headers came, by
   * `performance.now()`. (Fastify knows a reply's duration only where it writes the log.)
   */
  end(request: FastifyRequest, reply: FastifyReply, startedMs: number): void {
    // Routes that were added from outside have none.
    const context: RequestContext | undefined = request.context;
    const ended = endOf(reply, context);
    const { status, error } = ended;
    const { receipt, logFields } = context ?? {};
    if (error !== undefined) this.#metrics.counter("gateway_errors_total", [error]).value += 1;
    const route = context?.pattern ?? request.routeOptions.url ?? "none";
    const outcome = outcomeOf(receipt, ended);
    const model = logFields?.model ?? "";
    const stream = logFields?.stream === true;
    const waits = context?.waits;
    const key = `${route} ${model} ${status} ${outcome} ${stream}`;
    const facts = { route, model, status, outcome, stream, isOurs: waits !== undefined };
    const row = this.#rows.get(key) ?? this.#addRow(key, facts);
    row.requests.value += 1;
    const tookMs = performance.now() - startedMs;
    row.duration.observe(tookMs / 1000);
    if (waits) row.overhead?.observe(Math.max(0, tookMs - waits.ms) / 1000);
    const firstByteMs = logFields?.firstByteMs;
    if (firstByteMs !== undefined) row.firstEvent?.observe(firstByteMs / 1000);
  }

  #addRow(
    key: string,
    facts: {
      route: string;
      model: string;
      status: number;
      outcome: string;
      stream: boolean;
      /** False: of a route that was added from outside, whose waits are not known. */
      isOurs: boolean;
    },
  ): Row {
    const { route, model, status, outcome, stream, isOurs } = facts;
    const metrics = this.#metrics;
    const row: Row = {
      requests: metrics.counter("gateway_requests_total", [route, model, `${status}`, outcome]),
      duration: metrics.histogram("gateway_request_duration_seconds", [route, model, `${stream}`]),
      firstEvent:
        model === ""
          ? undefined
          : metrics.histogram("gateway_time_to_first_event_seconds", [model]),
      overhead: isOurs ? metrics.histogram("gateway_overhead_seconds", [route]) : undefined,
    };
    this.#rows.set(key, row);
    return row;
  }
}

function outcomeOf(
  receipt: Receipt | undefined,
  { isSent, status, isFailed }: ReturnType<typeof endOf>,
): string {
  if (receipt) return outcomeName(receipt.outcome);
  if (!isSent) return "hung_up";
  if (isFailed) return "failed";
  return status >= 400 ? "rejected" : "free";
}

const outcomeNames = new Map(
  OutcomeSchema.values.map(({ number, localName }) => [number, localName.toLowerCase()]),
);

function outcomeName(outcome: Outcome): string {
  return outcomeNames.get(Number(outcome)) ?? "unspecified";
}
