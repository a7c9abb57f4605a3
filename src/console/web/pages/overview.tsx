import type { JSX } from "preact";
import type { Forecast } from "../../../../gen/gateway/common/v1/forecast_pb.ts";
import {
  KeyOrder,
  KeysService,
  type ListKeysResponse,
} from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { type Call, together, useCall } from "../api.ts";
import { credits, dollars } from "../format.ts";
import { familyName } from "../names.ts";
import { NewestAlerts } from "../parts/alerts.tsx";
import { BudgetCard } from "../parts/budget.tsx";
import { LinkButton } from "../parts/button.tsx";
import { KeyTags, MonthOfCap } from "../parts/key-tags.tsx";
import { NewestRequests } from "../parts/newest-requests.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { isSpent } from "../parts/pools.ts";
import { KeyName } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { startOf } from "../parts/timeline.ts";
import { barsTitle, DayBars, spentSince, timedRows, useLastDays } from "../parts/usage-bars.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href } from "../router.ts";
import { account, can, canBuy, session } from "../session.ts";
import { words } from "../words.ts";

const topKeysMax = 5;

function useTopKeys(): Call<ListKeysResponse> {
  const { accountId } = account.value;
  const request = { accountId, pageSize: topKeysMax, order: KeyOrder.MONTH_SPENT };
  return useCall(KeysService.method.listKeys, request, { isLive: true });
}

export function Overview(): JSX.Element {
  const keys = useTopKeys();
  const hasKeys = keys.data === undefined || keys.data.keys.length > 0;
  const mayCreate = can("member");
  return (
    <>
      <Head
        title={words.overview.title}
        tools={
          mayCreate && (
            <>
              {canBuy() && <LinkButton href={href("credits")}>{words.overview.buy}</LinkButton>}
              <LinkButton kind="main" icon="plus" href={href("keys", { new: "1" })}>
                {words.overview.newKey}
              </LinkButton>
            </>
          )
        }
      />
      <Amounts />
      <OwnBudget />
      {!hasKeys && mayCreate ? (
        <Card>
          <Empty
            title={words.overview.noKeysTitle}
            action={
              <LinkButton kind="main" href={href("start")}>
                {words.overview.start}
              </LinkButton>
            }
          >
            {words.overview.noKeys}
          </Empty>
        </Card>
      ) : (
        <>
          <Chart />
          <TopKeys />
          <NewestRequests />
          <NewestAlerts />
        </>
      )}
    </>
  );
}

/** Both pools, and what was spent. */
function Amounts(): JSX.Element {
  const { accountId } = account.value;
  const pools = useCall(UsageService.method.getForecast, { accountId }, { isLive: true });
  const usage = useLastDays({ withOwnBudgets: true });
  const now = new Date();
  return (
    <View call={together(pools, usage)} skeleton={<Skeleton figures={4} />}>
      {([{ forecasts }, { rows }]) => {
        const days = timedRows(rows);
        const today = spentSince(days, startOf("day", now));
        const month = spentSince(days, startOf("month", now));
        return (
          <Figures>
            {forecasts.map((pool) => (
              <PoolFigure key={pool.family} pool={pool} />
            ))}
            <Figure
              label={words.overview.today}
              value={credits(today)}
              note={words.common.approximately(dollars(today))}
            />
            <Figure
              label={words.overview.month}
              value={credits(month)}
              note={words.common.approximately(dollars(month))}
            />
          </Figures>
        );
      }}
    </View>
  );
}

function PoolFigure({ pool }: { pool: Forecast }): JSX.Element {
  const { freeMicrocredits: free, heldMicrocredits: held, daysLeft } = pool;
  const facts = [
    held > 0n ? words.overview.held(credits(held)) : words.overview.nothingHeld,
    ...(daysLeft === undefined ? [] : [words.overview.daysLeft(daysLeft)]),
  ];
  return (
    <Figure
      label={words.overview.free(familyName(pool.family))}
      value={credits(free)}
      term="pool"
      {...(isSpent(pool) && { tone: "bad" })}
      note={facts.join(" · ")}
    />
  );
}

/** What the person may spend, where that is limited. */
function OwnBudget(): JSX.Element | null {
  const personId = session.value.person?.personId;
  const budgets = useLastDays({ withOwnBudgets: true }).data?.ownBudgets ?? [];
  if (budgets.length === 0) return null;
  return (
    <BudgetCard
      title={words.budget.own}
      about={words.budget.ownHint}
      budgets={budgets}
      tools={
        <LinkButton kind="quiet" href={href(`members/${personId}`)}>
          {words.budget.ownKeys}
        </LinkButton>
      }
    />
  );
}

function Chart(): JSX.Element {
  const usage = useLastDays({ withOwnBudgets: true });
  return (
    <Card
      title={barsTitle()}
      tools={
        <LinkButton kind="quiet" href={href("usage")}>
          {words.overview.usage}
        </LinkButton>
      }
    >
      <View
        call={usage}
        skeleton={<Skeleton chart />}
        empty={({ rows }) =>
          rows.length > 0 ? undefined : (
            <Empty title={words.overview.noUseTitle}>{words.overview.noUse}</Empty>
          )
        }
      >
        {({ rows }) => <DayBars rows={timedRows(rows)} />}
      </View>
    </Card>
  );
}

function TopKeys(): JSX.Element {
  const keys = useTopKeys();
  return (
    <Card
      flush
      title={words.overview.topKeys}
      tools={
        <LinkButton kind="quiet" href={href("keys")}>
          {words.overview.allKeys}
        </LinkButton>
      }
    >
      <View call={keys} skeleton={<Skeleton rows={topKeysMax} />}>
        {(data) => {
          const spending = data.keys.filter(({ monthSpentMicrocredits: spent }) => spent > 0n);
          if (spending.length === 0)
            return <p class="card-text muted">{words.overview.noKeyUse}</p>;
          return (
            <Table
              caption={words.overview.topKeys}
              rows={spending}
              keyOf={({ keyId }) => keyId}
              columns={[
                {
                  name: "key",
                  head: words.keys.key,
                  cell: (key) => (
                    <span class="key-cell">
                      <KeyName
                        name={key.name}
                        hint={key.secrets[0]?.hint}
                        href={href(`keys/${key.keyId}`)}
                      />
                      <KeyTags apiKey={key} />
                    </span>
                  ),
                },
                {
                  name: "month",
                  head: words.keys.month,
                  end: true,
                  cell: (key) => <MonthOfCap apiKey={key} />,
                },
              ]}
            />
          );
        }}
      </View>
    </Card>
  );
}
