// The addresses that accounts pay to, where the gateway reads chains by itself: how many were
// given, and the sweeps that empty them.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  type Sweep,
  type SweepPayment,
  SweepsService,
} from "../../../../gen/gateway/payments/v1/sweeps_pb.ts";
import { call, invalidate, usePages } from "../api.ts";
import { count, toDate } from "../format.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Form, fieldError, SelectField, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { poolOf } from "../parts/pools.ts";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { useQuery } from "../router.ts";
import { isOperatorAdmin } from "../session.ts";
import { AccountLink, LookOnly, PagedTable, usePeopleNames } from "./common.tsx";
import { words } from "./words.ts";

const text = words.addresses;
const pageSize = 50;
const hourMs = 3_600_000;
/** Above it, the wallet should look further. */
const nearlyAll = 0.8;

const { listDepositAddresses, listSweeps, beginSweep, endSweep, grantSweepPayment } =
  SweepsService.method;

export function Addresses(): JSX.Element {
  const [query, setQuery] = useQuery({ network: "", new: "" });
  const addresses = usePages(
    listDepositAddresses,
    { pageSize, network: query.network },
    (page) => page.addresses,
  );
  const sweeps = usePages(listSweeps, { pageSize }, (page) => page.sweeps);
  const [ending, setEnding] = useState<Sweep>();
  const { network = "", networks = [], given = 0n, gapLimit = 0 } = addresses.data?.first ?? {};
  const begin = isOperatorAdmin() && networks.length > 0 && (
    <Button kind="main" onClick={() => setQuery({ new: "1" })}>
      {text.begin}
    </Button>
  );
  return (
    <>
      <Head title={text.title} tools={begin} />
      <p class="intro muted">{text.intro}</p>
      <LookOnly />
      {gapLimit > 0 && (
        <Figures>
          <Figure
            label={text.given}
            value={text.givenOf(count(given), count(gapLimit))}
            note={text.givenNote}
            {...(Number(given) > nearlyAll * gapLimit && { tone: "warn" as const })}
          />
        </Figures>
      )}
      <Card title={text.sweeps} about={text.sweepsAbout} flush>
        <ol class="card-text">
          {text.steps.map((step) => (
            <li key={step}>{step}</li>
          ))}
        </ol>
        <PagedTable
          pages={sweeps}
          greyRows={2}
          empty={text.sweepsNone}
          caption={text.sweepsCaption}
          columns={sweepColumns(setEnding)}
          keyOf={({ sweepId }) => sweepId}
        />
      </Card>
      <Came sweeps={sweeps.data?.items ?? []} />
      <Card
        title={text.list}
        flush
        {...(networks.length > 1 && {
          tools: (
            <SelectField
              name="network"
              label={text.network}
              value={network}
              onInput={(chosen) => setQuery({ network: chosen })}
              options={networks.map((value) => ({ value, label: value }))}
            />
          ),
        })}
      >
        <PagedTable
          pages={addresses}
          greyRows={4}
          empty={gapLimit > 0 ? text.listNone : text.noChains}
          caption={text.listCaption}
          columns={[
            { name: "address", head: text.head.address, cell: (one) => <code>{one.address}</code> },
            {
              name: "account",
              head: text.head.account,
              cell: ({ accountId }) => <AccountLink accountId={accountId} />,
            },
            { name: "pool", head: text.head.pool, cell: ({ family }) => poolOf(family).name },
            {
              name: "given",
              head: text.head.given,
              cell: ({ createdAt }) => <Time at={createdAt} as="moment" />,
            },
          ]}
          keyOf={({ address }) => address}
        />
      </Card>
      {query.new === "1" && isOperatorAdmin() && networks.length > 0 && (
        <BeginDialog networks={networks} onClose={() => setQuery({ new: "" })} />
      )}
      {ending && <EndDialog sweep={ending} onClose={() => setEnding(undefined)} />}
    </>
  );
}

function isOver({ endedAt, until }: Sweep): boolean {
  return endedAt !== undefined || (until !== undefined && toDate(until).getTime() <= Date.now());
}

/** `onEnd` is called for the sweep that somebody wants to end. */
function sweepColumns(onEnd: (sweep: Sweep) => void): readonly Column<Sweep>[] {
  const { sweepsHead: head } = text;
  return [
    {
      name: "began",
      head: head.began,
      cell: ({ beganAt }) => <Time at={beganAt} as="moment" />,
    },
    { name: "network", head: head.network, cell: ({ network }) => network },
    {
      name: "addresses",
      head: head.addresses,
      end: true,
      cell: ({ addresses }) => count(addresses.length),
    },
    {
      name: "came",
      head: head.came,
      end: true,
      cell: ({ payments }) => count(payments.length),
    },
    {
      name: "ends",
      head: head.ends,
      cell: ({ endedAt, until }) => <Time at={endedAt ?? until} as="moment" />,
    },
    {
      name: "state",
      head: head.state,
      cell: (sweep) =>
        sweep.read ? (
          <Tag tone="good">{text.read}</Tag>
        ) : (
          <Tag tone="warn">{isOver(sweep) ? text.reading : text.open}</Tag>
        ),
    },
    {
      name: "actions",
      head: head.actions,
      end: true,
      cell: (sweep) =>
        isOperatorAdmin() &&
        !isOver(sweep) && (
          <Button kind="quiet" onClick={() => onEnd(sweep)}>
            {text.end}
          </Button>
        ),
    },
  ];
}

type CamePayment = SweepPayment & { readonly sweep: Sweep };

/** What came during the sweeps, and whose it is. */
function Came({ sweeps }: { readonly sweeps: readonly Sweep[] }): JSX.Element | null {
  const nameOf = usePeopleNames();
  const [granting, setGranting] = useState<CamePayment>();
  const rows = sweeps.flatMap((sweep) => sweep.payments.map((one) => ({ ...one, sweep })));
  if (rows.length === 0) return null;
  const { cameHead: head } = text;
  return (
    <Card title={text.came} about={text.cameAbout} flush>
      <div class="dense tight">
        <Table
          rows={rows}
          caption={text.cameCaption}
          columns={[
            {
              name: "at",
              head: head.at,
              cell: ({ occurredAt: at }) => <Time at={at} as="moment" />,
            },
            { name: "amount", head: head.amount, cell: (one) => `${one.coins} ${one.asset}` },
            { name: "address", head: head.address, cell: ({ address }) => <code>{address}</code> },
            {
              name: "granted",
              head: head.granted,
              cell: (one) =>
                one.grantedBy
                  ? nameOf(one.grantedBy)
                  : isOperatorAdmin() && (
                      <Button kind="quiet" onClick={() => setGranting(one)}>
                        {text.grant}
                      </Button>
                    ),
            },
          ]}
          keyOf={({ paymentId }) => paymentId}
        />
      </div>
      {granting && <GrantDialog payment={granting} onClose={() => setGranting(undefined)} />}
    </Card>
  );
}

type BeginProps = { readonly networks: readonly string[]; readonly onClose: () => void };

function BeginDialog({ networks, onClose }: BeginProps): JSX.Element {
  const [network, setNetwork] = useState(networks[0] ?? "");
  const [addresses, setAddresses] = useState("");
  const [hours, setHours] = useState("24");
  const begin = async () => {
    if (!/^\d{1,3}$/.test(hours.trim())) throw fieldError("until", text.notHours);
    const until = timestampFromDate(new Date(Date.now() + Number(hours) * hourMs));
    const named = addresses.split(/[\s,]+/).filter((one) => one !== "");
    await call(beginSweep, { network, addresses: named, until });
    invalidate(listSweeps);
    notify(text.begun);
    onClose();
  };
  return (
    <Dialog title={text.begin} onClose={onClose}>
      <p>{text.beginLead}</p>
      <Form
        submit={text.beginButton}
        fields={["network", "addresses", "until"]}
        onSubmit={begin}
        onCancel={onClose}
      >
        <SelectField
          name="network"
          label={text.network}
          value={network}
          onInput={setNetwork}
          options={networks.map((value) => ({ value, label: value }))}
        />
        <TextField
          name="addresses"
          label={text.toSweep}
          hint={text.toSweepHint}
          value={addresses}
          onInput={setAddresses}
          lines={5}
          isFirst
        />
        <TextField
          name="until"
          label={text.hours}
          hint={text.hoursHint}
          type="number"
          value={hours}
          onInput={setHours}
          unit={text.hoursUnit}
        />
      </Form>
    </Dialog>
  );
}

function EndDialog({ sweep, onClose }: { readonly sweep: Sweep; readonly onClose: () => void }) {
  const end = async () => {
    await call(endSweep, { sweepId: sweep.sweepId });
    invalidate(listSweeps);
    notify(text.ended);
    onClose();
  };
  return (
    <Dialog title={text.endTitle} onClose={onClose}>
      <p>{text.endLead}</p>
      <Form submit={text.endButton} onSubmit={end} onCancel={onClose} />
    </Dialog>
  );
}

type GrantProps = { readonly payment: CamePayment; readonly onClose: () => void };

function GrantDialog({ payment, onClose }: GrantProps): JSX.Element {
  const { paymentId, coins: amount, asset, sweep } = payment;
  const grant = async () => {
    const granted = await call(grantSweepPayment, { sweepId: sweep.sweepId, paymentId });
    invalidate(listSweeps);
    notify(granted.approval ? words.people.waits : text.granted);
    onClose();
  };
  return (
    <Dialog title={text.grantTitle(`${amount} ${asset}`)} onClose={onClose}>
      <p>{text.grantLead}</p>
      <Form submit={text.grantButton} onSubmit={grant} onCancel={onClose} />
    </Dialog>
  );
}
