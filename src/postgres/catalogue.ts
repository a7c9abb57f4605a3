// What a database has of our schema, as sentences that can be compared.

import type { Client } from "pg";

// Not the partitions, which depend on the month, not the list of migrations, and nothing of an
// extension. The name of the schema is left out: it may be another one.
const query = `
  with ours as (
    select oid, relname, relkind
    from pg_class
    where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v')
      and not relispartition and relname <> 'migrations'
      and not exists (select from pg_depend where objid = pg_class.oid and deptype = 'e')
  )
  select 'table ' || relname from ours where relkind <> 'v'
  union all
  select 'view ' || relname || ' as ' || pg_get_viewdef(oid) from ours where relkind = 'v'
  union all
  select 'table ' || relname || ' column ' || attname || ' '
    || format_type(atttypid, atttypmod)
    || case when attcollation <> typcollation then ' collate ' || collname else '' end
    || case when attnotnull then ' not null' else '' end
    || coalesce(' default ' || pg_get_expr(adbin, adrelid), '')
  from ours
  join pg_attribute on attrelid = ours.oid and attnum > 0 and not attisdropped
  join pg_type on pg_type.oid = atttypid
  left join pg_collation on pg_collation.oid = attcollation
  left join pg_attrdef on adrelid = attrelid and adnum = attnum
  where relkind <> 'v'
  union all
  -- Since PostgreSQL 18 a column that is not null has a constraint, too.
  select 'table ' || relname || ' constraint ' || conname || ' ' || pg_get_constraintdef(c.oid)
  from ours
  join pg_constraint c on conrelid = ours.oid and contype <> 'n'
  union all
  select 'index ' || pg_get_indexdef(indexrelid) from ours join pg_index on indrelid = ours.oid
  union all
  select 'trigger ' || pg_get_triggerdef(t.oid)
  from ours
  join pg_trigger t on tgrelid = ours.oid and not tgisinternal
  union all
  select 'function ' || proname || ' ' || md5(prosrc)
  from pg_proc
  where pronamespace = current_schema()::regnamespace
    and not exists (select from pg_depend where objid = pg_proc.oid and deptype = 'e')`;

/** Every table, column, constraint, index, view, trigger and function of our schema, sorted. */
export async function readCatalogue(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ line: string; schema: string }>(
    `select line, quote_ident(current_schema()) as schema from (${query}) _ (line)`,
  );
  return rows.map(({ line, schema }) => line.replaceAll(`${schema}.`, "")).sort();
}
