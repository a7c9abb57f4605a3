// All alerts of an account, for the bell of narrow screens and the link below it.

import type { JSX } from "preact";
import { useNeeded } from "../parts/later.tsx";
import { Head } from "../parts/page.tsx";
import { Skeleton } from "../parts/view.tsx";
import { words } from "../words.ts";

export function AlertsPage(): JSX.Element {
  const List = useNeeded(() => import("../parts/notices.tsx"))?.AlertList;
  return (
    <>
      <Head title={words.shell.alerts} />
      {List ? <List /> : <Skeleton rows={8} />}
    </>
  );
}
