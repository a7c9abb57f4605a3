import type { JSX } from "preact";
import type { KeyGroup } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import type { Pages } from "../api.ts";
import { count, credits } from "../format.ts";
import { Button } from "../parts/button.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href } from "../router.ts";
import { words } from "../words.ts";
import { manyWords } from "./words-keys.ts";

type GroupsProps = {
  /** The key of the tag. */
  readonly tag: string;
  readonly groups: Pages<KeyGroup, unknown>;
  /** The filters of the page, which the keys of a group have too. */
  readonly query: Readonly<Record<string, string>>;
};

/** The keys of the list by the value of a tag. Each value leads to its keys. */
export function KeyGroups({ tag, groups, query }: GroupsProps): JSX.Element {
  return (
    <View
      call={groups}
      skeleton={<Skeleton rows={8} />}
      empty={({ items }) => (items.length > 0 ? undefined : <Empty>{manyWords.noGroups}</Empty>)}
    >
      {({ items, isLast }) => (
        <>
          <Table
            caption={manyWords.groups(tag)}
            columns={columnsOf(tag, query)}
            rows={items}
            keyOf={({ value }) => value}
          />
          {!isLast && (
            <div class="table-foot">
              <Button onClick={groups.more}>{words.common.more}</Button>
            </div>
          )}
        </>
      )}
    </View>
  );
}

function columnsOf(tag: string, query: GroupsProps["query"]): readonly Column<KeyGroup>[] {
  const linkTo = (value: string) => {
    const tags = [query.tag, `${tag}=${value}`].filter(Boolean).join(",");
    const filter = value === "" ? { without: tag } : { tag: tags };
    return href("keys", { ...query, group: "", ...filter });
  };
  return [
    {
      name: "value",
      head: tag,
      cell: ({ value }) => (
        <a class="clipped" href={linkTo(value)} dir="auto" title={value}>
          {value || manyWords.noValue}
        </a>
      ),
    },
    { name: "keys", head: manyWords.keys, end: true, cell: ({ keys }) => count(keys) },
    {
      name: "spent",
      head: manyWords.spent,
      end: true,
      cell: ({ monthSpentMicrocredits: spent }) => credits(spent),
    },
  ];
}
