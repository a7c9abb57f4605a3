// The standard health service (grpc.health.v1): each service as ready as the readiness of its
// parts, and all of them together under the empty name.

import { HealthImplementation, type ServingStatusMap } from "grpc-health-check";
import { type Services, serviceTypes } from "../contract/contract.ts";

/** Which services can answer at this moment. */
export type ServingServices = { readonly [P in keyof Services]: boolean };

const askAgainMs = 1_000;

export type Health = {
  readonly implementation: HealthImplementation;
  /** Asks for the readiness once, and from then on every second. */
  follow(): Promise<void>;
  /** Reports nothing as serving from now on. */
  stop(): void;
};

export function createHealth(readiness: () => Promise<ServingServices>): Health {
  const nothing: ServingServices = { billing: false, keys: false, inference: false };
  let shown = statusesOf(nothing);
  const implementation = new HealthImplementation(shown);
  const show = (serving: ServingServices) => {
    const next = statusesOf(serving);
    for (const [name, status] of Object.entries(next)) {
      // Watchers hear of changes only.
      if (shown[name] !== status) implementation.setStatus(name, status);
    }
    shown = next;
  };

  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  const ask = async () => {
    // Whoever cannot say that it is ready is not.
    const serving = await readiness().catch(() => nothing);
    if (stopped) return;
    show(serving);
    timer = setTimeout(ask, askAgainMs).unref();
  };
  return {
    implementation,
    follow: ask,
    stop() {
      stopped = true;
      clearTimeout(timer);
      show(nothing);
    },
  };
}

function statusesOf(serving: ServingServices): ServingStatusMap {
  const { billing, keys, inference } = serving;
  return {
    "": statusOf(billing && keys && inference),
    [serviceTypes.billing.typeName]: statusOf(billing),
    [serviceTypes.keys.typeName]: statusOf(keys),
    [serviceTypes.inference.typeName]: statusOf(inference),
  };
}

function statusOf(serving: boolean): "SERVING" | "NOT_SERVING" {
  return serving ? "SERVING" : "NOT_SERVING";
}
