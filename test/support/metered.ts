// An answer as its bill reads it, without a hold: every event that is not cut is handed on.

import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { withoutRuns } from "../../src/formats/text-run.ts";
import { Counted, Grant } from "../../src/inference/counted.ts";
import { type Billed, chargeAt, type EndingName } from "../../src/inference/endings.ts";
import { Reported, type UsageRules } from "../../src/inference/reported.ts";

export const usageRules: UsageRules = {
  countedInput: 77,
  writesLiveLong: false,
  contextTokens: 2 ** 31 - 1,
  webSearches: 2 ** 31 - 1,
  zeroUsage: "reported",
};

export class Metered {
  readonly reported: Reported;
  readonly counted = new Counted();
  readonly grant: Grant;
  isCut = false;

  constructor(rules: Partial<UsageRules> = {}, grantedOutput = 2 ** 31 - 1) {
    this.reported = new Reported({ ...usageRules, ...rules });
    this.grant = new Grant(grantedOutput);
  }

  /** Returns the events that come before the cut. */
  read(received: readonly Event[]): readonly Event[] {
    const mayReach = this.grant.mayReach(received, this.counted);
    const events = mayReach ? withoutRuns(received) : received;
    const until = mayReach ? this.grant.cutAt(events, this.counted) : events.length;
    const before = events.slice(0, until);
    for (const event of before) this.reported.read(event);
    for (const event of before) this.counted.add(event);
    this.isCut ||= until < events.length;
    return before;
  }

  billedAt(ending: EndingName, isPlain = false): Billed {
    return chargeAt(ending, { isPlain, reported: this.reported, counted: this.counted });
  }
}

export function metered(read: readonly Event[], rules: Partial<UsageRules> = {}): Metered {
  const answer = new Metered(rules);
  answer.read(read);
  return answer;
}
