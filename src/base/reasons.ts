// Why a call failed: the values of the API, and the names that the database and the console's
// words have, such as `not_found`.

import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";

/** The value of a name. UNSPECIFIED: this version has no such reason. */
export function reasonOf(name: string): Reason {
  return Object.entries(Reason).find(([key]) => key.toLowerCase() === name)?.[1] ?? 0;
}

/** The name of a value. Empty: it is not set. */
export function reasonName(reason: Reason): string {
  if (reason === Reason.UNSPECIFIED) return "";
  return (
    Object.entries(Reason)
      .find(([, value]) => value === reason)?.[0]
      .toLowerCase() ?? ""
  );
}
