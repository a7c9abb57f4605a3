// How much an answer may produce. A provider far past it is stopped.

import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { runOf } from "../formats/text-run.ts";
import { bytesPerToken, Counted } from "./counted.ts";
import type { Reported } from "./reported.ts";

export class Grant {
  /** Output tokens, thinking included. */
  readonly output: number;
  /** False for an answer that came in one piece: it is delivered whole. */
  mayCut = true;

  constructor(output: number) {
    this.output = output;
  }

  /**
   * True if the answer may exceed its grant with these events. It is cut between two deltas, so
   * those of a run are needed one by one then.
   */
  mayReach(events: readonly Event[], { bytes }: Counted): boolean {
    if (!this.mayCut) return false;
    let most = bytes;
    for (const event of events) most += contentBytesMax(event);
    return this.#isAbove(most);
  }

  /** Index of the first of these events with which the answer exceeds its grant. -1: none. */
  cutAt(events: readonly Event[], { bytes }: Counted): number {
    const further = new Counted();
    return events.findIndex((event) => {
      further.add(event);
      return event.kind.case === "blockDelta" && this.#isAbove(bytes + further.bytes);
    });
  }

  /** True if the provider itself reported that it exceeds the grant, before its end. */
  isExceeded({ phase, output = 0 }: Reported): boolean {
    if (!this.mayCut || phase !== "running") return false;
    // The provider's count is exact. The margin allows for tokens that it generated before it
    // stopped.
    return output > this.output + Math.max(256, this.output * 0.05);
  }

  // Our own count estimates 4 bytes a token. Indented code and tables have up to 8.
  #isAbove(bytes: number): boolean {
    return bytes > bytesPerToken * (2 * this.output + 1_024);
  }
}

/** An upper bound of the bytes that `Counted` adds for an event. */
function contentBytesMax({ kind }: Event): number {
  if (kind.case === "blockStart") {
    const block = kind.value.block?.kind;
    return block?.case === "text" ? 3 * block.value.text.length : Number.POSITIVE_INFINITY;
  }
  if (kind.case !== "blockDelta") return 0;
  const run = runOf(kind.value);
  if (run) return run.textBytes;
  const delta = kind.value.kind;
  return typeof delta.value === "string" ? 3 * delta.value.length : Number.POSITIVE_INFINITY;
}
