// Calls over HTTP to processors, sources of rates and nodes of chains, with JSON both ways. Amounts
// must not pass through floating point, so every number of an answer stays the text it was.

import type { Response } from "undici";
import type { Outbound } from "../base/outbound.ts";

/** Longer than any of them takes when it is well. */
const answerMsMax = 10_000;
const answerBytesMax = 1024 * 1024;

export type Ask = {
  readonly outbound: Outbound;
  /** Names the other side in errors. Its address may hold a secret. */
  readonly whom: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Present: it is posted. */
  readonly body?: unknown;
  readonly signal: AbortSignal;
  /** Default: 1 MB. */
  readonly bytesMax?: number;
  /** An older answer of a cache on the way throws. */
  readonly ageSecondsMax?: number;
  /** Numbers may pass through floating point: reading a large answer takes a tenth of the time. */
  readonly isInexact?: boolean;
};

/** The other side refused: it answered with another status than 2xx. */
export class RefusedError extends Error {
  readonly status: number;
  constructor(whom: string, status: number, message: string) {
    super(`${whom} answered ${status}${message === "" ? "" : `: ${message}`}`);
    this.status = status;
  }
}

/**
 * Asks, and returns what was answered. Throws `RefusedError`, and other errors for no answer within
 * 10 seconds, for a redirect, and for what is no JSON. No error holds the address or a header.
 */
export async function ask(request: Ask): Promise<Answer> {
  const { outbound, whom, url, headers, body, signal, bytesMax, ageSecondsMax, isInexact } =
    request;
  const response = await outbound.fetch(url, {
    ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
    headers: {
      accept: "application/json",
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    // A redirect would carry the credentials along.
    redirect: "error",
    signal: AbortSignal.any([signal, AbortSignal.timeout(answerMsMax)]),
  });
  if (ageSecondsMax !== undefined && Number(response.headers.get("age") ?? 0) > ageSecondsMax)
    throw new Error(`${whom} answered from a cache of more than ${ageSecondsMax} s ago`);
  const text = await readText(whom, response, bytesMax ?? answerBytesMax);
  if (!response.ok) throw new RefusedError(whom, response.status, refusalOf(text));
  return parseAnswer(whom, text, isInexact);
}

/** Throws for what is no JSON. */
function parseAnswer(whom: string, text: string, isInexact = false): Answer {
  try {
    return new Answer(isInexact ? JSON.parse(text) : parseExact(text), whom);
  } catch {
    throw new Error(`${whom} answered with something that is no JSON`);
  }
}

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

const keepNumbers: Reviver = (_, value, context) =>
  typeof value === "number" ? (context?.source ?? String(value)) : value;

/** Parses JSON. Every number becomes the text that it was written as. */
function parseExact(text: string): unknown {
  // The library of TypeScript does not know yet that a reviver gets the source.
  return Reflect.apply(JSON.parse, JSON, [text, keepNumbers]);
}

async function readText(whom: string, { body }: Response, bytesMax: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > bytesMax) throw new Error(`${whom} answered more than ${bytesMax} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** The reason in a refusal, in one short line for the log. Empty: it has none. */
function refusalOf(text: string): string {
  try {
    const answer = new Answer(parseExact(text), "");
    const said = [answer, ...answer.optionalList()].map((one) => one.optional("message"));
    return said
      .join(" ")
      .replace(/[^\x20-\x7e]/g, " ")
      .trim()
      .slice(0, 200);
  } catch {
    return "";
  }
}

/** A value of an answer. What is not as it must be throws, and names its place. */
export class Answer {
  readonly #value: unknown;
  readonly #whom: string;
  /** What it is a part of, and its name there. Undefined: it is the whole. */
  readonly #in: { readonly whole: Answer; readonly name: string | number } | undefined;

  constructor(value: unknown, whom: string, of?: { whole: Answer; name: string | number }) {
    this.#value = value;
    this.#whom = whom;
    this.#in = of;
  }

  /** A member of an object. Of anything else, all members are absent. */
  at(name: string): Answer {
    const value = this.#value;
    const member: unknown =
      typeof value === "object" && value !== null && Object.hasOwn(value, name)
        ? Reflect.get(value, name)
        : undefined;
    return new Answer(member, this.#whom, { whole: this, name });
  }

  get isAbsent(): boolean {
    return this.#value === undefined || this.#value === null;
  }

  get isTrue(): boolean {
    return this.#value === true;
  }

  /** A text that is not empty, or a number as it was written. */
  text(): string {
    const value = this.#value;
    if (typeof value === "string" && value !== "") return value;
    if (typeof value === "number") return String(value);
    throw this.fault("is no text");
  }

  /** A text or number as text. Empty for everything else. */
  textOrEmpty(): string {
    const value = this.#value;
    return typeof value === "string" || typeof value === "number" ? String(value) : "";
  }

  /** The text of a member. Empty if it is absent, or no text. */
  optional(name: string): string {
    const value = this.at(name).#value;
    return typeof value === "string" ? value : "";
  }

  list(): Answer[] {
    if (!Array.isArray(this.#value)) throw this.fault("is no list");
    return this.optionalList();
  }

  /** Empty for what is no list. */
  optionalList(): Answer[] {
    const value: unknown[] = Array.isArray(this.#value) ? this.#value : [];
    return value.map((one, name) => new Answer(one, this.#whom, { whole: this, name }));
  }

  /** A moment: seconds or milliseconds since 1970, or a text that says it. */
  time(): Date {
    const text = this.text();
    const number = /^\d{9,13}(\.\d+)?$/.test(text) ? Number(text) : undefined;
    const at = new Date(number === undefined ? text : number < 1e11 ? number * 1000 : number);
    const year = at.getUTCFullYear();
    if (!(year >= 2009 && year < 2100)) throw this.fault("is no time");
    return at;
  }

  fault(problem: string): Error {
    return new Error(`${this.#whom} answered nonsense: ${this.#path() || "the answer"} ${problem}`);
  }

  #path(): string {
    if (!this.#in) return "";
    const { whole, name } = this.#in;
    const before = whole.#path();
    if (typeof name === "number") return `${before}[${name}]`;
    return before === "" ? name : `${before}.${name}`;
  }
}
