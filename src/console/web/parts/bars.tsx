// The one chart: stacked bars or lines in SVG. Each bar can be focused, with the arrow keys too,
// and says its figures; the same figures stand in a table below. Widths are percentages of the
// plot, so that nothing is stretched and nothing needs to be measured. A bar may be opened, and
// several of them chosen as a range: by dragging, or with Shift and the arrow keys.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { words } from "../words.ts";
import { type Span, ticksUpTo } from "./timeline.ts";

/** One colour of the stack. `colour`: a class of `bars.css`, such as `cat-input`. */
export type Series = { readonly id: string; readonly name: string; readonly colour: string };

/** A bar, or the points of lines at a time, of which some may be missing. */
export type Point = { readonly from: Date; readonly values: readonly (bigint | undefined)[] };

export type BarsProps = {
  /** What the bars show, such as `Credits per day`. */
  readonly label: string;
  /** From the bottom up. */
  readonly series: readonly Series[];
  /** Oldest first, each with one value per series. */
  readonly bars: readonly Point[];
  readonly span: Span;
  /** True: each series is a line of its own, and nothing is added up. */
  readonly areLines?: boolean;
  /** Of the plot, in pixels. */
  readonly height?: number;
  /** The bar that is open, by its start. */
  readonly openedAt?: Date | undefined;
  /** Opens a bar, or closes the one that is open. Absent: bars are only looked at. */
  readonly onOpen?: (from: Date) => void;
  /** Chooses the bars from one to another. Absent: nobody can. */
  readonly onRange?: (first: Date, last: Date) => void;
  /** How times are called. Default: as those of the span. */
  readonly times?: Times;
  /** The start of the open span, whose bar still grows. Absent: all are complete. */
  readonly openFrom?: Date | undefined;
  /** A value as people read it, with its unit: `48.20 credits`. */
  readonly format: (value: bigint) => string;
  /** A value at the axis, as short as can be. */
  readonly formatTick: (value: bigint) => string;
  /** The smallest step of the axis. */
  readonly leastTick?: bigint;
};

/** What the table calls its times, and the names of one, in full and below its bar. */
type Times = {
  readonly head: string;
  readonly full: (from: Date) => string;
  readonly tick: (from: Date) => string;
};

function timesOf({ span, times }: BarsProps): Times {
  return (
    times ?? {
      head: words.bars.time(span),
      full: (from) => words.bars.span(span, from),
      tick: (from) => words.bars.tick(span, from),
    }
  );
}

function totalOf({ values }: Point): bigint {
  return values.reduce<bigint>((sum, value = 0n) => sum + value, 0n);
}

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
        <svg class="bars-axis" aria-hidden="true" height={scale.height + 32}>
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
          <TimeAxis {...props} scale={scale} />
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
  readonly height: number;
  readonly ticks: readonly bigint[];
  /** Pixels for one of the unit. Bars are drawn to scale with 53 bits; their figures stay exact. */
  readonly pixels: number;
  /** Pixels from the upper edge of the plot to a value. */
  readonly yOf: (value: bigint) => number;
  /** The share of one bar in the plot. */
  readonly widthPercent: number;
};

function scaleOf({ bars, areLines, height = plotHeight, leastTick = 1n }: BarsProps): Scale {
  const values = bars.flatMap((bar) => (areLines ? bar.values : [totalOf(bar)]));
  let [largest, smallest] = [0n, 0n];
  for (const value of values) {
    if (value === undefined) continue;
    if (value > largest) largest = value;
    if (value < smallest) smallest = value;
  }
  const [, step = 1n] = ticksUpTo(largest > -smallest ? largest : -smallest, leastTick);
  const ticks = [0n];
  while ((ticks.at(-1) ?? 0n) < largest || ticks.length === 1)
    ticks.push((ticks.at(-1) ?? 0n) + step);
  while ((ticks[0] ?? 0n) > smallest) ticks.unshift((ticks[0] ?? 0n) - step);
  const bottom = ticks[0] ?? 0n;
  const pixels = height / Number((ticks.at(-1) ?? 1n) - bottom);
  return {
    height,
    ticks,
    pixels,
    yOf: (value) => height - Number(value - bottom) * pixels,
    widthPercent: 100 / Math.max(bars.length, 1),
  };
}

type PlotProps = BarsProps & {
  readonly scale: Scale;
  /** The bar whose figures are shown. */
  readonly active: number | undefined;
  readonly onActive: (index: number | undefined) => void;
};

/** Places in the chart, from the one where a choice began to the one where it is now. */
type Chosen = { readonly began: number; readonly now: number };

/** How bars of a plot are gone through by keys, opened, and chosen as a range. */
function useChoice({ bars, onActive, onOpen, onRange }: PlotProps) {
  const [chosen, setChosen] = useState<Chosen>();
  const wasChosen = useRef(false);
  const plot = useRef<SVGSVGElement>(null);
  /** Chooses a range, or opens the one bar. */
  const finish = ({ began, now }: Chosen) => {
    setChosen(undefined);
    const [first, last] = [bars[Math.min(began, now)], bars[Math.max(began, now)]];
    if (first && last && began !== now) onRange?.(first.from, last.from);
    else if (first) onOpen?.(first.from);
  };
  const move = (event: KeyboardEvent, index: number) => {
    const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: bars.length - 1 }[
      event.key
    ];
    if (event.key === "Escape") {
      onActive(undefined);
      setChosen(undefined);
    }
    if ((event.key === "Enter" || event.key === " ") && onOpen) {
      event.preventDefault();
      finish(chosen ?? { began: index, now: index });
    }
    if (to === undefined || to < 0 || to >= bars.length) return;
    event.preventDefault();
    const isChoosing = event.shiftKey && onRange !== undefined;
    setChosen(isChoosing ? { began: chosen?.began ?? index, now: to } : undefined);
    const next = plot.current?.querySelectorAll("g[data-bar]").item(to);
    if (next instanceof SVGElement) next.focus();
  };
  const placeAt = ({ clientX }: MouseEvent) => {
    const { left = 0, width = 1 } = plot.current?.getBoundingClientRect() ?? {};
    const place = Math.floor(((clientX - left) / width) * bars.length);
    return Math.min(Math.max(place, 0), bars.length - 1);
  };
  const pointer: JSX.IntrinsicElements["svg"] = {
    onPointerDown(event) {
      wasChosen.current = false;
      if (!onRange || event.button !== 0) return;
      const place = placeAt(event);
      setChosen({ began: place, now: place });
      plot.current?.setPointerCapture(event.pointerId);
    },
    onPointerMove(event) {
      if (!chosen || event.buttons === 0) return;
      const now = placeAt(event);
      onActive(now);
      if (now !== chosen.now) setChosen({ ...chosen, now });
    },
    onPointerUp() {
      // The click that follows opens nothing.
      wasChosen.current = chosen !== undefined && chosen.began !== chosen.now;
      if (chosen && wasChosen.current) finish(chosen);
      else setChosen(undefined);
    },
    onPointerCancel: () => setChosen(undefined),
    onClick(event) {
      if (wasChosen.current) return;
      const bar = event.target instanceof Element && event.target.closest("g[data-bar]");
      const place = bar instanceof SVGElement ? Number(bar.dataset.bar) : placeAt(event);
      finish({ began: place, now: place });
    },
  };
  return { plot, chosen, move, pointer };
}

/** The bars before the lines of the axis. The arrow keys go from one to the next. */
function Plot(props: PlotProps): JSX.Element {
  const { label, bars, areLines, format, scale, onActive, onOpen } = props;
  // One bar is in the order of the tab key: the last one that had the focus, else the newest.
  const [tabStop, setTabStop] = useState<number>();
  const stop = Math.min(tabStop ?? bars.length - 1, bars.length - 1);
  const { plot, chosen, move, pointer } = useChoice(props);
  const names = timesOf(props);
  return (
    // biome-ignore lint/a11y/useSemanticElements: HTML has no element for it.
    <svg
      ref={plot}
      class={onOpen ? "bars-plot can-open" : "bars-plot"}
      role="group"
      aria-label={label}
      height={scale.height + headRoom}
      {...pointer}
    >
      <g transform={`translate(0 ${headRoom})`}>
        {scale.ticks.map((tick) => {
          const y = scale.yOf(tick);
          return <line key={String(tick)} class="bars-grid" x1="0" x2="100%" y1={y} y2={y} />;
        })}
        {areLines && <Lines {...props} />}
        {bars.map((bar, index) => (
          // biome-ignore lint/a11y/noStaticElementInteractions: a bar is a button or a picture.
          <g
            key={bar.from.getTime()}
            data-bar={index}
            role={onOpen ? "button" : "img"}
            {...(onOpen && { "aria-expanded": isAt(bar, props.openedAt) })}
            aria-label={words.bars.figures(
              names.full(bar.from),
              areLines ? "" : format(totalOf(bar)),
              partsOf(bar, props),
            )}
            // In small letters: the names of attributes of SVG are as they are written.
            tabindex={index === stop ? 0 : -1}
            class={classOf(index, bar, props, chosen)}
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

function isAt({ from }: Point, at: Date | undefined): boolean {
  return from.getTime() === at?.getTime();
}

function classOf(index: number, bar: Point, { active, openedAt }: PlotProps, chosen?: Chosen) {
  const isChosen =
    chosen && chosen.began !== chosen.now && (index - chosen.began) * (index - chosen.now) <= 0;
  const isActive = index === active || isChosen || isAt(bar, openedAt);
  return isActive ? "bars-bar is-active" : "bars-bar";
}

/** The lines of all series. A path knows no percentages: this one is as wide as there are bars. */
function Lines({ series, bars, scale }: PlotProps): JSX.Element {
  const { height, yOf } = scale;
  return (
    <svg
      aria-hidden="true"
      viewBox={`0 0 ${Math.max(bars.length, 1)} ${height}`}
      height={height}
      preserveAspectRatio="none"
    >
      {series.map(({ id, colour }, part) => {
        let isBroken = true;
        const path = bars.map(({ values }, index) => {
          const value = values[part];
          const step = isBroken ? "M" : "L";
          isBroken = value === undefined;
          return value === undefined ? "" : `${step}${index + 0.5} ${yOf(value)}`;
        });
        return <path key={id} class={`bars-line ${colour}`} d={path.join("")} />;
      })}
    </svg>
  );
}

type StackProps = Pick<PlotProps, "series" | "scale" | "areLines"> & {
  readonly bar: Point;
  readonly index: number;
};

/** The parts of one bar, and the column that the pointer may hit. */
function Stack({ series, scale, areLines, bar, index }: StackProps): JSX.Element {
  const { pixels, height, widthPercent: width } = scale;
  let y = height;
  return (
    <>
      <rect class="bars-hit" x={`${index * width}%`} width={`${width}%`} y="0" height={height} />
      {bar.values.map((value = 0n, part) => {
        const { id = "", colour = "" } = series[part] ?? {};
        if (areLines)
          return bar.values[part] === undefined ? null : (
            <circle
              key={id}
              class={`bars-dot ${colour}`}
              cx={`${(index + 0.5) * width}%`}
              cy={scale.yOf(value)}
              r={2.5}
            />
          );
        if (value <= 0n) return null;
        const full = Number(value) * pixels;
        y -= full;
        // The gap is the upper edge of a part; a part that is there is seen, however small.
        const drawn = Math.max(full - gap, 0.75);
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
function TimeAxis(props: BarsProps & { readonly scale: Scale }): JSX.Element {
  const { bars, span, scale } = props;
  const { tick } = timesOf(props);
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
          {tick(bars[index]?.from ?? new Date(0))}
        </text>
      ))}
    </svg>
  );
}

type TipProps = BarsProps & { readonly bar: Point; readonly atPercent: number };

/** The figures of the bar under the pointer, or with the focus. */
function Tip(props: TipProps): JSX.Element {
  const { series, areLines, openFrom, format, bar, atPercent } = props;
  return (
    <div class="bars-tip stack" aria-hidden="true" style={tipStyle(atPercent)}>
      <strong>{timesOf(props).full(bar.from)}</strong>
      {isAt(bar, openFrom) && <span class="note">{words.bars.open}</span>}
      <dl>
        {[...series.entries()].reverse().map(([part, { id, name, colour }]) => {
          const value = bar.values[part] ?? 0n;
          if (areLines ? bar.values[part] === undefined : value === 0n) return null;
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
        {!areLines && (
          <div class="bars-tip-row bars-total">
            <dt>{words.bars.total}</dt>
            <dd>{format(totalOf(bar))}</dd>
          </div>
        )}
      </dl>
    </div>
  );
}

type LegendProps = {
  readonly series: readonly Series[];
  /** Those that are not drawn. */
  readonly hidden?: ReadonlySet<string>;
  /** Draws one or leaves it out; `alone`: it and no other. Absent: nobody can. */
  readonly onToggle?: (id: string, alone: boolean) => void;
};

/** The colours and what they stand for. */
export function Legend({ series, hidden, onToggle }: LegendProps): JSX.Element {
  return (
    <ul class="bars-legend">
      {series.map(({ id, name, colour }) => {
        const entry = (
          <>
            <i class={`bars-mark ${colour}`} />
            <span dir="auto" title={name}>
              {name}
            </span>
          </>
        );
        return (
          <li key={id}>
            {onToggle ? (
              <button
                type="button"
                aria-pressed={!hidden?.has(id)}
                onClick={(event) => onToggle(id, event.shiftKey)}
              >
                {entry}
              </button>
            ) : (
              entry
            )}
          </li>
        );
      })}
    </ul>
  );
}

function BarsTable(props: BarsProps): JSX.Element {
  const { label, series, bars, areLines, format } = props;
  const { head, full } = timesOf(props);
  const cell = (value: bigint | undefined) =>
    value === undefined ? words.bars.none : format(value);
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
            <th scope="col">{head}</th>
            {series.map(({ id, name }) => (
              <th key={id} scope="col" dir="auto">
                {name}
              </th>
            ))}
            {!areLines && <th scope="col">{words.bars.total}</th>}
          </tr>
        </thead>
        <tbody>
          {[...bars].reverse().map((bar) => (
            <tr key={bar.from.getTime()}>
              <th scope="row">{full(bar.from)}</th>
              {series.map(({ id }, part) => (
                <td key={id}>{cell(bar.values[part])}</td>
              ))}
              {!areLines && <td>{format(totalOf(bar))}</td>}
            </tr>
          ))}
        </tbody>
        {!areLines && (
          <tfoot>
            <tr>
              <th scope="row">{words.bars.total}</th>
              {series.map(({ id }, part) => (
                <td key={id}>{format(sums[part] ?? 0n)}</td>
              ))}
              <td>{format(sums.reduce((sum, one) => sum + one, 0n))}</td>
            </tr>
          </tfoot>
        )}
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

function partsOf(bar: Point, { series, areLines, format }: BarsProps): string[] {
  return series.flatMap(({ name }, part) => {
    const value = bar.values[part];
    const isNamed = areLines ? value !== undefined : value !== 0n;
    return isNamed && value !== undefined ? [`${name} ${format(value)}`] : [];
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
function labelsOf(bars: readonly Point[], span: Span): { index: number; level: 1 | 2 | 3 }[] {
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
