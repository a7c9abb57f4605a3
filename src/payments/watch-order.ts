// The stream of an order, for a page that is open.

import { create } from "@bufbuild/protobuf";
import {
  type WatchOrderRequest,
  type WatchOrderResponse,
  WatchOrderResponseSchema,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { every } from "../base/clock.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { describe } from "./orders.ts";
import { findVisible, type Parts } from "./parts.ts";
import { pageOpenPaceMs } from "./schedule.ts";

/** Longer than the pause between two renewals, so that a slow renewal does not slow the looks. */
const openMs = 3 * pageOpenPaceMs;

/** The order now and after each change, until it is closed. Meanwhile it is looked at often. */
export async function* watchOrder(
  parts: Parts,
  { orderId }: WatchOrderRequest,
  call: AuthenticatedCall,
): AsyncGenerator<WatchOrderResponse, void> {
  const { store, watchers, wake, clock } = parts;
  await findVisible(parts, orderId, call);
  let isChanged = true;
  let notify = () => {};
  const unsubscribe = watchers.watch(orderId, () => {
    isChanged = true;
    notify();
  });
  const onAbort = () => notify();
  call.signal.addEventListener("abort", onAbort, { once: true });
  const keepOpen = async () => {
    await store.run(sql.openPage, { orderId, openMs, paceMs: pageOpenPaceMs });
    wake();
  };
  // A failed renewal slows the looks until the next one.
  const stopRenewal = every(clock, pageOpenPaceMs, () => void keepOpen().catch(() => undefined));
  try {
    await keepOpen();
    let shown: bigint | undefined;
    while (!call.signal.aborted) {
      isChanged = false;
      const order = await findVisible(parts, orderId, call);
      if (order.version !== shown) {
        shown = order.version;
        yield create(WatchOrderResponseSchema, { order: await describe(parts, order) });
      }
      if (order.state === "closed") return;
      const { promise, resolve } = Promise.withResolvers<void>();
      notify = resolve;
      if (!isChanged && !call.signal.aborted) await promise;
    }
  } finally {
    stopRenewal();
    unsubscribe();
    call.signal.removeEventListener("abort", onAbort);
  }
}
