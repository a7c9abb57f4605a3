// The one chart: stacked bars in SVG. Each bar can be focused, with the arrow keys too, and says
// its figures; the same figures stand in a table below. Widths are percentages of the plot, so that
// nothing is stretched and nothing needs to be measured.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { words } from "../words.ts";
import { type Bar, type Span, ticksUpTo, totalOf } from "./timeline.ts";

/** One colour of the stack. `colour`: a class of `bars.css`, such as `cat-input`. */
export type Series = { readonly id: string; readonly name: string; readonly colour: string };

export type BarsProps = {
  /** What the bars show, such as `Credits per day`. */
  readonly label: string;
  /** From the bottom up. */
  readonly series: readonly Series[];
  /** Oldest first, each with one value per series. */
  readonly bars: readonly Bar[];
  readonly span: Span;
  /** The start of the open span, whose bar still grows. Absent: all are complete. */
  readonly openFrom?: Date | undefined;
  /** A value as people read it, with its unit: `48.20 credits`. */
  readonly format: (value: bigint) => string;
  /** A value at the axis, as short as can be. */
  readonly formatTick: (value: bigint) => string;
  /** The smallest step of the axis. */
  readonly leastTick?: bigint;
};

const plotHeight = 200;
/** Above the plot, for the upper half of the highest label. */
const headRoom = 8;
const gap = 1;

export function Bars(props: BarsProps): JSX.Element {
  const { bars, formatTick } = props;
  const [active, setActive] = useState<number>();
  const [isTableOpen, setTableOpen] = useState(false);
  const scale = scaleOf(props);
  const bar = active === undefined ? undefined : bars[active];
  return (
    <div class="bars">
      <div class="bars-frame columns">
        <svg class="bars-axis" aria-hidden="true" height={plotHeight + 32}>
          {scale.ticks.map((tick) => (
            <text
              key={String(tick)}
              x="100%"
              dx="-8"
              y={scale.yOf(tick) + headRoom + 4}
              text-anchor="end"
            >
              {formatTick(tick)}
            </text>
          ))}
        </svg>
        <div class="bars-plot-frame">
          <Plot {...props} scale={scale} active={active} onActive={setActive} />
          <Times {...props} scale={scale} />
          {bar && active !== undefined && (
            <Tip {...props} bar={bar} atPercent={(active + 0.5) * scale.widthPercent} />
          )}
        </div>
      </div>
      <details class="bars-table" onToggle={(event) => setTableOpen(event.currentTarget.open)}>
        <summary>{words.bars.asTable}</summary>
        {isTableOpen && <BarsTable {...props} />}
      </details>
    </div>
  );
}

type Scale = {
  readonly ticks: readonly bigint[];
  /** Pixels for one of the unit. Bars are drawn to scale with 53 bits; their figures stay exact. */
  readonly pixels: number;
  /** Pixels from the upper edge of the plot to a value. */
  readonly yOf: (value: bigint) => number;
  /** The share of one bar in the plot. */
  readonly widthPercent: number;
};

function scaleOf({ bars, leastTick = 1n }: BarsProps): Scale {
  let largest = 0n;
  for (const bar of bars) {
    const total = totalOf(bar);
    if (total > largest) largest = total;
  }
  const ticks = ticksUpTo(largest, leastTick);
  const pixels = plotHeight / Number(ticks.at(-1) ?? 1n);
  return {
    ticks,
    pixels,
    yOf: (value) => plotHeight - Number(value) * pixels,
    widthPercent: 100 / Math.max(bars.length, 1),
  };
}

type PlotProps = BarsProps & {
  readonly scale: Scale;
  /** The bar whose figures are shown. */
  readonly active: number | undefined;
  readonly onActive: (index: number | undefined) => void;
};

/** The bars before the lines of the axis. The arrow keys go from one to the next. */
function Plot(props: PlotProps): JSX.Element {
  const { label, bars, span, format, scale, active, onActive } = props;
  // One bar is in the order of the tab key: the last one that had the focus, else the newest.
  const [tabStop, setTabStop] = useState<number>();
  const plot = useRef<SVGSVGElement>(null);
  const stop = Math.min(tabStop ?? bars.length - 1, bars.length - 1);
  const move = (event: KeyboardEvent, index: number) => {
    const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: bars.length - 1 }[
      event.key
    ];
    if (event.key === "Escape") onActive(undefined);
    if (to === undefined || to < 0 || to >= bars.length) return;
    event.preventDefault();
    const next = plot.current?.querySelectorAll("g[data-bar]").item(to);
    if (next instanceof SVGElement) next.focus();
  };
  return (
    // biome-ignore lint/a11y/useSemanticElements: HTML has no element for it.
    <svg
      ref={plot}
      class="bars-plot"
      role="group"
      aria-label={label}
      height={plotHeight + headRoom}
    >
      <g transform={`translate(0 ${headRoom})`}>
        {scale.ticks.map((tick) => {
          const y = scale.yOf(tick);
          return <line key={String(tick)} class="bars-grid" x1="0" x2="100%" y1={y} y2={y} />;
        })}
        {bars.map((bar, index) => (
          // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: a bar is a picture.
          <g
            key={bar.from.getTime()}
            data-bar={index}
            role="img"
            aria-label={words.bars.figures(
              words.bars.span(span, bar.from),
              format(totalOf(bar)),
              partsOf(bar, props),
            )}
            tabIndex={index === stop ? 0 : -1}
            class={index === active ? "bars-bar is-active" : "bars-bar"}
            onFocus={() => {
              onActive(index);
              setTabStop(index);
            }}
            onBlur={() => onActive(undefined)}
            onPointerEnter={() => onActive(index)}
            onPointerLeave={() => onActive(undefined)}
            onKeyDown={(event) => move(event, index)}
          >
            <Stack {...props} bar={bar} index={index} />
          </g>
        ))}
      </g>
    </svg>
  );
}

type StackProps = Pick<PlotProps, "series" | "scale"> & {
  readonly bar: Bar;
  readonly index: number;
};

/** The parts of one bar, and the column that the pointer may hit. */
function Stack({ series, scale, bar, index }: StackProps): JSX.Element {
  const { pixels, widthPercent: width } = scale;
  let y = plotHeight;
  return (
    <>
      <rect
        class="bars-hit"
        x={`${index * width}%`}
        width={`${width}%`}
        y="0"
        height={plotHeight}
      />
      {bar.values.map((value, part) => {
        if (value <= 0n) return null;
        const full = Number(value) * pixels;
        y -= full;
        // The gap is the upper edge of a part; a part that is there is seen, however small.
        const drawn = Math.max(full - gap, 0.75);
        const { id = "", colour = "" } = series[part] ?? {};
        return (
          <rect
            key={id}
            class={colour}
            y={y + full - drawn}
            height={drawn}
            rx={1.5}
            x={`${(index + 0.16) * width}%`}
            width={`${0.68 * width}%`}
          />
        );
      })}
    </>
  );
}

/** The times below the bars. */
function Times({ bars, span, scale }: BarsProps & { readonly scale: Scale }): JSX.Element {
  return (
    <svg class="bars-times" aria-hidden="true" height="24">
      {labelsOf(bars, span).map(({ index, level }) => (
        <text
          key={index}
          class={`bars-time bars-level-${level}`}
          x={`${(index + 0.5) * scale.widthPercent}%`}
          y="16"
          text-anchor={anchorOf(index, bars.length)}
        >
          {words.bars.tick(span, bars[index]?.from ?? new Date(0))}
        </text>
      ))}
    </svg>
  );
}

type TipProps = BarsProps & { readonly bar: Bar; readonly atPercent: number };

/** The figures of the bar under the pointer, or with the focus. */
function Tip({ series, span, openFrom, format, bar, atPercent }: TipProps): JSX.Element {
  return (
    <div class="bars-tip stack" aria-hidden="true" style={tipStyle(atPercent)}>
      <strong>{words.bars.span(span, bar.from)}</strong>
      {bar.from.getTime() === openFrom?.getTime() && <span class="note">{words.bars.open}</span>}
      <dl>
        {[...series.entries()].reverse().map(([part, { id, name, colour }]) => {
          const value = bar.values[part] ?? 0n;
          if (value === 0n) return null;
          return (
            <div key={id} class="bars-tip-row">
              <dt>
                <i class={`bars-mark ${colour}`} />
                {name}
              </dt>
              <dd>{format(value)}</dd>
            </div>
          );
        })}
        <div class="bars-tip-row bars-total">
          <dt>{words.bars.total}</dt>
          <dd>{format(totalOf(bar))}</dd>
        </div>
      </dl>
    </div>
  );
}

/** The colours and what they stand for. */
export function Legend({ series }: { readonly series: readonly Series[] }) {
  return (
    <ul class="bars-legend">
      {series.map(({ id, name, colour }) => (
        <li key={id}>
          <i class={`bars-mark ${colour}`} />
          <span dir="auto" title={name}>
            {name}
          </span>
        </li>
      ))}
    </ul>
  );
}

function BarsTable({ label, series, bars, span, format }: BarsProps) {
  const sums = series.map((_, part) =>
    bars.reduce((sum, { values }) => sum + (values[part] ?? 0n), 0n),
  );
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
    <section class="wide bars-rows" tabIndex={0} aria-label={label}>
      <table>
        <caption class="visually-hidden">{label}</caption>
        <thead>
          <tr>
            <th scope="col">{words.bars.time(span)}</th>
            {series.map(({ id, name }) => (
              <th key={id} scope="col" dir="auto">
                {name}
              </th>
            ))}
            <th scope="col">{words.bars.total}</th>
          </tr>
        </thead>
        <tbody>
          {[...bars].reverse().map((bar) => (
            <tr key={bar.from.getTime()}>
              <th scope="row">{words.bars.span(span, bar.from)}</th>
              {series.map(({ id }, part) => (
                <td key={id}>{format(bar.values[part] ?? 0n)}</td>
              ))}
              <td>{format(totalOf(bar))}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{words.bars.total}</th>
            {series.map(({ id }, part) => (
              <td key={id}>{format(sums[part] ?? 0n)}</td>
            ))}
            <td>{format(sums.reduce((sum, one) => sum + one, 0n))}</td>
          </tr>
        </tfoot>
      </table>
    </section>
  );
}

/** The times at both ends of many bars stay within the plot. */
function anchorOf(index: number, count: number): "start" | "middle" | "end" {
  if (count <= 8) return "middle";
  if (index === 0) return "start";
  return index === count - 1 ? "end" : "middle";
}

function partsOf(bar: Bar, { series, format }: BarsProps): string[] {
  return series.flatMap(({ name }, part) => {
    const value = bar.values[part] ?? 0n;
    return value === 0n ? [] : [`${name} ${format(value)}`];
  });
}

/** Beside the middle of its bar, or over it where that is too narrow: never outside of the plot. */
function tipStyle(percent: number): Record<string, string> {
  return {
    insetInlineStart: `${percent}%`,
    "--beside": `${percent > 50 ? -100 : 0}%`,
    "--over": `${-percent}%`,
  };
}

/**
 * Which bars have their time written below. Level 1 stays in the narrowest plot, level 2 needs a
 * middling one, level 3 a wide one.
 */
function labelsOf(bars: readonly Bar[], span: Span): { index: number; level: 1 | 2 | 3 }[] {
  const every = (most: number) => Math.max(1, Math.ceil(bars.length / most));
  // At most 12 labels, of which every second, and of these every second, stays when it is narrower.
  const step = every(span === "hour" ? 8 : 12);
  return bars
    .map((_, index) => index)
    .filter((index) => index % step === 0)
    .map((index) => {
      const place = index / step;
      return { index, level: place % 4 === 0 ? 1 : place % 2 === 0 ? 2 : 3 };
    });
}
