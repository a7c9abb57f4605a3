// A file that others replace while the gateway runs, such as a credential. Its content counts, not
// its times: a cluster replaces files by their folder.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Clock } from "./clock.ts";
import type { Log } from "./log.ts";
import { Task, warnOnce } from "./task.ts";

const everyMs = 10_000;

/**
 * Reads what a file holds. `parse` throws an Error that ends a sentence about the file. Throws one
 * that quotes neither path nor content.
 */
export function readFileNow<T>(path: string, parse: (content: Buffer) => T): T {
  try {
    return parse(readFileSync(path));
  } catch (error) {
    throw new Error(`the file ${problemOf(error)}`);
  }
}

/** Reads a secret of one line. Spaces and line feeds around it are no part of it. */
export function parseSecret(content: Buffer): string {
  const secret = content.toString("utf8").trim();
  if (secret === "") throw new Error("is empty");
  if (!/^[\x21-\x7e]+$/.test(secret)) throw new Error("holds more than one visible ASCII word");
  return secret;
}

export class WatchedFile<T> implements Disposable {
  readonly path: string;
  readonly #parse: (content: Buffer) => T;
  readonly #watching: Task;
  readonly #log: Log;
  readonly #name: string;
  #content: Buffer;
  #value: T;
  #looking: Promise<boolean> | undefined;

  /** `name`: as logs call the file. Throws as `readFileNow`. */
  constructor(
    path: string,
    parse: (content: Buffer) => T,
    { name, clock, log }: { name: string; clock?: Clock | undefined; log: Log },
  ) {
    this.path = path;
    this.#parse = parse;
    this.#log = log;
    this.#name = name;
    this.#content = readFileNow(path, (content) => content);
    this.#value = readFileNow(path, () => parse(this.#content));
    this.#watching = new Task({
      run: async () => {
        await this.#look();
      },
      firstMs: everyMs,
      everyMs,
      jitter: 0,
      clock,
      report: warnOnce(log, {
        code: "file_not_taken",
        failed: `the ${name} cannot be read again: what it held before stays in use`,
        recovered: `the ${name} is in order again`,
      }),
    });
    this.#watching.start();
  }

  /** What the file held when it was last in order. */
  get value(): T {
    return this.#value;
  }

  /** Looks at once. True if there is something new in it. Never throws: the next look reports. */
  refresh(): Promise<boolean> {
    return this.#look().catch(() => false);
  }

  [Symbol.dispose](): void {
    void this.#watching.stop();
  }

  /** Looks that come together are one. */
  #look(): Promise<boolean> {
    this.#looking ??= this.#read().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #read(): Promise<boolean> {
    try {
      const content = await readFile(this.path);
      if (content.equals(this.#content)) return false;
      this.#value = this.#parse(content);
      this.#content = content;
    } catch (error) {
      throw new Error(`the file ${problemOf(error)}`);
    }
    this.#log.info(`new ${this.#name} in use`);
    return true;
  }
}

function problemOf(error: unknown): string {
  const { code, message } = Object(error);
  return typeof code === "string" && /^E[A-Z]+$/.test(code)
    ? `cannot be read (${code})`
    : String(message);
}

declare module "./log.ts" {
  interface LogCodes {
    /**
     * a `credential_file` or `ca_file` cannot be read or is not in order, and the content of before
     * is in use; correct it
     */
    file_not_taken: true;
  }
}
