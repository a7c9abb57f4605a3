// The pages of an account, in the order of the column. Those of operators come behind them. All but
// the first one are loaded when somebody comes to them: those of one kind at once, since one file
// is compressed better than four.

import { Overview } from "./pages/overview.tsx";
import { laterPage } from "./parts/later.tsx";
import type { PageEntry } from "./router.ts";
import { can, isMember } from "./session.ts";
import { words } from "./words.ts";

export const pages: readonly PageEntry[] = [
  { path: "", component: Overview, nav: { label: words.shell.overview, icon: "overview" } },
  {
    path: "connect",
    component: laterPage(async () => (await import("./pages/of-models.ts")).Connect),
    nav: { label: words.shell.connect, icon: "connect" },
  },
  {
    path: "models",
    component: laterPage(async () => (await import("./pages/of-models.ts")).Models),
    nav: { label: words.shell.models, icon: "models" },
  },
  {
    path: "try",
    component: laterPage(async () => (await import("./pages/of-models.ts")).Try),
    nav: { label: words.shell.try, icon: "send" },
    isShown: isMember,
  },
  {
    path: "keys",
    component: laterPage(async () => (await import("./pages/of-keys.ts")).Keys),
    nav: { label: words.shell.keys, icon: "keys" },
  },
  {
    path: "keys/:keyId",
    component: laterPage(async () => (await import("./pages/of-keys.ts")).KeyPage),
  },
  {
    path: "usage",
    component: laterPage(async () => (await import("./pages/of-figures.ts")).Usage),
    nav: { label: words.usage.title, icon: "usage" },
  },
  {
    path: "requests",
    component: laterPage(async () => (await import("./pages/of-figures.ts")).Requests),
    nav: { label: words.requests.title, icon: "requests" },
  },
  {
    path: "requests/:requestId",
    component: laterPage(async () => (await import("./pages/of-figures.ts")).ReceiptPage),
  },
  {
    path: "credits",
    component: laterPage(async () => (await import("./pages/of-account.ts")).Credits),
    nav: { label: words.credits.title, icon: "credits" },
  },
  {
    path: "credits/buy",
    component: laterPage(async () => (await import("./pages/of-account.ts")).Buy),
  },
  {
    path: "credits/orders/:orderId",
    component: laterPage(async () => (await import("./pages/of-account.ts")).OrderPage),
  },
  {
    path: "credits/orders/:orderId/receipt",
    component: laterPage(async () => (await import("./pages/of-account.ts")).DocumentPage),
  },
  {
    path: "members",
    component: laterPage(async () => (await import("./pages/of-keys.ts")).Members),
    nav: { label: words.shell.members, icon: "members" },
    isShown: () => can("owner"),
  },
  {
    path: "members/:personId",
    component: laterPage(async () => (await import("./pages/of-keys.ts")).MemberPage),
  },
  {
    path: "alerts",
    component: laterPage(async () => (await import("./pages/of-account.ts")).AlertsPage),
  },
  {
    path: "settings",
    component: laterPage(async () => (await import("./pages/of-account.ts")).Settings),
    nav: { label: words.shell.settings, icon: "settings" },
  },
];
