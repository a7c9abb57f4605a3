// Backups of a whole database, as a folder: one file for each table, in the binary form of COPY,
// and a manifest. The files are those of one moment, though the gateways run on. They name tables
// and columns, and nothing of the server, so they fit another version of PostgreSQL.
//
// The folder gets its name when all of it is written. A restore fills an empty database in one
// transaction: one that is killed leaves it empty.

import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { access, mkdir, mkdtemp, open, readFile, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { type Client, escapeIdentifier as quoted } from "pg";
import { from as copyFrom, to as copyTo } from "pg-copy-streams";
import { createSchema, type Migration, readMigrations } from "./migrate.ts";
import { addMonths, readMonths, readSealedMonths, sealPartition } from "./partitions.ts";
import { Servers } from "./servers.ts";

const formatName = "model-gateway backup";
const manifestName = "manifest.json";

/** What `manifest.json` has, beside its own digest. Numbers that may be large are decimal texts. */
export type Manifest = {
  readonly format: typeof formatName;
  readonly madeAt: string;
  /** Of the server, such as `18.4`. */
  readonly postgres: string;
  /** What the database had run. `sha256` is null where it was not noted. */
  readonly migrations: readonly Pick<Applied, "number" | "name" | "sha256">[];
  /** The partitions of charges, `YYYY-MM-01`, and those of them that take no more. */
  readonly months: readonly string[];
  readonly sealedMonths: readonly string[];
  readonly tables: readonly TableFile[];
};

type Applied = Omit<Pick<Migration, "number" | "name" | "sha256">, "sha256"> & {
  readonly sha256: string | null;
};

type Table = { readonly name: string; readonly columns: readonly string[] };
type TableFile = Table & {
  readonly rows: number;
  readonly bytes: string;
  /** What `sha256sum` says of the file. */
  readonly sha256: string;
};

/** A folder or a database that cannot be used. The message is a sentence for people. */
export class BackupError extends Error {}

/** Nothing of ours may end a statement: a table can be large. */
const settings = { statement_timeout: 0, lock_timeout: 0, idle_in_transaction_session_timeout: 0 };

/**
 * Writes a backup of the database at `url` to `folder`, which must not exist. Needs the rights of
 * the owner of the tables. Throws a `BackupError` for a folder that exists, and for a database
 * without a ledger.
 */
export async function backUp(url: string, folder: string): Promise<Manifest> {
  const path = resolve(folder);
  if (await exists(path)) throw new BackupError(`${path} exists: name a folder that does not`);
  await mkdir(dirname(path), { recursive: true });
  const { client } = await new Servers(url).connect(settings);
  // Nobody takes it for a backup, should this process be killed.
  const part = await mkdtemp(join(dirname(path), `.${basename(path)}.part-`));
  try {
    const manifest = await writeTables(client, part);
    await writeManifest(part, manifest);
    await rename(part, path);
    return manifest;
  } catch (error) {
    await rm(part, { recursive: true, force: true });
    throw error;
  } finally {
    await client.end();
  }
}

async function writeTables(client: Client, folder: string): Promise<Manifest> {
  const names = (await readTables(client)).map(({ name }) => quoted(name));
  if (names.length === 0) throw new BackupError("the database has no ledger");
  await client.query("begin isolation level repeatable read, read only");
  // The first look after this is the moment of the backup: nobody removes a month from then on.
  await client.query(`lock table ${names.join(", ")} in access share mode`);
  const tables = await readTables(client);
  const { rows } = await client.query<{ version: string; at: Date }>(
    "select current_setting('server_version') as version, now() as at",
  );
  const { rows: migrations } = await client.query<Applied>(
    "select number, name, sha256 from migrations where number > 0 order by number",
  );
  const files: TableFile[] = [];
  for (const table of tables) {
    const digest = createHash("sha256");
    let bytes = 0;
    const rowsOf = client.query(
      copyTo(`copy (select ${columnsOf(table)} from ${quoted(table.name)})
      to stdout (format binary)`),
    );
    await pipeline(
      rowsOf,
      async function* (chunks: AsyncIterable<Buffer>) {
        for await (const chunk of chunks) {
          digest.update(chunk);
          bytes += chunk.length;
          yield chunk;
        }
      },
      createWriteStream(join(folder, table.name), { mode: 0o600, flush: true }),
    );
    const sha256 = digest.digest("hex");
    files.push({ ...table, rows: rowsOf.rowCount, bytes: String(bytes), sha256 });
  }
  const manifest: Manifest = {
    format: formatName,
    madeAt: rows[0]?.at.toISOString() ?? "",
    postgres: rows[0]?.version ?? "",
    migrations,
    months: await readMonths(client),
    sealedMonths: await readSealedMonths(client),
    tables: files,
  };
  await client.query("commit");
  return manifest;
}

/**
 * Fills the empty database at `url` from a backup, with the schema that the backup has. Checks each
 * file first. Throws a `BackupError` for a folder that is not a whole backup or of a newer version,
 * and for a database that is not empty.
 */
export async function restore(url: string, folder: string): Promise<Manifest> {
  const manifest = await readManifest(folder);
  const migrations = migrationsOf(manifest);
  for (const file of manifest.tables) await checkFile(folder, file);
  const { client } = await new Servers(url).connect(settings);
  try {
    await client.query("begin");
    await refuseFull(client);
    await createSchema(client, migrations);
    await addMonths(client, manifest.months);
    const tables = await readTables(client);
    for (const { name } of tables) {
      // What the migrations have written is in the backup, as it became.
      const { rows } = await client.query(`select from ${quoted(name)} limit 1`);
      if (rows.length > 0) await client.query(`delete from ${quoted(name)}`);
    }
    for (const { name } of tables) {
      const file = manifest.tables.find((one) => one.name === name);
      if (file !== undefined) await fill(client, folder, file);
    }
    for (const month of manifest.sealedMonths) await sealPartition(client, month);
    await client.query("commit");
    return manifest;
  } catch (error) {
    await client.query("rollback").catch(() => undefined);
    throw error;
  } finally {
    await client.end();
  }
}

async function fill(client: Client, folder: string, file: TableFile): Promise<void> {
  const rows = client.query(
    copyFrom(`copy ${quoted(file.name)} (${columnsOf(file)}) from stdin (format binary)`),
  );
  await pipeline(createReadStream(join(folder, file.name)), rows);
  if (rows.rowCount !== file.rows)
    throw new BackupError(`${file.name} took ${rows.rowCount} rows of ${file.rows}`);
  await client.query(`analyze ${quoted(file.name)}`);
}

async function refuseFull(client: Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select relname::text as name
     from pg_class
     where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S')
     order by relname limit 1`,
  );
  if (rows[0])
    throw new BackupError(
      `the database is not empty: it has ${rows[0].name}. Restore into a new one, with another ` +
        "DATA_DIR or DATABASE_URL",
    );
}

function migrationsOf({ migrations }: Manifest): Migration[] {
  const own = readMigrations();
  const newest = migrations.at(-1);
  if (newest !== undefined && migrations.length > own.length)
    throw new BackupError(
      `the backup is newer than this program: it has migration ${newest.name}, and this program ` +
        `knows ${own.length} migrations. Restore it with a newer version of the gateway`,
    );
  for (const [index, { name, sha256 }] of migrations.entries())
    if (own[index]?.name !== name || (sha256 !== null && own[index].sha256 !== sha256))
      throw new BackupError(
        `migration ${name} of the backup is not that of this program: they are not of the same ` +
          "line of versions",
      );
  return own.slice(0, migrations.length);
}

/** Our tables, those that others refer to first. A partitioned one stands for its partitions. */
async function readTables(client: Client): Promise<Table[]> {
  const { rows } = await client.query<Table & { needs: string[] }>(
    `select c.relname::text as name,
       array(
         select attname::text from pg_attribute a
         where a.attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = ''
         order by attnum
       ) as columns,
       array(
         select distinct r.relname::text from pg_constraint k join pg_class r on r.oid = k.confrelid
         where k.conrelid = c.oid and k.contype = 'f' and k.confrelid <> c.oid
       ) as needs
     from pg_class c
     where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
       and not c.relispartition and c.relname <> 'migrations'
     order by c.relname`,
  );
  const sorted: Table[] = [];
  while (sorted.length < rows.length) {
    const has = (name: string) => sorted.some((one) => one.name === name);
    const next = rows.find(({ name, needs }) => !has(name) && needs.every(has));
    if (next === undefined) throw new Error("tables refer to each other in a circle");
    sorted.push({ name: next.name, columns: next.columns });
  }
  return sorted;
}

const columnsOf = ({ columns }: Table) => columns.map(quoted).join(", ");

async function writeManifest(folder: string, manifest: Manifest): Promise<void> {
  const text = JSON.stringify({ ...manifest, sha256: digestOf(manifest) }, null, 2);
  const file = await open(join(folder, manifestName), "wx", 0o600);
  await file.writeFile(`${text}\n`);
  await file.sync();
  await file.close();
}

const digestOf = (manifest: object) =>
  createHash("sha256").update(JSON.stringify(manifest)).digest("hex");

async function readManifest(folder: string): Promise<Manifest> {
  const whole: unknown = await readFile(join(folder, manifestName), "utf8")
    .then(JSON.parse)
    .catch(() => undefined);
  if (!isManifest(whole)) throw new BackupError(`${folder} has no whole ${manifestName}`);
  const { sha256, ...manifest } = whole;
  if (sha256 !== digestOf(manifest))
    throw new BackupError(`${folder}: ${manifestName} was changed`);
  return manifest;
}

// Its digest shows that it is what `writeManifest` has written.
function isManifest(value: unknown): value is Manifest & { sha256: string } {
  return Object(value).format === formatName && typeof Object(value).sha256 === "string";
}

async function checkFile(folder: string, { name, bytes, sha256 }: TableFile): Promise<void> {
  const digest = createHash("sha256");
  try {
    const { size } = await stat(join(folder, name));
    if (String(size) !== bytes)
      throw new BackupError(`${folder}: ${name} has ${size} bytes of ${bytes}`);
    for await (const chunk of createReadStream(join(folder, name))) digest.update(chunk);
  } catch (error) {
    if (error instanceof BackupError) throw error;
    throw new BackupError(`${folder}: ${name} cannot be read`, { cause: error });
  }
  if (digest.digest("hex") !== sha256) throw new BackupError(`${folder}: ${name} was changed`);
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );
