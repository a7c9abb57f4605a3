import type { JSX } from "preact";
import { credits } from "../format.ts";
import { manyWords as words } from "./words-keys.ts";

const height = 20;
const step = 3;

/** What a key was charged on each of the last days, as bars. Empty: nothing. */
export function Sparkline({ days }: { readonly days: readonly bigint[] }): JSX.Element {
  const most = days.toSorted((one, other) => (one < other ? -1 : 1)).at(-1) ?? 0n;
  const all = days.reduce((sum, one) => sum + one, 0n);
  if (most === 0n) return <span class="faint">–</span>;
  const path = days
    .map((one, at) => {
      // A day with the least charge is seen, too.
      const high = one === 0n ? 0 : Math.max(1, (Number(one) / Number(most)) * height);
      return high === 0 ? "" : `M${at * step} ${height}v-${high.toFixed(1)}`;
    })
    .join("");
  return (
    <svg
      class="spark"
      role="img"
      aria-label={words.daysOf(credits(all))}
      viewBox={`-1 0 ${days.length * step} ${height}`}
    >
      <title>{words.daysOf(credits(all))}</title>
      <path d={path} />
    </svg>
  );
}
