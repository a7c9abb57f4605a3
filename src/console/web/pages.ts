// The pages of an account, in the order of the column. Those of operators come behind them.

import { AlertsPage } from "./pages/alerts.tsx";
import { Buy } from "./pages/buy.tsx";
import { Credits } from "./pages/credits.tsx";
import { DocumentPage } from "./pages/document.tsx";
import { KeyPage } from "./pages/key.tsx";
import { Keys } from "./pages/keys.tsx";
import { MemberPage } from "./pages/member.tsx";
import { Members } from "./pages/members.tsx";
import { OrderPage } from "./pages/order.tsx";
import { Overview } from "./pages/overview.tsx";
import { ReceiptPage } from "./pages/receipt.tsx";
import { Requests } from "./pages/requests.tsx";
import { Settings } from "./pages/settings.tsx";
import { Usage } from "./pages/usage.tsx";
import type { PageEntry } from "./router.ts";
import { can } from "./session.ts";
import { words } from "./words.ts";

export const pages: readonly PageEntry[] = [
  { path: "", component: Overview, nav: { label: words.shell.overview, icon: "overview" } },
  { path: "keys", component: Keys, nav: { label: words.shell.keys, icon: "keys" } },
  { path: "keys/:keyId", component: KeyPage },
  { path: "usage", component: Usage, nav: { label: words.usage.title, icon: "usage" } },
  { path: "requests", component: Requests, nav: { label: words.requests.title, icon: "requests" } },
  { path: "requests/:requestId", component: ReceiptPage },
  { path: "credits", component: Credits, nav: { label: words.credits.title, icon: "credits" } },
  { path: "credits/buy", component: Buy },
  { path: "credits/orders/:orderId", component: OrderPage },
  { path: "credits/orders/:orderId/receipt", component: DocumentPage },
  {
    path: "members",
    component: Members,
    nav: { label: words.shell.members, icon: "members" },
    isShown: () => can("owner"),
  },
  { path: "members/:personId", component: MemberPage },
  { path: "alerts", component: AlertsPage },
  { path: "settings", component: Settings, nav: { label: words.shell.settings, icon: "settings" } },
];
