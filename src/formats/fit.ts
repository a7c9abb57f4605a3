// What encoders do to a request so that its provider accepts it.

import type { LeftOut } from "../../gen/gateway/inference/v1/content_pb.ts";

/** What became of the reasoning and the members that a client returned. */
export type CarryResult = "back" | "foreign" | "model" | "placeholder" | "changed" | "age" | "size";

export type LeftOutEntry = Omit<LeftOut, "$typeName" | "count">;

/** Most entries of one request. Names of members are the client's, and there can be many. */
const entriesMax = 100;

/**
 * Collects what is left out of one request: one entry for each kind of thing and reason, at its
 * first place, with its number, because a history comes again with every request.
 */
export class Fit {
  readonly #entries = new Map<string, LeftOut>();

  leaveOut({ where, what, why }: LeftOutEntry, count = 1): void {
    const key = `${why}\0${what}`;
    const known = this.#entries.get(key);
    if (known) known.count += count;
    else if (this.#entries.size < entriesMax)
      this.#entries.set(key, {
        $typeName: "gateway.inference.v1.LeftOut",
        where,
        what: what.slice(0, 64),
        why,
        count,
      });
  }

  get leftOut(): LeftOut[] {
    return [...this.#entries.values()];
  }

  /** How often each thing happened to what a client returned. */
  readonly carried: Partial<Record<CarryResult, number>> = {};

  carry(result: CarryResult): void {
    this.carried[result] = (this.carried[result] ?? 0) + 1;
  }
}

/**
 * What stands where a provider needs the reasoning of a turn and the client lost it. Another text
 * for each turn: of a constant, models learn to answer with nothing.
 */
export function reasoningPlaceholder(calls: readonly string[], where: string, fit: Fit): string {
  notePlaceholder(where, fit);
  return `Calling ${calls.join(", then ")}.`;
}

export function notePlaceholder(where: string, fit: Fit): void {
  fit.carry("placeholder");
  fit.leaveOut({ where, what: "thinking", why: "placeholder" });
}
