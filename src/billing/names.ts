// How enums of the API are written in the database: their names in lower case.

import { Basis, Outcome, TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";

export const [outcomeName, outcomeOf] = naming(Outcome);
export const [basisName, basisOf] = naming(Basis);
export const [transferKindName, transferKindOf] = naming(TransferKind);

/** Maps an enum to its names and back. An unknown number or name is a bug, not an input. */
function naming<E extends Record<string, number>>(names: E): [(value: number) => string, (name: string) => E[keyof E]] {
  const nameOf = new Map<number, string>();
  const memberOf = new Map<string, E[keyof E]>();
  for (const key in names) {
    const value = names[key];
    if (value === undefined) continue;
    nameOf.set(value, key.toLowerCase());
    memberOf.set(key.toLowerCase(), value);
  }
  return [(value) => found(nameOf.get(value), value), (name) => found(memberOf.get(name), name)];
}

function found<T>(entry: T | undefined, of: number | string): T {
  if (entry === undefined) throw new Error(`no such enum member: ${of}`);
  return entry;
}
