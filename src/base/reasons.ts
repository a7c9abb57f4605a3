// Why a call failed: the values of the API, and the names that the database and the console's
// words have, such as `not_found`.

import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";

const byName = new Map<string, Reason>(
  Object.entries(Reason).map(([name, reason]) => [name.toLowerCase(), reason]),
);
const names = new Map([...byName].map(([name, reason]) => [reason, name]));

/** The value of a name. UNSPECIFIED: this version has no such reason. */
export function reasonOf(name: string): Reason {
  return byName.get(name) ?? Reason.UNSPECIFIED;
}

/** The name of a value. Empty: it is not set. */
export function reasonName(reason: Reason): string {
  if (reason === Reason.UNSPECIFIED) return "";
  return names.get(reason) ?? "";
}
