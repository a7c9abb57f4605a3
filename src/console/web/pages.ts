// The pages of an account, in the order of the column.

import { Buy } from "./pages/buy.tsx";
import { Credits } from "./pages/credits.tsx";
import { DocumentPage } from "./pages/document.tsx";
import { OrderPage } from "./pages/order.tsx";
import { Overview } from "./pages/overview.tsx";
import { ReceiptPage } from "./pages/receipt.tsx";
import { Requests } from "./pages/requests.tsx";
import { Usage } from "./pages/usage.tsx";
import type { PageEntry } from "./router.ts";
import { words } from "./words.ts";

export const pages: readonly PageEntry[] = [
  { path: "", component: Overview, nav: { label: words.shell.overview, icon: "overview" } },
  { path: "usage", component: Usage, nav: { label: words.usage.title, icon: "usage" } },
  { path: "requests", component: Requests, nav: { label: words.requests.title, icon: "requests" } },
  { path: "requests/:requestId", component: ReceiptPage },
  { path: "credits", component: Credits, nav: { label: words.credits.title, icon: "credits" } },
  { path: "credits/buy", component: Buy },
  { path: "credits/orders/:orderId", component: OrderPage },
  { path: "credits/orders/:orderId/receipt", component: DocumentPage },
];
