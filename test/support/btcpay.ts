// A stand-in for a BTCPay Server: invoices and their payments, as its Greenfield API shows them.

import { createHmac } from "node:crypto";
import { type JsonCall, type JsonReply, startJsonServer } from "./json-server.ts";

export const btcpayKey = "btcpay-api-key-of-tests";
export const btcpaySecret = "btcpay-webhook-secret-of-tests";
const storeId = "store-of-tests";
/** Dollars of one bitcoin. */
const rate = "65000.0";

export type BtcpayPayment = {
  id: string;
  receivedDate: number;
  value: string;
  fee: string;
  status: "Processing" | "Settled" | "Invalid";
  destination: string;
};

type Invoice = {
  id: string;
  storeId: string;
  amount: string;
  currency: string;
  type: "Standard";
  checkoutLink: string;
  createdTime: number;
  expirationTime: number;
  monitoringExpiration: number;
  status: string;
  additionalStatus: string;
  metadata: { orderId: string };
  checkout: { paymentMethods: string[]; expirationMinutes: number; monitoringMinutes: number };
};

const seconds = () => Math.floor(Date.now() / 1000);

export async function startBtcpay() {
  const invoices = new Map<string, Invoice>();
  /** By invoice and payment method. */
  const payments = new Map<string, Map<string, BtcpayPayment[]>>();
  let made = 0;

  function create(body: unknown): JsonReply {
    const { amount, currency, metadata, checkout } = Object(body);
    if (currency !== "USD") return { status: 400, body: [{ path: "currency", message: "no" }] };
    const id = `Inv${++made}`;
    const now = seconds();
    const invoice: Invoice = {
      id,
      storeId,
      amount,
      currency,
      metadata,
      checkout,
      type: "Standard",
      checkoutLink: `https://pay.example.com/i/${id}`,
      createdTime: now,
      expirationTime: now + checkout.expirationMinutes * 60,
      monitoringExpiration: now + (checkout.expirationMinutes + checkout.monitoringMinutes) * 60,
      status: "New",
      additionalStatus: "None",
    };
    invoices.set(id, invoice);
    payments.set(id, new Map(checkout.paymentMethods.map((one: string) => [one, []])));
    return { body: shown(invoice) };
  }

  const shown = (invoice: Invoice) => ({
    ...invoice,
    paidAmount: "0",
    availableStatusesForManualMarking: ["Settled", "Invalid"],
    archived: false,
    receipt: { enabled: null, showQR: null, showPayments: null },
  });

  function paymentMethods({ id, amount }: Invoice) {
    const value = Number(amount) / Number(rate);
    return [...(payments.get(id) ?? [])].map(([paymentMethodId, list]) => ({
      paymentMethodId,
      currency: "BTC",
      rate,
      activated: true,
      destination: paymentMethodId === "BTC-LN" ? `lnbc-of-${id}` : `bc1q-of-${id}`,
      paymentLink: `bitcoin:bc1q-of-${id}`,
      amount: value.toFixed(8),
      due: value.toFixed(8),
      totalPaid: "0",
      paymentMethodPaid: "0",
      paymentMethodFee: "0.0",
      additionalData: {},
      payments: list,
    }));
  }

  function answer({ method, path, query, headers, body }: JsonCall): JsonReply {
    if (headers.authorization !== `token ${btcpayKey}`)
      return { status: 401, body: { code: "unauthenticated", message: "Authentication required" } };
    if (path === `/api/v1/stores/${storeId}/invoices`) {
      if (method === "POST") return create(body);
      const text = query.get("textSearch");
      if (text !== null) {
        const isOf = ({ id }: Invoice) =>
          [...(payments.get(id)?.values() ?? [])].flat().some((one) => one.id.includes(text));
        return { body: [...invoices.values()].filter(isOf).map(shown) };
      }
      const orderId = query.get("orderId");
      return {
        body: [...invoices.values()].filter((one) => one.metadata.orderId === orderId).map(shown),
      };
    }
    const [, id = "", of = ""] =
      /^\/api\/v1\/invoices\/([^/]+)(\/payment-methods)?$/.exec(path) ?? [];
    const invoice = invoices.get(id);
    if (!invoice)
      return { status: 404, body: { code: "invoice-not-found", message: "Invoice not found" } };
    return { body: of === "" ? shown(invoice) : paymentMethods(invoice) };
  }

  const server = await startJsonServer(answer);
  return {
    ...server,
    settings: {
      type: "btcpay" as const,
      name: "btcpay",
      url: server.url,
      store: storeId,
      apiKeyEnv: "BTCPAY_API_KEY",
      webhookSecretEnv: "BTCPAY_WEBHOOK_SECRET",
      methods: [
        { id: "BTC-CHAIN", asset: "BTC", network: "bitcoin", decimals: 8 },
        { id: "BTC-LN", asset: "BTC", network: "lightning", decimals: 11 },
      ],
      confirmations: 1,
    },
    env: { BTCPAY_API_KEY: btcpayKey, BTCPAY_WEBHOOK_SECRET: btcpaySecret },
    invoices,
    invoiceOf(orderId: string): Invoice {
      const found = [...invoices.values()].findLast((one) => one.metadata.orderId === orderId);
      if (!found) throw new Error(`there is no invoice of ${orderId}`);
      return found;
    },
    /** Something arrives. With the id of an earlier payment, more becomes of that. */
    pay(orderId: string, value: string, of: Partial<BtcpayPayment> & { method?: string } = {}) {
      const { method = "BTC-CHAIN", ...rest } = of;
      const { id } = this.invoiceOf(orderId);
      const methods = payments.get(id) ?? new Map<string, BtcpayPayment[]>();
      const list = methods.get(method) ?? [];
      methods.set(method, list);
      const payment: BtcpayPayment = {
        id: `tx-${id}-${list.length}`,
        receivedDate: seconds(),
        value,
        fee: "0.0",
        status: "Settled",
        destination: `bc1q-of-${id}`,
        ...rest,
      };
      const at = list.findIndex((one) => one.id === payment.id);
      if (at < 0) list.push(payment);
      else list[at] = payment;
      return payment;
    },
    /** A webhook as that server sends it: indented, and signed over these bytes. */
    hook(orderId: string, type = "InvoiceReceivedPayment", of: object = {}) {
      const { id } = this.invoiceOf(orderId);
      return signedHook({
        deliveryId: `del-${++made}`,
        webhookId: "hook-1",
        originalDeliveryId: `del-${made}`,
        isRedelivery: false,
        type,
        timestamp: seconds(),
        storeId,
        invoiceId: id,
        metadata: { orderId },
        ...of,
      });
    },
  };
}

/** The request of a webhook, for ReceiveWebhook. */
export function signedHook(body: object, secret = btcpaySecret) {
  const raw = Buffer.from(JSON.stringify(body, null, 2));
  const hex = createHmac("sha256", secret).update(raw).digest("hex");
  return {
    processor: "btcpay",
    headers: { "btcpay-sig": `sha256=${hex}` },
    body: new Uint8Array(raw),
  };
}

export type Btcpay = Awaited<ReturnType<typeof startBtcpay>>;
