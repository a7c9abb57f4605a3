// The dialog in which operators move credits.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  type Account,
  BillingService,
  TransferKind,
} from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { OperationsService } from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { PeopleService } from "../../../../gen/gateway/people/v1/people_pb.ts";
import { call, invalidate } from "../api.ts";
import { credits, dollars, parseSignedCredits } from "../format.ts";
import { Dialog } from "../parts/dialog.tsx";
import { ChoiceField, Form, fieldError, SelectField, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { familyOf, type PoolName, poolOf } from "../parts/pools.ts";
import { words as shared } from "../words.ts";
import { words } from "./words.ts";

const kinds = ["BONUS", "ADJUSTMENT", "PURCHASE", "REFUND", "CHARGEBACK"] as const;
const pools = ["v1", "v2"] as const satisfies readonly PoolName[];

type TransferDialogProps = { readonly account: Account; readonly onClose: () => void };

export function TransferDialog({ account, onClose }: TransferDialogProps): JSX.Element {
  const { accountId, name } = account;
  const [kind, setKind] = useState<(typeof kinds)[number]>("BONUS");
  const [pool, setPool] = useState<PoolName>("v1");
  const [amount, setAmount] = useState("");
  const [reason, setReason] = useState("");
  // One for the dialog: a repeat after a lost answer books nothing twice.
  const [idempotencyKey] = useState(() => crypto.randomUUID());
  // Only a correction takes credits out by a minus.
  const signed = parseSignedCredits(amount);
  const micro = kind === "ADJUSTMENT" || (signed ?? 0n) > 0n ? signed : undefined;
  const send = async () => {
    if (micro === undefined || micro === 0n)
      throw fieldError("amount_microcredits", words.transfer.notAnAmount);
    if (reason.trim() === "") throw fieldError("reason", words.missingReason);
    const { transfer, approval } = await call(BillingService.method.createTransfer, {
      accountId,
      family: familyOf[pool],
      kind: TransferKind[kind],
      amountMicrocredits: micro,
      idempotencyKey,
      reason: reason.trim(),
    });
    transfersChanged();
    if (approval) notify(words.transfer.waits);
    else if (transfer) notify(words.transfer.done(credits(micro), name));
    onClose();
  };
  return (
    <Dialog title={words.transfer.title(name)} onClose={onClose}>
      <Form
        submit={words.transfer.submit}
        fields={["kind", "family", "amount_microcredits", "reason"]}
        onSubmit={send}
        onCancel={onClose}
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
          options={pools.map((value) => ({ value, label: poolOf(familyOf[value]).name }))}
        />
        <TextField
          name="amount_microcredits"
          label={words.transfer.amount}
          type="number"
          value={amount}
          onInput={setAmount}
          unit={shared.common.credits}
          {...(micro !== undefined && { hint: words.transfer.inDollars(dollars(micro)) })}
        />
        <TextField
          name="reason"
          label={words.reason}
          hint={words.reasonHint}
          lines={2}
          value={reason}
          onInput={setReason}
        />
      </Form>
    </Dialog>
  );
}

const reasonMin = 5;

/** The dialog in which operators move credits from one pool of an account to the other. */
export function MoveDialog({ account, onClose }: TransferDialogProps): JSX.Element {
  const { accountId, name } = account;
  const [from, setFrom] = useState<PoolName>("v1");
  const [amount, setAmount] = useState("");
  const [reason, setReason] = useState("");
  const [idempotencyKey] = useState(() => crypto.randomUUID());
  const to = from === "v1" ? "v2" : "v1";
  const micro = parseSignedCredits(amount);
  const send = async () => {
    if (micro === undefined || micro <= 0n)
      throw fieldError("amount_microcredits", words.transfer.notAnAmount);
    if ([...reason.trim()].length < reasonMin) throw fieldError("reason", words.move.shortReason);
    await call(BillingService.method.moveCredits, {
      ...{ accountId, idempotencyKey, from: familyOf[from], to: familyOf[to] },
      ...{ amountMicrocredits: micro, reason: reason.trim() },
    });
    transfersChanged();
    notify(words.move.done(credits(micro), poolOf(familyOf[to]).name));
    onClose();
  };
  return (
    <Dialog title={words.move.title(name)} onClose={onClose}>
      <p class="muted">{words.move.lead}</p>
      <Form
        submit={words.move.submit}
        fields={["from", "amount_microcredits", "reason"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <SelectField
          name="from"
          label={words.move.from}
          value={from}
          onInput={setFrom}
          options={pools.map((value) => ({ value, label: poolOf(familyOf[value]).name }))}
          hint={words.move.to(poolOf(familyOf[to]).name)}
        />
        <TextField
          name="amount_microcredits"
          label={words.transfer.amount}
          type="number"
          value={amount}
          onInput={setAmount}
          unit={shared.common.credits}
          {...(micro !== undefined && { hint: words.transfer.inDollars(dollars(micro)) })}
        />
        <TextField
          name="reason"
          label={words.reason}
          hint={words.reasonHint}
          lines={2}
          value={reason}
          onInput={setReason}
        />
      </Form>
    </Dialog>
  );
}

/** All that shows credits of accounts asks again. */
export function transfersChanged(): void {
  const { listTransfers, getPools } = BillingService.method;
  invalidate(listTransfers, getPools);
  const { findAccounts, listApprovals } = OperationsService.method;
  invalidate(findAccounts, listApprovals, PeopleService.method.listAuditEvents);
}
