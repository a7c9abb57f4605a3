import type { ComponentChildren, JSX } from "preact";
import { count, day, type Moment, moment, relative, rowTime, toDate } from "../format.ts";
import { words } from "../words.ts";
import { shownZone, utc } from "../zone.ts";
import { Copy } from "./button.tsx";
import { Icon } from "./icon.tsx";

type MeterProps = {
  value: number;
  max: number;
  /** Read, not shown. Absent where the figures stand beside it. */
  label?: string;
};

/** A bar beside its figures: amber from 80 %, red when it is full. */
export function Meter({ value, max, label }: MeterProps): JSX.Element {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 1;
  const tone = share >= 1 ? "bad" : share >= 0.8 ? "warn" : undefined;
  return (
    <>
      {label && <span class="visually-hidden">{label}</span>}
      <span class="meter" data-tone={tone} aria-hidden="true">
        <i style={{ inlineSize: `${share * 100}%` }} />
      </span>
    </>
  );
}

export type Tone = "good" | "warn" | "bad" | "accent";

export function Tag({ tone, children }: { tone?: Tone; children: ComponentChildren }): JSX.Element {
  return (
    <span class="tag" data-tone={tone}>
      {children}
    </span>
  );
}

const nearShare = 0.9;

/** How many keys there are, once few more can be made. Before that: nothing. */
export function nearMax(used = 0, max = 0): JSX.Element | undefined {
  if (max === 0 || used < max * nearShare) return undefined;
  return <Tag tone="warn">{words.keys.ofMax(count(used), count(max))}</Tag>;
}

type NoticeProps = {
  tone?: "good" | "warn" | "bad";
  action?: ComponentChildren;
  children: ComponentChildren;
};

/** A paragraph that must be seen. */
export function Notice({ tone, action, children }: NoticeProps): JSX.Element {
  return (
    <div class="notice" data-tone={tone}>
      {tone && <Icon name={tone === "good" ? "done" : "warning"} />}
      <div>{children}</div>
      {action && <div class="tools">{action}</div>}
    </div>
  );
}

type TimeProps = {
  at: Moment | undefined;
  as?: "relative" | "day" | "moment" | "row";
  /** Of a document, whose times are UTC for everybody. */
  isUtc?: boolean;
  /** Where there is no time. */
  otherwise?: string;
};

/** A time as people say it. The exact one is seen on hover, in the person's zone and in UTC. */
export function Time({
  at,
  as = "relative",
  isUtc = false,
  otherwise = words.common.never,
}: TimeProps): JSX.Element {
  if (!at) return <span class="faint">{otherwise}</span>;
  const zone = isUtc ? utc : shownZone.value;
  const text = as === "relative" ? relative(at) : { day, moment, row: rowTime }[as](at, zone);
  const exact = new Set([moment(at, zone), moment(at, utc)]);
  return (
    <time dateTime={toDate(at).toISOString()} title={[...exact].join("\n")}>
      {text}
    </time>
  );
}

type KeyNameProps = { name: string; hint?: string | undefined; href?: string };

/** A key is its name, with its hint behind it. */
export function KeyName({ name, hint, href }: KeyNameProps): JSX.Element {
  const shown = name || words.keys.unnamed;
  return (
    <span class="key-name" title={shown}>
      {href ? (
        <a class="name" href={href} dir="auto">
          {shown}
        </a>
      ) : (
        <span class="name" dir="auto">
          {shown}
        </span>
      )}
      {hint && <code class="hint">{hint}</code>}
    </span>
  );
}

type SnippetProps = {
  text: string;
  /** For words that somebody types again: all of them are seen. */
  wraps?: boolean;
  onCopied?: () => void;
};

/** Code to copy. */
export function Snippet({ text, wraps = false, onCopied }: SnippetProps): JSX.Element {
  return (
    <div class={wraps ? "snippet wraps" : "snippet"}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard. */}
      <section class="code" tabIndex={0} aria-label={words.common.code}>
        <pre>{text}</pre>
      </section>
      <Copy text={text} isSmall {...(onCopied && { onCopied })} />
    </div>
  );
}

type FactsProps = { children: readonly (readonly [string, ComponentChildren] | undefined)[] };

/** Terms and what they are. Pairs that are undefined are left out. */
export function Facts({ children }: FactsProps): JSX.Element {
  return (
    <dl class="facts columns">
      {children
        .filter((pair) => pair !== undefined)
        .map(([term, value]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
