// All alerts of an account, for the bell of narrow screens and the link below it.

import type { JSX } from "preact";
import { FileMissing, useNeeded } from "../parts/later.tsx";
import { Head } from "../parts/page.tsx";
import { Skeleton } from "../parts/view.tsx";
import { words } from "../words.ts";

export function AlertsPage(): JSX.Element {
  const { file, isMissing } = useNeeded(() => import("../parts/notices.tsx"));
  return (
    <>
      <Head title={words.shell.alerts} />
      {file && <file.AlertList />}
      {!file && (isMissing ? <FileMissing /> : <Skeleton rows={8} />)}
    </>
  );
}
