// A field of a request that cannot be taken.

import { Refusal } from "../errors.ts";

/** `says` goes on where the name of the field ends: `is larger than 2^53`. */
export function invalid(field: string, says: string): Refusal {
  return new Refusal("invalid_request", { field, message: `${field}: ${says}` });
}
