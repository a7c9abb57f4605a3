// What is loaded by need: parts of the console that not every visit shows are files of their own.

import type { ComponentType, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { CallError } from "../call-error.ts";
import type { PageProps } from "../router.ts";
import { words } from "../words.ts";
import { Failed, Skeleton } from "./view.tsx";

export type Needed<Loaded> = {
  /** Undefined: it is not needed so far, on its way, or missing. */
  readonly file: Loaded | undefined;
  /** The file did not come, such as after an update of the gateway. */
  readonly isMissing: boolean;
  /** Asks for it once more, where a new page would lose something. */
  readonly again: () => void;
};

/** What `load` imports, once it is needed, and again when it is needed anew. */
export function useNeeded<Loaded>(load: () => Promise<Loaded>, isNeeded = true): Needed<Loaded> {
  const [file, setFile] = useState<Loaded>();
  const [isMissing, setMissing] = useState(false);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (!isNeeded) return;
    let isWaiting = true;
    load().then(
      (loaded) => setFile(() => loaded),
      () => isWaiting && setMissing(true),
    );
    return () => {
      isWaiting = false;
      setMissing(false);
    };
  }, [isNeeded, tries]);
  return { file, isMissing, again: () => setTries(tries + 1) };
}

type LoadPage = () => Promise<ComponentType<PageProps>>;

const pageLoads: LoadPage[] = [];

/** A page that is loaded when somebody comes to it. */
export function laterPage(load: LoadPage): ComponentType<PageProps> {
  pageLoads.push(load);
  return function Later(props): JSX.Element {
    const { file: Page, isMissing } = useNeeded(load);
    if (Page) return <Page {...props} />;
    return isMissing ? <FileMissing /> : <Skeleton rows={8} />;
  };
}

const reload = () => location.reload();

/** In place of a page or part whose file did not come. `retry`: by default, a new page. */
export function FileMissing({ retry = reload }: { readonly retry?: () => void }): JSX.Element {
  // Also after an update of the gateway: this page asks for a file that is gone.
  const offline = new CallError(words.common.offline, { reason: "offline" });
  return <Failed error={offline} retry={retry} />;
}

/** Loads all pages: later, people go from one to another at once, also without a network. */
export function loadPages(): void {
  for (const load of pageLoads) load().catch(() => undefined);
}
