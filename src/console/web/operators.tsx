// The pages of operators are a file of their own, which customers never load.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { CallError } from "./api.ts";
import { Failed, Skeleton } from "./parts/view.tsx";
import { words } from "./words.ts";

type Loaded = typeof import("./operator/operator.tsx");

const loaded = signal<Loaded | undefined>(undefined);
const problem = signal<CallError | undefined>(undefined);
let isAsked = false;

/** The pages of operators, for who is one: `isWanted`. */
export function useOperatorPages(isWanted = true): Loaded | undefined {
  useEffect(() => {
    if (isAsked || !isWanted) return;
    isAsked = true;
    import("./operator/operator.tsx").then(
      (module) => {
        loaded.value = module;
      },
      () => {
        // Also after an update of the gateway: this page asks for a file that is gone.
        isAsked = false;
        problem.value = new CallError(words.common.offline, { reason: "offline" });
      },
    );
  }, [isWanted]);
  return isWanted ? loaded.value : undefined;
}

/** The links to the pages of operators, in the column. */
export function OperatorSections(): JSX.Element | null {
  const module = useOperatorPages();
  return module ? <module.Sections /> : null;
}

/** A page of operators. `parts`: the path behind their part of the address. */
export function OperatorPage({ parts }: { readonly parts: readonly string[] }): JSX.Element {
  const module = useOperatorPages();
  if (module) return <module.Page parts={parts} />;
  if (problem.value) return <Failed error={problem.value} retry={() => location.reload()} />;
  return <Skeleton rows={6} />;
}
