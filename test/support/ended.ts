// Requests of every format and kind at once, whose provider stops before or during the content of
// its answer, until something ends them.

import { expect, vi } from "vitest";
import {
  type Asked,
  type Asker,
  ask,
  type FormatName,
  formats,
  type Wish,
  wishes,
} from "./asks.ts";
import { type FakeProvider, Gate, type Script } from "./provider.ts";
import { nativeAnswer, nativeEvents } from "./provider-answers.ts";

export const moments = ["before content", "during content"] as const;
export type Moment = (typeof moments)[number];

/** A request, and how its provider was asked. */
export type Waiting = Asked & {
  readonly name: string;
  readonly format: FormatName;
  readonly kind: "in one piece" | "plain, as a stream" | "streamed";
};

const usage = { input: 11, output: 9 };
/** Two tokens. */
const text = "12345678";

/** What a client of a stream has when its answer has begun. */
const opening: Readonly<Record<FormatName, string>> = {
  native: "message_start",
  chat: "chat.completion.chunk",
  Responses: "response.created",
  gRPC: "messageStart",
};

/** Sends them. Resolves when all of them wait. The gate lets the provider go on. */
export async function askAll(
  asker: Asker,
  provider: FakeProvider,
  moment: Moment,
): Promise<{ requests: readonly Waiting[]; gate: Gate }> {
  const gate = new Gate();
  provider.always(({ body }) =>
    body.stream === true ? streamOf(moment, gate) : plainOf(moment, gate),
  );
  const requests: Waiting[] = [];
  const send = (format: FormatName, wish: Wish) => {
    const { maxTokens, stream } = wish;
    const asked = ask(asker, format, wish);
    const plainKind = maxTokens > 4_096 ? "plain, as a stream" : "in one piece";
    const name = `${format}, ${maxTokens} tokens${stream ? ", streamed" : ""}`;
    requests.push({ ...asked, name, format, kind: stream ? "streamed" : plainKind });
    const awaited = moment === "before content" ? opening[format] : text;
    return stream ? asked.received(awaited) : undefined;
  };
  // What a provider wrote to the plain ones is read before what it writes to the streams later.
  for (const isStream of [false, true]) {
    const sent = formats.flatMap((format) =>
      wishes.filter(({ stream }) => stream === isStream).map((wish) => send(format, wish)),
    );
    await vi.waitFor(() => expect(gate.waiting).toBe(requests.length), { timeout: 20_000 });
    await Promise.all(sent);
  }
  return { requests, gate };
}

function streamOf(moment: Moment, gate: Gate): Script {
  const events = nativeEvents({ text: [text], usage });
  const first = moment === "before content" ? 1 : 3;
  const writes = [events.slice(0, first).join(""), gate, ...events.slice(first)];
  return { headers: { "content-type": "text/event-stream" }, writes };
}

function plainOf(moment: Moment, gate: Gate): Script {
  const answer = nativeAnswer({ text: [text], usage });
  if (moment === "before content") return { ...answer, before: gate };
  const whole = String(answer.writes?.[0]);
  return { ...answer, writes: [whole.slice(0, 40), gate, whole.slice(40)] };
}
