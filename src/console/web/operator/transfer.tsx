// The dialogs in which operators move credits.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApprovalsService } from "../../../../gen/gateway/approvals/v1/approvals_pb.ts";
import { AuditService } from "../../../../gen/gateway/audit/v1/audit_pb.ts";
import type { Account } from "../../../../gen/gateway/billing/v1/account_pb.ts";
import { BillingService, TransferKind } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { OperationsService } from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { call, invalidate } from "../api.ts";
import { credits, dollars, parseSignedCredits } from "../format.ts";
import { ChoiceField, fieldError, SelectField, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { familyOf, type PoolName, poolOf } from "../parts/pools.ts";
import { words as shared } from "../words.ts";
import { type Act, ActDialog } from "./act.tsx";
import { words } from "./words.ts";

const kinds = ["BONUS", "ADJUSTMENT", "PURCHASE", "REFUND", "CHARGEBACK"] as const;
const poolOptions = (["v1", "v2"] as const).map((value) => ({
  value,
  label: poolOf(familyOf[value]).name,
}));

type TransferDialogProps = { readonly account: Account; readonly onClose: () => void };

export function TransferDialog({ account, onClose }: TransferDialogProps): JSX.Element {
  const { accountId, name } = account;
  const [kind, setKind] = useState<(typeof kinds)[number]>("BONUS");
  const [pool, setPool] = useState<PoolName>("v1");
  const [amount, setAmount] = useState("");
  // Only a correction takes credits out by a minus.
  const signed = parseSignedCredits(amount);
  const micro = kind === "ADJUSTMENT" || (signed ?? 0n) > 0n ? signed : undefined;
  const send = async (act: Act) => {
    if (micro === undefined || micro === 0n) throw notAnAmount();
    const { transfer, approval } = await call(BillingService.method.createTransfer, {
      ...{ accountId, family: familyOf[pool], kind: TransferKind[kind] },
      ...{ amountMicrocredits: micro, ...act },
    });
    transfersChanged();
    if (approval) notify(words.transfer.waits);
    else if (transfer) notify(words.transfer.done(credits(micro), name));
  };
  return (
    <ActDialog
      title={words.transfer.title(name)}
      submit={words.transfer.submit}
      fields={["kind", "family", "amount_microcredits"]}
      onAct={send}
      onClose={onClose}
    >
      <ChoiceField
        name="kind"
        label={words.transfer.kind}
        value={kind}
        onInput={setKind}
        options={kinds.map((value) => ({ value, ...words.transfer.kinds[value] }))}
      />
      <SelectField
        name="family"
        label={words.transfer.pool}
        value={pool}
        onInput={setPool}
        options={poolOptions}
      />
      <AmountField value={amount} onInput={setAmount} micro={micro} />
    </ActDialog>
  );
}

/** The dialog in which operators move credits from one pool of an account to the other. */
export function MoveDialog({ account, onClose }: TransferDialogProps): JSX.Element {
  const { accountId, name } = account;
  const [from, setFrom] = useState<PoolName>("v1");
  const [amount, setAmount] = useState("");
  const to = from === "v1" ? "v2" : "v1";
  const micro = parseSignedCredits(amount);
  const send = async (act: Act) => {
    if (micro === undefined || micro <= 0n) throw notAnAmount();
    await call(BillingService.method.moveCredits, {
      ...{ accountId, fromFamily: familyOf[from], toFamily: familyOf[to] },
      ...{ amountMicrocredits: micro, ...act },
    });
    transfersChanged();
    notify(words.move.done(credits(micro), poolOf(familyOf[to]).name));
  };
  return (
    <ActDialog
      title={words.move.title(name)}
      submit={words.move.submit}
      fields={["from_family", "amount_microcredits"]}
      onAct={send}
      onClose={onClose}
    >
      <p class="muted">{words.move.lead}</p>
      <SelectField
        name="from_family"
        label={words.move.from}
        value={from}
        onInput={setFrom}
        options={poolOptions}
        hint={words.move.to(poolOf(familyOf[to]).name)}
      />
      <AmountField value={amount} onInput={setAmount} micro={micro} />
    </ActDialog>
  );
}

type AmountFieldProps = {
  readonly value: string;
  readonly onInput: (text: string) => void;
  /** Undefined: it is no amount. */
  readonly micro: bigint | undefined;
};

function AmountField({ value, onInput, micro }: AmountFieldProps): JSX.Element {
  return (
    <TextField
      name="amount_microcredits"
      label={words.transfer.amount}
      type="number"
      value={value}
      onInput={onInput}
      unit={shared.common.credits}
      {...(micro !== undefined && { hint: words.transfer.inDollars(dollars(micro)) })}
    />
  );
}

const notAnAmount = () => fieldError("amount_microcredits", words.transfer.notAnAmount);

/** All that shows credits of accounts asks again. */
export function transfersChanged(): void {
  const { listTransfers, getPools } = BillingService.method;
  invalidate(listTransfers, getPools);
  const { findAccounts } = OperationsService.method;
  const { listApprovals } = ApprovalsService.method;
  invalidate(findAccounts, listApprovals, AuditService.method.listAuditEvents);
}
