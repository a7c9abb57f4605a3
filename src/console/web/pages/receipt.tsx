// What one request cost, and why: tokens × price = credits for each category.

import type { JSX } from "preact";
import {
  AttemptOutcome,
  Basis,
  Outcome,
  type Receipt,
} from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Usage } from "../../../../gen/gateway/common/v1/usage_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { actorText } from "../../../base/actors.ts";
import { costMicro, microRoundedDown, nanoOf } from "../../../base/cost.ts";
import {
  type TokenCategory,
  tokenCategories,
  type UsageCount,
} from "../../../base/token-categories.ts";
import { useCall } from "../api.ts";
import { count, credits, duration, perMillion, signedCredits, smallDollars } from "../format.ts";
import { Copy } from "../parts/button.tsx";
import { durationOf, firstEventOf } from "../parts/charge-list.ts";
import { textOf } from "../parts/enum-names.ts";
import { hintOf, learnKeys, useKeys } from "../parts/key-names.ts";
import { OutcomeNotice } from "../parts/outcome.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { poolOf } from "../parts/pools.ts";
import { Facts, KeyName, Time } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { tagsText } from "../parts/tags.ts";
import { Term } from "../parts/term.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps } from "../router.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";

/** A running request is looked at again this often. */
const runningMs = 2_000;

export function ReceiptPage({ params }: PageProps): JSX.Element {
  const { requestId = "" } = params;
  const request = { requestId, accountId: account.value.accountId };
  const known = useCall(UsageService.method.getReceipt, request);
  if (known.data?.key) learnKeys([known.data.key]);
  const isRunning = known.data?.receipt?.outcome === Outcome.RUNNING;
  // The same question: the answer is shared.
  const receipt = useCall(
    UsageService.method.getReceipt,
    request,
    isRunning ? { everyMs: runningMs } : {},
  );
  return (
    <>
      <Head
        title={words.receipt.title}
        back={{ href: href("requests"), label: words.receipt.back }}
        detail={
          <span class="id">
            <code>{requestId}</code>
            <Copy text={requestId} label={words.receipt.copyId} isSmall />
          </span>
        }
      />
      <View
        call={receipt}
        skeleton={<Skeleton figures={3} rows={8} />}
        missing={words.receipt.missing}
      >
        {({ receipt: found }) => found && <Whole receipt={found} />}
      </View>
    </>
  );
}

function Whole({ receipt }: { readonly receipt: Receipt }): JSX.Element {
  const {
    outcome,
    chargedMicrocredits: amountMicrocredits,
    model,
    keyId,
    family,
    attempts,
  } = receipt;
  const isRunning = outcome === Outcome.RUNNING;
  const keys = useKeys([keyId]);
  const took = durationOf(receipt);
  const first = firstEventOf(receipt);
  return (
    <>
      <div class="above">
        <OutcomeNotice outcome={outcome} />
      </div>
      <Figures>
        <Figure
          label={words.receipt.charged}
          value={isRunning ? words.receipt.soFar : credits(amountMicrocredits, 4)}
          {...(!isRunning && {
            unit: words.receipt.unit,
            note: `≈ ${smallDollars(amountMicrocredits)}`,
          })}
        />
        <Figure
          label={words.receipt.duration}
          value={took === undefined ? words.requests.none : duration(took)}
          note={first !== undefined && `${words.receipt.firstToken} ${duration(first)}`}
        />
        <Figure label={words.receipt.pool} value={poolOf(family).name} note={poolOf(family).keys} />
      </Figures>
      <Card title={words.receipt.cost} note={words.receipt.costNote} flush>
        <Cost receipt={receipt} />
      </Card>
      <Card>
        <Facts>
          {[
            [
              words.receipt.key,
              <KeyName
                key={keyId}
                name={keys.get(keyId)?.name ?? ""}
                hint={hintOf(keys.get(keyId)) || keyId}
                href={href(`keys/${keyId}`)}
              />,
            ],
            [words.receipt.model, model],
            Object.keys(receipt.tags).length > 0
              ? [words.receipt.tags, tagsText(receipt.tags)]
              : undefined,
            receipt.madeBy
              ? [
                  words.receipt.madeBy,
                  <a
                    key="by"
                    href={href(`requests?by=${encodeURIComponent(actorText(receipt.madeBy))}`)}
                  >
                    {actorText(receipt.madeBy)}
                  </a>,
                ]
              : undefined,
            [words.receipt.admitted, <Time key="at" at={receipt.admittedAt} as="moment" />],
            [words.receipt.basis, textOf(Basis, words.receipt.bases, receipt.basis)],
            [
              words.receipt.hold,
              <span key="hold" class="row">
                {words.receipt.credits(credits(receipt.holdMicrocredits, 4))}
                <Term of="hold" word={words.receipt.hold} />
              </span>,
            ],
            [words.receipt.granted, words.receipt.tokens(count(receipt.grantedOutputTokens))],
            isRunning
              ? undefined
              : [
                  words.receipt.released,
                  words.receipt.credits(credits(receipt.holdMicrocredits - amountMicrocredits, 4)),
                ],
            receipt.price && [
              words.receipt.priceVersion,
              <code key="version">{receipt.price.priceVersion}</code>,
            ],
            receipt.price?.note ? [words.receipt.priceNote, receipt.price.note] : undefined,
          ]}
        </Facts>
      </Card>
      <Card title={words.receipt.attempts} note={words.receipt.attemptsNote} flush>
        {attempts.length === 0 ? (
          <p class="card-text muted">{words.receipt.attemptsNone}</p>
        ) : (
          <Attempts receipt={receipt} />
        )}
      </Card>
    </>
  );
}

type Line = {
  readonly category: TokenCategory | UsageCount;
  /** Or web searches. */
  readonly tokens: number;
  readonly reported: number;
  /** Nano-credits of one token or one search. */
  readonly price: bigint;
};

function Cost({ receipt }: { readonly receipt: Receipt }): JSX.Element {
  const {
    usage,
    price,
    reportedUsage,
    chargedMicrocredits: amountMicrocredits,
    overrunMicrocredits,
  } = receipt;
  const { head } = words.receipt;
  const lineOf = (category: TokenCategory | UsageCount, each: bigint = 0n): Line => ({
    category,
    tokens: usage?.[category] ?? 0,
    reported: (reportedUsage ?? usage)?.[category] ?? 0,
    price: each,
  });
  const lines = tokenCategories.map((category) => lineOf(category, price?.[category]));
  if (usage && usage.webSearches > 0)
    lines.push(lineOf("webSearches", nanoOf(price?.webSearch ?? 0n)));
  const costOf = ({ tokens, price: each }: Line) => BigInt(tokens) * each;
  const sum = usage && price ? costMicro(price, usage) : 0n;
  const all = (of: Usage | undefined) =>
    tokenCategories.reduce((total, category) => total + (of?.[category] ?? 0), 0);
  const isRunning = receipt.outcome === Outcome.RUNNING;
  // What the hold does not cover is not charged.
  const beyond = isRunning ? 0n : sum - amountMicrocredits;
  return (
    <>
      <Table
        caption={words.receipt.cost}
        columns={[
          {
            name: "category",
            head: head.category,
            foot: words.receipt.sum,
            cell: ({ category }) => (
              <span class="marked">
                <i class={`bars-mark ${categoryClasses[category]}`} />
                {category === "webSearches"
                  ? words.receipt.webSearches
                  : words.usage.categories[category]}
              </span>
            ),
          },
          {
            name: "tokens",
            head: head.tokens,
            foot: count(all(usage)),
            end: true,
            cell: (line) => count(line.tokens),
          },
          ...(reportedUsage
            ? [
                {
                  name: "reported",
                  head: head.reported,
                  foot: count(all(reportedUsage)),
                  end: true,
                  cell: (line: Line) => count(line.reported),
                },
              ]
            : []),
          {
            name: "price",
            head: head.price,
            end: true,
            cell: (line) => <span class="muted">× {perMillion(line.price)}</span>,
          },
          {
            name: "credits",
            head: head.credits,
            foot: credits(sum, 4),
            end: true,
            cell: (line) => `= ${credits(microRoundedDown(costOf(line)), 4)}`,
          },
        ]}
        rows={lines}
        keyOf={({ category }) => category}
      />
      {beyond > 0n && (
        <dl class="sums stack">
          <div>
            <dt>{words.receipt.overrun}</dt>
            <dd>{signedCredits(-beyond, 4)}</dd>
          </div>
          <div>
            <dt>{words.receipt.amount}</dt>
            <dd>{credits(amountMicrocredits, 4)}</dd>
          </div>
        </dl>
      )}
      {reportedUsage && (
        <p class="card-text muted">
          {words.receipt.reportedNote(credits(overrunMicrocredits - beyond, 4))}
        </p>
      )}
    </>
  );
}

function Attempts({ receipt }: { readonly receipt: Receipt }): JSX.Element {
  const { attemptHead, attemptOutcomes } = words.receipt;
  return (
    <Table
      caption={words.receipt.attempts}
      columns={[
        { name: "provider", head: attemptHead.provider, cell: ({ one }) => one.provider },
        {
          name: "outcome",
          head: attemptHead.outcome,
          cell: ({ one }) => textOf(AttemptOutcome, attemptOutcomes, one.outcome),
        },
        {
          name: "status",
          head: attemptHead.status,
          end: true,
          cell: ({ one }) => (one.status === 0 ? words.requests.none : String(one.status)),
        },
        {
          name: "first",
          head: attemptHead.first,
          end: true,
          cell: ({ one: { firstEventAfter: after } }) =>
            after
              ? duration(Number(after.seconds) * 1000 + after.nanos / 1_000_000)
              : words.requests.none,
        },
      ]}
      rows={receipt.attempts.map((one, index) => ({ one, index }))}
      keyOf={({ index }) => String(index)}
    />
  );
}

/** The colour of each category, by its class. Searches are in the part of the input. */
const categoryClasses: Readonly<Record<TokenCategory | UsageCount, string>> = {
  input: "cat-input",
  output: "cat-output",
  thinking: "cat-thinking",
  cacheWrite5m: "cat-write-5m",
  cacheWrite1h: "cat-write-1h",
  cacheRead: "cat-read",
  webSearches: "cat-input",
};
