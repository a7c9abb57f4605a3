// The monthly partitions of `charges` and `audit_events`. A charge without a partition cannot be
// stored, so partitions are made months ahead: by the migration, and by a task of every process
// each day. An audit event without one is in the partition of the others.

import type { ClientBase } from "pg";
import { runOn } from "./session.ts";
import { one } from "./statement.ts";

/** The current month and this many after it have partitions. */
const monthsAhead = 3;

type PartitionsRow = { year: number; month: number; names: string[] };

/** Reads the current month and the partitions, for `lastMonthOf`. */
export const readPartitions = one<undefined, PartitionsRow>(
  "postgres/partitions",
  `
    select extract(year from now() at time zone 'utc')::int as year,
      extract(month from now() at time zone 'utc')::int as month,
      array(
        select c.relname::text
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'charges'::regclass
      ) as names`,
  () => [],
  ([year, month, names]) => ({
    year: Number(year),
    month: Number(month),
    names: Array.isArray(names) ? names.map(String) : [],
  }),
  "",
);

type State = {
  /** The current UTC month of the database, counted from year 0. */
  readonly current: number;
  /** The months with a partition, likewise. */
  readonly present: ReadonlySet<number>;
};

/**
 * Adds the partitions that are missing. The caller is in a transaction and keeps other processes
 * from doing the same. Needs the rights of the owner.
 */
export async function addPartitions(client: ClientBase): Promise<void> {
  const { current, present } = await readState(client);
  // In a new database also the month before: clocks differ.
  const first = present.size === 0 ? current - 1 : current;
  for (let month = first; month <= current + monthsAhead; month++)
    if (!present.has(month)) await addPartition(client, month);
  const { rows } = await client.query(
    "select from pg_partitioned_table where partrelid = to_regclass('audit_events')",
  );
  // An older schema, while a database is taken over.
  if (rows.length === 0) return;
  // Of months whose events may be among the others, none is made.
  for (let month = current + 1; month <= current + monthsAhead; month++)
    await client.query(
      `create table if not exists ${nameOf(startOf(month), "audit_events")}
         partition of audit_events
         for values from ('${startOf(month)} 00:00+00') to ('${startOf(month + 1)} 00:00+00')`,
    );
}

/** Adds partitions for these months, `YYYY-MM-01`. The caller is in a transaction. */
export async function addMonths(client: ClientBase, months: readonly string[]): Promise<void> {
  for (const month of months) await addPartition(client, monthOf(nameOf(month)) ?? 0);
}

/**
 * The last month that has a partition, without a gap since the current one, counted from year 0.
 * The month before the current one if that has none. `row`: of `readPartitions`.
 */
export function lastMonthOf(row: PartitionsRow): number {
  const { current, present } = stateOf(row);
  let last = current - 1;
  while (present.has(last + 1)) last++;
  return last;
}

/** The months that have a partition, `YYYY-MM-01`, in their order. */
export async function readMonths(client: ClientBase): Promise<string[]> {
  const { present } = await readState(client);
  return [...present].sort((one, other) => one - other).map(startOf);
}

/** The months whose partition refuses charges, `YYYY-MM-01`, in their order. */
export async function readSealedMonths(client: ClientBase): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select c.relname::text as name
     from pg_trigger t join pg_class c on c.oid = t.tgrelid
     where t.tgname = 'closed' and c.relnamespace = current_schema()::regnamespace
     order by c.relname`,
  );
  return rows.flatMap(({ name }) => monthOf(name) ?? []).map(startOf);
}

/**
 * Makes the partition of a past month refuse charges, once. Waits for the transactions that write
 * to it.
 */
export async function sealPartition(client: ClientBase, month: string): Promise<void> {
  await client.query(
    `create or replace trigger closed before insert on ${nameOf(month)}
       for each row execute function refuse_charge()`,
  );
}

/**
 * Counts the charges of a month that were settled after a time and up to another. It names the
 * partition, so that an index has all that is asked for.
 */
export async function countCharges(
  client: ClientBase,
  month: string,
  { after, upTo }: { after: string; upTo: string },
): Promise<bigint> {
  const { rows } = await client.query<{ charges: bigint }>(
    `select count(*) as charges
     from ${nameOf(month)}
     where amount >= 0 and settled_at > $1::timestamptz and settled_at <= $2::timestamptz`,
    [after, upTo],
  );
  return rows[0]?.charges ?? 0n;
}

/** Removes the partition of a month with all its charges. */
export async function dropPartition(client: ClientBase, month: string): Promise<void> {
  const name = nameOf(month);
  // First the queue for this lock. Whoever reads all charges locks their table before a partition.
  await client.query("lock table only charges in access exclusive mode");
  await client.query(`alter table charges detach partition ${name}`);
  await client.query(`drop table ${name}`);
}

/** Name of the partition of a month, `YYYY-MM-01`. */
function nameOf(month: string, table = "charges"): string {
  if (!/^\d{4}-\d{2}-01$/.test(month)) throw new Error(`no month: ${month}`);
  return `${table}_${month.slice(0, 7).replace("-", "_")}`;
}

async function readState(client: ClientBase): Promise<State> {
  return stateOf(await runOn(client, readPartitions, readPartitions.with()));
}

function stateOf({ year, month, names }: PartitionsRow): State {
  const present = names.flatMap((name) => monthOf(name) ?? []);
  return { current: year * 12 + month - 1, present: new Set(present) };
}

/** The month of a partition, counted from year 0. Undefined for another table. */
function monthOf(name: string): number | undefined {
  const [, year, month] = /^charges_(\d{4})_(\d{2})$/.exec(name) ?? [];
  return year === undefined ? undefined : Number(year) * 12 + Number(month) - 1;
}

// Attached and not created in its place: this waits for no transaction that uses `charges`, and
// none waits for this.
async function addPartition(client: ClientBase, month: number): Promise<void> {
  const [from, to] = [startOf(month), startOf(month + 1)];
  const name = nameOf(from);
  await client.query(`create table ${name} (like charges including all)`);
  await client.query(
    `alter table charges attach partition ${name} for values from ('${from}') to ('${to}')`,
  );
  // The trigger of `charges` sees no truncation of a partition.
  await client.query(
    `create trigger no_truncate before truncate on ${name}
       for each statement execute function refuse_change()`,
  );
}

/** The first day of a month, `YYYY-MM-01`. */
function startOf(month: number): string {
  const year = String(Math.floor(month / 12)).padStart(4, "0");
  return `${year}-${String((month % 12) + 1).padStart(2, "0")}-01`;
}
