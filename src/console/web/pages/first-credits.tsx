// Credits for a pool that has none, on the way to the first request: by a pack, by a code, or from
// somebody else.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { AccountRole } from "../../../../gen/gateway/common/v1/roles_pb.ts";
import {
  type ListPaymentMethodsResponse,
  PaymentsService,
} from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { toCallError, useCall } from "../api.ts";
import { centsOf } from "../parts/bounds.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { ChoiceField, Form, SelectField } from "../parts/form.tsx";
import { report } from "../parts/messages.ts";
import { usdText } from "../parts/orders.tsx";
import { PlayPayment } from "../parts/play-payment.tsx";
import { familyOf, type PoolName, poolOf } from "../parts/pools.ts";
import { PromotionForm } from "../parts/promotion.tsx";
import { Notice } from "../parts/small.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { hrefOf } from "../router.ts";
import { account, isOperatorAdmin, mayBuy, operatorPart } from "../session.ts";
import { words } from "../words.ts";
import { methodOptions, packOptions, useNewOrder } from "./buy.tsx";
import { Payment, useWatchedOrder } from "./order.tsx";

/** So often it is looked whether somebody gave credits. */
const lookEveryMs = 3_000;

type FirstCreditsProps = {
  readonly pool: PoolName;
  /** Called once, when the pool has credits. */
  readonly onReady: () => Promise<void>;
};

export function FirstCredits({ pool, onReady }: FirstCreditsProps): JSX.Element {
  const { accountId, role } = account.value;
  const [orderId, setOrderId] = useState<string>();
  const { getForecast } = UsageService.method;
  const forecast = useCall(getForecast, { accountId }, { everyMs: lookEveryMs });
  const methods = useCall(PaymentsService.method.listPaymentMethods, mayBuy() ? {} : undefined);
  const family = familyOf[pool];
  const isReady = (forecast.data?.forecasts ?? []).some(
    (one) => one.family === family && one.freeMicrocredits > 0n,
  );
  useEffect(() => {
    if (isReady) onReady().catch((thrown: unknown) => report(toCallError(thrown)));
  }, [isReady]);
  if (orderId !== undefined)
    return <FirstOrder orderId={orderId} onOther={() => setOrderId(undefined)} />;
  return (
    <>
      <p class="muted">{words.start.poolEmpty(poolOf(family).inText)}</p>
      {mayBuy() && (
        <View call={methods} skeleton={<Skeleton rows={3} />}>
          {(offer) =>
            offer.methods.length > 0 && (
              <PackForm pool={pool} offer={offer} onOrdered={setOrderId} />
            )
          }
        </View>
      )}
      {role === AccountRole.OWNER && (
        <details>
          <summary>{words.start.codeTitle}</summary>
          <PromotionForm />
        </details>
      )}
      <Ask isOpen={!mayBuy() || methods.data?.methods.length === 0} />
    </>
  );
}

/** Who else can help. `isOpen`: nobody here can buy. */
function Ask({ isOpen }: { readonly isOpen: boolean }): JSX.Element {
  const { askTitle, askOwner, askOperator, giveCredits, goesOn } = words.start;
  return (
    <details open={isOpen}>
      <summary>{askTitle}</summary>
      <p>
        {mayBuy() ? askOperator : askOwner} {goesOn}
      </p>
      {isOperatorAdmin() && (
        <LinkButton href={hrefOf(operatorPart, `accounts/${account.value.accountId}`)}>
          {giveCredits}
        </LinkButton>
      )}
    </details>
  );
}

type PackFormProps = {
  readonly pool: PoolName;
  readonly offer: ListPaymentMethodsResponse;
  readonly onOrdered: (orderId: string) => void;
};

/** Pack and coin in one form: the pool is chosen. */
function PackForm({ pool, offer, onOrdered }: PackFormProps): JSX.Element {
  const { packsMicrodollars: packs, methods } = offer;
  const [pack, setPack] = useState(packs[0] === undefined ? "" : String(centsOf(packs[0])));
  const usdCents = Number(pack);
  const offered = methods.filter(({ minPackMicrodollars: least }) => centsOf(least) <= usdCents);
  const [wanted, setWanted] = useState("");
  const chosen = offered.find(({ method }) => method === wanted) ?? offered[0];
  const place = useNewOrder();
  const order = async () => {
    const made = chosen && (await place(pool, usdCents, chosen.method));
    if (made) onOrdered(made.orderId);
  };
  return (
    <Form
      submit={words.purchase.order(usdText(usdCents))}
      fields={["pack", "method"]}
      disabled={!chosen}
      onSubmit={order}
    >
      <ChoiceField
        name="pack"
        label={words.purchase.pack}
        value={pack}
        onInput={setPack}
        options={packOptions(packs)}
      />
      {chosen ? (
        <SelectField
          name="method"
          label={words.purchase.method}
          hint={words.purchase.rate}
          value={chosen.method}
          onInput={setWanted}
          options={methodOptions(offered)}
        />
      ) : (
        <p>{words.purchase.noMethod}</p>
      )}
    </Form>
  );
}

type FirstOrderProps = { readonly orderId: string; readonly onOther: () => void };

function FirstOrder({ orderId, onOther }: FirstOrderProps): JSX.Element {
  const { found, stream } = useWatchedOrder(orderId);
  return (
    <View call={found} skeleton={<Skeleton rows={6} />}>
      {(order) => (
        <div class="order">
          {order.simulated && <Notice tone="warn">{words.purchase.simulated}</Notice>}
          <Payment order={order} stream={stream} />
          <PlayPayment order={order} />
          <Button kind="quiet" onClick={onOther}>
            {words.start.otherPack}
          </Button>
        </div>
      )}
    </View>
  );
}
