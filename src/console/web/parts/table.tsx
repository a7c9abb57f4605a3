import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { words } from "../words.ts";
import { Icon } from "./icon.tsx";
import { Menu } from "./menu.tsx";
import { type Column, type Order, useTableModel } from "./table-model.ts";

export { type Column, momentOf, type Order } from "./table-model.ts";

/** An order that is kept elsewhere: in the address, or by the service. */
export type Sort = Order & { readonly onSort: (by: string, descending: boolean) => void };

/** How the rows of a table are picked, each by a box of its own. */
export type Picking<Row> = {
  /** What the box says. Undefined: the row has none. */
  readonly labelOf: (row: Row) => string | undefined;
  readonly isPicked: (row: Row) => boolean;
  readonly onPick: (rows: readonly Row[], isOn: boolean) => void;
  /** What the box of all rows says. */
  readonly allLabel: string;
};

type TableProps<Row> = {
  /** For screen readers. */
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** The order of the rows. Absent: the table keeps it, and begins as its rows come. */
  sort?: Sort;
  /** True: more rows are at the service, so that only what it sorts by can be sorted. */
  isPart?: boolean;
  /** Only so many rows are drawn, the first ones of the order. */
  rowsMax?: number;
  /** People choose its columns, and the browser keeps the choice by this name. */
  name?: string;
  /** True: where the page is narrow, each row is a list of its cells, with their heads beside. */
  isList?: boolean;
  /** Rows can be picked. */
  picking?: Picking<Row> | undefined;
};

/** A table that scrolls sideways inside its card. The first cell of a row is its heading. */
export function Table<Row extends object>(props: TableProps<Row>): JSX.Element {
  const { caption, keyOf, name, isPart = false, isList = false, picking } = props;
  const [order, setOrder] = useState<Order>();
  const sort: Partial<Order> & Pick<Sort, "onSort"> = props.sort ?? {
    ...order,
    onSort: (by, descending) => setOrder({ by, descending }),
  };
  const model = useTableModel({ ...props, name, order: props.sort ?? order });
  const { columns } = model;
  const rows = model.rows.slice(0, props.rowsMax);
  const hasFoot = columns.some(({ foot }) => foot !== undefined);
  const table = (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard.
    <section class={isList ? "wide as-list" : "wide"} tabIndex={0} aria-label={caption}>
      <table>
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {picking && <PickAll picking={picking} rows={rows} />}
            {columns.map((column) => (
              <th
                key={column.name}
                scope="col"
                class={alignOf(column)}
                aria-sort={sort.by === column.name ? directionOf(sort) : undefined}
              >
                {canSort(column, isPart) ? <SortButton column={column} sort={sort} /> : column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {picking && <PickRow picking={picking} row={row} />}
              {columns.map((column, index) => (
                <Cell key={column.name} column={column} isHead={index === 0} isList={isList}>
                  {column.cell(row)}
                </Cell>
              ))}
            </tr>
          ))}
        </tbody>
        {hasFoot && (
          <tfoot>
            <tr>
              {picking && <td />}
              {columns.map((column, index) => (
                <Cell key={column.name} column={column} isHead={index === 0}>
                  {column.foot}
                </Cell>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
    </section>
  );
  if (name === undefined) return table;
  return (
    <>
      <ColumnChooser columns={props.columns} isShown={model.isShown} onToggle={model.toggle} />
      {table}
    </>
  );
}

type PickAllProps<Row> = { readonly picking: Picking<Row>; readonly rows: readonly Row[] };

function PickAll<Row>({ picking, rows }: PickAllProps<Row>): JSX.Element {
  const pickable = rows.filter((row) => picking.labelOf(row) !== undefined);
  const picked = pickable.filter(picking.isPicked).length;
  const isAll = picked > 0 && picked === pickable.length;
  return (
    <td class="pick">
      <input
        type="checkbox"
        aria-label={picking.allLabel}
        checked={isAll}
        indeterminate={picked > 0 && !isAll}
        disabled={pickable.length === 0}
        onChange={() => picking.onPick(pickable, !isAll)}
      />
    </td>
  );
}

type PickRowProps<Row> = { readonly picking: Picking<Row>; readonly row: Row };

function PickRow<Row>({ picking, row }: PickRowProps<Row>): JSX.Element {
  const label = picking.labelOf(row);
  return (
    <td class="pick">
      {label !== undefined && (
        <input
          type="checkbox"
          aria-label={label}
          checked={picking.isPicked(row)}
          onChange={(event) => picking.onPick([row], event.currentTarget.checked)}
        />
      )}
    </td>
  );
}

function canSort<Row>({ sortBy }: Column<Row>, isPart: boolean): boolean {
  return sortBy === "service" || (sortBy !== undefined && !isPart);
}

function alignOf<Row>({ end }: Column<Row>): string | undefined {
  return end ? "end" : undefined;
}

type CellProps<Row> = {
  readonly column: Column<Row>;
  readonly isHead: boolean;
  readonly isList?: boolean;
  readonly children: ComponentChildren;
};

function Cell<Row>({ column, isHead, isList = false, children }: CellProps<Row>): JSX.Element {
  return isHead ? (
    <th scope="row" class={alignOf(column)}>
      {children}
    </th>
  ) : (
    <td class={alignOf(column)}>
      {isList && <span class="cell-head">{column.head}</span>}
      {children}
    </td>
  );
}

function directionOf({ descending }: Partial<Order>): "ascending" | "descending" {
  return descending ? "descending" : "ascending";
}

type SortButtonProps<Row> = {
  readonly column: Column<Row>;
  readonly sort: Partial<Order> & Pick<Sort, "onSort">;
};

function SortButton<Row>({ column, sort }: SortButtonProps<Row>): JSX.Element {
  const isSorted = sort.by === column.name;
  const icon = isSorted ? (sort.descending ? "down" : "up") : "sort";
  // Numbers begin with the largest.
  const descending = isSorted ? !sort.descending : column.end === true;
  return (
    <button
      type="button"
      class="sort"
      title={words.common.sort}
      onClick={() => sort.onSort(column.name, descending)}
    >
      {column.head}
      <Icon name={icon} />
    </button>
  );
}

type ColumnChooserProps<Row> = {
  readonly columns: readonly Column<Row>[];
  readonly isShown: (column: Column<Row>) => boolean;
  readonly onToggle: (column: Column<Row>) => void;
};

/** The first column is always there, and so is one whose head is no text. */
function ColumnChooser<Row>(props: ColumnChooserProps<Row>): JSX.Element {
  const { columns, isShown, onToggle } = props;
  const choices = columns.slice(1).filter(({ head }) => typeof head === "string");
  return (
    <Menu class="button quiet choose-columns" button={words.common.columns}>
      {() =>
        choices.map((column) => (
          <label class="menu-item" key={column.name}>
            <input type="checkbox" checked={isShown(column)} onChange={() => onToggle(column)} />
            {column.head}
          </label>
        ))
      }
    </Menu>
  );
}
