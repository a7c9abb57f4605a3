// Lists that must be whole before they are shown: their pages are read one after another.

import type {
  DescMessage,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { useEffect, useState } from "preact/hooks";
import { type CallError, type Following, type Pages, toCallError, usePages } from "../api.ts";

/** No list of a page is longer: the rest is left out, and `isLast` stays false. */
const itemsMax = 10_000;

/** After a page that failed, the next try. */
const retryMs = 5_000;

/** As `usePages`, and reads on by itself. `error` is also that of a later page. */
export function useAllPages<I extends DescMessage, O extends DescMessage, T>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I> | undefined,
  itemsOf: (answer: MessageShape<O>) => readonly T[],
  following: Following = {},
): Pages<T, MessageShape<O>> {
  const pages = usePages(method, request, itemsOf, following);
  const [failure, setFailure] = useState<CallError>();
  const { data } = pages;
  const hasMore = data !== undefined && !data.isLast && data.items.length < itemsMax;
  useEffect(() => {
    if (!hasMore) return;
    if (!failure) {
      pages.more().catch((thrown: unknown) => setFailure(toCallError(thrown)));
      return;
    }
    const timer = setTimeout(() => setFailure(undefined), retryMs);
    return () => clearTimeout(timer);
  }, [hasMore, data?.last, failure]);
  return { ...pages, error: pages.error ?? failure };
}
