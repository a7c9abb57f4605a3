import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect } from "preact/hooks";
import { exactClock, moment } from "../format.ts";
import { following, readAt } from "../live.ts";
import { words } from "../words.ts";
import type { GlossaryTerm } from "../words-glossary.ts";
import { Icon } from "./icon.tsx";
import { Term } from "./term.tsx";

type HeadProps = {
  title: string;
  /** Beside the title: what people know it by. */
  detail?: ComponentChildren;
  tools?: ComponentChildren;
  back?: { readonly href: string; readonly label: string };
};

/** The first part of every page: its name, and what can be done on it. */
export function Head({ title, detail, tools, back }: HeadProps): JSX.Element {
  useEffect(() => {
    document.title = words.common.documentTitle(title);
  }, [title]);
  return (
    <header class="head">
      <div>
        {back && (
          <a class="back" href={back.href}>
            <Icon name="back" />
            {back.label}
          </a>
        )}
        <div class="title">
          <h1 dir="auto">{title}</h1>
          <ReadAt />
        </div>
        {detail && <div class="detail">{detail}</div>}
      </div>
      {tools && <div class="tools">{tools}</div>}
    </header>
  );
}

/** When the figures of the page were read. */
function ReadAt(): JSX.Element | null {
  const at = readAt.value;
  if (!at) return null;
  const { live, liveLost } = words.common;
  return (
    <span class="read-at" title={moment(at)}>
      {following.value === "waiting" ? liveLost(exactClock(at)) : live(exactClock(at))}
    </span>
  );
}

type CardProps = {
  title?: string;
  /** A sentence below the title. */
  about?: string;
  /** The word of ours in the title. */
  term?: GlossaryTerm;
  note?: ComponentChildren;
  tools?: ComponentChildren;
  /** Without padding: for tables. */
  flush?: boolean;
  /** Of `useSeen`. */
  place?: RefObject<HTMLElement | null>;
  children?: ComponentChildren;
};

export function Card({
  title,
  about,
  term,
  note,
  tools,
  flush = false,
  place,
  children,
}: CardProps): JSX.Element {
  return (
    <section {...(place && { ref: place })} class={flush ? "card flush" : "card"}>
      {(title || note || tools) && (
        <header>
          <div>
            {title && (
              <div class="titled">
                <h2>{title}</h2>
                {term && <Term of={term} word={title} />}
              </div>
            )}
            {about && <p class="muted">{about}</p>}
          </div>
          {note && <span class="note">{note}</span>}
          {tools && <div class="tools">{tools}</div>}
        </header>
      )}
      {flush ? children : <div class="body">{children}</div>}
    </section>
  );
}

export function Figures({ children }: { children: ComponentChildren }): JSX.Element {
  return <dl class="figures columns">{children}</dl>;
}

/** More than its place has in the size of the others. */
function isLong(value: ComponentChildren): boolean {
  return typeof value === "string" && value.length > 9;
}

type FigureProps = {
  label: string;
  value: ComponentChildren;
  unit?: string;
  /** The word of ours in the label. */
  term?: GlossaryTerm;
  note?: ComponentChildren;
  tone?: "good" | "warn" | "bad";
};

/** One of the large numbers of a page. */
export function Figure({ label, value, unit, term, note, tone }: FigureProps): JSX.Element {
  return (
    <div>
      <dt class={term && "titled"}>
        {label}
        {term && <Term of={term} word={label} />}
      </dt>
      <dd class="value" data-tone={tone} data-long={isLong(value)}>
        {value}
        {unit && <span class="unit"> {unit}</span>}
      </dd>
      {note && <dd class="note">{note}</dd>}
    </div>
  );
}
