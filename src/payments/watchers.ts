// Tells streams of this process that an order changed: at once if this process changed it, else
// within a second, by reading the versions of all watched orders with one statement.

import * as sql from "../../gen/sql/payments.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { PaymentsStore } from "./store.ts";

const pollMs = 1_000;

export type Watchers = {
  /** Calls `listener` after each change. Returns the function that unsubscribes. */
  watch(orderId: string, listener: () => void): () => void;
  /** Call when this process has changed an order. */
  changed(orderId: string): void;
  stop(): Promise<void>;
};

export function createWatchers(parts: {
  store: Pick<PaymentsStore, "run">;
  clock: Clock;
  log: Log;
}): Watchers {
  const { store, clock, log } = parts;
  const watched = new Map<string, Set<() => void>>();
  let versions = new Map<string, bigint>();

  const changed = (orderId: string) => {
    for (const listener of watched.get(orderId) ?? []) listener();
  };
  const polling = new Task({
    async run() {
      const rows = await store.run(sql.readVersions, { orderIds: [...watched.keys()] });
      const found = new Map(rows.map(({ orderId, version }) => [orderId, version]));
      // An order that is new here may have changed since its stream read it.
      for (const [orderId, version] of found)
        if (versions.get(orderId) !== version) changed(orderId);
      versions = found;
    },
    firstMs: pollMs,
    everyMs: pollMs,
    report: warnOnce(log, {
      code: "orders_unread",
      failed: "cannot read the versions of watched orders",
    }),
    clock,
  });

  return {
    watch(orderId, listener) {
      const listeners = watched.get(orderId) ?? new Set();
      watched.set(orderId, listeners.add(listener));
      polling.start();
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        watched.delete(orderId);
        versions.delete(orderId);
        if (watched.size === 0) polling.pause();
      };
    },
    changed,
    stop: () => polling.stop(),
  };
}
