import type { ComponentChildren, JSX } from "preact";
import { words } from "../words.ts";
import { Icon } from "./icon.tsx";

export type Column<Row> = {
  /** Names the column, in addresses too. */
  readonly name: string;
  readonly head: ComponentChildren;
  readonly cell: (row: Row) => ComponentChildren;
  /** Numbers: at the right. */
  readonly end?: boolean;
  readonly sortable?: boolean;
};

export type Sort = {
  readonly by: string;
  readonly descending: boolean;
  readonly onSort: (by: string, descending: boolean) => void;
};

type TableProps<Row> = {
  /** For screen readers. */
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** One for each column: the totals. */
  foot?: readonly ComponentChildren[];
  sort?: Sort;
};

/** A table that scrolls sideways inside its card. The first cell of a row is its heading. */
export function Table<Row>(props: TableProps<Row>): JSX.Element {
  const { caption, columns, rows, keyOf, foot, sort } = props;
  const align = (end?: boolean) => (end ? "end" : undefined);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard.
    <section class="wide" tabIndex={0} aria-label={caption}>
      <table>
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.name}
                scope="col"
                class={align(column.end)}
                aria-sort={sort?.by === column.name ? directionOf(sort) : undefined}
              >
                {sort && column.sortable ? <SortButton column={column} sort={sort} /> : column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ name, cell, end }, index) =>
                index === 0 ? (
                  <th key={name} scope="row" class={align(end)}>
                    {cell(row)}
                  </th>
                ) : (
                  <td key={name} class={align(end)}>
                    {cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
        {foot && (
          <tfoot>
            <tr>
              {columns.map(({ name, end }, index) =>
                index === 0 ? (
                  <th key={name} scope="row">
                    {foot[index]}
                  </th>
                ) : (
                  <td key={name} class={align(end)}>
                    {foot[index]}
                  </td>
                ),
              )}
            </tr>
          </tfoot>
        )}
      </table>
    </section>
  );
}

function directionOf({ descending }: Sort): "ascending" | "descending" {
  return descending ? "descending" : "ascending";
}

type SortButtonProps<Row> = { column: Column<Row>; sort: Sort };

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
