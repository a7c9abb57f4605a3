import type { JSX } from "preact";
import { BillingService, type Pool } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { both, useCall } from "../api.ts";
import { credits, dollars } from "../format.ts";
import { familyName } from "../names.ts";
import { LinkButton } from "../parts/button.tsx";
import { NewestRequests } from "../parts/newest-requests.tsx";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { KeyName } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { startOf } from "../parts/timeline.ts";
import { DayBars, spentSince, timedRows, useLastDays } from "../parts/usage-bars.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href } from "../router.ts";
import { account, can } from "../session.ts";
import { words } from "../words.ts";
import { KeyTags, MonthOfCap } from "./keys.tsx";

export function Overview(): JSX.Element {
  const { accountId } = account.value;
  const keys = useCall(KeysService.method.listKeys, { accountId, pageSize: 1000 });
  const hasKeys = keys.data === undefined || keys.data.keys.length > 0;
  const mayCreate = can("member");
  return (
    <>
      <Head
        title={words.overview.title}
        tools={
          mayCreate && (
            <>
              <LinkButton href={href("credits")}>{words.overview.buy}</LinkButton>
              <LinkButton kind="main" icon="plus" href={href("keys", { new: "1" })}>
                {words.overview.newKey}
              </LinkButton>
            </>
          )
        }
      />
      <Amounts />
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
        </>
      )}
    </>
  );
}

/** Both pools, and what was spent. */
function Amounts(): JSX.Element {
  const { accountId } = account.value;
  const pools = useCall(BillingService.method.getPools, { accountId }, { everyMs: 60_000 });
  const forecast = useCall(BillingService.method.getForecast, { accountId });
  const usage = useLastDays();
  const now = new Date();
  return (
    <View call={both(pools, usage)} skeleton={<Skeleton figures={4} />}>
      {([{ pools: all }, { rows }]) => {
        const days = timedRows(rows);
        const today = spentSince(days, startOf("day", now));
        const month = spentSince(days, startOf("month", now));
        const daysLeftOf = ({ family }: Pool) =>
          forecast.data?.forecasts.find((one) => one.family === family)?.daysLeft;
        return (
          <Figures>
            {all.map((pool) => (
              <PoolFigure key={pool.family} pool={pool} daysLeft={daysLeftOf(pool)} />
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

type PoolFigureProps = { pool: Pool; daysLeft: number | undefined };

function PoolFigure({ pool, daysLeft }: PoolFigureProps): JSX.Element {
  const { freeMicrocredits: free, heldMicrocredits: held = 0n } = pool;
  const facts = [
    held > 0n ? words.overview.held(credits(held)) : words.overview.nothingHeld,
    ...(daysLeft === undefined ? [] : [words.overview.daysLeft(daysLeft)]),
  ];
  return (
    <Figure
      label={words.overview.free(familyName(pool.family))}
      value={credits(free)}
      {...(free < 0n && { tone: "bad" })}
      note={facts.join(" · ")}
    />
  );
}

function Chart(): JSX.Element {
  const usage = useLastDays();
  return (
    <Card
      title={words.overview.chart}
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

const topKeysMax = 5;

function TopKeys(): JSX.Element {
  const { accountId } = account.value;
  const keys = useCall(KeysService.method.listKeys, { accountId, pageSize: 1000 });
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
          const spending = data.keys
            .filter(({ monthSpentMicrocredits: spent }) => spent > 0n)
            .sort((a, b) => (a.monthSpentMicrocredits < b.monthSpentMicrocredits ? 1 : -1))
            .slice(0, topKeysMax);
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
                  cell: ({ name, secrets, keyId }) => (
                    <KeyName name={name} hint={secrets[0]?.hint} href={href(`keys/${keyId}`)} />
                  ),
                },
                {
                  name: "status",
                  head: words.keys.status,
                  cell: (key) => <KeyTags apiKey={key} />,
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
