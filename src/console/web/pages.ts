// The pages of an account, in the order of the column. Those of operators come behind them. All but
// the first one are loaded when somebody comes to them.

import { Overview } from "./pages/overview.tsx";
import { laterPage } from "./parts/later.tsx";
import type { PageEntry } from "./router.ts";
import { can } from "./session.ts";
import { words } from "./words.ts";

export const pages: readonly PageEntry[] = [
  { path: "", component: Overview, nav: { label: words.shell.overview, icon: "overview" } },
  {
    path: "connect",
    component: laterPage(async () => (await import("./pages/connect.tsx")).Connect),
    nav: { label: words.shell.connect, icon: "connect" },
  },
  {
    path: "models",
    component: laterPage(async () => (await import("./pages/models.tsx")).Models),
    nav: { label: words.shell.models, icon: "models" },
  },
  {
    path: "keys",
    component: laterPage(async () => (await import("./pages/keys.tsx")).Keys),
    nav: { label: words.shell.keys, icon: "keys" },
  },
  {
    path: "keys/:keyId",
    component: laterPage(async () => (await import("./pages/key.tsx")).KeyPage),
  },
  {
    path: "usage",
    component: laterPage(async () => (await import("./pages/usage.tsx")).Usage),
    nav: { label: words.usage.title, icon: "usage" },
  },
  {
    path: "requests",
    component: laterPage(async () => (await import("./pages/requests.tsx")).Requests),
    nav: { label: words.requests.title, icon: "requests" },
  },
  {
    path: "requests/:requestId",
    component: laterPage(async () => (await import("./pages/receipt.tsx")).ReceiptPage),
  },
  {
    path: "credits",
    component: laterPage(async () => (await import("./pages/credits.tsx")).Credits),
    nav: { label: words.credits.title, icon: "credits" },
  },
  {
    path: "credits/buy",
    component: laterPage(async () => (await import("./pages/buy.tsx")).Buy),
  },
  {
    path: "credits/orders/:orderId",
    component: laterPage(async () => (await import("./pages/order.tsx")).OrderPage),
  },
  {
    path: "credits/orders/:orderId/receipt",
    component: laterPage(async () => (await import("./pages/document.tsx")).DocumentPage),
  },
  {
    path: "members",
    component: laterPage(async () => (await import("./pages/members.tsx")).Members),
    nav: { label: words.shell.members, icon: "members" },
    isShown: () => can("owner"),
  },
  {
    path: "members/:personId",
    component: laterPage(async () => (await import("./pages/member.tsx")).MemberPage),
  },
  {
    path: "alerts",
    component: laterPage(async () => (await import("./pages/alerts.tsx")).AlertsPage),
  },
  {
    path: "settings",
    component: laterPage(async () => (await import("./pages/settings.tsx")).Settings),
    nav: { label: words.shell.settings, icon: "settings" },
  },
];
