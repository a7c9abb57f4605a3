// The law of the bindings: each hands on the same admission, events, and receipt or error, whatever
// the reader's pauses, and a reader that leaves ends the request.

import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ReceiptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  AdmissionSchema,
  GenerateRequestSchema,
  type GenerateResponse,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { callHeaders } from "../../src/contract/contract.ts";
import {
  type Generate,
  type Generation,
  messagesOf,
  overRpc,
  payingCaller,
  type Sink,
} from "../../src/contract/generation.ts";
import { blockDelta, blockStop, messageStop, ping, textStart } from "../../src/formats/events.ts";
import { pieceEvent } from "../../src/formats/pieces.ts";
import { apiErrorOf, type Bindings, bindingNames, startBindings } from "../support/bindings.ts";
import {
  callersByKind,
  emptyAnswers,
  key,
  scriptedServices,
} from "../support/scripted-services.ts";

type Answer = {
  readonly writes: readonly (readonly Event[])[];
  /** The error at its end, in place of the receipt. */
  readonly reason?: "overloaded" | "upstream_error" | undefined;
};

const generation: Omit<Generation, "sink" | "client"> = {
  request: create(GenerateRequestSchema, { model: "m", messages: [{}] }),
  caller: payingCaller(callersByKind.key.caller),
  headers: callHeaders({ authorization: `Bearer ${key}` }),
  requestId: "req_12345678",
  isNewId: false,
};
const asCustomer = { headers: { authorization: `Bearer ${key}` } };

/** The answer that the core plays. */
let answer: Answer = { writes: [] };
let hasEnded: Promise<"left" | "whole"> = Promise.resolve("whole");

const play: Generate = async ({ sink, client, requestId }) => {
  const { promise, resolve } = Promise.withResolvers<"left" | "whole">();
  hasEnded = promise;
  client.addEventListener("abort", () => resolve("left"), { once: true });
  sink.accepted();
  sink.admit(create(AdmissionSchema, { requestId, model: "m" }));
  for (const events of answer.writes) {
    if (client.aborted) throw new ApiError("cancelled");
    if (!sink.write([...events])) await sink.drained();
  }
  resolve("whole");
  if (answer.reason) throw new ApiError(answer.reason);
  return create(ReceiptSchema, { requestId, chargedMicrocredits: 5n });
};

let bindings: Bindings;
beforeAll(async () => {
  const script = {
    ...emptyAnswers(),
    stream: (_desc: unknown, _request: unknown, { signal }: { signal: AbortSignal }) =>
      messagesOf(play, { ...generation, client: signal }),
  };
  bindings = await startBindings(scriptedServices(script));
});
afterAll(() => bindings.close());

const anyEvent = fc.oneof(
  fc.string({ unit: "binary" }).map((text) => blockDelta(0, { case: "text", value: text })),
  fc.string().map((text) => textStart(0, text)),
  fc.constantFrom(blockStop(0), ping(), messageStop()),
);
const anyAnswer: fc.Arbitrary<Answer> = fc.record(
  {
    writes: fc.array(fc.array(anyEvent, { minLength: 1, maxLength: 4 }), { maxLength: 12 }),
    reason: fc.constantFrom("overloaded" as const, "upstream_error" as const),
  },
  { requiredKeys: ["writes"] },
);
/** Turns of the event loop before each read, or each time that a sink says that it is behind. */
const anyPauses = fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 8 });

async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise(setImmediate);
}

type Seen = { admitted: string[]; events: Event[]; end: unknown };

/** What every reader must see of an answer. */
function whole({ writes, reason }: Answer): Seen {
  return { admitted: ["req_12345678"], events: writes.flat(), end: reason ?? 5n };
}

/** Reads the messages of a call as a client of the service does. */
async function readMessages(
  messages: AsyncIterable<GenerateResponse>,
  pauses: readonly number[],
): Promise<Seen> {
  const seen: Seen = { admitted: [], events: [], end: undefined };
  let reads = 0;
  try {
    for await (const { kind } of messages) {
      if (kind.case === "admission") seen.admitted.push(kind.value.requestId);
      else if (kind.case === "events") seen.events.push(...kind.value.events);
      else if (kind.case === "receipt") seen.end = kind.value.chargedMicrocredits;
      await turns(pauses[reads++ % pauses.length] ?? 0);
    }
  } catch (error) {
    seen.end = apiErrorOf(error).reason;
  }
  return seen;
}

/** Runs the request as a facade does, into a sink that is behind as `pauses` say. */
async function readSink(generate: Generate, pauses: readonly number[]): Promise<Seen> {
  const seen: Seen = { admitted: [], events: [], end: undefined };
  let reads = 0;
  let isBehind = false;
  const sink: Sink = {
    takesRuns: false,
    accepted: () => {},
    admit: ({ requestId }) => void seen.admitted.push(requestId),
    write(events) {
      if (isBehind) throw new Error("a sink that is behind was written to");
      seen.events.push(...events);
      isBehind = (pauses[reads++ % pauses.length] ?? 0) > 0;
      return !isBehind;
    },
    async drained() {
      await turns(pauses[reads % pauses.length] ?? 0);
      isBehind = false;
    },
  };
  try {
    const client = new AbortController().signal;
    seen.end = (await generate({ ...generation, sink, client })).chargedMicrocredits;
  } catch (error) {
    seen.end = apiErrorOf(error).reason;
  }
  return seen;
}

describe("how the provider wrote an answer is sent", () => {
  const piece = { id: "c", choices: [] };
  const eventsFor = async (origin?: { format: Format }) => {
    // With an event, and beside the events.
    const given = [pieceEvent(Format.CHAT, piece, ping().kind), pieceEvent(Format.CHAT, piece)];
    answer = { writes: [given] };
    const init = { model: "m", messages: [{}], ...(origin && { origin }) };
    const request = create(GenerateRequestSchema, init);
    const client = new AbortController().signal;
    return (await readMessages(messagesOf(play, { ...generation, request, client }), [0])).events;
  };

  test("to a listener, for a request with an origin", async () => {
    const events = await eventsFor({ format: Format.CHAT });
    expect(events.map(({ kind }) => kind.case)).toEqual(["ping", undefined]);
    for (const { wireForm } of events) {
      expect(wireForm?.format).toBe(Format.CHAT);
      expect(JSON.parse(Buffer.from(wireForm?.data ?? []).toString())).toEqual(piece);
    }
  });

  test("to nobody else", async () => {
    const events = await eventsFor();
    expect(events.map(({ kind, wireForm }) => [kind.case, wireForm])).toEqual([
      ["ping", undefined],
    ]);
  });
});

describe.for(bindingNames)("over the binding %s", (name) => {
  test("a reader with any pauses gets the whole answer, in order, and its end", async () => {
    await fc.assert(
      fc.asyncProperty(anyAnswer, anyPauses, async (given, pauses) => {
        answer = given;
        const messages = bindings[name].inference.generate(generation.request, asCustomer);
        expect(await readMessages(messages, pauses)).toEqual(whole(given));
      }),
      { numRuns: 25 },
    );
  });

  test("a facade writes the same into its sink, and waits whenever that is behind", async () => {
    await fc.assert(
      fc.asyncProperty(anyAnswer, anyPauses, async (given, pauses) => {
        answer = given;
        const generate = overRpc(bindings[name].inference);
        expect(await readSink(generate, pauses)).toEqual(whole(given));
      }),
      { numRuns: 25 },
    );
  });

  test("a reader that leaves ends the request", async () => {
    // More than the buffers between them hold.
    const events = [blockDelta(0, { case: "text", value: "x".repeat(64 * 1024) })];
    answer = { writes: Array<Event[]>(1_000).fill(events) };
    const leaving = new AbortController();
    const call = { ...asCustomer, signal: leaving.signal };
    const messages = bindings[name].inference.generate(generation.request, call);
    for await (const { kind } of messages)
      if (kind.case === "events") {
        leaving.abort();
        break;
      }
    expect(await hasEnded).toBe("left");
  });
});

test("of an answer that nobody reads, one write is made at most", async () => {
  const unread = [ping()];
  answer = { writes: Array<Event[]>(100).fill(unread) };
  let written = 0;
  const counted: Generate = (one) =>
    play({
      ...one,
      sink: {
        takesRuns: false,
        accepted: () => one.sink.accepted(),
        admit: (admission) => one.sink.admit(admission),
        drained: () => one.sink.drained(),
        write(events) {
          written += 1;
          return one.sink.write(events);
        },
      },
    });
  const messages = messagesOf(counted, { ...generation, client: new AbortController().signal });
  expect((await messages.next()).value?.kind.case).toBe("admission");
  await turns(20);
  expect(written).toBe(1);
  for (let read = 1; read <= 10; read++) {
    await messages.next();
    await turns(3);
    expect(written).toBe(read + 1);
  }
  await messages.return(undefined);
  expect(written).toBe(11);
});
