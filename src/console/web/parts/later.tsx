// What is loaded by need: parts of the console that not every visit shows are files of their own.

import type { ComponentType, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { CallError } from "../call-error.ts";
import type { PageProps } from "../router.ts";
import { words } from "../words.ts";
import { Card } from "./page.tsx";
import { useSeen } from "./seen.ts";
import { Failed, Skeleton } from "./view.tsx";

/**
 * What `load` imports, once it is needed. It stays undefined when the file does not come, such as
 * after an update of the gateway: `onFailed` hears of it, unless it is not needed any more. It is
 * loaded again when it is needed anew.
 */
export function useNeeded<Loaded>(
  load: () => Promise<Loaded>,
  isNeeded = true,
  onFailed?: () => void,
): Loaded | undefined {
  const [loaded, setLoaded] = useState<Loaded>();
  useEffect(() => {
    if (!isNeeded) return;
    let isWaiting = true;
    load().then(
      (module) => setLoaded(() => module),
      () => isWaiting && onFailed?.(),
    );
    return () => {
      isWaiting = false;
    };
  }, [isNeeded]);
  return loaded;
}

type LoadPage = () => Promise<ComponentType<PageProps>>;

const pageLoads: LoadPage[] = [];

/** A page that is loaded when somebody comes to it. */
export function laterPage(load: LoadPage): ComponentType<PageProps> {
  pageLoads.push(load);
  return function Later(props): JSX.Element {
    const [Page, setPage] = useState<ComponentType<PageProps>>();
    const [isMissing, setMissing] = useState(false);
    useEffect(() => {
      load().then(
        (loaded) => setPage(() => loaded),
        () => setMissing(true),
      );
    }, []);
    if (Page) return <Page {...props} />;
    return isMissing ? <FileMissing /> : <Skeleton rows={8} />;
  };
}

const reload = () => location.reload();

/** In place of a page whose file did not come. `retry`: loads the whole page again. */
export function FileMissing({ retry = reload }: { readonly retry?: () => void }): JSX.Element {
  // Also after an update of the gateway: this page asks for a file that is gone.
  const offline = new CallError(words.common.offline, { reason: "offline" });
  return <Failed error={offline} retry={retry} />;
}

/** Loads all pages: later, people go from one to another at once, also without a network. */
export function loadPages(): void {
  for (const load of pageLoads) load().catch(() => undefined);
}

type AlertsPartProps = {
  readonly part: "NewestAlerts" | "AlertsCard";
  /** Of the whole installation, in place of an account. */
  readonly ofOperators?: boolean;
};

/** A part about alerts, loaded when somebody scrolls to it. */
export function AlertsPart({ part, ofOperators }: AlertsPartProps): JSX.Element {
  const [place, isSeen] = useSeen();
  const Part = useNeeded(() => import("./alerts.tsx"), isSeen)?.[part];
  if (Part) return <Part ofOperators={ofOperators} />;
  return (
    <Card place={place}>
      <Skeleton rows={3} />
    </Card>
  );
}

/** The management keys, loaded when somebody scrolls to them. */
export function ManagementKeysPart(): JSX.Element {
  const [place, isSeen] = useSeen();
  const Part = useNeeded(() => import("./management.tsx"), isSeen)?.ManagementKeysCard;
  if (Part) return <Part />;
  return (
    <Card place={place}>
      <Skeleton rows={3} />
    </Card>
  );
}
