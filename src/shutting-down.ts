// What every door says that takes nothing new.

import { Refusal } from "./errors.ts";

/** The refusal of a request or call that comes while the gateway ends. */
export function shuttingDown(): Refusal {
  return new Refusal("gateway_unavailable", {
    message: "The gateway is shutting down; try again shortly.",
    retryAfterMs: 1_000,
  });
}
