// The receipt of an order and its credit notes, to print. The browser makes the PDF.

import type { JSX } from "preact";
import type { Deposit } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import {
  type Document,
  DocumentKind,
  type DocumentParty,
  PaymentsService,
} from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { useCall } from "../api.ts";
import { day, type Moment, seconds } from "../format.ts";
import { Button } from "../parts/button.tsx";
import { exact } from "../parts/decimals.ts";
import { networkName } from "../parts/orders.tsx";
import { Head } from "../parts/page.tsx";
import { poolOf } from "../parts/pools.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps } from "../router.ts";
import { words } from "../words.ts";
import { utc } from "../zone.ts";

export function DocumentPage({ params }: PageProps): JSX.Element {
  const { orderId = "" } = params;
  const found = useCall(PaymentsService.method.getReceiptDocument, { orderId });
  const number = found.data?.receipt?.number;
  return (
    <>
      <Head
        title={number ? words.credits.receiptOf(number) : words.document.receipt}
        back={{ href: href(`credits/orders/${orderId}`), label: words.document.back }}
        tools={
          found.data && (
            <>
              <span class="faint">{words.document.printHint}</span>
              <Button kind="main" onClick={() => print()}>
                {words.document.print}
              </Button>
            </>
          )
        }
      />
      <View call={found} skeleton={<Skeleton rows={10} />} missing={words.document.missing}>
        {({ receipt, creditNotes, deposits }) => (
          <div class="sheets">
            {receipt && <Sheet document={receipt} deposits={deposits} />}
            {creditNotes.map((note) => (
              <Sheet key={note.number} document={note} deposits={[]} />
            ))}
          </div>
        )}
      </View>
    </>
  );
}

function Sheet({
  document: sheet,
  deposits,
}: {
  readonly document: Document;
  readonly deposits: readonly Deposit[];
}): JSX.Element {
  const { kind, number, issuedAt, seller, buyer, lines, receiptNumber } = sheet;
  const text = words.document;
  const isNote = kind === DocumentKind.CREDIT_NOTE;
  const pool = poolOf(sheet.family).inText;
  return (
    <article class="card sheet">
      <div class="body stack">
        <header class="sheet-head">
          <h2>
            {isNote ? text.creditNote : text.receipt} {number}
          </h2>
          <dl class="facts columns">
            <div>
              <dt>{text.issued}</dt>
              <dd>{issuedAt && day(issuedAt, utc)}</dd>
            </div>
            <div>
              <dt>{text.order}</dt>
              <dd>
                <code>{sheet.orderId}</code>
              </dd>
            </div>
            {receiptNumber !== "" && (
              <div>
                <dt>{text.corrects}</dt>
                <dd>{receiptNumber}</dd>
              </div>
            )}
          </dl>
        </header>
        <div class="sheet-parties columns">
          <Party title={text.seller} party={seller} />
          <Party title={text.buyer} party={buyer} />
        </div>
        <table>
          <caption>{isNote ? text.taken : text.lines}</caption>
          <thead>
            <tr>
              <th scope="col">{text.head.at}</th>
              <th scope="col">{text.head.what}</th>
              <th scope="col" class="end">
                {text.head.price}
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, index) => (
              <tr key={index}>
                <td class="whole">{momentText(line.occurredAt)}</td>
                <td>{text.credits(exact(line.microcredits), pool)}</td>
                <td class="end">{exact(line.microdollars)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{text.total}</th>
              <td>{text.credits(exact(sheet.totalMicrocredits), pool)}</td>
              <td class="end">{exact(sheet.totalMicrodollars)}</td>
            </tr>
          </tfoot>
        </table>
        {deposits.length > 0 && <Paid deposits={deposits} />}
        <p class="faint">{text.times}</p>
      </div>
    </article>
  );
}

function Party({
  title,
  party,
}: {
  readonly title: string;
  readonly party: DocumentParty | undefined;
}): JSX.Element {
  const { name = "", address = "", taxId = "" } = party ?? {};
  const texts = [name, ...address.split("\n"), taxId === "" ? "" : words.document.taxId(taxId)];
  const lines = texts.filter((line) => line !== "");
  return (
    <section>
      <h3>{title}</h3>
      <address>
        {lines.length === 0
          ? words.document.nobody
          : lines.map((line) => (
              <div key={line}>
                <bdi>{line}</bdi>
              </div>
            ))}
      </address>
    </section>
  );
}

function Paid({ deposits }: { readonly deposits: readonly Deposit[] }): JSX.Element {
  const { paid, paidHead } = words.document;
  return (
    <table>
      <caption>{paid}</caption>
      <thead>
        <tr>
          <th scope="col">{paidHead.at}</th>
          <th scope="col">{paidHead.amount}</th>
          <th scope="col" class="end">
            {paidHead.value}
          </th>
        </tr>
      </thead>
      <tbody>
        {deposits.map((one) => (
          <tr key={one.depositId}>
            <td class="whole">{momentText(one.firstSeenAt)}</td>
            <td>
              {one.coins} {words.purchase.methodName(one.asset, networkName(one.network))}
              <br />
              <code class="faint">{one.depositId}</code>
            </td>
            <td class="end">
              {one.valueMicrodollars === undefined
                ? words.requests.none
                : exact(one.valueMicrodollars)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Its column says that it is UTC. */
function momentText(at: Moment | undefined): string | undefined {
  return at && `${day(at, utc)}, ${seconds(at, utc)}`;
}
