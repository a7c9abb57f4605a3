// A window over bytes: the requests of one key in the last minute, with the sizes of their bodies.
// In the memory of this process; the caller passes the clock.

import { windowMs } from "./sliding-window.ts";

/** Bytes of one key in any 60 seconds, for each kind of request that has such a limit. */
export const bytesPerMinuteMax = 256 * 1024 * 1024;

export type SizedRequest = { readonly atMs: number; readonly bytes: number };

export class ByteWindow {
  /** Oldest first. */
  #requests: SizedRequest[] = [];

  get isEmpty(): boolean {
    return this.#requests.length === 0;
  }

  /** Bytes in the window. Call `expire` first. */
  get used(): number {
    return this.#requests.reduce((sum, one) => sum + one.bytes, 0);
  }

  /** Removes the requests that are older than the window that ends now. */
  expire(nowMs: number): void {
    const first = this.#requests.findIndex(({ atMs }) => atMs > nowMs - windowMs);
    this.#requests = first === -1 ? [] : this.#requests.slice(first);
  }

  add(request: SizedRequest): void {
    this.#requests.push(request);
  }

  remove(request: SizedRequest): void {
    this.#requests = this.#requests.filter((one) => one !== request);
  }

  /** Milliseconds until `bytes` more fit, at least 1; undefined: they fit now. */
  waitMs(bytes: number, nowMs: number): number | undefined {
    const { used } = this;
    if (used + bytes <= bytesPerMinuteMax) return undefined;
    // The request whose expiry makes enough room.
    let freed = 0;
    const expiring = this.#requests.find((one) => {
      freed += one.bytes;
      return used - freed + bytes <= bytesPerMinuteMax;
    });
    return Math.max(1, Math.ceil((expiring?.atMs ?? nowMs) + windowMs - nowMs));
  }
}
