// What is around every page of an account: its sections and balance, and what is true for all.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { AccountsService } from "../../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AccountState } from "../../../gen/gateway/billing/v1/account_pb.ts";
import type { Forecast } from "../../../gen/gateway/common/v1/forecast_pb.ts";
import { type GetForecastResponse, UsageService } from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { type Call, useCall, useStream } from "./api.ts";
import { credits } from "./format.ts";
import { Frame, useCurrentInSight } from "./frame.tsx";
import { chargesMoved, following, readAt } from "./live.ts";
import { familyName, roleName } from "./names.ts";
import { OperatorSections } from "./operators.tsx";
import { pages } from "./pages.ts";
import { Bell } from "./parts/bell.tsx";
import { LinkButton } from "./parts/button.tsx";
import { Icon } from "./parts/icon.tsx";
import { loadPages } from "./parts/later.tsx";
import { Menu } from "./parts/menu.tsx";
import { isSpent } from "./parts/pools.ts";
import { useVisible } from "./parts/visible.ts";
import { href, hrefOf, segments } from "./router.ts";
import { account, can, isOperator, refreshSession, session } from "./session.ts";
import { words } from "./words.ts";

export function Shell({ children }: { children: ComponentChildren }): JSX.Element {
  const { accountId } = account.value;
  useRefreshedSession();
  useSettledCharges(accountId);
  const forecast = useCall(UsageService.method.getForecast, { accountId }, { isLive: true });
  const forecasts = forecast.data?.forecasts ?? [];
  return (
    <Frame
      home={href("")}
      settings={href("settings")}
      column={
        <>
          <AccountSwitch />
          <Sections />
          {isOperator() && <OperatorSections />}
        </>
      }
      bell={<LaterBell key={accountId} />}
      foot={<Balance call={forecast} />}
      banner={<RunningOut forecasts={forecasts} />}
    >
      {children}
    </Frame>
  );
}

/** Figures move when a charge is settled. */
function useSettledCharges(accountId: string): void {
  const isVisible = useVisible();
  const [isWhole, setWhole] = useState(false);
  const hasFigures = readAt.value !== undefined;
  useEffect(() => {
    // What the page shows comes first. The stream has the charges of ten seconds before it.
    const beginWhole = () => {
      setWhole(true);
      loadPages();
    };
    const timer = hasFigures ? setTimeout(beginWhole, beginAfterMs) : undefined;
    return () => clearTimeout(timer);
  }, [hasFigures]);
  const { watchCharges } = UsageService.method;
  // An order is followed by a stream of its own, and a browser has six connections for all tabs.
  const isOrder = segments()[2] === "orders";
  const request = isVisible && isWhole && !isOrder ? { accountId } : undefined;
  const state = useStream(watchCharges, request, (message) => {
    if (message.charges.length > 0 || message.incomplete) chargesMoved();
  });
  useEffect(() => {
    following.value = state;
  }, [state]);
}

/** The bell, once the figures are there. Until then, its place. */
function LaterBell(): JSX.Element {
  return readAt.value === undefined ? <span class="bell of-narrow" /> : <Bell />;
}

const beginAfterMs = 1_000;
const refreshMs = 60_000;

/** Asks every minute, and on return, who is here. */
function useRefreshedSession(): void {
  useEffect(() => {
    const refresh = () => {
      if (document.visibilityState === "visible") refreshSession();
    };
    const timer = setInterval(refresh, refreshMs);
    document.addEventListener("visibilitychange", refresh);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", refresh);
    };
  }, []);
}

function AccountSwitch(): JSX.Element {
  const { name, role, accountId } = account.value;
  const { accounts } = session.value;
  const text = (
    <span>
      <b dir="auto">{name}</b>
      <small>{words.shell.roles[roleName(role)]}</small>
    </span>
  );
  if (accounts.length < 2) return <div class="account">{text}</div>;
  return (
    <Menu
      class="account"
      button={
        <>
          {text}
          <span class="visually-hidden">{words.shell.switchAccount}</span>
          <Icon name="switch" />
        </>
      }
    >
      {(close) =>
        accounts.map((one) => (
          <a
            key={one.accountId}
            class="menu-item"
            href={hrefOf(one.accountId, segments()[1] ?? "")}
            aria-current={one.accountId === accountId ? "true" : undefined}
            onClick={close}
          >
            <span dir="auto">{one.name}</span>
            <small>{words.shell.roles[roleName(one.role)]}</small>
          </a>
        ))
      }
    </Menu>
  );
}

function Sections(): JSX.Element {
  const section = segments()[1] ?? "";
  const row = useCurrentInSight(section);
  return (
    <nav ref={row} class="sections stack" aria-label={words.shell.sections}>
      {pages.map(({ path, nav, isShown }) =>
        nav && (!isShown || isShown()) ? (
          <a key={path} href={href(path)} aria-current={path === section ? "page" : undefined}>
            <Icon name={nav.icon} />
            {nav.label}
          </a>
        ) : null,
      )}
    </nav>
  );
}

/** A line for each pool, since the two never mix. */
function Balance({ call }: { readonly call: Call<GetForecastResponse> }): JSX.Element {
  const { data, error } = call;
  return (
    <a class="balance" href={href("credits")}>
      <span>{words.shell.creditsLeft}</span>
      {data?.forecasts.map((one) => (
        <PoolLine key={one.family} forecast={one} />
      ))}
      {!data && error && <span>{words.shell.notLoaded}</span>}
    </a>
  );
}

function PoolLine({ forecast }: { readonly forecast: Forecast }): JSX.Element {
  const { family, freeMicrocredits: free, daysLeft } = forecast;
  const isLasting = free > 0n && daysLeft !== undefined;
  return (
    <span class="balance-pool" data-tone={isSpent(forecast) ? "bad" : undefined}>
      <span>{familyName(family)}</span> <b>{credits(free)}</b>
      <small>{isLasting && words.shell.daysLeft(daysLeft)}</small>
    </span>
  );
}

/** What everybody in the account must know: it is suspended, or a pool runs out. */
function RunningOut({ forecasts }: { forecasts: readonly Forecast[] }): JSX.Element | null {
  const { accountId } = account.value;
  const own = session.value.accounts.find((one) => one.accountId === accountId);
  // An operator looks at an account of others.
  const { data } = useCall(AccountsService.method.getAccount, own ? undefined : { accountId });
  const status = (own ?? data?.account)?.state;
  if (status === AccountState.CLOSED) return <Banner tone="bad">{words.banner.closed}</Banner>;
  if (status === AccountState.SUSPENDED) {
    const { stateReason: statusReason = "" } = own ?? data?.account ?? {};
    return <Banner tone="bad">{words.banner.suspended(statusReason)}</Banner>;
  }
  const worst = forecasts
    .map((forecast) => warningOf(forecast, forecasts))
    .filter((warning) => warning !== undefined)
    .sort((a, b) => a.rank - b.rank)[0];
  if (!worst) return null;
  return (
    <Banner tone={worst.rank === 0 ? "bad" : "warn"} isForBuyers>
      {worst.text}
    </Banner>
  );
}

type Warning = { readonly rank: number; readonly text: string };

const lowDays = 3;
const lowShare = 5n;

/** From three days, or a fifth of what the pool had after it was last filled. */
function warningOf(forecast: Forecast, all: readonly Forecast[]): Warning | undefined {
  const { family, freeMicrocredits: free, filledToMicrocredits: filled, daysLeft } = forecast;
  const pool = familyName(family);
  // Nobody ever filled it: nobody counts on it.
  if (filled === undefined) return undefined;
  if (free < 0n) return { rank: 0, text: words.banner.debt(pool, credits(-free)) };
  if (free === 0n) {
    const other = all.find((one) => one.family !== family && one.freeMicrocredits > 0n);
    return { rank: 0, text: words.banner.empty(pool, other && familyName(other.family)) };
  }
  const isLow = (daysLeft !== undefined && daysLeft <= lowDays) || free * lowShare <= filled;
  return isLow ? { rank: 1, text: words.banner.low(pool, credits(free), daysLeft) } : undefined;
}

type BannerProps = { tone: "warn" | "bad"; isForBuyers?: boolean; children: ComponentChildren };

function Banner({ tone, isForBuyers = false, children }: BannerProps): JSX.Element {
  return (
    <aside class="banner" data-tone={tone}>
      <Icon name="warning" />
      <p>{children}</p>
      {isForBuyers &&
        session.value.sellsCredits &&
        (can("member") ? (
          <LinkButton href={href("credits")}>{words.banner.buy}</LinkButton>
        ) : (
          <span class="faint">{words.banner.askOwner}</span>
        ))}
    </aside>
  );
}
