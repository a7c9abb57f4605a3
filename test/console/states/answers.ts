// What the services answer in one state of a page: fixtures in place of a gateway.

import {
  create,
  type DescField,
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
      return list.map((one) => {
        const init = Object(one);
        const strange = strangeNames(method.output, init);
        if (strange.length > 0) throw new Error(`no such fields: ${strange.join(", ")}`);
        return create(method.output, init);
      });
    },
  };
}

/** Names in a fixture that are no fields: `create` drops them, and types pass them in a spread. */
export function strangeNames(message: DescMessage, init: object): string[] {
  return Object.entries(init).flatMap(([name, value]) => {
    if (name.startsWith("$")) return [];
    const member = message.members.find(({ localName }) => localName === name);
    if (!member) return [`${message.name}.${name}`];
    if (member.kind !== "oneof") return strangeNamesOf(member, value);
    const field = member.fields.find(({ localName }) => localName === Object(value).case);
    return field ? strangeNamesOf(field, Object(value).value) : [];
  });
}

function strangeNamesOf(field: DescField, value: unknown): string[] {
  // Google's own types have forms of their own.
  if (!field.message || field.message.typeName.startsWith("google.protobuf.")) return [];
  const { message } = field;
  const values: unknown[] = field.fieldKind === "message" ? [value] : Object.values(Object(value));
  return values.flatMap((one) => strangeNames(message, Object(one)));
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
