// The names of the two families of keys and pools, as the database, errors and documents use them.

import { Family } from "../../gen/gateway/common/v1/family_pb.ts";

export type FamilyName = "v1" | "v2";

export const familyNames = ["v1", "v2"] as const satisfies readonly FamilyName[];

/** `v1` or `v2`; undefined for anything else. */
export function familyName(family: typeof Family.V1 | typeof Family.V2): FamilyName;
export function familyName(family: Family): FamilyName | undefined;
export function familyName(family: Family): FamilyName | undefined {
  if (family === Family.V1) return "v1";
  return family === Family.V2 ? "v2" : undefined;
}

/** The same of a family that a request has to name, which its check has made sure of. */
export function namedFamily(family: Family): FamilyName {
  const name = familyName(family);
  if (name === undefined) throw new Error(`${family} is no family`);
  return name;
}

export function familyOf(name: FamilyName): typeof Family.V1 | typeof Family.V2 {
  return name === "v1" ? Family.V1 : Family.V2;
}
