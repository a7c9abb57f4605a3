// Writes lines to stderr, many with one call. What reads them may die or stop reading, and must
// keep no process from ending: the destination of pino repeats a failed write forever at an exit.

import fs from "node:fs";
import { withTimeout } from "./clock.ts";

/** Lines are written together, at most so late. Exits flush. */
const lateMsMax = 100;
const retryMs = 10;
/** How long an exit waits for a reader that is slow. */
const exitMsMax = 1_000;
const exitRetryMs = 10;
/** A reader that takes nothing for so long stands still. */
const stalledMsMax = 1_500;

const stderr = 2;

export type StderrSizes = {
  /** With so many characters, lines are written at once. */
  readonly minLength: number;
  /** The most bytes of one write, unless a line alone has more. */
  readonly maxWrite?: number;
};

const writers: LineWriter[] = [];

/**
 * Ends the process when its lines are written, or their reader is gone. One that neither reads nor
 * goes would keep `process.exit` waiting for the thread that writes: then the process is killed.
 */
export async function exitProcess(code: number): Promise<never> {
  const all = writers.map((one) => new Promise<void>((done) => one.flush(done)));
  const flushed = Promise.all(all).then(() => true);
  const written = () => writers.reduce((sum, one) => sum + one.writtenBytes, 0);
  for (let before = -1; !(await withTimeout(flushed, stalledMsMax, () => false)); ) {
    if (written() === before) process.kill(process.pid, "SIGKILL");
    before = written();
  }
  process.exit(code);
}

/** A destination for pino. */
export class LineWriter {
  readonly #sizes: StderrSizes;
  #lines: string[] = [];
  #length = 0;
  #timer: NodeJS.Timeout | undefined;
  #isWriting = false;
  /** What a full pipe did not take. It is written again soon. */
  #refused: Buffer | undefined;
  /** Nobody reads any more. */
  #isBroken = false;
  #isListed = false;
  readonly #waiting: (() => void)[] = [];
  #writtenBytes = 0;

  constructor(sizes: StderrSizes) {
    this.#sizes = sizes;
  }

  write(line: string): void {
    if (this.#isBroken) return;
    if (!this.#isListed) this.#list();
    this.#lines.push(line);
    this.#length += line.length;
    if (this.#length >= this.#sizes.minLength) this.#start();
    // Without a line, no timer: writing nothing ten times a second was 40 % of the work of an idle
    // gateway.
    else this.#timer ??= setTimeout(() => this.#start(), lateMsMax).unref();
  }

  /** What its reader has taken, except at an exit. */
  get writtenBytes(): number {
    return this.#writtenBytes;
  }

  /** Writes what there is. `done` is called when it is written, or nobody reads it. */
  flush(done: () => void = () => {}): void {
    this.#start();
    if (this.#isWriting) this.#waiting.push(done);
    else done();
  }

  /** For an exit. The write in progress ends by itself: the process waits for its thread. */
  flushSync(): void {
    const untilMs = performance.now() + exitMsMax;
    while (!this.#isBroken && (this.#refused || this.#lines.length > 0)) {
      let rest = this.#refused ?? this.#take();
      this.#refused = undefined;
      while (!this.#isBroken && rest.length > 0) rest = this.#writeSync(rest, untilMs);
    }
  }

  #list(): void {
    if (writers.length === 0)
      process.on("exit", () => {
        for (const one of writers) one.flushSync();
      });
    writers.push(this);
    this.#isListed = true;
  }

  #start(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#isWriting && this.#lines.length > 0) this.#continue(this.#take());
  }

  #continue(bytes: Buffer): void {
    this.#isWriting = true;
    fs.write(stderr, bytes, (error, count) => {
      if (isFull(error)) return this.#retryLater(bytes);
      if (error) this.#break();
      else this.#writtenBytes += count;
      if (!error && count < bytes.length) return this.#continue(bytes.subarray(count));
      this.#isWriting = false;
      if (this.#length >= this.#sizes.minLength || this.#waiting.length > 0) this.#start();
      if (!this.#isWriting) for (const done of this.#waiting.splice(0)) done();
    });
  }

  #retryLater(bytes: Buffer): void {
    this.#refused = bytes;
    setTimeout(() => {
      this.#refused = undefined;
      this.#continue(bytes);
    }, retryMs).unref();
  }

  #writeSync(bytes: Buffer, untilMs: number): Buffer {
    try {
      return bytes.subarray(fs.writeSync(stderr, bytes));
    } catch (error) {
      if (!isFull(error) || performance.now() > untilMs) this.#break();
      else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, exitRetryMs);
      return bytes;
    }
  }

  /** Removes lines for one write. */
  #take(): Buffer {
    const { maxWrite = Number.POSITIVE_INFINITY } = this.#sizes;
    let [count, bytes] = [0, 0];
    for (const line of this.#lines) {
      bytes += Buffer.byteLength(line);
      if (count > 0 && bytes > maxWrite) break;
      count += 1;
    }
    const lines = this.#lines.splice(0, count);
    const text = lines.join("");
    this.#length -= text.length;
    return Buffer.from(text);
  }

  #break(): void {
    this.#isBroken = true;
    this.#lines = [];
    this.#length = 0;
  }
}

function isFull(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EAGAIN";
}
