// The five states of what a call answers: loading, empty, partial, failed, full.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Call, CallError } from "../api.ts";
import { words } from "../words.ts";
import { Button, Copy } from "./button.tsx";
import { Icon } from "./icon.tsx";

type ViewProps<T> = {
  call: Call<T>;
  /** Grey bars of the final size. */
  skeleton?: JSX.Element;
  /** What stands there while there is nothing. Undefined: there is something. */
  empty?: (data: T) => JSX.Element | undefined;
  /** What stands there if there is no such thing. */
  missing?: string;
  /** What is missing. Undefined: nothing is. */
  partial?: (data: T) => string | undefined;
  children: (data: T) => ComponentChildren;
};

export function View<T>(props: ViewProps<T>): JSX.Element {
  const { call, skeleton = <Skeleton rows={6} />, empty, partial, missing: none, children } = props;
  const { data, error, isLoading, refresh } = call;
  if (isLoading) return skeleton;
  if (error?.reason === "not_found" && data === undefined && none) return <Empty>{none}</Empty>;
  if (data === undefined) return error ? <Failed error={error} retry={refresh} /> : skeleton;
  const missing = partial?.(data);
  return (
    <>
      {error && !error.isPassing && <p class="stale">{words.common.stale(error.message)}</p>}
      {missing && (
        <p class="stale" role="note">
          <Icon name="clock" />
          {missing}
        </p>
      )}
      {empty?.(data) ?? children(data)}
    </>
  );
}

type EmptyProps = {
  /** Absent where the page has it as its own. */
  title?: string;
  action?: ComponentChildren;
  children: ComponentChildren;
};

/** Says what will stand here, and gives the one action. */
export function Empty({ title, action, children }: EmptyProps): JSX.Element {
  return (
    <div class="empty stack">
      {title && <h2>{title}</h2>}
      <p>{children}</p>
      {action && <div class="tools">{action}</div>}
    </div>
  );
}

/** What is on screen of failures, by their sentences: each is said once a page. */
const failures = signal<ReadonlyMap<string, symbol>>(new Map());

/** Whether this part is the one that says why something failed. */
function useFirstOf(sentence: string): boolean {
  const [own] = useState(() => Symbol());
  const said = failures.value.get(sentence);
  useEffect(() => {
    if (!failures.peek().has(sentence))
      failures.value = new Map([...failures.peek(), [sentence, own]]);
  }, [said, sentence]);
  useEffect(
    () => () => {
      const others = [...failures.peek()].filter(([, one]) => one !== own);
      failures.value = new Map(others);
    },
    [sentence],
  );
  return said === own || said === undefined;
}

/**
 * What failed, in the words of the service; what can be done; an id by which it is found. Parts of
 * a page that failed for the same reason say so once.
 */
export function Failed({ error, retry }: { error: CallError; retry?: () => void }): JSX.Element {
  if (!useFirstOf(error.message))
    return (
      <div class="empty stack">
        <p>{words.common.failedToo}</p>
        {retry && (
          <div class="tools">
            <Button onClick={retry}>{words.common.retry}</Button>
          </div>
        )}
      </div>
    );
  return (
    <div class="empty failed stack" role="alert">
      <h2>{words.common.failed}</h2>
      <p>{error.message}</p>
      <div class="tools">
        {retry && <Button onClick={retry}>{words.common.retry}</Button>}
        {error.requestId && <Copy text={error.requestId} label={words.common.copyRequestId} />}
      </div>
    </div>
  );
}

type SkeletonProps = { rows?: number; figures?: number; chart?: boolean };

/** Grey bars that hold the place of what comes. They are seen after 150 ms. */
export function Skeleton({ rows = 0, figures = 0, chart = false }: SkeletonProps): JSX.Element {
  const items = (count: number) => Array.from({ length: count }, (_, index) => index);
  return (
    <div class="skeleton" role="status" aria-label={words.common.loading}>
      {figures > 0 && (
        <div class="figures columns">
          {items(figures).map((index) => (
            <div key={index}>
              <i class="short" />
              <i class="tall" />
              <i />
            </div>
          ))}
        </div>
      )}
      {chart && <div class="chart" />}
      {rows > 0 && (
        <div class="lines">
          {items(rows).map((index) => (
            <div class="line columns" key={index}>
              <i />
              <i class="short" />
            </div>
          ))}
        </div>
      )}
    </div>
  );
}
