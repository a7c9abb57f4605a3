// The pages of operators: their sections in the column, and what each shows. Customers never load
// this file.

import type { JSX } from "preact";
import { Frame, useCurrentInSight } from "../frame.tsx";
import { LinkButton } from "../parts/button.tsx";
import { Icon } from "../parts/icon.tsx";
import { Head } from "../parts/page.tsx";
import { Empty } from "../parts/view.tsx";
import { hrefOf, match, type PageEntry, segments } from "../router.ts";
import { operatorPart, preferredAccount } from "../session.ts";
import { words as shared } from "../words.ts";
import { AccountPage } from "./account.tsx";
import { Accounts } from "./accounts.tsx";
import { Addresses } from "./addresses.tsx";
import { Attention } from "./attention.tsx";
import { AuditEvents } from "./audit.tsx";
import { Checklist, FirstPage } from "./checklist.tsx";
import { Health } from "./health.tsx";
import { Models } from "./models.tsx";
import { OrderPage } from "./order.tsx";
import { Orders } from "./orders.tsx";
import { People } from "./people.tsx";
import { PriceListPage, PriceLists } from "./price-lists.tsx";
import { Promotions } from "./promotions.tsx";
import { RefusalPage } from "./refusal.tsx";
import { SalesPage } from "./sales.tsx";
import { SearchPage } from "./search.tsx";
import { words } from "./words.ts";
import { checklistWords } from "./words-checklist.ts";

// What the palette needs of them.
export { withoutSecret } from "../parts/secret-text.ts";
export { hrefOfHit, openSearch } from "./search.tsx";
// For the page of a key.
export { UnnamedProxies } from "./unnamed-proxies.tsx";

export const pages: readonly PageEntry[] = [
  { path: "", component: FirstPage },
  { path: "accounts", component: Accounts, nav: { label: words.accounts.title, icon: "members" } },
  { path: "accounts/:accountId", component: AccountPage },
  {
    path: "attention",
    component: Attention,
    nav: { label: words.attention.title, icon: "warning" },
  },
  { path: "orders", component: Orders, nav: { label: words.orders.title, icon: "credits" } },
  { path: "orders/:orderId", component: OrderPage },
  { path: "sales", component: SalesPage, nav: { label: words.sales.title, icon: "usage" } },
  { path: "search", component: SearchPage },
  { path: "refusals/:requestId", component: RefusalPage },
  { path: "models", component: Models, nav: { label: words.models.title, icon: "models" } },
  {
    path: "prices",
    component: PriceLists,
    nav: { label: words.priceLists.title, icon: "credits" },
  },
  { path: "prices/:priceListId", component: PriceListPage },
  { path: "health", component: Health, nav: { label: words.health.title, icon: "screen" } },
  { path: "people", component: People, nav: { label: words.people.title, icon: "person" } },
  { path: "audit", component: AuditEvents, nav: { label: words.audit.title, icon: "clock" } },
  {
    path: "promotions",
    component: Promotions,
    nav: { label: words.promotions.title, icon: "credits" },
  },
  {
    path: "addresses",
    component: Addresses,
    nav: { label: words.addresses.title, icon: "requests" },
  },
  {
    path: "checklist",
    component: Checklist,
    nav: { label: checklistWords.title, icon: "done" },
  },
];

/** The links to these pages, in the column. */
export function Sections(): JSX.Element {
  const [first, second = ""] = segments();
  const section = first === operatorPart ? second : undefined;
  const row = useCurrentInSight(section);
  return (
    <nav ref={row} class="sections stack" aria-label={words.sections}>
      <p class="note">{words.part}</p>
      {pages.map(({ path, nav }) =>
        nav ? (
          <a
            key={path}
            href={hrefOf(operatorPart, path)}
            aria-current={path === section ? "page" : undefined}
          >
            <Icon name={nav.icon} />
            {nav.label}
          </a>
        ) : null,
      )}
    </nav>
  );
}

/** `parts`: the path behind the part of operators. */
export function Page({ parts }: { readonly parts: readonly string[] }): JSX.Element {
  const own = preferredAccount();
  return (
    <Frame
      home={hrefOf(operatorPart, "")}
      settings={own === undefined ? undefined : hrefOf(own, "settings")}
      column={
        <>
          {own !== undefined && (
            <a class="account" href={hrefOf(own, "")}>
              <span>{words.toAccounts}</span>
              <Icon name="switch" />
            </a>
          )}
          <Sections />
        </>
      }
    >
      <Shown parts={parts} />
    </Frame>
  );
}

function Shown({ parts }: { readonly parts: readonly string[] }): JSX.Element {
  for (const { path, component: Component } of pages) {
    const params = match(path, parts);
    if (params) return <Component key={parts.join("/")} params={params} />;
  }
  return (
    <>
      <Head title={shared.common.notFoundTitle} />
      <Empty
        action={<LinkButton href={hrefOf(operatorPart, "")}>{words.accounts.title}</LinkButton>}
      >
        {shared.common.notFound}
      </Empty>
    </>
  );
}
