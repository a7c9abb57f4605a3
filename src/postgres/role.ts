// The role with which the gateway works. It may add charges, transfers and prices, and neither
// change nor delete them, so that no statement of ours can rewrite the past. Closed months it may
// only read. It has no password: connections take it after they have logged in.

import { type ClientBase, DatabaseError, escapeIdentifier } from "pg";
import { Servers } from "./servers.ts";

export const gatewayRole = "model_gateway";

const appendOnly = ["charges", "transfers", "price_versions", "cost_versions"];
/** What the owner of the tables closes and removes, and views. */
const ofOwner = [
  "charge_lines_1",
  "charge_sums",
  "sales_sums",
  "month_closings",
  "closed_months",
  "closed_budgets",
  "month_archives",
  "closing_blocks",
  "closing_sums",
];

type Rights = {
  readonly schema: string;
  readonly roleExists: boolean;
  /** Whether the user of the gateway may take the role. */
  readonly isMember: boolean;
  /** Our tables and views, without the partitions and the list of migrations. */
  readonly tables: readonly { name: string; isRight: boolean }[];
};

/**
 * Makes the role and gives it its rights, and `user` the right to take it. The caller is in a
 * transaction. Returns the statements that an administrator has to run where the user of this
 * connection may not; empty if all is as it should be.
 */
export async function prepareRole(client: ClientBase, user: string): Promise<readonly string[]> {
  const missing = statementsFor(await readRights(client, user), user);
  if (missing.length === 0) return [];
  await client.query("savepoint role");
  try {
    for (const text of missing) await client.query(text);
    return [];
  } catch (error) {
    if (!(error instanceof DatabaseError)) throw error;
    await client.query("rollback to savepoint role");
    // Another database of this server may have made the role at the same time.
    const left = statementsFor(await readRights(client, user), user);
    return left.length < missing.length ? await prepareRole(client, user) : left;
  }
}

function statementsFor({ schema, roleExists, isMember, tables }: Rights, user: string): string[] {
  const wrong = tables.filter(({ isRight }) => !isRight).map(({ name }) => name);
  const list = (names: readonly string[]) => names.map(escapeIdentifier).join(", ");
  const books = wrong.filter((name) => appendOnly.includes(name));
  const closed = wrong.filter((name) => ofOwner.includes(name));
  const others = wrong.filter((name) => !books.includes(name) && !closed.includes(name));
  return [
    ...(roleExists ? [] : [`create role ${gatewayRole} nologin`]),
    ...(roleExists && wrong.length === 0
      ? []
      : [`grant usage on schema ${escapeIdentifier(schema)} to ${gatewayRole}`]),
    ...(books.length === 0
      ? []
      : [
          `revoke all on ${list(books)} from ${gatewayRole}`,
          `grant select, insert on ${list(books)} to ${gatewayRole}`,
        ]),
    ...(closed.length === 0
      ? []
      : [
          `revoke all on ${list(closed)} from ${gatewayRole}`,
          `grant select on ${list(closed)} to ${gatewayRole}`,
        ]),
    ...(others.length === 0
      ? []
      : [`grant select, insert, update, delete on ${list(others)} to ${gatewayRole}`]),
    ...(isMember ? [] : [`grant ${gatewayRole} to ${escapeIdentifier(user)}`]),
  ];
}

async function readRights(client: ClientBase, user: string): Promise<Rights> {
  const { rows } = await client.query<{ schema: string; exists: boolean; member: boolean }>(
    `select current_schema()::text as schema,
       exists (select 1 from pg_roles where rolname = $1) as exists,
       exists (
         select 1
         from pg_auth_members m
         join pg_roles r on r.oid = m.roleid and r.rolname = $1
         join pg_roles u on u.oid = m.member and u.rolname = $2
         -- Since PostgreSQL 16: who makes a role may grant it, and take it once granted.
         where coalesce(to_jsonb(m) ->> 'set_option', 'true') = 'true'
       ) as member`,
    [gatewayRole, user],
  );
  const [row] = rows;
  if (row === undefined) throw new Error("a query without groups returned no row");
  const rightsOf = row.exists
    ? `has_table_privilege('${gatewayRole}', c.oid, 'SELECT')
         and has_table_privilege('${gatewayRole}', c.oid, 'INSERT')
           = (c.relname <> all($2::text[]))
         and has_table_privilege('${gatewayRole}', c.oid, 'UPDATE, DELETE, TRUNCATE')
           = (c.relname <> all($1::text[] || $2::text[]))`
    : "$1::text[] || $2::text[] is null";
  const { rows: tables } = await client.query<{ name: string; is_right: boolean }>(
    `select c.relname::text as name, ${rightsOf} as is_right
     from pg_class c
     join pg_namespace n on n.oid = c.relnamespace and n.nspname = current_schema()
     where (c.relkind in ('r', 'p') or c.relname = any($2::text[]))
       and not c.relispartition and c.relname <> 'migrations'
       and pg_has_role(current_user, c.relowner, 'usage')
     order by c.relname`,
    [appendOnly, ofOwner],
  );
  return {
    schema: row.schema,
    roleExists: row.exists,
    isMember: row.member,
    tables: tables.map(({ name, is_right }) => ({ name, isRight: is_right })),
  };
}

/** True if a connection to `url` may take the role. */
export async function mayTakeRole(url: string): Promise<boolean> {
  try {
    const { client } = await new Servers(url).connect({ role: gatewayRole });
    await client.end();
    return true;
  } catch (error) {
    // No such role, or no member of it.
    if (error instanceof DatabaseError && /^(42501|22023|42704)$/.test(error.code ?? ""))
      return false;
    throw error;
  }
}
