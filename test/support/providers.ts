// The providers of a configuration, requests to them, and answers read to their end.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  type GenerateRequest,
  GenerateRequestSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Clock } from "../../src/base/clock.ts";
import { type ApiError, toApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import {
  createProviders,
  type ManagedProviders,
  type ProviderAnswer,
  type ProviderRequest,
} from "../../src/providers/providers.ts";
import { catalogFor } from "./catalog.ts";

/** The providers of a configuration text, without a log. Default: the real clock. */
export function openProviders(
  catalog: string,
  more: { env?: NodeJS.ProcessEnv; clock?: Clock; random?: () => number } = {},
): ManagedProviders {
  const { env = {}, clock, random } = more;
  return createProviders({
    file: readCatalogFile(catalog),
    log: createLog("silent"),
    env,
    ...(clock && { clock }),
    ...(random && { random }),
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

/** A request of one user text. */
export function requestOf(
  text: string,
  more: MessageInitShape<typeof GenerateRequestSchema> = {},
): GenerateRequest {
  const content = [{ kind: { case: "text" as const, value: { text } } }];
  return create(GenerateRequestSchema, {
    model: "model-opus-4.6",
    maxTokens: 1000,
    stream: true,
    messages: [{ role: Role.USER, content }],
    ...more,
  });
}

/** A request that records the calls of `onAccepted`. */
export type ObservedRequest = ProviderRequest & {
  readonly abort: AbortController;
  accepted: number;
  rejected: number;
  /** Set once a provider was called. */
  answer: ProviderAnswer | undefined;
};

export function providerRequestFor(
  request: GenerateRequest,
  affinity = "a",
  accountId = "acc_1",
): ObservedRequest {
  const abort = new AbortController();
  const observed: ObservedRequest = {
    request,
    affinity: () => affinity,
    accountId,
    abort,
    signal: abort.signal,
    client: new AbortController().signal,
    answer: undefined,
    accepted: 0,
    rejected: 0,
    onAccepted: (isAccepted: boolean) => {
      if (isAccepted) observed.accepted++;
      else observed.rejected++;
    },
  };
  return observed;
}

/** The events of the answer to `ask`. */
export async function startAnswer(
  providers: ManagedProviders,
  ask: ObservedRequest,
): Promise<AsyncIterable<Event[]>> {
  ask.answer = await providers.generate(ask);
  return ask.answer.events;
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
      reads.push(events.filter(({ kind }) => kind.case !== "progress"));
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
export function attemptsFor({ answer }: ObservedRequest): Attempt[] {
  return answer?.attempts() ?? [];
}

/** Provider and outcome of each attempt. */
export function attemptsOf({ ask }: Outcome): string[] {
  return attemptsFor(ask).map(
    ({ provider, outcome, status }) => `${provider} ${outcome} ${status}`,
  );
}
