// Made of src/operations/sql by `npm run generate`. Do not edit.

import { type Many, many, one } from "../../src/postgres/statement.ts";

// accounts.sql

export type FindAccountsRow = { accountId: string };
/**
 * Lists accounts, newest first: all of them, or those that match.
 * `before`: the last one of the page before
 * `text`: part of a name, or of the login or the address of an owner; empty: all
 * `matching`: accounts that match the text in another way
 * `status`: null: any
 * `among`: the only accounts to look at; null: all
 */
export const findAccounts: Many<{ before: string | null; status: "active" | "suspended" | "closed" | null; among: readonly string[] | null; text: string; matching: readonly string[]; rows: bigint | number }, FindAccountsRow> = many(
  "operations/find-accounts",
  `-- operations/find-accounts
select a.account_id
from accounts a
where ($1::text is null or a.account_id < $1)
  and ($2::text is null or a.status = $2)
  and ($3::text[] is null or a.account_id = any($3::text[]))
  and ($4::text = '' or strpos(lower(a.name), $4) > 0 or a.account_id = any($5::text[])
    or exists (
      select 1
      from members m
      join people p on p.person_id = m.person_id
      where m.account_id = a.account_id and m.role = 'owner'
        and (strpos(p.login, $4) > 0 or strpos(lower(p.email), $4) > 0)))
order by a.account_id desc
limit $6`,
  (p) => [p.before, p.status, p.among, p.text, p.matching, p.rows],
  (v) => ({ accountId: v[0] }) as never,
  "",
);
