// Traces in the form of OpenTelemetry. The decision whether a request is traced comes before any
// object of it is made, so the others cost one look at a header.
//
// By hand, see docs/decisions/0046-traces-by-hand.md.

import { randomBytes } from "node:crypto";
import type { Log } from "../base/log.ts";
import { Outbound } from "../base/outbound.ts";
import type { TracingSettings } from "../config/environment.ts";
import { SpanExporter } from "./exporter.ts";
import {
  type Attributes,
  nowMs,
  Span,
  type SpanData,
  type SpanKind,
  type TraceHeaders,
} from "./span.ts";

export { Span, type TraceHeaders } from "./span.ts";

/** A sampled request, under which spans are made. */
export type TraceScope = {
  /** Makes a span under the one that this scope was received with. */
  span(name: string, kind?: SpanKind): Span;
  /** Ends the span that this process began for the request, if it did. */
  end(attributes: Attributes, error?: string): void;
};

// Says that nobody traces this request. Without it, the next process would decide again.
const unsampled = { traceparent: "00-00000000000000000000000000000001-0000000000000001-00" };

/** The trace of a request that another party may have begun. */
export type Incoming = {
  /** For the calls that this request makes. */
  readonly headers: TraceHeaders;
  /** Undefined: the request is not traced. */
  readonly span: Span | undefined;
};

export class Tracer {
  readonly #sampler: TracingSettings["sampler"];
  readonly #ratio: number;
  readonly #exporter: SpanExporter;

  /** `outbound`: the way to the collector. Default: the direct one. */
  constructor(settings: TracingSettings, log: Log, outbound = new Outbound()) {
    this.#sampler = settings.sampler;
    this.#ratio = settings.ratio;
    this.#exporter = new SpanExporter(settings, log, outbound);
  }

  /** Takes up the trace of a request that this process answers, or begins one. */
  receive(given: Partial<TraceHeaders>, name: string): Incoming {
    const parent = parse(given);
    if (!this.#samples(parent)) return { headers: unsampled, span: undefined };
    const span = this.#span(name, "server", parent);
    return { headers: span.headers, span };
  }

  /**
   * The scope of a call between services. One that nobody has decided on begins a trace. Undefined:
   * it is not traced.
   */
  join(given: Pick<Headers, "get">, name: string): TraceScope | undefined {
    const [traceparent, tracestate] = [given.get("traceparent"), given.get("tracestate")];
    const parent = parse({
      ...(traceparent !== null && { traceparent }),
      ...(tracestate !== null && { tracestate }),
    });
    if (parent) {
      if (!parent.isSampled) return undefined;
      return { span: (child, kind = "internal") => this.#span(child, kind, parent), end() {} };
    }
    const { span } = this.receive({}, name);
    if (!span) return undefined;
    const own = parse(span.headers);
    return {
      span: (child, kind = "internal") => this.#span(child, kind, own),
      end: (attributes, error) => span.end(attributes, error),
    };
  }

  /** Sends what is left, for two seconds at most. */
  close(): Promise<void> {
    return this.#exporter.close();
  }

  #span(name: string, kind: SpanKind, parent: Parent | undefined): Span {
    const data: SpanData = {
      name,
      kind,
      traceId: parent?.traceId ?? randomBytes(16).toString("hex"),
      spanId: randomBytes(8).toString("hex"),
      parentId: parent?.spanId ?? "",
      state: parent?.state ?? "",
      startMs: nowMs(),
      endMs: 0,
      attributes: {},
      error: undefined,
    };
    return new Span(data, (ended) => this.#exporter.add(ended));
  }

  #samples(parent: Parent | undefined): boolean {
    switch (this.#sampler) {
      case "always_on":
        return true;
      case "always_off":
        return false;
      case "traceidratio":
        return this.#isWithinRatio(parent);
      case "parentbased_always_on":
        return parent?.isSampled ?? true;
      case "parentbased_always_off":
        return parent?.isSampled ?? false;
      case "parentbased_traceidratio":
        return parent?.isSampled ?? this.#isWithinRatio(undefined);
    }
  }

  /** By the id of the trace, so that all processes decide alike; a new id is random. */
  #isWithinRatio(parent: Parent | undefined): boolean {
    if (!parent) return Math.random() < this.#ratio;
    return Number.parseInt(parent.traceId.slice(-13), 16) < this.#ratio * 2 ** 52;
  }
}

type Parent = {
  readonly traceId: string;
  readonly spanId: string;
  readonly isSampled: boolean;
  readonly state: string;
};

/** The headers of W3C. Undefined: `traceparent` is absent, or malformed. */
function parse({ traceparent, tracestate = "" }: Partial<TraceHeaders>): Parent | undefined {
  if (traceparent === undefined) return undefined;
  // A later version may have more members.
  const [, version, traceId = "", spanId = "", flags = "", more] =
    /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(traceparent) ?? [];
  if (version === undefined || version === "ff" || (version === "00" && more !== undefined))
    return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  // Longer ones need not be passed on.
  const state = /^[\x20-\x7e]{0,512}$/.test(tracestate) ? tracestate : "";
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1, state };
}
