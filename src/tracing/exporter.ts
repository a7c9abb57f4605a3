// Sends spans to a collector, by OTLP over HTTP with JSON. No request waits for it: spans are
// dropped while the collector is away or too slow.

import { withTimeout } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import type { TracingSettings } from "../config/environment.ts";
import type { AttributeValue, SpanData, SpanKind } from "./span.ts";

const everyMs = 5_000;
const batchMax = 512;
const waitingMax = 4_096;
const sendMsMax = 10_000;
const closeMsMax = 2_000;

export class SpanExporter {
  readonly #settings: TracingSettings;
  readonly #waiting: SpanData[] = [];
  readonly #sending: Task;

  constructor(settings: TracingSettings, log: Log) {
    this.#settings = settings;
    this.#sending = new Task({
      run: () => this.#sendAll(),
      firstMs: everyMs,
      everyMs,
      report: {
        failed(error, isFirst) {
          if (isFirst)
            log.warn(
              { code: "traces_not_exported", reason: reasonOf(error) },
              "the collector takes no spans: they are dropped",
            );
        },
      },
    });
    this.#sending.start();
  }

  add(span: SpanData): void {
    if (this.#waiting.length >= waitingMax) return;
    this.#waiting.push(span);
    if (this.#waiting.length === batchMax) this.#sending.wake();
  }

  async close(): Promise<void> {
    const sent = this.#sending.stop().then(() => this.#sendAll());
    await withTimeout(
      sent.catch(() => undefined),
      closeMsMax,
      () => undefined,
    );
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) await this.#post(this.#waiting.splice(0, batchMax));
  }

  async #post(batch: readonly SpanData[]): Promise<void> {
    const { endpoint, headers, serviceName } = this.#settings;
    const response = await fetch(endpoint, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(encodeSpans(batch, serviceName)),
      signal: AbortSignal.timeout(sendMsMax),
    });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`status ${response.status}`);
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  return cause instanceof Error && cause.message !== "" ? cause.message : error.message;
}

const kinds: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3 };
const statusError = 2;

/** The body of `POST /v1/traces`. */
function encodeSpans(spans: readonly SpanData[], serviceName: string) {
  return {
    resourceSpans: [
      {
        resource: { attributes: encodeAttributes({ "service.name": serviceName }) },
        scopeSpans: [
          {
            scope: { name: "model-gateway" },
            spans: spans.map((span) => ({
              traceId: span.traceId,
              spanId: span.spanId,
              ...(span.parentId !== "" && { parentSpanId: span.parentId }),
              ...(span.state !== "" && { traceState: span.state }),
              name: span.name,
              kind: kinds[span.kind],
              startTimeUnixNano: nanosOf(span.startMs),
              endTimeUnixNano: nanosOf(span.endMs),
              attributes: encodeAttributes(span.attributes),
              status: span.error === undefined ? {} : { code: statusError, message: span.error },
            })),
          },
        ],
      },
    ],
  };
}

function encodeAttributes(attributes: Readonly<Record<string, AttributeValue>>) {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: encodeValue(value) }));
}

function encodeValue(value: AttributeValue): object {
  if (typeof value === "string") return { stringValue: value };
  if (typeof value === "number")
    return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
  return { arrayValue: { values: value.map(encodeValue) } };
}

/** A float has no room for nanoseconds of Unix time: to the microsecond. */
function nanosOf(ms: number): string {
  return `${BigInt(Math.round(ms * 1000))}000`;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** traces are lost, and nothing else; look at the collector */
    traces_not_exported: true;
  }
}
