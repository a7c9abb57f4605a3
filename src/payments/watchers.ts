// Tells streams of this process that an order changed: at once if this process changed it, else
// within a second, by reading the versions of all watched orders with one statement.

import * as sql from "../../gen/sql/payments.ts";
import type { Log } from "../base/log.ts";
import type { PaymentsStore } from "./store.ts";

const pollMs = 1_000;

export type Watchers = {
  /** Calls `listener` after each change. Returns the function that unsubscribes. */
  watch(orderId: string, listener: () => void): () => void;
  /** Call when this process has changed an order. */
  changed(orderId: string): void;
  stop(): void;
};

export function createWatchers(store: Pick<PaymentsStore, "run">, log: Log): Watchers {
  const watched = new Map<string, Set<() => void>>();
  let versions = new Map<string, bigint>();
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;
  let isFailing = false;

  const changed = (orderId: string) => {
    for (const listener of watched.get(orderId) ?? []) listener();
  };
  async function poll(): Promise<void> {
    try {
      const rows = await store.run(sql.readVersions, { orderIds: [...watched.keys()] });
      const found = new Map(rows.map(({ orderId, version }) => [orderId, version]));
      // An order that is new here may have changed since its stream read it.
      for (const [orderId, version] of found)
        if (versions.get(orderId) !== version) changed(orderId);
      versions = found;
      isFailing = false;
    } catch (err) {
      if (!isFailing)
        log.warn({ code: "orders_unread", err }, "cannot read the versions of watched orders");
      isFailing = true;
    }
    timer = undefined;
    schedule();
  }
  function schedule(): void {
    if (timer || isStopped || watched.size === 0) return;
    timer = setTimeout(poll, pollMs);
  }

  return {
    watch(orderId, listener) {
      const listeners = watched.get(orderId) ?? new Set();
      watched.set(orderId, listeners.add(listener));
      schedule();
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        watched.delete(orderId);
        versions.delete(orderId);
      };
    },
    changed,
    stop() {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
