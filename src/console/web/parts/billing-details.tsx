// Whom the receipts of an account name.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AccountsService } from "../../../../gen/gateway/accounts/v1/accounts_pb.ts";
import type { BillingDetails } from "../../../../gen/gateway/billing/v1/account_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { account, can } from "../session.ts";
import { words } from "../words.ts";
import { Button } from "./button.tsx";
import { Dialog } from "./dialog.tsx";
import { Form, TextField } from "./form.tsx";
import { Card } from "./page.tsx";
import { Skeleton, View } from "./view.tsx";

export function BillingDetailsCard(): JSX.Element {
  const { accountId } = account.value;
  const [isOpen, setOpen] = useState(false);
  const found = useCall(AccountsService.method.getAccount, { accountId });
  const details = found.data?.account?.billingDetails;
  const lines = [details?.name, ...(details?.address.split("\n") ?? []), details?.taxId].filter(
    (line) => line !== undefined && line !== "",
  );
  return (
    <Card
      title={words.credits.details}
      about={words.credits.detailsText}
      tools={
        can("owner") &&
        found.data && (
          <Button kind="quiet" onClick={() => setOpen(true)}>
            {words.credits.detailsChange}
          </Button>
        )
      }
    >
      <View call={found} skeleton={<Skeleton rows={2} />}>
        {() =>
          lines.length === 0 ? (
            <p class="muted">{words.credits.detailsNone}</p>
          ) : (
            <address>
              {lines.map((line) => (
                <div key={line}>
                  <bdi>{line}</bdi>
                </div>
              ))}
            </address>
          )
        }
      </View>
      {isOpen && <DetailsDialog details={details} onClose={() => setOpen(false)} />}
    </Card>
  );
}

function DetailsDialog({
  details,
  onClose,
}: {
  readonly details: BillingDetails | undefined;
  readonly onClose: () => void;
}): JSX.Element {
  const [name, setName] = useState(details?.name ?? "");
  const [address, setAddress] = useState(details?.address ?? "");
  const [taxId, setTaxId] = useState(details?.taxId ?? "");
  const save = async () => {
    const { accountId } = account.value;
    const billingDetails = { name: name.trim(), address, taxId };
    await call(AccountsService.method.updateAccount, {
      accountId,
      settings: { billingDetails },
      updateMask: { paths: ["billing_details"] },
    });
    invalidate(AccountsService.method.getAccount);
    onClose();
  };
  return (
    <Dialog title={words.credits.detailsTitle} onClose={onClose}>
      <Form
        submit={words.credits.detailsSubmit}
        fields={["name", "address", "tax_id"]}
        onSubmit={save}
        onCancel={onClose}
      >
        <TextField
          name="name"
          label={words.credits.detailsName}
          value={name}
          onInput={setName}
          autocomplete="organization"
          isFirst
        />
        <TextField
          name="address"
          label={words.credits.detailsAddress}
          lines={4}
          value={address}
          onInput={setAddress}
        />
        <TextField
          name="tax_id"
          label={words.credits.detailsTaxId}
          value={taxId}
          onInput={setTaxId}
          hint={words.credits.detailsNote}
        />
      </Form>
    </Dialog>
  );
}
