// Why something of a request or an answer was left out: the values of the API, and the names that
// charges, metrics, logs and the HTTP API have.

import { LeftOutReason } from "../../gen/gateway/common/v1/left_out_pb.ts";

const reasons = {
  hosted: LeftOutReason.HOSTED,
  foreign: LeftOutReason.FOREIGN,
  changed: LeftOutReason.CHANGED,
  age: LeftOutReason.AGE,
  model: LeftOutReason.MODEL,
  size: LeftOutReason.SIZE,
  unsupported: LeftOutReason.UNSUPPORTED,
  member: LeftOutReason.MEMBER,
  placeholder: LeftOutReason.PLACEHOLDER,
} as const;

export type LeftOutReasonName = keyof typeof reasons;

export const leftOutReasonNames = Object.keys(reasons);

const byName: ReadonlyMap<string, LeftOutReason> = new Map(Object.entries(reasons));
const names = new Map([...byName].map(([name, reason]) => [reason, name]));

/** The name of a value. `unknown`: this version has no such reason. */
export function leftOutReasonName(reason: LeftOutReason): string {
  return names.get(reason) ?? "unknown";
}

/** The value of a name. UNSPECIFIED: this version has no such reason. */
export function leftOutReasonOf(name: string): LeftOutReason {
  return byName.get(name) ?? LeftOutReason.UNSPECIFIED;
}
