// NOWPayments, hosted. An order is one payment with a fixed rate. What is sent to its address once
// more is a payment of its own there, which names the first one as its parent.

import { invalidField } from "../base/errors.ts";
import { microCreditsPerMicroDollar } from "../base/money.ts";
import type { Outbound } from "../base/outbound.ts";
import { type NowpaymentsSettings, nowpaymentsCoins } from "../config/catalog.ts";
import { type Answer, ask, RefusedError } from "./ask.ts";
import { atomsOf } from "./coins.ts";
import { isStablecoin } from "./decide.ts";
import type {
  Asset,
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
import { canonicalJson, checkHmac, hookMembers, hookText } from "./signature.ts";

const microDollars = 1_000_000n;
/** The smallest pack. */
const packUsdMicro = 5n * microDollars;
const minute = 60_000;
/** For so long stands a fixed rate, and is an address watched. */
const quotedMsMax = 20 * minute;
const watchedForMs = 7 * 24 * 60 * minute;
/** A payment that was found again is used if its quote stands so long. */
const leftMsMin = 5 * minute;
/** How long the smallest payment of a coin is believed, and how soon it is asked for again. */
const leastMsMax = 10 * minute;
const leastRetryMs = minute / 2;
/** A page that lists what is offered waits for it. */
const leastAnswerMsMax = minute / 20;
/** Payments to one address that are asked for, and those at once. A person looks at more. */
const furtherMax = 200;
const askedAtOnce = 10;
/** Payments of a page of their list, and pages of it that a search reads. */
const pageRows = 500;
const pagesMax = 20;

type Least = { readonly usdMicro: bigint | undefined; readonly untilMs: number };

export function createNowpayments(
  { name, url, coins }: NowpaymentsSettings,
  { apiKey, webhookSecret }: Secrets,
  parts: {
    readonly publicUrl: () => URL;
    readonly marketRate?: MarketRate | undefined;
    readonly outbound: Outbound;
  },
): Processor {
  const call = (path: string, signal: AbortSignal, body?: unknown) =>
    ask({
      outbound: parts.outbound,
      whom: name,
      signal,
      url: `${url}/${path}`,
      headers: { "x-api-key": apiKey },
      ...(body !== undefined && { body }),
    });
  const least = new Map<string, Least>();

  /** The smallest payment of a coin. Undefined: unknown. */
  async function leastOf(coin: string, signal: AbortSignal): Promise<bigint | undefined> {
    const known = least.get(coin);
    if (known && known.untilMs > performance.now()) return known.usdMicro;
    const query = `currency_from=${coin}&currency_to=${coin}&fiat_equivalent=usd`;
    const soon = AbortSignal.any([signal, AbortSignal.timeout(leastAnswerMsMax)]);
    const found = await call(`min-amount?${query}`, soon)
      .then((answer) => toLeast(answer, coin))
      .catch(() => undefined);
    const usdMicro = found ?? known?.usdMicro;
    const keptMs = found === undefined ? leastRetryMs : leastMsMax;
    least.set(coin, { usdMicro, untilMs: performance.now() + keptMs });
    return usdMicro;
  }

  async function toLeast(answer: Answer, coin: string): Promise<bigint | undefined> {
    const fiat = answer.at("fiat_equivalent");
    if (!fiat.isAbsent) return atomsOf(fiat.text(), 6);
    const amount = atomsOf(answer.at("min_amount").text(), 6);
    const asset = assetOf(coin);
    const rate = isStablecoin(asset) ? microDollars : await parts.marketRate?.(asset, "now");
    return amount === undefined || rate === undefined ? undefined : (amount * rate) / microDollars;
  }

  /**
   * A payment that an earlier call made, whose answer was lost. The list can need more rights than
   * the key has: then the order is opened anew, since nobody was shown the lost address.
   */
  async function findPayment({ orderId, createdAt }: NewOrder, signal: AbortSignal) {
    const from = new Date(createdAt.getTime() - 24 * 60 * minute).toISOString().slice(0, 10);
    for (let page = 0; page < pagesMax; page++) {
      const query = `limit=${pageRows}&page=${page}&dateFrom=${from}`;
      const found = await call(`payment/?${query}`, signal).catch((error: unknown) => {
        if (error instanceof RefusedError && [401, 403].includes(error.status)) return undefined;
        throw error;
      });
      const all = found?.at("data").list() ?? [];
      const payment = all.find(
        (one) =>
          one.optional("order_id") === orderId &&
          one.optional("payment_status") === "waiting" &&
          quotedForMs(one) > leftMsMin,
      );
      if (payment) return call(`payment/${idOf(payment, "payment_id")}`, signal);
      if (all.length < pageRows) return undefined;
    }
    return undefined;
  }

  const createPayment = (order: NewOrder, coin: string, signal: AbortSignal) =>
    call("payment", signal, {
      price_amount: Number(order.usdMicro / microDollars),
      price_currency: "usd",
      pay_currency: coin,
      ...(webhookSecret !== undefined && {
        ipn_callback_url: new URL(`payments/${name}/webhook`, parts.publicUrl()).href,
      }),
      order_id: order.orderId,
      order_description: descriptionOf(order),
      is_fixed_rate: true,
      is_fee_paid_by_user: false,
    });

  const processor: Processor = {
    name,
    isSimulated: false,
    async methods(signal) {
      const offered = coins.map(async (coin): Promise<Method[]> => {
        const usdMicro = await leastOf(coin, signal);
        if (usdMicro === undefined) return [];
        return [
          {
            ...assetOf(coin),
            method: `${name}:${coin}`,
            leastUsdMicro: usdMicro > packUsdMicro ? usdMicro : packUsdMicro,
            feeNote: "The network's fee is the sender's. Send the full amount, at once.",
          },
        ];
      });
      return (await Promise.all(offered)).flat();
    },
    async open(order, signal) {
      const coin = coins.find((one) => `${name}:${one}` === order.method);
      if (coin === undefined) throw new Error(`${name} has no method ${order.method}`);
      const earlier = order.isRepeat ? await findPayment(order, signal) : undefined;
      return quoteOf(earlier ?? (await createPayment(order, coin, signal)), order, coin);
    },
    async look({ orderId, externalId, named }, signal) {
      const first = await call(`payment/${encodeURIComponent(externalId)}`, signal);
      if (first.optional("order_id") !== orderId) throw first.fault("is of another order");
      const further = first
        .at("payment_extra_ids")
        .optionalList()
        .map((one) => one.text());
      const ids = [...new Set([...further, ...named])];
      const others: Answer[] = [];
      for (let at = 0; at < Math.min(ids.length, furtherMax); at += askedAtOnce) {
        const some = ids.slice(at, Math.min(at + askedAtOnce, furtherMax));
        const asked = some.map((id) => call(`payment/${encodeURIComponent(id)}`, signal));
        others.push(...(await Promise.all(asked)));
      }
      const children = others.filter(
        (one) =>
          !one.at("parent_payment_id").isAbsent && idOf(one, "parent_payment_id") === externalId,
      );
      const hasFailed = statusOf(first) === "failed" && paidAtoms(first) > 0n;
      const faults: Fault[] = [
        ...(hasFailed ? (["failed"] as const) : []),
        ...(ids.length > furtherMax ? (["flooded"] as const) : []),
      ];
      return { deposits: [first, ...children].flatMap(depositsOf), faults };
    },
    async findPayments(id, signal) {
      // Their list has no hashes.
      if (!/^[0-9]{1,20}$/.test(id))
        throw invalidField("tx", "is the number of a payment there: its list has no hashes");
      const payment = await call(`payment/${id}`, signal).catch((error: unknown) => {
        if (error instanceof RefusedError && [400, 404].includes(error.status)) return undefined;
        throw error;
      });
      if (!payment) return [];
      const isFurther = !payment.at("parent_payment_id").isAbsent;
      const externalId = idOf(payment, isFurther ? "parent_payment_id" : "payment_id");
      return depositsOf(payment).map((deposit): FoundPayment => ({ externalId, deposit }));
    },
    marketRate: parts.marketRate,
  };
  if (webhookSecret === undefined) return processor;
  return {
    ...processor,
    readHook(headers, raw) {
      checkHmac("sha512", webhookSecret, canonicalJson(raw), headers["x-nowpayments-sig"] ?? "");
      const members = hookMembers(raw);
      const of = (member: string) => hookText(members.get(member));
      const [id, parent] = [of("payment_id"), of("parent_payment_id")];
      // A payout is nothing that arrives.
      if (id === "" || members.has("batch_withdrawal_id"))
        return { deliveryKey: "", externalId: "" };
      return {
        deliveryKey: `${id} ${of("payment_status")} ${of("updated_at")}`,
        externalId: parent === "" ? id : parent,
        depositId: parent === "" ? "" : id,
      };
    },
  };
}

function assetOf(coin: string): Asset {
  return (
    nowpaymentsCoins().get(coin) ?? { asset: coin.toUpperCase(), network: "unknown", decimals: 18 }
  );
}

/** Ids come as numbers or texts. */
function idOf(payment: Answer, member: string): string {
  const id = payment.at(member).text();
  if (!/^[A-Za-z0-9_-]{1,100}$/.test(id)) throw payment.at(member).fault("is no id");
  return id;
}

function descriptionOf({ usdMicro }: NewOrder): string {
  const credits = (usdMicro * microCreditsPerMicroDollar) / 1_000_000n;
  return `${credits.toLocaleString("en-US")} credits`;
}

function quotedForMs(payment: Answer): number {
  const until = payment.at("expiration_estimate_date");
  if (until.isAbsent) return quotedMsMax;
  return Math.max(0, Math.min(quotedMsMax, until.time().getTime() - Date.now()));
}

function quoteOf(payment: Answer, { orderId, usdMicro }: NewOrder, coin: string): Quote {
  if (payment.optional("order_id") !== orderId) throw payment.fault("is of another order");
  if (payment.at("pay_currency").text().toLowerCase() !== coin)
    throw payment.at("pay_currency").fault(`is not ${coin}`);
  if (atomsOf(payment.at("price_amount").text(), 6) !== usdMicro)
    throw payment.at("price_amount").fault("is not the price");
  const { decimals } = assetOf(coin);
  const atoms = atomsOf(payment.at("pay_amount").text(), decimals);
  if (!atoms) throw payment.at("pay_amount").fault("is no amount");
  // Rounded down, so that the exact amount is never worth more than the pack.
  const rate = (usdMicro * 10n ** BigInt(decimals)) / atoms;
  if (rate === 0n) throw payment.at("pay_amount").fault("is no price");
  const memo = payment.at("payin_extra_id");
  return {
    atoms,
    rate,
    watchedForMs,
    quotedForMs: quotedForMs(payment),
    externalId: idOf(payment, "payment_id"),
    payTo: payment.at("pay_address").text(),
    memo: memo.isAbsent ? "" : memo.text(),
    checkoutUrl: "",
  };
}

const states: Readonly<Record<string, SeenDeposit["state"] | undefined>> = {
  waiting: "seen",
  confirming: "seen",
  confirmed: "seen",
  sending: "seen",
  finished: "settled",
  partially_paid: "settled",
  failed: "seen",
  refunded: "lost",
  expired: "seen",
};

function statusOf(payment: Answer): string {
  const status = payment.at("payment_status").text();
  if (!Object.hasOwn(states, status)) throw payment.at("payment_status").fault("is unknown");
  return status;
}

/** The coin that arrived, which need not be the one that was ordered. */
function coinOf(payment: Answer): string {
  return payment.at("pay_currency").text().toLowerCase();
}

function paidAtoms(payment: Answer): bigint {
  const paid = payment.at("actually_paid");
  if (paid.isAbsent) return 0n;
  const atoms = atomsOf(paid.text(), assetOf(coinOf(payment)).decimals);
  if (atoms === undefined) throw paid.fault("is no amount");
  return atoms;
}

function depositsOf(payment: Answer): SeenDeposit[] {
  const atoms = paidAtoms(payment);
  const state = states[statusOf(payment)] ?? "seen";
  if (atoms === 0n) return [];
  const isFurther = !payment.at("parent_payment_id").isAbsent;
  const fiat = payment.at("actually_paid_at_fiat");
  const usdMicro = isFurther && !fiat.isAbsent ? (atomsOf(fiat.text(), 6) ?? 0n) : 0n;
  const asset = assetOf(coinOf(payment));
  return [
    {
      ...asset,
      atoms,
      state,
      // Its status says nothing of what arrived, so without a value it is rule 7's.
      ...(isFurther && usdMicro === 0n && { network: "unknown" }),
      ...(usdMicro > 0n && { usdMicro }),
      externalId: idOf(payment, "payment_id"),
      hash: payment.optional("payin_hash") || undefined,
      firstSeenAt: payment.at("updated_at").time(),
      confirmations: state === "settled" ? 1 : 0,
      confirmationsNeeded: 1,
    },
  ];
}
