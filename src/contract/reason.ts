// Why somebody acted at the operator's desk: a sentence that the audit event keeps for good.

import { invalidField } from "../base/errors.ts";
import { checkText } from "../base/names.ts";
import { reasonCharactersMin } from "../base/shown-figures.ts";
import type { AuthenticatedCall } from "./contract.ts";

/** The reason of an act, trimmed. Notes it for the audit event. Throws `invalid_request`. */
export function readReason(text: string, call: Pick<AuthenticatedCall, "note">): string {
  const reason = readOptionalReason(text, call);
  if ([...reason].length < reasonCharactersMin)
    throw invalidField("reason", `has at least ${reasonCharactersMin} characters`);
  return reason;
}

/** The same where it may be left out, or be short. Empty: nobody gave one. */
export function readOptionalReason(
  text: string,
  { note }: Pick<AuthenticatedCall, "note">,
): string {
  const reason = checkText("reason", text).trim();
  if (reason !== "") note?.({ reason });
  return reason;
}
