// What a table shows of its columns and rows: which columns a person chose, kept in the browser,
// and the order of the rows. Headless: `table.tsx` draws it.

import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export type Column<Row> = {
  /** Names the column, in addresses and in the browser's storage too. */
  readonly name: string;
  readonly head: ComponentChildren;
  readonly cell: (row: Row) => ComponentChildren;
  /** The totals below it. */
  readonly foot?: ComponentChildren;
  /** Numbers: at the right. */
  readonly end?: boolean;
  /** Rows can be ordered by it: here by this value, or by the service, which needs none. */
  readonly sortBy?: ((row: Row) => SortValue) | "service";
  /** True: it is seen once somebody chooses it. */
  readonly isExtra?: boolean;
};

/** Undefined: the row has none, and comes behind all that have one, in either direction. */
export type SortValue = bigint | number | string | undefined;

/** What rows are ordered by where a time may be absent. */
export function momentOf(at: Timestamp | undefined): SortValue {
  return at?.seconds;
}

/** By what rows are ordered. */
export type Order = { readonly by: string; readonly descending: boolean };

type Shown = Readonly<Record<string, boolean>>;

type TableModel<Row> = {
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  isShown(column: Column<Row>): boolean;
  /** Shows a column, or hides it. */
  toggle(column: Column<Row>): void;
};

type ModelProps<Row> = {
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  /** Undefined: the rows stay as they are. */
  readonly order: Order | undefined;
  /** By which the choice of columns is kept. Undefined: there is none. */
  readonly name: string | undefined;
};

/** The columns and rows to draw. */
export function useTableModel<Row extends object>(props: ModelProps<Row>): TableModel<Row> {
  const { columns, name } = props;
  const [chosen, setChosen] = useState(() => readChoice(name));
  const shown: Shown = Object.fromEntries(
    columns.map((one) => [one.name, chosen[one.name] ?? one.isExtra !== true]),
  );
  return {
    columns: columns.filter((one) => shown[one.name]),
    rows: inOrder(props),
    isShown: (column) => shown[column.name] === true,
    toggle(column) {
      const next = { ...chosen, [column.name]: shown[column.name] !== true };
      setChosen(next);
      if (name !== undefined) localStorage.setItem(keyOf(name), JSON.stringify(next));
    },
  };
}

/** Equal rows stay in the order in which they came. */
function inOrder<Row>({ columns, rows, order }: ModelProps<Row>): readonly Row[] {
  const valueIn = columns.find((one) => one.name === order?.by)?.sortBy;
  if (!order || typeof valueIn !== "function") return rows;
  const side = order.descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [valueIn(one), valueIn(other)];
    if (a === undefined || b === undefined)
      return Number(a === undefined) - Number(b === undefined);
    return side * compareValues(a, b);
  });
}

type Present = NonNullable<SortValue>;

function compareValues(a: Present, b: Present): number {
  if (typeof a === "string" && typeof b === "string") return a.localeCompare(b);
  return a < b ? -1 : a > b ? 1 : 0;
}

const keyOf = (name: string) => `gateway-columns-${name}`;

/** What somebody chose before. Columns that are not in it are as the page has them. */
function readChoice(name: string | undefined): Shown {
  if (name === undefined) return {};
  try {
    return Object(JSON.parse(localStorage.getItem(keyOf(name)) ?? "{}"));
  } catch {
    return {};
  }
}
