// How pages call the services: the same methods as everybody, by Connect with JSON. Answers are
// shared by all who ask the same and kept for seconds; failures are CallErrors with their reason.

import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  equals,
  type MessageInitShape,
  type MessageShape,
  toJsonString,
} from "@bufbuild/protobuf";
import { type Signal, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type CallError, toCallError } from "./call-error.ts";
import { callOnce, openStream } from "./connect.ts";
import { type Live, readNow, show } from "./live.ts";

export { CallError, toCallError } from "./call-error.ts";

/** Asks the person for what a call lacks. Rejects if the person does not want to. */
export type Prompts = {
  /** To sign in once more. `isByItself`: the page refreshed something, the person did nothing. */
  signIn(isByItself: boolean): Promise<void>;
  /** To confirm who they are. */
  confirm(): Promise<void>;
};

let prompts: Prompts | undefined;

/** Calls use them from now on. Before, they fail with INVALID_SESSION or CONFIRM_IDENTITY. */
export function setPrompts(next: Prompts | undefined): void {
  prompts = next;
}

/** True while calls find no gateway. */
export const trouble = signal<CallError | undefined>(undefined);

export type CallSettings = {
  readonly signal?: AbortSignal | undefined;
  /** False: fails where the person would have to be asked for something. */
  readonly asks?: boolean;
  /** True: the page asks by itself. */
  readonly isByItself?: boolean;
};

/**
 * One call. Throws a CallError. If it needs a sign-in or a confirmation, the person is asked for it
 * in place and the call is repeated: what was typed stays.
 */
export async function call<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  { signal: aborted, asks = true, isByItself = false }: CallSettings = {},
): Promise<MessageShape<O>> {
  // Twice: the sign-in may have been too weak for what the call does.
  for (let rounds = asks && prompts ? 3 : 1; ; rounds--) {
    try {
      const message = await callOnce(method, request, aborted);
      trouble.value = undefined;
      return message;
    } catch (thrown) {
      const error = toCallError(thrown);
      if (!isByItself && provesOld.has(error.reason)) refreshAll();
      trouble.value = error.isPassing && !aborted?.aborted ? error : undefined;
      const prompt = prompts && promptFor(error, prompts, isByItself);
      if (rounds <= 1 || !prompt) throw error;
      await prompt().catch(() => {
        throw error;
      });
    }
  }
}

/** A person's act was refused since something is no longer as the page shows it. */
const provesOld = new Set([
  ...["not_found", "not_permitted", "wrong_state", "last_one", "key_not_active", "revoked_key"],
  ...["account_suspended", "account_closed", "promotion_not_usable"],
]);

/** Asks again for everything on screen. */
function refreshAll(): void {
  for (const entry of entries.values()) if (entry.isUsed) entry.invalidate();
}

function promptFor(
  { reason }: CallError,
  asked: Prompts,
  isByItself: boolean,
): (() => Promise<void>) | undefined {
  if (reason === "confirm_identity") return asked.confirm;
  if (reason === "invalid_session" || reason === "missing_key")
    return () => asked.signIn(isByItself);
  return undefined;
}

/** What is known of the answer to a call. */
export type Call<T> = {
  /** The newest good answer. It stays while it is refreshed, and when that fails. */
  readonly data: T | undefined;
  /** Of the last try. */
  readonly error: CallError | undefined;
  /** Neither an answer nor an error so far. */
  readonly isLoading: boolean;
  refresh(): void;
};

type State<T> = Omit<Call<T>, "refresh">;

const loading = { data: undefined, error: undefined, isLoading: true } as const;
/** How long an answer is not asked for again. */
const freshMs = 10_000;
/** How many answers are kept for pages to which the person goes back. */
const keptMax = 40;

/** How a part of a page follows the answer to a call. */
export type Following = {
  /** It is asked for again and again. */
  readonly everyMs?: number;
  /** It has figures: it is read together with all others on screen, as `live.ts` says. */
  readonly isLive?: boolean;
};

/** The answer to one request, for all who show it. */
class Entry<I extends DescMessage, O extends DescMessage> implements Live {
  readonly state: Signal<State<MessageShape<O>>> = signal(loading);
  readonly method: DescMethodUnary<I, O>;
  readonly #request: MessageInitShape<I>;
  #users = 0;
  #liveUsers = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;
  #running: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #tries = 0;

  constructor(method: DescMethodUnary<I, O>, request: MessageInitShape<I>) {
    this.method = method;
    this.#request = request;
  }

  get isUsed(): boolean {
    return this.#users > 0;
  }

  use(everyMs: number | undefined, isLive: boolean): () => void {
    this.#users++;
    if (isLive) return this.#useLive();
    this.#askUnlessFresh();
    const timer =
      everyMs === undefined
        ? undefined
        : setInterval(() => document.visibilityState === "visible" && this.ask(), everyMs);
    return () => {
      clearInterval(timer);
      this.#leave();
    };
  }

  #useLive(): () => void {
    this.#liveUsers++;
    const hide = show(this);
    return () => {
      this.#liveUsers--;
      if (this.#liveUsers === 0) hide();
      this.#leave();
    };
  }

  #leave(): void {
    this.#users--;
    if (this.#users > 0) return;
    clearTimeout(this.#timer);
    this.#running?.abort();
    this.#running = undefined;
  }

  ageMs(): number {
    return performance.now() - this.#answeredAt;
  }

  async read(): Promise<() => void> {
    const isFirst = this.state.value.data === undefined;
    const answer = await this.#answer();
    if (!isFirst) return answer;
    // Nothing stands there yet: it need not wait for the others.
    answer();
    return () => undefined;
  }

  /** What was known is old: asks again if somebody shows it. */
  invalidate(): void {
    this.#answeredAt = Number.NEGATIVE_INFINITY;
    if (this.#liveUsers > 0) readNow();
    else if (this.isUsed) this.ask();
  }

  /** Another answer had this one in it. */
  put(data: MessageShape<O>): void {
    this.#running?.abort();
    this.#running = undefined;
    clearTimeout(this.#timer);
    this.#answeredAt = performance.now();
    this.#tries = 0;
    const { data: before } = this.state.value;
    // An answer that did not change is not drawn again, and keeps the pages behind it.
    const isSame = before !== undefined && equals(this.method.output, before, data);
    this.state.value = { data: isSame ? before : data, error: undefined, isLoading: false };
  }

  refreshIfUsed(): void {
    if (this.#liveUsers > 0) readNow();
    else if (this.isUsed) this.#askUnlessFresh();
  }

  #askUnlessFresh(): void {
    if (!this.#running && this.ageMs() > freshMs) this.ask();
  }

  /** Asks now. */
  ask(): void {
    void this.#answer().then((show) => show());
  }

  /** Resolves with what keeps the answer. An answer to an earlier question does not count. */
  async #answer(): Promise<() => void> {
    this.#running?.abort();
    clearTimeout(this.#timer);
    const running = new AbortController();
    this.#running = running;
    const settings = { signal: running.signal, isByItself: true };
    const keep = await call(this.method, this.#request, settings).then(
      (data) => () => this.put(data),
      (thrown: unknown) => () => this.#fail(toCallError(thrown)),
    );
    return () => {
      if (this.#running === running) keep();
    };
  }

  #fail(error: CallError): void {
    this.#running = undefined;
    this.state.value = { data: this.state.value.data, error, isLoading: false };
    if (error.isPassing && this.isUsed) this.#tryLater(error.retryAfterMs);
  }

  #tryLater(afterMs = 0): void {
    const waitMs = Math.min(30_000, 1000 * 2 ** Math.min(this.#tries++, 5));
    this.#timer = setTimeout(() => this.ask(), Math.max(waitMs, afterMs));
  }
}

type AnyEntry = Pick<Entry<DescMessage, DescMessage>, "isUsed" | "invalidate" | "refreshIfUsed"> & {
  readonly method: DescMethod;
};

const entries = new Map<string, AnyEntry>();

function entryOf<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): Entry<I, O> {
  const question = toJsonString(method.input, create(method.input, request));
  const name = `${nameOf(method)} ${question}`;
  const kept = entries.get(name);
  // The method is part of the name, so an entry of this name has its types.
  if (kept instanceof Entry) return kept;
  const entry = new Entry(method, request);
  entries.set(name, entry);
  for (const [other, { isUsed }] of entries)
    if (entries.size > keptMax && !isUsed && other !== name) entries.delete(other);
  return entry;
}

/** Keeps what another answer brought, as if the method had answered it just now. */
export function keepAnswer<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  answer: MessageInitShape<O>,
): void {
  entryOf(method, request).put(create(method.output, answer));
}

function nameOf({ parent, name }: DescMethod): string {
  return `${parent.typeName}/${name}`;
}

/** Forgets the answers of methods. The parts that show them ask again. */
export function invalidate(...methods: readonly DescMethod[]): void {
  // By their names: the pages of operators have descriptors of their own.
  const wanted = new Set(methods.map(nameOf));
  for (const [name, entry] of entries)
    if (wanted.has(nameOf(entry.method))) {
      if (!entry.isUsed) entries.delete(name);
      entry.invalidate();
    }
}

/** Forgets every answer: another person is here. */
export function forgetAll(): void {
  for (const [name, { isUsed }] of entries) if (!isUsed) entries.delete(name);
  for (const entry of entries.values()) entry.invalidate();
}

/** Asks again for what is on screen when the person comes back to it, or the network does. */
export function refreshOnReturn(): void {
  const refresh = () => {
    if (document.visibilityState === "visible")
      for (const entry of entries.values()) entry.refreshIfUsed();
  };
  document.addEventListener("visibilitychange", refresh);
  addEventListener("online", refreshAll);
}

const nothing = signal<State<never>>(loading);

/**
 * The answer of a call: kept for ten seconds, shared by all who ask the same, and asked for again
 * when the person comes back to the page. `request` undefined: it is not asked yet.
 */
export function useCall<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I> | undefined,
  { everyMs, isLive = false }: Following = {},
): Call<MessageShape<O>> {
  const entry = request === undefined ? undefined : entryOf(method, request);
  useEffect(() => entry?.use(everyMs, isLive), [entry, everyMs, isLive]);
  const state: State<MessageShape<O>> = (entry?.state ?? nothing).value;
  return { ...state, refresh: () => entry?.ask() };
}

/** The answers of calls, each in the place of its call. */
type Answers<Calls extends readonly Call<unknown>[]> = {
  readonly [Place in keyof Calls]: Calls[Place] extends Call<infer T> ? T : never;
};

/** Calls as one: full when all have answered, failed when one failed. */
export function together<Calls extends readonly Call<unknown>[]>(
  ...calls: Calls
): Call<Answers<Calls>> {
  const answers = calls.map(({ data }) => data);
  const isFull = (all: readonly unknown[]): all is Answers<Calls> =>
    all.every((one) => one !== undefined);
  const data = isFull(answers) ? answers : undefined;
  const error = calls.find((one) => one.error)?.error;
  return {
    data,
    error,
    isLoading: data === undefined && error === undefined,
    refresh() {
      for (const one of calls) one.refresh();
    },
  };
}

/** A list that comes in pages: what was read so far. */
export type Pages<T, A> = Call<{
  readonly items: readonly T[];
  readonly first: A;
  readonly last: A;
  readonly isLast: boolean;
}> & {
  /** Reads the next page. Throws a CallError. */
  more(): Promise<void>;
};

type Paged = { readonly nextPageToken: string };

/**
 * A list that comes in pages, whose method takes `page_token` and answers `next_page_token`. The
 * first page is kept and refreshed as any answer; whatever changes in it drops the pages behind.
 */
export function usePages<I extends DescMessage, O extends DescMessage, T>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I> | undefined,
  itemsOf: (answer: MessageShape<O>) => readonly T[],
  following: Following = {},
): Pages<T, MessageShape<O>> {
  const [behind, setBehind] = useState<{
    readonly first: MessageShape<O> | undefined;
    readonly pages: readonly MessageShape<O>[];
  }>({ first: undefined, pages: [] });
  const shown = useRef<MessageShape<O>>(undefined);
  // Somebody who reads further pages does not want them to go.
  const isRead = behind.pages.length > 0 && behind.first === shown.current;
  const first = useCall(method, request, isRead ? {} : following);
  shown.current = first.data;
  const pages = behind.first === first.data ? behind.pages : [];
  const last = pages.at(-1) ?? first.data;
  const token = last === undefined ? "" : tokenOf(last);
  const data = first.data &&
    last && {
      items: [first.data, ...pages].flatMap(itemsOf),
      first: first.data,
      last,
      isLast: token === "",
    };
  return {
    ...first,
    data,
    async more() {
      if (request === undefined || token === "") return;
      const page = await call(method, { ...request, pageToken: token });
      setBehind({ first: first.data, pages: [...pages, page] });
    },
  };
}

function tokenOf(answer: Message | Paged): string {
  return "nextPageToken" in answer ? answer.nextPageToken : "";
}

type Message = MessageShape<DescMessage>;

export type StreamState = "closed" | "opening" | "open" | "waiting";

/**
 * A server stream while the component is on screen. When it ends it is opened again, after 1 s,
 * then after twice as long, up to 15 s. `request` undefined: it is closed.
 */
export function useStream<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I> | undefined,
  onMessage: (message: MessageShape<O>) => void,
): StreamState {
  const [state, setState] = useState<StreamState>("closed");
  const latest = useRef(onMessage);
  latest.current = onMessage;
  const question =
    request === undefined ? undefined : toJsonString(method.input, create(method.input, request));
  useEffect(() => {
    if (request === undefined) {
      setState("closed");
      return;
    }
    const stopped = new AbortController();
    const report = (next: StreamState) => {
      if (!stopped.signal.aborted) setState(next);
    };
    void keepOpen(method, request, stopped.signal, report, (message) => latest.current(message));
    return () => stopped.abort();
  }, [method, question]);
  return state;
}

async function keepOpen<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  stopped: AbortSignal,
  report: (state: StreamState) => void,
  onMessage: (message: MessageShape<O>) => void,
): Promise<void> {
  for (let waitMs = 1000; !stopped.aborted; waitMs = Math.min(waitMs * 2, 15_000)) {
    report("opening");
    try {
      for await (const one of openStream(method, request, stopped)) {
        if (stopped.aborted) return;
        report("open");
        waitMs = 1000;
        onMessage(one);
      }
    } catch (thrown) {
      if (stopped.aborted) return;
      const error = toCallError(thrown);
      const prompt = prompts && promptFor(error, prompts, true);
      await prompt?.().catch(() => undefined);
    }
    report("waiting");
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      stopped.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve(undefined);
      });
    });
  }
}
