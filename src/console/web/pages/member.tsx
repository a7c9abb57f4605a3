// One member: what he spent this month, with which keys, and his budgets. Owners see it of all,
// others of themselves.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { KeyLabel } from "../../../../gen/gateway/common/v1/key_label_pb.ts";
import {
  UsageGroup,
  UsageService,
  type UsageSums,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { together } from "../api.ts";
import { count, credits, dollars } from "../format.ts";
import { useActorNames } from "../parts/actors.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { BudgetCard, budgetsOf, hasLimit, ofPerson, useBudgets } from "../parts/budget.tsx";
import { Button } from "../parts/button.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { KeyName } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps } from "../router.ts";
import { account, can, session } from "../session.ts";
import { words } from "../words.ts";
import { MemberBudgetDialog } from "./members.tsx";

const texts = words.member;

export function MemberPage({ params }: PageProps): JSX.Element {
  const { personId = "" } = params;
  const { person } = session.value;
  const isOwn = person?.personId === personId;
  const nameOfActor = useActorNames();
  const back = can("owner")
    ? { href: href("members"), label: words.members.title }
    : { href: href(""), label: words.overview.title };
  if (!can("owner") && !isOwn)
    return (
      <>
        <Head title={texts.title} back={back} />
        <Card>
          <Empty title={words.members.ownersOnlyTitle}>{words.members.ownersOnly}</Empty>
        </Card>
      </>
    );
  const name = isOwn
    ? person.name || person.login
    : nameOfActor({ kind: { case: "personId", value: personId } });
  return <Spending {...{ personId, name, isOwn, back }} />;
}

type SpendingProps = {
  readonly personId: string;
  readonly name: string;
  readonly isOwn: boolean;
  readonly back: { readonly href: string; readonly label: string };
};

function Spending({ personId, name, isOwn, back }: SpendingProps): JSX.Element {
  const [isLimiting, setLimiting] = useState(false);
  const { accountId } = account.value;
  const usage = useAllPages(
    UsageService.method.queryUsage,
    { accountId, groupBy: [UsageGroup.KEY, UsageGroup.MEMBER] },
    ({ rows, keys }) => {
      const labels = new Map(keys.map((key) => [key.keyId, key]));
      return rows
        .filter(({ member }) => member?.kind.case === "personId" && member.kind.value === personId)
        .map(({ keyId, sums }) => ({ keyId, sums, key: labels.get(keyId) }));
    },
    { isLive: true },
  );
  const all = useBudgets();
  const budgets = budgetsOf(ofPerson(personId), all.data?.items).filter(hasLimit);
  return (
    <>
      <Head
        title={name}
        back={back}
        tools={
          can("owner") &&
          all.data?.isLast && (
            <Button kind="main" onClick={() => setLimiting(true)}>
              {words.budget.edit}
            </Button>
          )
        }
      />
      <View call={together(usage, all)} skeleton={<Skeleton figures={2} rows={4} />}>
        {([{ items }]) => {
          const sum = (of: (sums: (typeof items)[number]["sums"]) => bigint | undefined) =>
            items.reduce((all, { sums }) => all + (of(sums) ?? 0n), 0n);
          const spent = sum((sums) => sums?.chargedMicrocredits);
          return (
            <>
              <Figures>
                <Figure
                  label={words.overview.month}
                  value={credits(spent)}
                  note={words.common.approximately(dollars(spent))}
                />
                <Figure label={texts.requests} value={count(sum((sums) => sums?.requests))} />
              </Figures>
              <BudgetCard
                title={isOwn ? words.budget.own : texts.budget}
                about={isOwn ? words.budget.ownHint : words.budget.ofMemberHint}
                budgets={budgets}
              />
              <KeysUsed used={items} />
            </>
          );
        }}
      </View>
      {isLimiting && (
        <MemberBudgetDialog
          personId={personId}
          name={name}
          budgets={budgetsOf(ofPerson(personId), all.data?.items)}
          onClose={() => setLimiting(false)}
        />
      )}
    </>
  );
}

type KeyUsed = {
  readonly keyId: string;
  /** Undefined: the answer does not name it. */
  readonly key: KeyLabel | undefined;
  readonly sums: UsageSums | undefined;
};

/** Those that cost most first. */
function KeysUsed({ used }: { readonly used: readonly KeyUsed[] }): JSX.Element {
  return (
    <Card flush title={texts.keys}>
      {used.length === 0 ? (
        <p class="card-text muted">{texts.noKeys}</p>
      ) : (
        <Table
          caption={texts.keys}
          rows={used.toSorted((one, other) => spentOf(other) - spentOf(one))}
          keyOf={({ keyId }) => keyId}
          columns={[
            {
              name: "key",
              head: words.keys.key,
              sortBy: ({ key }) => key?.name ?? "",
              cell: ({ keyId, key }) => (
                <KeyName name={key?.name ?? keyId} hint={key?.hint} href={href(`keys/${keyId}`)} />
              ),
            },
            {
              name: "requests",
              head: texts.requestsHead,
              end: true,
              sortBy: ({ sums }) => Number(sums?.requests ?? 0n),
              cell: ({ sums }) => count(sums?.requests ?? 0n),
            },
            {
              name: "credits",
              head: words.overview.amount,
              end: true,
              sortBy: spentOf,
              cell: ({ sums }) => credits(sums?.chargedMicrocredits ?? 0n),
            },
          ]}
        />
      )}
    </Card>
  );
}

function spentOf({ sums }: KeyUsed): number {
  return Number(sums?.chargedMicrocredits ?? 0n);
}
