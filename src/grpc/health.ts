// The standard health service (grpc.health.v1). It reports the readiness of each service, and of
// all services together under the empty name.

import { HealthImplementation, type ServingStatusMap } from "grpc-health-check";
import { Task } from "../base/task.ts";
import { type Services, serviceTypes } from "../contract/contract.ts";

/** For the services of each folder, whether they can answer now. */
export type ServingServices = { readonly [P in keyof Services]: boolean };

const checkIntervalMs = 1_000;

export type Health = {
  readonly implementation: HealthImplementation;
  /** Checks the readiness now and then every second. Resolves after the first check. */
  follow(): Promise<void>;
  /** Reports every service as NOT_SERVING from now on. */
  stop(): void;
};

export function createHealth(readiness: () => Promise<ServingServices>): Health {
  const nothing: ServingServices = {
    billing: false,
    keys: false,
    inference: false,
    people: false,
    payments: false,
    alerts: false,
    operations: false,
  };
  let reported = statusesOf(nothing);
  const implementation = new HealthImplementation(reported);
  const report = (serving: ServingServices) => {
    const next = statusesOf(serving);
    for (const [name, status] of Object.entries(next)) {
      // Every call of setStatus notifies the watchers.
      if (reported[name] !== status) implementation.setStatus(name, status);
    }
    reported = next;
  };

  const first = Promise.withResolvers<void>();
  const checks = new Task({
    async run(stopping) {
      // A failed check means: not ready.
      const serving = await readiness().catch(() => nothing);
      if (!stopping.aborted) report(serving);
      first.resolve();
    },
    everyMs: checkIntervalMs,
    report: { failed() {} },
  });
  return {
    implementation,
    follow() {
      checks.start();
      return first.promise;
    },
    stop() {
      void checks.stop();
      report(nothing);
    },
  };
}

function statusesOf(serving: ServingServices): ServingStatusMap {
  const { billing, keys, inference, people, payments, alerts, operations } = serving;
  const all = [billing, keys, inference, people, payments, alerts, operations];
  return {
    "": statusOf(all.every((one) => one)),
    ...statusesIn(serviceTypes.billing, billing),
    ...statusesIn(serviceTypes.keys, keys),
    ...statusesIn(serviceTypes.inference, inference),
    ...statusesIn(serviceTypes.people, people),
    ...statusesIn(serviceTypes.payments, payments),
    ...statusesIn(serviceTypes.alerts, alerts),
    ...statusesIn(serviceTypes.operations, operations),
  };
}

function statusesIn(
  { services }: (typeof serviceTypes)[keyof Services],
  serving: boolean,
): ServingStatusMap {
  return Object.fromEntries(services.map(({ typeName }) => [typeName, statusOf(serving)]));
}

function statusOf(serving: boolean): "SERVING" | "NOT_SERVING" {
  return serving ? "SERVING" : "NOT_SERVING";
}
