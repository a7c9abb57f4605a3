// A collector of OpenTelemetry on loopback, which keeps the spans that it gets.

import { once } from "node:events";
import { createServer } from "node:http";

export type CollectedSpan = {
  readonly name: string;
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: the first of its trace. */
  readonly parentSpanId: string;
  /** Absent: none. */
  readonly traceState?: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** Code 2: an error. */
  readonly status?: { readonly code?: number; readonly message?: string };
  readonly startNanos: bigint;
  readonly endNanos: bigint;
};

export type Collector = {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly address: string;
  readonly spans: CollectedSpan[];
  /** Headers of the last batch. */
  headers(): Readonly<Record<string, unknown>>;
  stop(): Promise<void>;
};

export async function startCollector(): Promise<Collector> {
  const spans: CollectedSpan[] = [];
  let last: Readonly<Record<string, unknown>> = {};
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    last = request.headers;
    const isTraces = request.method === "POST" && request.url === "/v1/traces";
    if (isTraces) spans.push(...spansOf(JSON.parse(text)));
    response.writeHead(isTraces ? 200 : 404, { "content-type": "application/json" }).end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const bound = server.address();
  return {
    address: `http://127.0.0.1:${typeof bound === "object" && bound ? bound.port : 0}`,
    spans,
    headers: () => last,
    async stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}

type Value = {
  stringValue?: string;
  intValue?: string;
  doubleValue?: number;
  arrayValue?: { values: Value[] };
};

type Body = {
  resourceSpans: {
    scopeSpans: {
      spans: (Omit<CollectedSpan, "attributes" | "startNanos" | "endNanos"> & {
        attributes: { key: string; value: Value }[];
        startTimeUnixNano: string;
        endTimeUnixNano: string;
      })[];
    }[];
  }[];
};

function spansOf({ resourceSpans }: Body): CollectedSpan[] {
  return resourceSpans
    .flatMap(({ scopeSpans }) => scopeSpans)
    .flatMap(({ spans }) => spans)
    .map(({ startTimeUnixNano, endTimeUnixNano, attributes, parentSpanId = "", ...span }) => ({
      ...span,
      parentSpanId,
      startNanos: BigInt(startTimeUnixNano),
      endNanos: BigInt(endTimeUnixNano),
      attributes: Object.fromEntries(attributes.map(({ key, value }) => [key, readValue(value)])),
    }));
}

function readValue({ stringValue, intValue, doubleValue, arrayValue }: Value): unknown {
  if (arrayValue) return arrayValue.values.map(readValue);
  return intValue === undefined ? (stringValue ?? doubleValue) : Number(intValue);
}
