// Points in time as the two formats write them.

import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";

/** RFC 3339 in UTC, with milliseconds only where there are some: `2026-02-05T00:00:00Z`. */
export function rfc3339(time: Date): string {
  return time.toISOString().replace(".000Z", "Z");
}

/** The same of a message field; null where it is absent. */
export function rfc3339OrNull(time: Timestamp | undefined): string | null {
  return time === undefined ? null : rfc3339(timestampDate(time));
}
