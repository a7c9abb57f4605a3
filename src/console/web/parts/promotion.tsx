// A code that adds credits. Only owners redeem one.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { PromotionsService } from "../../../../gen/gateway/payments/v1/promotions_pb.ts";
import { call } from "../api.ts";
import { credits } from "../format.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { Form, TextField } from "./form.tsx";
import { notify } from "./messages.ts";
import { poolOf, poolsChanged } from "./pools.ts";

type PromotionFormProps = { readonly code?: string; readonly onDone?: () => void };

/** `code`: what stands in its field at first. */
export function PromotionForm({ code: first = "", onDone }: PromotionFormProps): JSX.Element {
  const [code, setCode] = useState(first);
  const redeem = async () => {
    const request = { accountId: account.value.accountId, code: code.trim() };
    const { bonusMicrocredits, family } = await call(
      PromotionsService.method.redeemPromotion,
      request,
    );
    setCode("");
    notify(words.credits.promotionDone(credits(bonusMicrocredits), poolOf(family).inText));
    poolsChanged();
    onDone?.();
  };
  return (
    <Form
      submit={words.credits.promotionSubmit}
      kind="plain"
      fields={["code"]}
      disabled={code.trim() === ""}
      onSubmit={redeem}
    >
      <TextField
        name="code"
        label={words.credits.promotionLabel}
        hint={words.credits.promotionHint}
        value={code}
        onInput={setCode}
        isFirst={first !== ""}
      />
    </Form>
  );
}
