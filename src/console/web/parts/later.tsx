// Parts of pages that are files of their own, loaded when somebody scrolls to them.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Card } from "./page.tsx";
import { useSeen } from "./seen.ts";
import { Skeleton } from "./view.tsx";

type Loaded = typeof import("./alerts.tsx");

export function Later({ part }: { readonly part: keyof Loaded }): JSX.Element {
  const [place, isSeen] = useSeen();
  const [loaded, setLoaded] = useState<Loaded>();
  useEffect(() => {
    // A file that is gone after an update of the gateway: the bars stay until the page is loaded.
    if (isSeen) import("./alerts.tsx").then(setLoaded, () => undefined);
  }, [isSeen]);
  const Part = loaded?.[part];
  if (Part) return <Part />;
  return (
    <Card place={place}>
      <Skeleton rows={3} />
    </Card>
  );
}
