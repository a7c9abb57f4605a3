// A generation: a request for an answer, as a binding gives it to inference, and the sink to which
// the answer is pushed. Each binding has its own sink. Within a process no message is made; over
// RPC the same answer is a stream of `GenerateResponse`.

import { getOption } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  type Admission,
  type GenerateRequest,
  type GenerateResponse,
  InferenceService,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Stopwatch } from "../base/stopwatch.ts";
import { isAdmitted } from "./callers.ts";
import { type Caller, type CallHeaders, failureOf } from "./contract.ts";
import { checkRequest } from "./validate.ts";

/** A caller that pays. */
export type PayingCaller = Extract<Caller, { kind: "key" }>;

/** Throws `not_permitted` for a caller that pays for nothing, and `management_key_here`. */
export function payingCaller(caller: Caller | undefined): PayingCaller {
  if (caller?.kind === "management") throw new ApiError("management_key_here");
  if (caller?.kind !== "key") throw new ApiError("not_permitted");
  return caller;
}

export type Generation = {
  /** Given away: its lists are emptied once a provider answers. */
  readonly request: GenerateRequest;
  /** The binding has authenticated it. */
  readonly caller: PayingCaller;
  /** As a call over RPC carries them: the credential, the trace, how often an SDK has sent it. */
  readonly headers: CallHeaders;
  readonly requestId: string;
  /** True if this process made the id, so that no other request has it. */
  readonly isNewId: boolean;
  readonly sink: Sink;
  /** Fires when the reader is gone, or its deadline has passed. */
  readonly client: AbortSignal;
  /** Runs while the request waits for a provider, or for a core. Absent: nobody asks. */
  readonly waits?: Stopwatch | undefined;
};

/**
 * The place to which an answer goes: `admit`, then each `write`. `accepted` comes at any time, and
 * more than once where a provider fails and another is called.
 */
export interface Sink {
  /** True: text deltas may come as runs (`formats/text-run.ts`). */
  readonly takesRuns: boolean;
  /** A provider has the whole request, so that the memory of its body no longer counts. */
  accepted(): void;
  /** The hold is durable. */
  admit(admission: Admission): void;
  /** Takes all of the events. False: it is behind, and takes more after `drained`. */
  write(events: Event[]): boolean;
  /** Resolves when the reader has caught up. Rejects when it is gone. */
  drained(): Promise<void>;
}

/**
 * Runs one request. Resolves with its receipt, after the last write. Rejects with `ApiError`; the
 * sink hears nothing of it.
 */
export type Generate = (generation: Generation) => Promise<Receipt>;

const { generate: method } = InferenceService.method;

/** The same for callers and requests that nobody has checked. */
export function guard(generate: Generate, log: Log): Generate {
  const allowed = getOption(method, callers);
  return async (generation) => {
    const { caller, request, client, headers } = generation;
    try {
      if (!isAdmitted(allowed, caller)) throw new ApiError("not_permitted");
      checkRequest(method.input, request);
      return await generate(generation);
    } catch (error) {
      throw failureOf(error, method, { signal: client, requestHeader: headers }, log);
    }
  };
}

/** Runs requests in another process. */
export function overRpc(inference: Client<typeof InferenceService>): Generate {
  return async ({ request, headers, sink, client, waits }) => {
    let receipt: Receipt | undefined;
    const options = { headers: forwardedOf(headers), signal: client };
    waits?.start();
    try {
      for await (const { kind } of inference.generate(request, options)) {
        if (kind.case === "admission") {
          // It answers once it has the whole request, and holds it from then on.
          sink.accepted();
          sink.admit(kind.value);
        } else if (kind.case === "receipt") {
          receipt = kind.value;
        } else if (kind.case === "events" && !sink.write(kind.value.events)) {
          waits?.stop();
          await sink.drained().finally(() => waits?.start());
        }
      }
    } finally {
      waits?.stop();
    }
    if (!receipt) throw new ApiError("internal", { cause: new Error("the core sent no receipt") });
    return receipt;
  };
}

/** The headers of a generation that a core reads. */
const forwarded = [
  "authorization",
  "x-request-id",
  "x-stainless-retry-count",
  "traceparent",
  "tracestate",
];

function forwardedOf(headers: CallHeaders): [string, string][] {
  return forwarded.flatMap((name): [string, string][] => {
    const value = headers.get(name);
    return value === null ? [] : [[name, value]];
  });
}

/**
 * The answer of a generation as messages. A reader that stops reading aborts it; the iterator then
 * ends when its charge is queued.
 */
export async function* messagesOf(
  generate: Generate,
  generation: Omit<Generation, "sink">,
): AsyncGenerator<GenerateResponse, undefined> {
  const sink = new MessageSink(generation.request.origin !== undefined);
  const left = new AbortController();
  const leave = () => {
    left.abort(generation.client.reason);
    sink.leave();
  };
  if (generation.client.aborted) leave();
  generation.client.addEventListener("abort", leave, { once: true });
  const running = generate({ ...generation, sink, client: left.signal }).then(
    (receipt) => sink.end(receipt),
    (error: unknown) => sink.fail(error),
  );
  try {
    for (let read = await sink.next(); read; read = await sink.next()) yield read;
  } finally {
    generation.client.removeEventListener("abort", leave);
    leave();
    await running;
  }
}

/** Events without a kind mean something to one format alone. */
function withoutWireForms(events: Event[]): Event[] {
  for (const event of events) event.wireForm = undefined;
  return events.filter(({ kind }) => kind.case !== undefined);
}

/** A queue of messages. Its reader is behind while one is unread. */
class MessageSink implements Sink {
  readonly takesRuns = false;
  /** Whether its reader is a listener of a public format. */
  readonly #takesWireForms: boolean;
  readonly #unread: GenerateResponse[] = [];
  #isOver = false;
  #failure: unknown;
  #reader: ((message: GenerateResponse | undefined) => void) | undefined;
  #drained: (() => void) | undefined;

  constructor(takesWireForms: boolean) {
    this.#takesWireForms = takesWireForms;
  }

  accepted(): void {}

  admit(admission: Admission): void {
    this.#push({ case: "admission", value: admission });
  }

  write(written: Event[]): boolean {
    const events = this.#takesWireForms ? written : withoutWireForms(written);
    if (events.length > 0)
      this.#push({ case: "events", value: { $typeName: "gateway.inference.v1.Events", events } });
    return this.#unread.length === 0;
  }

  drained(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#unread.length === 0) resolve();
      else this.#drained = resolve;
    });
  }

  /** The reader is gone. */
  leave(): void {
    this.#unread.length = 0;
    this.#drained?.();
  }

  end(receipt: Receipt): void {
    this.#push({ case: "receipt", value: receipt });
    this.#isOver = true;
  }

  fail(error: unknown): void {
    this.#failure = error;
    this.#isOver = true;
    this.#reader?.(undefined);
  }

  /** The next message. Undefined: there is none. Throws the error of the request. */
  async next(): Promise<GenerateResponse | undefined> {
    const first = this.#unread.shift();
    if (first) {
      if (this.#unread.length === 0) this.#drained?.();
      return first;
    }
    const message = this.#isOver
      ? undefined
      : await new Promise<GenerateResponse | undefined>((resolve) => {
          this.#reader = resolve;
        });
    if (message === undefined && this.#failure !== undefined) throw this.#failure;
    return message;
  }

  #push(kind: GenerateResponse["kind"]): void {
    const message: GenerateResponse = {
      $typeName: "gateway.inference.v1.GenerateResponse",
      kind,
    };
    const reader = this.#reader;
    this.#reader = undefined;
    if (reader) reader(message);
    else this.#unread.push(message);
  }
}
