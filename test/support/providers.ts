// The providers of a configuration, requests to them, and answers read to their end.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Format, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  type GenerateRequest,
  GenerateRequestSchema,
  type OriginSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { attemptOutcomeName } from "../../src/base/attempt-outcomes.ts";
import type { Clock } from "../../src/base/clock.ts";
import { type ApiError, toApiError } from "../../src/base/errors.ts";
import { createLog, type Log } from "../../src/base/log.ts";
import type { Outbound } from "../../src/base/outbound.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { progressOf } from "../../src/formats/events.ts";
import {
  createProviders,
  type ManagedProviders,
  type ProviderRequest,
  type ProviderRun,
} from "../../src/providers/providers.ts";
import { catalogFor } from "./catalog.ts";

/** The providers of a configuration text. Default: without a log, and with the real clock. */
export function openProviders(
  catalog: string,
  more: {
    env?: NodeJS.ProcessEnv;
    clock?: Clock;
    random?: () => number;
    log?: Log;
    outbound?: Outbound | undefined;
    call?: Parameters<typeof createProviders>[0]["call"];
  } = {},
): ManagedProviders {
  const { env = {}, clock, random, log = createLog("silent"), outbound, call } = more;
  return createProviders({
    file: readCatalogFile(catalog),
    log,
    outbound,
    env,
    ...(clock && { clock }),
    ...(random && { random }),
    ...(call && { call }),
  });
}

/** Providers of both kinds at `url`: the native one serves haiku, the other one sonnet. */
export function openBothKinds(url: string, more = ""): ManagedProviders {
  const text = catalogFor({
    native: { kind: "anthropic", url, more },
    chat: { kind: "openai", url, more },
  });
  return openProviders(
    text.replace(/(id: model-sonnet.*routes: \[)\[\{ provider: native[^\]]*\], /, "$1"),
  );
}

/** The origin of a request of the native format, whose client wants a stream. */
export function nativeOrigin(more: Omit<MessageInitShape<typeof OriginSchema>, "$typeName"> = {}) {
  return { format: Format.NATIVE, streamed: true, ...more };
}

/** A request of one user text. */
export function requestOf(
  text: string,
  more: MessageInitShape<typeof GenerateRequestSchema> = {},
): GenerateRequest {
  const content = [{ kind: { case: "text" as const, value: { text } } }];
  return create(GenerateRequestSchema, {
    model: "model-opus-4.6",
    maxTokens: 1000,
    messages: [{ role: Role.USER, content }],
    ...more,
  });
}

/** A request that records what its reader hears beside the events. */
export type ObservedRequest = ProviderRequest & {
  readonly abort: AbortController;
  accepted: number;
  rejected: number;
  mayRepeat: () => Promise<boolean>;
  takesRuns: boolean;
  /** The name of the provider that began the answer. */
  provider: string | undefined;
  isPlain: boolean | undefined;
  /** Set once a provider was called. */
  run: ProviderRun | undefined;
};

export function providerRequestFor(
  request: GenerateRequest,
  affinity = "a",
  accountId = "acc_1",
): ObservedRequest {
  const abort = new AbortController();
  return {
    request,
    affinity: () => affinity,
    accountId,
    abort,
    signal: abort.signal,
    client: new AbortController().signal,
    run: undefined,
    provider: undefined,
    isPlain: undefined,
    accepted: 0,
    rejected: 0,
    mayRepeat: async () => true,
    takesRuns: false,
  };
}

/** The events of the answer to `ask`, as they are asked for. One read is unread at most. */
export async function startAnswer(
  providers: Pick<ManagedProviders, "generate">,
  ask: ObservedRequest,
): Promise<AsyncIterable<Event[]>> {
  const unread: Event[][] = [];
  let isOver = false;
  const moved: (() => void)[] = [];
  const wake = () => {
    for (const one of moved.splice(0)) one();
  };
  const begun = Promise.withResolvers<void>();
  const run = providers.generate(ask, {
    takesRuns: ask.takesRuns,
    accepted(isAccepted) {
      if (isAccepted) ask.accepted++;
      else ask.rejected++;
    },
    mayRepeat: () => ask.mayRepeat(),
    begin({ provider, isPlain }) {
      ask.provider = provider;
      ask.isPlain = isPlain;
    },
    write(events) {
      begun.resolve();
      if (unread.length > 0) return new Promise<void>((resolve) => moved.push(resolve));
      unread.push(events);
      wake();
      return undefined;
    },
  });
  ask.run = run;
  void run.ended.then(() => {
    isOver = true;
    begun.resolve();
    wake();
  });
  await begun.promise;
  return (async function* () {
    for (;;) {
      const events = unread.shift();
      if (events) {
        yield events;
        wake();
      } else if (isOver) break;
      else await new Promise<void>((resolve) => moved.push(resolve));
    }
    const error = await run.ended;
    if (error) throw error;
  })();
}

/** An answer that was read to its end, or to its error. */
export type Outcome = {
  reads: Event[][];
  events: Event[];
  apiError?: ApiError;
  ask: ObservedRequest;
};

export async function readAll(
  providers: ManagedProviders,
  asked: ObservedRequest | GenerateRequest | string,
): Promise<Outcome> {
  const ask =
    typeof asked === "string"
      ? providerRequestFor(requestOf(asked))
      : "abort" in asked
        ? asked
        : providerRequestFor(asked);
  const reads: Event[][] = [];
  let apiError: ApiError | undefined;
  try {
    for await (const events of await startAnswer(providers, ask)) {
      // Reports ahead of the end are for the meter.
      reads.push(events.filter((event) => !progressOf(event)));
    }
  } catch (error) {
    apiError = toApiError(error);
  }
  return { reads, events: reads.flat(), ask, ...(apiError && { apiError }) };
}

/** Kinds of events, in order. */
export function kindsOf(events: readonly Event[]): string[] {
  return events.flatMap(({ kind }) => kind.case ?? []);
}

/** The text of all blocks, joined. */
export function textOf(events: readonly Event[]): string {
  return events
    .map(({ kind }) => {
      if (kind.case === "blockDelta" && kind.value.kind.case === "text")
        return kind.value.kind.value;
      const block = kind.case === "blockStart" ? kind.value.block?.kind : undefined;
      return block?.case === "text" ? block.value.text : "";
    })
    .join("");
}

/** The last message_delta. */
export function endOf(events: readonly Event[]) {
  const last = events.findLast(({ kind }) => kind.case === "messageDelta")?.kind;
  return last?.case === "messageDelta" ? last.value : undefined;
}

/** The usage that the answer begins with. */
export function firstUsageOf(events: readonly Event[]) {
  const [first] = events;
  return first?.kind.case === "messageStart" ? first.kind.value.usage : undefined;
}

/** The calls that were made for a request. */
export function attemptsFor({ run }: ObservedRequest): Attempt[] {
  return run?.attempts() ?? [];
}

/** Provider and outcome of each attempt. */
export function attemptsOf({ ask }: Outcome): string[] {
  return attemptsFor(ask).map(
    ({ provider, outcome, status }) => `${provider} ${attemptOutcomeName(outcome)} ${status}`,
  );
}
