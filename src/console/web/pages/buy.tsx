// A purchase, one decision a step: pool, pack, coin and network. Each step has an address, so that
// the back button goes one step back.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Order } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import {
  type ListPaymentMethodsResponse,
  type PaymentMethod,
  PaymentsService,
} from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { microcreditsPerUsdCent, packStepUsdCents } from "../../../base/shown-figures.ts";
import { call, invalidate, useCall } from "../api.ts";
import { credits, parseCount } from "../format.ts";
import { centsOf, readPack } from "../parts/bounds.ts";
import { Button, Copy, LinkButton } from "../parts/button.tsx";
import { ChoiceField, Form, fieldError, type Option, TextField } from "../parts/form.tsx";
import { networkName, usdText } from "../parts/orders.tsx";
import { Card, Head } from "../parts/page.tsx";
import { familyOf, type PoolName } from "../parts/pools.ts";
import { Qr } from "../parts/qr.tsx";
import { Notice } from "../parts/small.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { go, href, type PageProps, useQuery } from "../router.ts";
import { account, mayBuy } from "../session.ts";
import { words } from "../words.ts";

const defaults = { pool: "", pack: "", method: "" };

export function Buy(_: PageProps): JSX.Element {
  const [query] = useQuery(defaults);
  const methods = useCall(PaymentsService.method.listPaymentMethods, {});
  const pool = query.pool === "v1" || query.pool === "v2" ? query.pool : undefined;
  return (
    <>
      <Head
        title={words.purchase.title}
        back={{ href: href("credits"), label: words.purchase.back }}
      />
      <View call={methods} skeleton={<Skeleton rows={4} />} empty={(offer) => refusal(offer)}>
        {(offer) => {
          const usdCents = readPack(query.pack, centsOf(offer.maxPackMicrodollars));
          return (
            <div class="purchase">
              {offer.methods.some(({ simulated }) => simulated) && (
                <Notice tone="warn">{words.purchase.simulated}</Notice>
              )}
              {pool === undefined ? (
                <PoolStep />
              ) : usdCents === undefined ? (
                <PackStep pool={pool} offer={offer} />
              ) : (
                <MethodStep pool={pool} usdCents={usdCents} offer={offer} />
              )}
            </div>
          );
        }}
      </View>
    </>
  );
}

function refusal({ methods }: ListPaymentMethodsResponse): JSX.Element | undefined {
  const { none, notForYou, title } = words.purchase;
  const back = <LinkButton href={href("credits")}>{words.purchase.toCredits}</LinkButton>;
  if (methods.length === 0)
    return (
      <Empty title={none.title} action={back}>
        {none.text}
      </Empty>
    );
  if (mayBuy()) return undefined;
  return (
    <Empty title={title} action={back}>
      {notForYou}
    </Empty>
  );
}

/** Places orders. A repeat after a lost answer is the same order; another choice is another one. */
export function useNewOrder(): (
  pool: PoolName,
  usdCents: number,
  method: string,
) => Promise<Order | undefined> {
  const attempts = useRef(new Map<string, string>());
  return async (pool, usdCents, method) => {
    const choice = [pool, usdCents, method].join(" ");
    const idempotencyKey = attempts.current.get(choice) ?? randomText();
    attempts.current.set(choice, idempotencyKey);
    const { order } = await call(PaymentsService.method.createOrder, {
      ...{ accountId: account.value.accountId, family: familyOf[pool], method },
      packMicrodollars: BigInt(usdCents) * 10_000n,
      idempotencyKey,
    });
    invalidate(PaymentsService.method.listOrders);
    return order;
  };
}

/** The choices of a pack. */
export function packOptions(packsMicrodollars: readonly bigint[]): Option[] {
  return packsMicrodollars.map(centsOf).map((cents) => ({
    value: String(cents),
    label: words.purchase.packOf(creditsFor(cents)),
    hint: words.purchase.packFor(usdText(cents)),
  }));
}

/** The choices of a coin and its network. */
export function methodOptions(offered: readonly PaymentMethod[]): Option[] {
  return offered.map((method) => ({
    value: method.method,
    label: words.purchase.methodName(method.asset, networkName(method.network)),
    hint: feeText(method),
  }));
}

function creditsFor(usdCents: number): string {
  return credits(BigInt(usdCents) * microcreditsPerUsdCent);
}

const stepCount = 3;

function Step({ at, children }: { readonly at: number; readonly children: ComponentChildren }) {
  // The button of the step before is gone: the keyboard goes on here.
  useEffect(() => {
    if (document.activeElement === document.body)
      document.getElementById("content")?.focus({ preventScroll: true });
  }, [at]);
  return (
    <Card>
      <p class="purchase-step faint">{words.purchase.steps(at, stepCount)}</p>
      {children}
    </Card>
  );
}

function PoolStep(): JSX.Element {
  const [pool, setPool] = useState<PoolName>("v1");
  const { pools } = words.credits;
  return (
    <Step at={1}>
      <Form submit={words.purchase.next} onSubmit={async () => go(href("credits/buy", { pool }))}>
        <ChoiceField
          name="family"
          label={words.purchase.pool}
          value={pool}
          onInput={setPool}
          options={[
            { value: "v1", label: pools.v1.name, hint: pools.v1.keys },
            { value: "v2", label: pools.v2.name, hint: pools.v2.keys },
          ]}
        />
      </Form>
    </Step>
  );
}

const another = "another";

function PackStep({
  pool,
  offer,
}: {
  readonly pool: PoolName;
  readonly offer: ListPaymentMethodsResponse;
}): JSX.Element {
  const { packsMicrodollars: packs, maxPackMicrodollars } = offer;
  const mostUsdCents = centsOf(maxPackMicrodollars);
  const [pack, setPack] = useState(packs[0] === undefined ? another : String(centsOf(packs[0])));
  const [typed, setTyped] = useState("");
  const most = usdText(mostUsdCents);
  const next = async () => {
    if (pack !== another) return go(href("credits/buy", { pool, pack }));
    const usdCents = readPack(String((parseCount(typed) ?? 0) * 100), mostUsdCents);
    if (usdCents === undefined)
      throw fieldError("pack_microdollars", words.purchase.anotherWrong(most));
    go(href("credits/buy", { pool, pack: String(usdCents) }));
  };
  return (
    <Step at={2}>
      <Chosen terms={[[words.credits.pools[pool].name, href("credits/buy")]]} />
      <Form submit={words.purchase.next} fields={["pack_microdollars"]} onSubmit={next}>
        <ChoiceField
          name="pack"
          label={words.purchase.pack}
          value={pack}
          onInput={setPack}
          options={[
            ...packOptions(packs),
            {
              value: another,
              label: words.purchase.another,
              hint: words.purchase.anotherHint(most),
            },
          ]}
        />
        {pack === another && (
          <TextField
            name="pack_microdollars"
            label={words.purchase.anotherLabel}
            type="number"
            value={typed}
            onInput={setTyped}
            isFirst
          />
        )}
      </Form>
    </Step>
  );
}

function MethodStep({
  pool,
  usdCents,
  offer,
}: {
  readonly pool: PoolName;
  readonly usdCents: number;
  readonly offer: ListPaymentMethodsResponse;
}): JSX.Element {
  const offered = offer.methods.filter(
    ({ minPackMicrodollars: least }) => centsOf(least) <= usdCents,
  );
  const [chosen, setChosen] = useState(offered[0]?.method ?? "");
  const method = offered.find((one) => one.method === chosen);
  const place = useNewOrder();
  const order = async () => {
    const made = await place(pool, usdCents, chosen);
    if (made) go(href(`credits/orders/${made.orderId}`), { replace: true });
  };
  const chosenTerms: [string, string][] = [
    [words.credits.pools[pool].name, href("credits/buy")],
    [
      [words.purchase.packOf(creditsFor(usdCents)), words.purchase.packFor(usdText(usdCents))].join(
        ", ",
      ),
      href("credits/buy", { pool }),
    ],
  ];
  return (
    <Step at={3}>
      <Chosen terms={chosenTerms} />
      {offered.length === 0 ? (
        <p>{words.purchase.noMethod}</p>
      ) : (
        <Form submit={words.purchase.order(usdText(usdCents))} onSubmit={order}>
          <ChoiceField
            name="method"
            label={words.purchase.method}
            hint={words.purchase.rate}
            value={chosen}
            onInput={setChosen}
            options={methodOptions(offered)}
          />
        </Form>
      )}
      {method?.hasDepositAddress && (
        <PermanentAddress key={`${method.network}/${pool}`} pool={pool} method={method} />
      )}
    </Step>
  );
}

/** The address of the pool that takes any amount, once somebody wants to see it. */
function PermanentAddress({
  pool,
  method: { asset, network },
}: {
  readonly pool: PoolName;
  readonly method: PaymentMethod;
}): JSX.Element {
  const [address, setAddress] = useState<string>();
  const text = words.purchase;
  const show = async () => {
    const { accountId } = account.value;
    const request = { accountId, family: familyOf[pool], network };
    setAddress((await call(PaymentsService.method.createDepositAddress, request)).address);
  };
  return (
    <section class="permanent stack">
      <h3>{text.permanent}</h3>
      <p class="muted">{text.permanentText}</p>
      {address === undefined ? (
        <Button onClick={show}>{text.permanentShow(networkName(network))}</Button>
      ) : (
        <>
          <Qr text={address} label={text.qr(asset, address)} />
          <p class="label">
            {text.permanentFor(networkName(network), words.credits.pools[pool].inText)}
          </p>
          <p class="pay-address">
            <code>{address}</code>
            <Copy text={address} label={text.copyAddress} isSmall />
          </p>
        </>
      )}
    </section>
  );
}

function feeText({ feeNote, minPackMicrodollars }: PaymentMethod): string {
  const fee = feeNote === "" ? words.purchase.networkFee : feeNote;
  const leastUsdCents = centsOf(minPackMicrodollars);
  const least =
    leastUsdCents > packStepUsdCents
      ? ` ${words.purchase.methodLeast(usdText(leastUsdCents))}`
      : "";
  return fee + least;
}

/** What was decided in the steps before, each with the way back to it. */
function Chosen({ terms }: { readonly terms: readonly (readonly [string, string])[] }) {
  return (
    <ul class="chosen">
      {terms.map(([text, back]) => (
        <li key={text}>
          <span>{text}</span>{" "}
          <a href={back} aria-label={words.purchase.changeOf(text)}>
            {words.purchase.change}
          </a>
        </li>
      ))}
    </ul>
  );
}

/** Works without https, where `crypto.randomUUID` does not. */
function randomText(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
