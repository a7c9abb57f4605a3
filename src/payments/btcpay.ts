// BTCPay Server, by its Greenfield API. An order is one invoice with one payment method; credits
// follow its payments, never its status: an invoice that expired stays so while they confirm.

import type { Outbound } from "../base/outbound.ts";
import type { BtcpayMethod, BtcpaySettings } from "../config/catalog.ts";
import { type Answer, ask } from "./ask.ts";
import { atomsOf } from "./coins.ts";
import type {
  Fault,
  FoundPayment,
  MarketRate,
  Method,
  NewOrder,
  Processor,
  Quote,
  Secrets,
  SeenDeposit,
} from "./processor.ts";
import { checkHmac, hookMembers, hookText } from "./signature.ts";

const expirationMinutes = 30;
const monitoringMinutes = 7 * 24 * 60;
/** An invoice that was found again is used if its quote stands so long. */
const leftMsMin = 5 * 60_000;
/** Invoices whose payments a search reads. */
const searchedMax = 10;

const speedPolicies: Readonly<Record<number, string>> = {
  1: "MediumSpeed",
  2: "LowMediumSpeed",
  6: "LowSpeed",
};

const feeNotes: Readonly<Record<string, string>> = {
  lightning: "Arrives within seconds, for a fee of cents.",
  bitcoin: "The network's fee is the sender's. Some exchanges subtract it: send the full amount.",
};

export function createBtcpay(
  settings: BtcpaySettings,
  secrets: Secrets,
  parts: {
    readonly publicUrl: () => URL;
    readonly marketRate?: MarketRate | undefined;
    readonly outbound: Outbound;
  },
): Processor {
  const { name, store } = settings;
  const methods = settings.methods.map(
    ({ asset, network, decimals }): Method => ({
      asset,
      network,
      decimals,
      method: `${name}:${asset.toLowerCase()}-${network}`,
      leastUsdMicro: 5_000_000n,
      feeNote:
        feeNotes[network] ?? "The network's fee is the sender's. Send the full amount, at once.",
    }),
  );
  const call = (path: string, signal: AbortSignal, body?: unknown) =>
    ask({
      outbound: parts.outbound,
      whom: name,
      signal,
      url: `${settings.url}/api/v1/${path}`,
      headers: { authorization: `token ${secrets.apiKey}` },
      ...(body !== undefined && { body }),
    });
  const ofStore = `stores/${encodeURIComponent(store)}/invoices`;
  const ofInvoice = (id: string) => `invoices/${encodeURIComponent(id)}`;

  /** An invoice that an earlier call made, whose answer was lost. */
  async function findInvoice({ orderId }: NewOrder, signal: AbortSignal) {
    const found = await call(`${ofStore}?orderId=${encodeURIComponent(orderId)}`, signal);
    return found
      .list()
      .find(
        (one) =>
          one.optional("status") === "New" &&
          one.at("metadata").optional("orderId") === orderId &&
          one.at("expirationTime").time().getTime() > Date.now() + leftMsMin,
      );
  }

  function createInvoice({ orderId, usdMicro }: NewOrder, id: string, signal: AbortSignal) {
    const cents = String(usdMicro / 10_000n).padStart(3, "0");
    return call(ofStore, signal, {
      amount: `${cents.slice(0, -2)}.${cents.slice(-2)}`,
      currency: "USD",
      metadata: { orderId },
      checkout: {
        expirationMinutes,
        monitoringMinutes,
        speedPolicy: speedPolicies[settings.confirmations] ?? "LowSpeed",
        paymentTolerance: 0,
        paymentMethods: [id],
        redirectURL: new URL(`console/credits/${orderId}`, parts.publicUrl()).href,
        redirectAutomatically: true,
      },
    });
  }

  const processor: Processor = {
    name,
    isSimulated: false,
    methods: async () => methods,
    async open(order, signal) {
      const index = methods.findIndex(({ method }) => method === order.method);
      const method = settings.methods[index];
      if (!method) throw new Error(`${name} has no method ${order.method}`);
      const earlier = order.isRepeat ? await findInvoice(order, signal) : undefined;
      const invoice = earlier ?? (await createInvoice(order, method.id, signal));
      const id = invoice.at("id").text();
      const shown = await call(`${ofInvoice(id)}/payment-methods`, signal);
      const chosen = shown.list().find((one) => one.optional("paymentMethodId") === method.id);
      if (!chosen) throw shown.fault(`has no ${method.id}: is it enabled in the store?`);
      return quoteOf(invoice, chosen, method);
    },
    async look({ orderId, externalId }, signal) {
      const [invoice, shown] = await Promise.all([
        call(ofInvoice(externalId), signal),
        call(`${ofInvoice(externalId)}/payment-methods?onlyAccountedPayments=false`, signal),
      ]);
      if (invoice.optional("storeId") !== store) throw invoice.fault("is of another store");
      if (invoice.at("metadata").optional("orderId") !== orderId)
        throw invoice.fault("is of another order");
      const isMarked =
        invoice.at("additionalStatus").text() === "Marked" &&
        invoice.at("status").text() === "Settled";
      const faults: Fault[] = isMarked ? ["marked"] : [];
      return { deposits: shown.list().flatMap((one) => depositsOf(one, settings)), faults };
    },
    async findPayments(hashOrId, signal) {
      const text = hashOf(hashOrId) === hashOrId ? bare(hashOrId) : hashOrId;
      const query = `textSearch=${encodeURIComponent(text)}&take=${searchedMax}`;
      const invoices = (await call(`${ofStore}?${query}`, signal)).list().slice(0, searchedMax);
      const found: FoundPayment[] = [];
      // One after the other: of those at once, the others would go on when one fails.
      for (const invoice of invoices) {
        const externalId = invoice.at("id").text();
        const path = `${ofInvoice(externalId)}/payment-methods?onlyAccountedPayments=false`;
        const shown = await call(path, signal);
        const deposits = shown
          .list()
          .flatMap((one) => depositsOf(one, settings))
          .filter(({ externalId: id, hash = "" }) => [id, bare(hash)].includes(text));
        found.push(...deposits.map((deposit) => ({ externalId, deposit })));
      }
      return found;
    },
    marketRate: parts.marketRate,
  };
  const { webhookSecret } = secrets;
  if (webhookSecret === undefined) return processor;
  return {
    ...processor,
    readHook(headers, raw) {
      const [, hex = ""] = /^sha256=(.*)$/.exec(headers["btcpay-sig"] ?? "") ?? [];
      checkHmac("sha256", webhookSecret, raw, hex);
      const members = hookMembers(raw);
      const of = (member: string) => hookText(members.get(member));
      return {
        deliveryKey: of("deliveryId") && `${of("originalDeliveryId")} ${of("deliveryId")}`,
        externalId: of("storeId") === store ? of("invoiceId") : "",
      };
    },
  };
}

function quoteOf(invoice: Answer, chosen: Answer, { decimals }: BtcpayMethod): Quote {
  const atoms = atomsOf(chosen.at("due").text(), decimals);
  const rate = atomsOf(chosen.at("rate").text(), 6);
  if (!atoms) throw chosen.at("due").fault("is no amount");
  if (!rate) throw chosen.at("rate").fault("is no rate");
  const checkout = invoice.at("checkoutLink").text();
  if (!/^https?:$/.test(URL.canParse(checkout) ? new URL(checkout).protocol : ""))
    throw invoice.at("checkoutLink").fault("is no address");
  const leftMs = (member: string) => Math.max(0, invoice.at(member).time().getTime() - Date.now());
  const quotedForMs = leftMs("expirationTime");
  return {
    atoms,
    rate,
    quotedForMs,
    externalId: invoice.at("id").text(),
    payTo: chosen.at("destination").text(),
    memo: "",
    checkoutUrl: checkout,
    watchedForMs: Math.max(quotedForMs, leftMs("monitoringExpiration")),
  };
}

const depositStates: Readonly<Record<string, SeenDeposit["state"]>> = {
  Processing: "seen",
  Settled: "settled",
  Invalid: "lost",
};

/** The payments of one payment method. One without an amount has still to be counted. */
function depositsOf(shown: Answer, { methods, confirmations }: BtcpaySettings): SeenDeposit[] {
  const id = shown.at("paymentMethodId").text();
  const { asset, network, decimals } = methods.find((one) => one.id === id) ?? {
    asset: shown.optional("currency").toUpperCase() || "unknown",
    network: id.toLowerCase(),
    decimals: 18,
  };
  return shown
    .at("payments")
    .list()
    .flatMap((payment) => {
      const atoms = atomsOf(payment.at("value").text(), decimals);
      const state = depositStates[payment.at("status").text()];
      if (atoms === undefined) throw payment.at("value").fault("is no amount");
      if (state === undefined) throw payment.at("status").fault("is unknown");
      if (atoms === 0n) return [];
      return {
        asset,
        network,
        decimals,
        atoms,
        state,
        externalId: payment.at("id").text(),
        hash: hashOf(payment.at("id").text()),
        firstSeenAt: payment.at("receivedDate").time(),
        confirmations: state === "settled" ? confirmations : 0,
        confirmationsNeeded: confirmations,
      };
    });
}

/** A hash as it is compared. */
function bare(hash: string): string {
  return hash.toLowerCase().replace(/^0x/, "");
}

/** The id of a payment on a chain is its transaction and output. That of another is no hash. */
function hashOf(id: string): string | undefined {
  return /^(0x)?[0-9a-f]{64}(?=-|$)/i.exec(id)?.[0];
}
