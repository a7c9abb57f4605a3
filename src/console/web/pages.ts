// The pages of an account, in the order of the column.

import { Overview } from "./pages/overview.tsx";
import type { PageEntry } from "./router.ts";
import { words } from "./words.ts";

export const pages: readonly PageEntry[] = [
  { path: "", component: Overview, nav: { label: words.shell.overview, icon: "overview" } },
];
