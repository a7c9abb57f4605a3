// A part of a traced request.

/** As in OTLP: internal, for a client, to a server. */
export type SpanKind = "internal" | "server" | "client";
export type AttributeValue = string | number | readonly string[];
export type Attributes = Readonly<Record<string, AttributeValue | undefined>>;

/** The headers of W3C that name a span to another process. */
export type TraceHeaders = {
  readonly traceparent: string;
  /** What the parties before said for their own use. Absent: nothing. */
  readonly tracestate?: string;
};

export type SpanData = {
  readonly name: string;
  readonly kind: SpanKind;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: the first span of its trace. */
  readonly parentId: string;
  /** The `tracestate` of the client. Empty: none. */
  readonly state: string;
  /** Unix time. */
  readonly startMs: number;
  endMs: number;
  readonly attributes: Record<string, AttributeValue>;
  /** Why the work failed. Undefined: it did not. */
  error: string | undefined;
};

/** A part of a sampled request. */
export class Span {
  readonly #data: SpanData;
  readonly #export: (data: SpanData) => void;

  constructor(data: SpanData, exportSpan: (data: SpanData) => void) {
    this.#data = data;
    this.#export = exportSpan;
  }

  /** Names this span as the parent of what another process does. */
  get headers(): TraceHeaders {
    const { traceId, spanId, state } = this.#data;
    const traceparent = `00-${traceId}-${spanId}-01`;
    return state === "" ? { traceparent } : { traceparent, tracestate: state };
  }

  get traceId(): string {
    return this.#data.traceId;
  }

  /** Also shortly after `end`: spans leave in batches, some seconds later. */
  set(attributes: Attributes): void {
    for (const [name, value] of Object.entries(attributes))
      if (value !== undefined) this.#data.attributes[name] = value;
  }

  /** Call it once. */
  end(attributes: Attributes = {}, error?: string): void {
    this.set(attributes);
    this.#data.endMs = nowMs();
    this.#data.error = error;
    this.#export(this.#data);
  }
}

/** Unix time, with parts of a millisecond. */
export function nowMs(): number {
  return performance.timeOrigin + performance.now();
}
