// A stand-in for NOWPayments: payments with a fixed rate, redeposits, and signed notifications.

import { createHmac } from "node:crypto";
import { canonicalJson } from "../../src/payments/signature.ts";
import { type JsonCall, type JsonReply, startJsonServer } from "./json-server.ts";

export const nowpaymentsKey = "nowpayments-api-key-of-tests";
export const ipnSecret = "nowpayments-ipn-secret-of-tests";

/** Dollars of one coin. */
const rates: Record<string, number> = { btc: 65_000, eth: 2_500, usdttrc20: 1 };

export type NowPayment = Record<string, unknown> & {
  payment_id: number | string;
  payment_status: string;
  order_id: string | null;
  pay_amount: number;
  pay_currency: string;
  actually_paid: number | string;
  actually_paid_at_fiat: number;
  parent_payment_id: number | string | null;
  payment_extra_ids: (number | string)[] | null;
  created_at: string;
  updated_at: string | number;
  expiration_estimate_date: string;
};

export async function startNowpayments() {
  const payments = new Map<string, NowPayment>();
  /** Dollars of the smallest payment, by coin. Absent: the coin is unknown there. */
  const least: Record<string, number> = { btc: 3.5, eth: 7.25, usdttrc20: 4.99 };
  let made = 4_492_847_470;
  /** False: the list of payments asks for more rights. */
  const rights = { list: true };

  function create(body: unknown): JsonReply {
    const { price_amount, price_currency, pay_currency, order_id, order_description } =
      Object(body);
    const rate = rates[pay_currency];
    if (rate === undefined)
      return { status: 400, body: { statusCode: 400, code: "BAD_COIN", message: "no such coin" } };
    const id = ++made;
    const now = new Date();
    const payment: NowPayment = {
      // They answer a create with the id as a text, and everything else with a number.
      payment_id: id,
      payment_status: "waiting",
      pay_address: `address-of-${id}`,
      payin_extra_id: pay_currency === "usdttrc20" ? "memo-1" : null,
      price_amount,
      price_currency,
      pay_currency,
      order_id,
      order_description,
      pay_amount: Number((price_amount / rate).toPrecision(8)),
      amount_received: null,
      network: pay_currency,
      network_precision: 8,
      smart_contract: null,
      time_limit: null,
      burning_percent: null,
      actually_paid: 0,
      actually_paid_at_fiat: 0,
      parent_payment_id: null,
      payment_extra_ids: null,
      purchase_id: "6105448077",
      expiration_estimate_date: new Date(now.getTime() + 20 * 60_000).toISOString(),
      valid_until: new Date(now.getTime() + 7 * 86_400_000).toISOString(),
      created_at: now.toISOString(),
      updated_at: now.toISOString(),
    };
    payments.set(String(id), payment);
    return { status: 201, body: { ...payment, payment_id: String(id) } };
  }

  function answer({ method, path, query, headers, body }: JsonCall): JsonReply {
    if (headers["x-api-key"] !== nowpaymentsKey)
      return {
        status: 403,
        body: { statusCode: 403, code: "INVALID_API_KEY", message: "bad key" },
      };
    if (path === "/v1/min-amount") {
      const coin = query.get("currency_from") ?? "";
      const usd = least[coin];
      if (usd === undefined) return { status: 400, body: { message: "no such currency" } };
      const min_amount = usd / (rates[coin] ?? 1);
      return { body: { currency_from: coin, currency_to: coin, min_amount, fiat_equivalent: usd } };
    }
    if (path === "/v1/payment" && method === "POST") return create(body);
    if (path === "/v1/payment/") {
      if (!rights.list)
        return { status: 401, body: { code: "AUTH_REQUIRED", message: "no token" } };
      const all = [...payments.values()];
      const limit = Number(query.get("limit"));
      const page = Number(query.get("page"));
      const data = all.slice(page * limit, (page + 1) * limit);
      const pagesCount = Math.ceil(all.length / limit);
      return { body: { data, limit, page, pagesCount, total: all.length } };
    }
    const payment = payments.get(path.slice("/v1/payment/".length));
    if (!payment) return { status: 404, body: { statusCode: 404, message: "Payment not found" } };
    return { body: payment };
  }

  const server = await startJsonServer(answer);
  const paymentOf = (orderId: string): NowPayment => {
    const found = [...payments.values()].findLast(
      (one) => one.order_id === orderId && one.parent_payment_id === null,
    );
    if (!found) throw new Error(`there is no payment of ${orderId}`);
    return found;
  };
  return {
    ...server,
    payments,
    least,
    rights,
    settings: {
      type: "nowpayments" as const,
      name: "nowpayments",
      url: `${server.url}/v1`,
      apiKeyEnv: "NOWPAYMENTS_API_KEY",
      webhookSecretEnv: "NOWPAYMENTS_IPN_SECRET",
      coins: ["btc", "eth", "usdttrc20", "usdcsol"],
    },
    env: { NOWPAYMENTS_API_KEY: nowpaymentsKey, NOWPAYMENTS_IPN_SECRET: ipnSecret },
    paymentOf,
    /** What became of the payment of an order. */
    become(orderId: string, of: Partial<NowPayment>): NowPayment {
      return Object.assign(paymentOf(orderId), { updated_at: new Date().toISOString(), ...of });
    },
    /** Another payment to the address of an order. `isHidden`: only its notification names it. */
    redeposit(orderId: string, of: Partial<NowPayment>, isHidden = false): NowPayment {
      const first = paymentOf(orderId);
      const payment: NowPayment = {
        ...first,
        payment_id: ++made,
        parent_payment_id: first.payment_id,
        payment_extra_ids: null,
        payment_status: "finished",
        updated_at: Date.now(),
        ...of,
      };
      payments.set(String(payment.payment_id), payment);
      if (!isHidden)
        first.payment_extra_ids = [...(first.payment_extra_ids ?? []), payment.payment_id];
      return payment;
    },
    hook: (payment: object, of: object = {}) => signedIpn({ ...payment, ...of }),
  };
}

/** The request of a notification, for ReceiveWebhook. */
export function signedIpn(body: object, secret = ipnSecret) {
  const raw = Buffer.from(JSON.stringify(body, null, 1));
  const hex = createHmac("sha512", secret).update(canonicalJson(raw)).digest("hex");
  return {
    processor: "nowpayments",
    headers: { "x-nowpayments-sig": hex },
    body: new Uint8Array(raw),
  };
}

export type Nowpayments = Awaited<ReturnType<typeof startNowpayments>>;
