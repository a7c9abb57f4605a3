// The table of the page of usage: the sums of the range by key, model or value of a tag, and by a
// second name if somebody wants one.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { UsageRow } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { compact, count } from "../format.ts";
import { Button } from "../parts/button.tsx";
import { hintOf, type KeyText, keyText } from "../parts/key-names.ts";
import { Card } from "../parts/page.tsx";
import { KeyName } from "../parts/small.tsx";
import { type Column, type Order, Table } from "../parts/table.tsx";
import { type TokenSide, tokensOf } from "../parts/usage-report.ts";
import { href } from "../router.ts";
import { words } from "../words.ts";
import { whyWords as text } from "../words-why.ts";
import { type By, type Chosen, namesIn } from "./usage-calls.ts";

const rowsAtOnce = 50;

type Kind = Exclude<By, "category">;

type RowsProps = {
  readonly rows: readonly UsageRow[];
  readonly chosen: Chosen;
  readonly keys: ReadonlyMap<string, KeyText>;
  readonly note: string | undefined;
  readonly isWhole: boolean;
};

/** The sums of the range by name, or by two. */
export function UsageTable({ rows, chosen, keys, note, isWhole }: RowsProps): JSX.Element {
  const { by, second } = chosen;
  const [order, setOrder] = useState<Order>({ by: "credits", descending: true });
  const [shown, setShown] = useState(rowsAtOnce);
  const kind = by === "category" ? "key" : by;
  const { key, model } = words.usage.head;
  const title =
    second === ""
      ? words.usage.table[kind]
      : text.twoTable(words.usage.table[kind], { key, model }[second]);
  return (
    <Card title={title} note={note} flush>
      <div class="dense">
        <Table
          name={`usage-${kind}${second && `-${second}`}`}
          caption={title}
          columns={columnsOf(kind, chosen, keys, rows)}
          rows={rows}
          rowsMax={shown}
          keyOf={(row) => namesIn(row, { by: kind, second }).join("\t")}
          sort={{ ...order, onSort: (name, descending) => setOrder({ by: name, descending }) }}
        />
      </div>
      {rows.length > shown && (
        <p class="table-foot row">
          <Button kind="quiet" onClick={() => setShown(shown + rowsAtOnce)}>
            {words.usage.showMore(Math.min(rowsAtOnce, rows.length - shown))}
          </Button>
        </p>
      )}
      {!isWhole && <p class="table-foot faint">{words.usage.stillLoading}</p>}
    </Card>
  );
}

function columnsOf(
  kind: Kind,
  { tag, second, money }: Chosen,
  keys: ReadonlyMap<string, KeyText>,
  rows: readonly UsageRow[],
): Column<UsageRow>[] {
  const { head, categories } = words.usage;
  const number = (
    name: string,
    label: string,
    valueIn: (row: UsageRow) => bigint,
    format: (value: bigint) => string,
  ): Column<UsageRow> => ({
    name,
    head: label,
    cell: (row) => format(valueIn(row)),
    foot: format(rows.reduce((sum, row) => sum + valueIn(row), 0n)),
    end: true,
    sortBy: valueIn,
  });
  const tokens = (side: TokenSide) => (row: UsageRow) =>
    row.sums ? tokensOf(row.sums, [side]) : 0n;
  const cacheRead = (row: UsageRow) => row.sums?.usage?.cacheRead ?? 0n;
  const cacheWrite = (row: UsageRow) => tokens("cache")(row) - cacheRead(row);
  const cacheDetails = (row: UsageRow) =>
    words.usage.cacheDetails(compact(cacheWrite(row)), compact(cacheRead(row)));
  return [
    { ...nameColumn(kind, tag, keys), foot: words.usage.total[kind] },
    ...(second === "" ? [] : [nameColumn(second, tag, keys)]),
    number(
      "credits",
      text.units[money.unit],
      (row) => row.sums?.chargedMicrocredits ?? 0n,
      money.text,
    ),
    number("requests", head.requests, (row) => row.sums?.requests ?? 0n, count),
    number(
      "not-completed",
      head.notCompleted,
      (row) => (row.sums?.failed ?? 0n) + (row.sums?.cut ?? 0n),
      count,
    ),
    number("input", categories.input, tokens("input"), compact),
    number("output", categories.output, tokens("output"), compact),
    number("thinking", categories.thinking, tokens("thinking"), compact),
    {
      ...number("cache", categories.cache, tokens("cache"), compact),
      cell: (row) => <span title={cacheDetails(row)}>{compact(tokens("cache")(row))}</span>,
    },
    { ...number("cache-write", head.cacheWrite, cacheWrite, compact), isExtra: true },
    { ...number("cache-read", categories.cacheRead, cacheRead, compact), isExtra: true },
  ];
}

/** What a row is of. */
function nameColumn(kind: Kind, tag: string, keys: ReadonlyMap<string, KeyText>): Column<UsageRow> {
  return {
    name: kind,
    head: kind === "tag" ? tag : words.usage.head[kind],
    sortBy: (row) =>
      kind === "key"
        ? keyText(row.keyId, keys.get(row.keyId))
        : kind === "model"
          ? row.model
          : row.tagValue,
    cell: (row) =>
      kind === "tag" ? (
        <TagValue tag={tag} value={row.tagValue} />
      ) : kind === "model" ? (
        <a class="row-link clipped" href={href("requests", { model: row.model })} title={row.model}>
          {row.model}
        </a>
      ) : (
        <KeyName
          name={keys.get(row.keyId)?.name ?? ""}
          hint={hintOf(keys.get(row.keyId)) || row.keyId}
          href={href(`keys/${row.keyId}`)}
        />
      ),
  };
}

/** The rest, and `(other)`, are requests that no list can be asked for. */
function TagValue({ tag, value }: { readonly tag: string; readonly value: string }) {
  if (value === "" || value === "(other)")
    return <span class="faint">{value || words.usage.noTag}</span>;
  return (
    <a class="row-link" href={href("requests", { tag: `${tag}=${value}` })}>
      {value}
    </a>
  );
}
