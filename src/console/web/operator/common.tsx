// What several pages of operators show: accounts, people, amounts, and that a role only looks.

import type { ComponentChildren, JSX } from "preact";
import type { Actor } from "../../../../gen/gateway/common/v1/actor_pb.ts";
import {
  AccountFilter,
  type AccountSummary,
  OperationsService,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { PeopleService } from "../../../../gen/gateway/people/v1/people_pb.ts";
import { actorText } from "../../../base/actors.ts";
import { type Call, type Pages, useCall } from "../api.ts";
import { Button } from "../parts/button.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { hrefOf } from "../router.ts";
import { isOperatorAdmin, operatorPart, session } from "../session.ts";
import { words } from "./words.ts";

/** The page of an account for operators. */
export function accountHref(accountId: string): string {
  return hrefOf(operatorPart, `accounts/${accountId}`);
}

export function orderHref(orderId: string): string {
  return hrefOf(operatorPart, `orders/${orderId}`);
}

type AccountLinkProps = { readonly accountId: string; readonly name?: string | undefined };

/** An account by its name, or by its id where that is all that is known. */
export function AccountLink({ accountId, name }: AccountLinkProps): JSX.Element {
  return (
    <a class="row-link clipped" href={accountHref(accountId)} title={accountId}>
      <bdi>{name || accountId}</bdi>
    </a>
  );
}

const waitingMax = 200;

/** The accounts for which a person has something to do, by id. */
export function useWaitingAccounts(): ReadonlyMap<string, AccountSummary> {
  const { data } = useCall(OperationsService.method.findAccounts, {
    filter: AccountFilter.WAITING,
    pageSize: waitingMax,
  });
  return new Map((data?.accounts ?? []).map((one) => [one.account?.accountId ?? "", one]));
}

const namedMax = 200;

/** The names of the newest accounts, by id. Others are known by their id alone. */
export function useAccountNames(isWanted = true): ReadonlyMap<string, string> {
  const { data } = useCall(
    OperationsService.method.findAccounts,
    isWanted ? { pageSize: namedMax } : undefined,
  );
  return new Map(
    (data?.accounts ?? []).map(({ account }) => [account?.accountId ?? "", account?.name ?? ""]),
  );
}

const peopleMax = 1000;

/** Names actors, as far as people are known. */
export function usePeopleNames(): (actor: Pick<Actor, "kind"> | undefined) => string {
  const { data } = useCall(PeopleService.method.listPeople, { pageSize: peopleMax });
  const own = session.value.person?.personId;
  return (actor) => {
    const kind = actor?.kind;
    if (kind?.case === "adminTokenName") return words.program(kind.value);
    if (kind?.case !== "personId") return actorText(actor) || words.gateway;
    const id = kind.value;
    if (id === own) return words.you;
    if (!data) return id;
    const person = data.people.find(({ personId }) => personId === id);
    if (person) return person.name || person.login;
    return data.nextPageToken === "" ? words.unknownPerson : id;
  };
}

/** Said once on pages where a role only looks. */
export function LookOnly(): JSX.Element | null {
  return isOperatorAdmin() ? null : <p class="intro muted">{words.lookOnly}</p>;
}

/** A text of somebody, which may be long and in any script. */
export function Quoted({ text }: { readonly text: string }): JSX.Element {
  return (
    <span class="clipped muted" dir="auto" title={text}>
      {text || words.none}
    </span>
  );
}

/** What stands in a card while there is nothing to list. */
export function Nothing({ children }: { readonly children: ComponentChildren }): JSX.Element {
  return <p class="card-text muted">{children}</p>;
}

type ListProps<Row> = {
  /** For screen readers. */
  readonly caption: string;
  readonly columns: readonly Column<Row>[];
  readonly keyOf: (row: Row) => string;
  /** As of `Table`. */
  readonly name?: string;
  readonly isList?: boolean;
  /** How many grey rows hold the place while it is read. */
  readonly greyRows: number;
  /** What stands there while there is nothing: a sentence, or a part of its own. */
  readonly empty: string | JSX.Element;
};

type ListTableProps<Row, Answer> = ListProps<Row> & {
  readonly call: Call<Answer>;
  readonly rowsOf: (answer: Answer) => readonly Row[];
  readonly foot?: (answer: Answer) => ComponentChildren;
  /** True: more rows are at the service. */
  readonly isPart?: (answer: Answer) => boolean;
};

/** What a call lists, in each of its states. For a card without padding. */
export function ListTable<Row extends object, Answer>(
  props: ListTableProps<Row, Answer>,
): JSX.Element {
  const { call, rowsOf, foot, isPart, greyRows, empty, ...table } = props;
  const nothing = typeof empty === "string" ? <Nothing>{empty}</Nothing> : empty;
  return (
    <View
      call={call}
      skeleton={<Skeleton rows={greyRows} />}
      empty={(answer) => (rowsOf(answer).length === 0 ? nothing : undefined)}
    >
      {(answer) => (
        <div class="dense tight">
          <Table {...table} rows={rowsOf(answer)} isPart={isPart?.(answer) === true} />
          {foot?.(answer)}
        </div>
      )}
    </View>
  );
}

type PagedTableProps<Row, Answer> = ListProps<Row> & { readonly pages: Pages<Row, Answer> };

/** As `ListTable`, of a list that comes in pages. */
export function PagedTable<Row extends object, Answer>(
  props: PagedTableProps<Row, Answer>,
): JSX.Element {
  const { pages, ...list } = props;
  return (
    <ListTable
      {...list}
      call={pages}
      rowsOf={({ items }) => items}
      isPart={({ isLast }) => !isLast}
      foot={({ isLast }) =>
        !isLast && (
          <p class="table-foot row">
            <Button kind="quiet" onClick={pages.more}>
              {words.showMore}
            </Button>
          </p>
        )
      }
    />
  );
}

type OwnersProps = Pick<AccountSummary, "owners" | "ownerCount">;

export function Owners({ owners, ownerCount }: OwnersProps): JSX.Element {
  if (owners.length === 0) return <span class="faint">{words.accounts.noOwner}</span>;
  const more = ownerCount - owners.length;
  return (
    <span class="clipped" title={owners.map(({ login }) => login).join(", ")}>
      {owners.map(({ personId, login }, index) => (
        <span key={personId}>
          {index > 0 && ", "}
          <bdi>{login}</bdi>
        </span>
      ))}
      {more > 0 && <span class="faint"> {words.accounts.moreOwners(more)}</span>}
    </span>
  );
}
