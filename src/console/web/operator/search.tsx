// All that a text names, of everybody: the palette leads here.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import {
  OperationsService,
  type SearchHit,
  SearchHitKind,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { DepositState } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import {
  type LookUpPaymentResponse,
  PaymentDeskService,
} from "../../../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { SweepsService } from "../../../../gen/gateway/payments/v1/sweeps_pb.ts";
import { call, useCall } from "../api.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { networkName } from "../parts/orders.tsx";
import { Card, Head } from "../parts/page.tsx";
import { hasSecret, withoutSecret } from "../parts/secret-text.ts";
import { Notice, Time } from "../parts/small.tsx";
import { Empty } from "../parts/view.tsx";
import { go, hrefOf, useQuery } from "../router.ts";
import { isOperatorAdmin, operatorPart, session } from "../session.ts";
import { words as pageWords } from "../words.ts";
import { paletteWords } from "../words-palette.ts";
import { AccountLink, accountHref, ListTable, orderHref } from "./common.tsx";
import { words } from "./words.ts";

const { shell } = pageWords;

const searchHref = (q: string) => hrefOf(operatorPart, "search", { q });

/** A text that is looked for and is in no address, because it has a secret in it. */
const secret = signal("");

/** Goes to all that a text names. */
export function openSearch(text: string, settings?: { readonly replace: boolean }): void {
  const isSecret = hasSecret(text);
  secret.value = isSecret ? text : "";
  go(searchHref(isSecret ? "" : text), settings);
}

export function SearchPage(): JSX.Element {
  const [{ q }] = useQuery({ q: "" });
  const inAddress = q.trim();
  const isMisplaced = hasSecret(inAddress);
  useEffect(() => {
    if (isMisplaced) openSearch(inAddress, { replace: true });
  }, [isMisplaced, inAddress]);
  const query = inAddress || secret.value;
  const found = useCall(
    OperationsService.method.search,
    query === "" ? undefined : { query, allAccounts: true },
  );
  const hits = found.data?.hits ?? [];
  const [only] = hits.length === 1 ? hits : [];
  const to = only && !isElsewhere(only) ? hrefOfHit(only) : undefined;
  useEffect(() => {
    if (to !== undefined) go(to, { replace: true });
  }, [to]);
  if (query === "")
    return (
      <>
        <Head title={words.search.title} />
        <Card>
          <Empty>{words.search.blank}</Empty>
        </Card>
      </>
    );
  return (
    <>
      <Head title={words.search.title} />
      <p class="intro muted">
        {words.search.intro} <bdi>{withoutSecret(query)}</bdi>
      </p>
      <Card flush>
        <ListTable
          call={found}
          rowsOf={(answer) => answer.hits}
          isPart={({ incomplete: isIncomplete }) => isIncomplete}
          greyRows={4}
          empty={
            <Empty
              title={words.search.noneTitle}
              action={
                hasSecret(query) ? undefined : (
                  <LinkButton href={hrefOf(operatorPart, "accounts", { q: query })}>
                    {words.search.toAccounts}
                  </LinkButton>
                )
              }
            >
              {words.search.none} {words.search.months}
            </Empty>
          }
          caption={words.search.caption}
          columns={columns}
          keyOf={({ kind, id, accountId }) => `${kind} ${id} ${accountId}`}
          foot={({ incomplete: isIncomplete }) =>
            isIncomplete && <p class="card-text muted">{words.search.more}</p>
          }
        />
      </Card>
      {found.data && hits.length === 0 && <LookOnChain tx={query} />}
    </>
  );
}

const hashForm = /^(0x)?[0-9a-f]{64}$/i;
/** As NOWPayments numbers payments. */
const numberForm = /^[0-9]{6,20}$/;

/** For a buyer whose hash is nowhere: what the node of a chain or a processor says of it. */
function LookOnChain({ tx }: { readonly tx: string }): JSX.Element | null {
  const isHash = hashForm.test(tx);
  const isAsked = isOperatorAdmin() && (isHash || numberForm.test(tx));
  const { listDepositAddresses } = SweepsService.method;
  const { listPaymentMethods } = PaymentsService.method;
  const { data } = useCall(listDepositAddresses, isAsked && isHash ? { pageSize: 1 } : undefined);
  const offered = useCall(listPaymentMethods, isAsked ? {} : undefined).data?.methods ?? [];
  const [found, setFound] = useState<Found>();
  const networks = data?.networks ?? [];
  const others = offered.filter((one) => !one.hasDepositAddress && !one.simulated);
  const processors = [...new Set(others.map(({ processor }) => processor))];
  if (!isAsked || networks.length + processors.length === 0) return null;
  const look = (where: { network: string } | { processor: string }) => async () =>
    setFound({
      answer: await call(PaymentDeskService.method.lookUpPayment, { ...where, tx }),
      isOnChain: "network" in where,
    });
  return (
    <Card title={words.chain.title} about={words.chain.about}>
      <div class="stack">
        <div class="row">
          {networks.map((network) => (
            <Button key={network} onClick={look({ network })}>
              {words.chain.look(networkName(network))}
            </Button>
          ))}
          {processors.map((processor) => (
            <Button key={processor} onClick={look({ processor })}>
              {words.chain.ask(processor)}
            </Button>
          ))}
        </div>
        <div role="status">{found && <FoundOnChain {...found} />}</div>
      </div>
    </Card>
  );
}

type Found = { readonly answer: LookUpPaymentResponse; readonly isOnChain: boolean };

function FoundOnChain({ answer, isOnChain }: Found): JSX.Element {
  const { known: isKnown, failed: isFailed, maySendMore, confirmations, outputs } = answer;
  if (!isKnown) return <Notice tone="warn">{words.chain.unknown}</Notice>;
  const depth = isOnChain ? words.chain.depth(confirmations) : "";
  if (isFailed) return <Notice tone="bad">{words.chain.failed}</Notice>;
  if (outputs.length === 0)
    return (
      <Notice tone="warn">
        {words.chain.foreign(depth)} {maySendMore && words.chain.contract}
      </Notice>
    );
  return (
    <>
      {outputs.map(({ address, accountId, asset, coins: amount, orderId, state }) => (
        <Notice
          key={`${address} ${asset}`}
          tone="good"
          action={
            <LinkButton href={orderId === "" ? accountHref(accountId) : orderHref(orderId)}>
              {words.attention.look}
            </LinkButton>
          }
        >
          {words.chain.ours(`${amount} ${asset}`, depth)}{" "}
          {textOf(DepositState, words.chain.states, state)} <code class="note-text">{address}</code>
        </Notice>
      ))}
    </>
  );
}

const columns = [
  {
    name: "what",
    head: words.search.head.what,
    cell: ({ kind }: SearchHit) => textOf(SearchHitKind, paletteWords.kinds, kind),
  },
  {
    name: "hit",
    head: words.search.head.hit,
    cell: (hit: SearchHit) => (
      <a class="row-link clipped" href={hrefOfHit(hit)} title={hit.id}>
        <bdi>{hit.title || hit.id}</bdi>
      </a>
    ),
  },
  {
    name: "account",
    head: words.search.head.account,
    cell: (hit: SearchHit) => {
      const { accountId, accountName, cell } = hit;
      if (isElsewhere(hit)) return <bdi>{`${accountName || accountId} ${shell.cell(cell)}`}</bdi>;
      return accountId === "" ? (
        words.none
      ) : (
        <AccountLink accountId={accountId} name={accountName} />
      );
    },
  },
  {
    name: "at",
    head: words.search.head.at,
    cell: ({ occurredAt: at }: SearchHit) => <Time at={at} as="moment" />,
  },
];

/** Where operators look at a hit. */
export function hrefOfHit(hit: SearchHit): string {
  const href = pageOfHit(hit);
  if (!isElsewhere(hit)) return href;
  return `/console/cell/${hit.cell}?${new URLSearchParams({ next: href })}`;
}

/** True for what is in another cell than the page. */
function isElsewhere({ cell }: SearchHit): boolean {
  return cell !== "" && !session.value.cells.some((one) => one.current && one.cell === cell);
}

function pageOfHit({ kind, id, accountId, title }: SearchHit): string {
  switch (kind) {
    case SearchHitKind.ORDER:
    case SearchHitKind.DOCUMENT:
      return orderHref(id);
    case SearchHitKind.PERSON:
      return hrefOf(operatorPart, "people", { q: title });
    case SearchHitKind.KEY:
      return hrefOf(accountId, `keys/${id}`);
    case SearchHitKind.REQUEST:
      return hrefOf(accountId, `requests/${id}`);
    case SearchHitKind.MODEL:
      return hrefOf(operatorPart, "models");
    case SearchHitKind.REFUSAL:
      return hrefOf(operatorPart, `refusals/${id}`);
    default:
      return accountHref(accountId);
  }
}
