// The simulated processor: all coins, pretended. Its addresses are valid on no chain. A tester
// says what arrives.

import { createHash } from "node:crypto";
import * as sql from "../../gen/sql/payments.ts";
import { coins } from "../config/catalog.ts";
import { atomsFor, type Method, type Processor, usualOf } from "./processor.ts";
import { checkHmac, hookMembers, hookText } from "./signature.ts";
import type { PaymentsStore } from "./store.ts";

const microDollars = 1_000_000n;
const quotedForMs = 15 * 60_000;
const watchedForMs = 7 * 24 * 3_600_000;
/** How old a rate of the market may be. */
const rateMsMax = 60_000;

const confirmationsNeeded = 1;

/**
 * `webhookSecret`: signs webhooks, which have the header `x-simulated-signature: sha256=<hex>`, the
 * HMAC of the body, and the body `{ "delivery_id": …, "order_id": … }`. Undefined: it has none.
 */
export function createSimulated(
  name: string,
  store: Pick<PaymentsStore, "listSimulated" | "run">,
  webhookSecret?: string,
): Processor {
  const methods = () =>
    coins.map(
      (coin): Method => ({
        ...usualOf(coin),
        method: `${name}:${coin.asset.toLowerCase()}`,
        leastUsdMicro: 5_000_000n,
        feeNote: "No real money: a tester says what arrives.",
      }),
    );
  // It never changes, so that a played case can be repeated.
  const rateOf = ({ asset }: { asset: string }) => {
    const coin = coins.find((one) => one.asset === asset);
    return coin && BigInt(coin.simulatedUsd) * microDollars;
  };
  return {
    name,
    isSimulated: true,
    methods: async () => methods(),
    async open({ orderId, method, usdMicro }) {
      const asset = methods().find((one) => one.method === method);
      const rate = asset && rateOf(asset);
      if (!asset || rate === undefined) throw new Error(`${name} has no method ${method}`);
      const digest = createHash("sha256").update(orderId).digest("hex").slice(0, 24);
      return {
        externalId: orderId,
        atoms: atomsFor(usdMicro, rate, asset.decimals),
        rate,
        payTo: `simulated-${asset.asset.toLowerCase()}-${digest}`,
        memo: "",
        checkoutUrl: "",
        quotedForMs,
        watchedForMs,
      };
    },
    look: async ({ orderId }) => ({
      faults: (await store.run(sql.listSimulatedFaults, { orderId })).map(({ fault }) => fault),
      deposits: (await store.listSimulated(orderId)).map(({ depositId, isLost, ...rest }) => ({
        ...rest,
        externalId: depositId,
        state: isLost
          ? ("lost" as const)
          : rest.confirmations >= confirmationsNeeded
            ? ("settled" as const)
            : ("seen" as const),
        confirmationsNeeded,
      })),
    }),
    ...(webhookSecret !== undefined && {
      readHook(headers: Readonly<Record<string, string>>, raw: Buffer) {
        const [, hex = ""] = /^sha256=(.*)$/.exec(headers["x-simulated-signature"] ?? "") ?? [];
        checkHmac("sha256", webhookSecret, raw, hex);
        const members = hookMembers(raw);
        return {
          deliveryKey: hookText(members.get("delivery_id")),
          externalId: hookText(members.get("order_id")),
        };
      },
    }),
    // A rate of the past is unknown, as it is at real sources.
    marketRate: async (asset, at) =>
      typeof at === "string" || Math.abs(Date.now() - at.getTime()) <= rateMsMax
        ? rateOf(asset)
        : undefined,
  };
}
