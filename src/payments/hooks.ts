// Webhooks of payment processors. A webhook is a knock, never a statement: it is verified and
// noted, and makes the poller look at its order at once. Amounts come only from that look. So a
// forged, repeated, late or lost one can change nothing but the time of a look.

import { hash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import {
  type ReceiveWebhookRequest,
  ReceiveWebhookResponseSchema,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { ApiError } from "../base/errors.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { Parts } from "./parts.ts";

/** Larger bodies are refused, on every listener. */
const hookBytesMax = 64 * 1024;

/**
 * Takes a webhook in. Throws `not_found` for a processor without webhooks, `request_too_large`,
 * `invalid_signature`, and `database_unavailable` if it cannot be noted.
 */
export async function receiveHook(
  { store, processors, wake }: Pick<Parts, "store" | "processors" | "wake">,
  { processor: name, headers, body }: ReceiveWebhookRequest,
) {
  const processor = processors().get(name);
  if (!processor?.readHook) throw new ApiError("not_found", { message: "No such path." });
  if (body.length > hookBytesMax)
    throw new ApiError("request_too_large", {
      message: `A webhook has at most ${hookBytesMax} bytes.`,
      limit: { name: "body_bytes", limit: BigInt(hookBytesMax) },
    });
  const raw = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const bodySha256 = hash("sha256", raw, "buffer");
  const { deliveryKey, externalId, depositId = "" } = processor.readHook(headers, raw);
  const due = await store.run(sql.receiveHook, {
    processor: name,
    externalId,
    depositId,
    bodySha256,
    // What names no delivery is one by its content.
    deliveryKey: deliveryKey === "" ? bodySha256.toString("hex") : deliveryKey,
  });
  if (due > 0) wake();
  return create(ReceiveWebhookResponseSchema);
}

const cleaningMs = 3_600_000;

/** Removes what the inbox and the rates have kept for 90 days, once an hour. */
export function createCleaning({
  store,
  clock,
  log,
}: Pick<Parts, "store" | "clock" | "log">): Task {
  return new Task({
    async run() {
      await store.run(sql.removeHooks);
      await store.run(sql.removeSamples);
    },
    firstMs: cleaningMs,
    everyMs: cleaningMs,
    report: warnOnce(log, {
      code: "webhooks_not_removed",
      failed: "old webhooks could not be removed",
    }),
    clock,
  });
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** old webhooks stay longer; look at the database if it goes on */
    webhooks_not_removed: true;
  }
}
