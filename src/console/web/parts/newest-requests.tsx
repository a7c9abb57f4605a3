// The newest requests of an account or a key, on pages that are about something else.

import type { JSX } from "preact";
import type { Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { tokenCategories } from "../../../base/token-categories.ts";
import { useCall } from "../api.ts";
import { compact, credits } from "../format.ts";
import { href } from "../router.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { LinkButton } from "./button.tsx";
import { learnKeys, useKeys } from "./key-names.ts";
import { OutcomeTag } from "./outcome.tsx";
import { Card } from "./page.tsx";
import { useSeen } from "./seen.ts";
import { KeyName, Time } from "./small.tsx";
import { type Column, Table } from "./table.tsx";
import { Skeleton, View } from "./view.tsx";

/** `keyId` absent: of all keys. */
export function NewestRequests({ keyId }: { keyId?: string }): JSX.Element {
  const { accountId } = account.value;
  const [place, isSeen] = useSeen();
  const request = { accountId, pageSize: 10, ...(keyId !== undefined && { filter: { keyId } }) };
  const { listCharges } = UsageService.method;
  const charges = useCall(listCharges, isSeen ? request : undefined, { isLive: true });
  learnKeys(charges.data?.keys ?? []);
  const keys = useKeys((charges.data?.charges ?? []).map((one) => one.keyId));
  const nameOf = ({ keyId: id }: Receipt) => keys.get(id)?.name || id;
  return (
    <Card
      flush
      place={place}
      title={words.overview.newest}
      tools={
        <LinkButton kind="quiet" href={href("requests", { key: keyId })}>
          {keyId === undefined ? words.overview.allRequests : words.key.allRequests}
        </LinkButton>
      }
    >
      <View
        call={charges}
        skeleton={<Skeleton rows={5} />}
        empty={(data) =>
          data.charges.length > 0 ? undefined : (
            <p class="card-text muted">
              {keyId === undefined ? words.overview.noUse : words.key.noRequests}
            </p>
          )
        }
      >
        {(data) => (
          <Table
            caption={words.overview.newest}
            columns={keyId === undefined ? columnsOf(nameOf) : columns}
            rows={data.charges}
            keyOf={({ requestId }) => requestId}
          />
        )}
      </View>
    </Card>
  );
}

const columns: readonly Column<Receipt>[] = [
  {
    name: "time",
    head: words.overview.time,
    cell: ({ requestId, admittedAt }) => (
      <a href={href(`requests/${requestId}`)}>
        <Time at={admittedAt} />
      </a>
    ),
  },
  { name: "model", head: words.overview.model, cell: ({ model }) => model },
  {
    name: "outcome",
    head: words.keys.status,
    cell: ({ outcome }) => <OutcomeTag outcome={outcome} />,
  },
  {
    name: "tokens",
    head: words.overview.tokens,
    end: true,
    cell: ({ usage }) =>
      compact(usage ? tokenCategories.reduce((sum, name) => sum + usage[name], 0) : 0),
  },
  {
    name: "amount",
    head: words.overview.amount,
    end: true,
    cell: ({ chargedMicrocredits: amountMicrocredits }) => credits(amountMicrocredits, 4),
  },
];

function columnsOf(nameOf: (receipt: Receipt) => string): readonly Column<Receipt>[] {
  const [time, ...others] = columns;
  const key: Column<Receipt> = {
    name: "key",
    head: words.overview.key,
    cell: (receipt) => <KeyName name={nameOf(receipt)} href={href(`keys/${receipt.keyId}`)} />,
  };
  return time ? [time, key, ...others] : others;
}
