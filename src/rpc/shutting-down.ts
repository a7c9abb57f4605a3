// What a door that takes no new calls says.

import { Refusal } from "../errors.ts";

export function shuttingDown(): Refusal {
  return new Refusal("gateway_unavailable", {
    message: "The gateway is shutting down; try again shortly.",
    retryAfterMs: 1_000,
  });
}
