// What the services answer in one state of a page: fixtures in place of a gateway.

import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { ApiError, type ErrorReason } from "../../../src/base/errors.ts";

/** The time of all states, and the account on screen. */
export const now = new Date("2026-11-22T14:02:31Z");
export const accountId = "acct_acme";

/** `run` resolves with the messages of a stream, or with one; it may never settle, or throw. */
export type Answer = {
  readonly method: DescMethod;
  readonly run: (request: Message, signal: AbortSignal) => Promise<readonly Message[]>;
};

/** The states of one page. */
export type PageStates = {
  readonly name: string;
  /** Below `/console/<account>/`, with its query; or a whole address, which begins with `/`. */
  readonly path: string;
  /** By the name of the state. */
  readonly states: Readonly<Record<string, readonly Answer[]>>;
};

/** Answers of a method. A stream gives its messages and stays open. */
export function answer<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  reply: (request: MessageShape<I>) => MessageInitShape<O>,
): Answer;
export function answer<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O>,
  reply: (request: MessageShape<I>) => readonly MessageInitShape<O>[],
): Answer;
export function answer(
  method: DescMethod,
  reply: (
    request: never,
  ) => MessageInitShape<DescMessage> | readonly MessageInitShape<DescMessage>[],
): Answer {
  return {
    method,
    async run(request) {
      const replies: unknown = Reflect.apply(reply, undefined, [request]);
      const list: readonly unknown[] = Array.isArray(replies) ? replies : [replies];
      return list.map((one) => create(method.output, Object(one)));
    },
  };
}

/** A method that never answers. */
export function pending(method: DescMethod): Answer {
  return { method, run: (_request, signal) => aborted(signal).then(() => []) };
}

/** A method that fails. */
export function failing(
  method: DescMethod,
  reason: ErrorReason,
  facts: ConstructorParameters<typeof ApiError>[1] = {},
): Answer {
  return { method, run: async () => Promise.reject(new ApiError(reason, facts)) };
}

export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
