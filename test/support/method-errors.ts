// The errors that the comments of the protos name.

import { readFileSync } from "node:fs";
import { comments } from "../../gen/comments.ts";

const names = (text: string): Set<string> => new Set(text.match(/\b[A-Z][A-Z_]{3,}\b/g));

/** What the comment of a method says of its own errors, without their causes. */
export function errorsText(method: string): string | undefined {
  const [, errors] = /Errors?: (.*)/s.exec(comments[method] ?? "") ?? [];
  return errors?.replaceAll(/\([^()]*\)/g, "");
}

/** The reasons that the comment of a method names, such as `WRONG_STATE`. */
export function errorsOf(method: string): ReadonlySet<string> {
  return names(errorsText(method) ?? "");
}

/** The reasons for which every method can fail, as the comment of all services has them. */
export const errorsOfAll: ReadonlySet<string> = names(
  /Every method can besides fail(.*?)\n\n/s.exec(
    readFileSync("proto/gateway/common/v1/error.proto", "utf8"),
  )?.[1] ?? "",
);
