// Writes `gen/sql/`: a constant for each statement of `src/*/sql/*.sql`, with its parameters and
// its row as a migrated database describes them. A part of `npm run generate`.
//
// A file holds the statements of a family of tables. Each is a block:
//
//   -- name: FindSessions :many timeout_ms=5000
//   -- Its contract, which becomes the comment of the constant.
//   -- :idle_ms_max?  a parameter that may be null, and what it is
//   -- =roles members.role
//   select … where digest = any(:digests::bytea[]) … as "ends_in_ms!"
//
// `docs/internals.md` explains the lines. What the database cannot know and nobody has said is an
// Error with file, line and the mend.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import type { Client, Connection, Submittable } from "pg";
import { serialize } from "pg-protocol";
import { createLog } from "../base/log.ts";
import { startEmbedded, templateFolder } from "./embedded/embedded.ts";
import { families } from "./families.ts";
import { migrate } from "./migrate.ts";
import { Servers } from "./servers.ts";
import { camelCase } from "./statement.ts";

const root = join(import.meta.dirname, "../..");

type Kind = "one" | "optional" | "many" | "run";

/** What a block says of a parameter. */
type Note = {
  readonly elementMayBeNull: boolean;
  readonly mayBeNull: boolean;
  /** The column whose type, list of values and null it has: `members.role`. */
  readonly like: string | undefined;
  readonly doc: string | undefined;
};

export type Block = {
  /** File and line of its name. */
  readonly at: string;
  readonly name: string;
  readonly kind: Kind;
  readonly timeoutMs: string | undefined;
  readonly contract: readonly string[];
  readonly parameters: ReadonlyMap<string, Note>;
  /** The column, or the values, that a result column is like. */
  readonly results: ReadonlyMap<string, string>;
  /** Families of which it has some columns on purpose. */
  readonly notEach: readonly string[];
  readonly sql: string;
};

const blockStart = /^-- name: ([A-Z]\w*) :(one|optional|many|run)(?: timeout_ms=(\d+))?$/;
const fileTimeout = /^-- timeout_ms=(\d+)$/;
const parameterLine = /^-- :(\w+)(\[\]\?|\?)?(?: ([a-z_]\w*\.\w+)(?:\[\])?)?(?: {2}(.+))?$/;
const resultLine = /^-- =(\w+) ([a-z_]\w*\.\w+|'\w*'(?: \| '\w*')*)$/;
const notEachLine = /^-- not each: (\w+(?:, \w+)*) {2}\S/;

/** Reads the blocks of a file. Throws an Error with file and line for what is none. */
export function readBlocks(path: string, text: string): Block[] {
  const lines = text.split("\n");
  const starts = lines.flatMap((line, index) => (line.startsWith("-- name:") ? [index] : []));
  const preamble = lines.slice(0, starts[0] ?? lines.length);
  const stray = preamble.findIndex((line) => line !== "" && !line.startsWith("--"));
  if (stray >= 0) throw fault(`${path}:${stray + 1}`, "a statement needs a first line `-- name:`");
  const timeoutMs = preamble.flatMap((line) => fileTimeout.exec(line)?.[1] ?? [])[0];
  const blocks = starts.map((start, index) =>
    readBlock(`${path}:${start + 1}`, lines.slice(start, starts[index + 1]), timeoutMs),
  );
  for (const [index, { at, name }] of blocks.entries())
    if (blocks.findIndex((one) => one.name === name) < index)
      throw fault(at, `a second block is named ${name}: rename one`);
  return blocks;
}

function readBlock(at: string, [first = "", ...rest]: string[], fileTimeoutMs?: string): Block {
  const [, name, kind, timeoutMs = fileTimeoutMs] = blockStart.exec(first) ?? [];
  if (name === undefined || !isKind(kind))
    throw fault(at, `${first}: write \`-- name: PascalCase :one|:optional|:many|:run\``);
  const end = rest.findIndex((line) => !line.startsWith("--"));
  const head = rest.slice(0, Math.max(end, 0));
  const parameters = new Map<string, Note>();
  const results = new Map<string, string>();
  const notEach: string[] = [];
  const contract = head.filter((line) => {
    if (line.startsWith("-- :")) {
      const [, parameter = "", nulls, like, doc] = parameterLine.exec(line) ?? [];
      if (parameter === "") throw fault(at, `unreadable: ${line}`);
      const note = { elementMayBeNull: nulls === "[]?", mayBeNull: nulls === "?", like, doc };
      parameters.set(parameter, note);
      return false;
    }
    if (line.startsWith("-- =")) {
      const [, column = "", values = ""] = resultLine.exec(line) ?? [];
      if (column === "") throw fault(at, `unreadable: ${line}`);
      results.set(column, values);
      return false;
    }
    const [, exempt] = notEachLine.exec(line) ?? [];
    if (exempt !== undefined) notEach.push(...exempt.split(", "));
    return exempt === undefined;
  });
  if (contract.length === 0) throw fault(at, `${name} needs a contract: what it does, as comment`);
  const sql = rest.slice(head.length).join("\n").trim().replace(/;$/, "");
  const lines = contract.map((line) => line.slice("-- ".length));
  return { at, name, kind, timeoutMs, contract: lines, parameters, results, notEach, sql };
}

function isKind(text: string | undefined): text is Kind {
  return text === "one" || text === "optional" || text === "many" || text === "run";
}

function fault(at: string, message: string): Error {
  return new Error(`${at}: ${message}`);
}

// Comments, texts, quoted names, casts, and parameters outside of these.
const token = /--[^\n]*|'(?:[^']|'')*'|"[^"]*"|\$\$[\s\S]*?\$\$|::|(?<![\w\]]):([a-z]\w*)/g;

type Bound = {
  /** With `$1` for the first name. */
  readonly text: string;
  readonly names: readonly string[];
  /** Result columns that are said to be null never (`!`) or at times (`?`). */
  readonly marks: ReadonlyMap<string, string>;
};

/** Numbers the parameters of a statement in the order of their first use. */
export function bindParameters(sql: string): Bound {
  const names: string[] = [];
  const marks = new Map<string, string>();
  const text = sql.replace(token, (whole: string, name: string | undefined) => {
    if (name !== undefined) {
      if (!names.includes(name)) names.push(name);
      return `$${names.indexOf(name) + 1}`;
    }
    const [, column, mark] = /^"(\w+)([!?])"$/.exec(whole) ?? [];
    if (column === undefined || mark === undefined) return whole;
    marks.set(column, mark);
    return column === "family" ? `"family"` : column;
  });
  return { text, names, marks };
}

/** The text of a statement without its comments and the contents of its strings. */
const bareText = (sql: string) => sql.replace(/--[^\n]*|'(?:[^']|'')*'/g, " ");

/** What a text has outside of its brackets. */
function withoutBrackets(text: string): string {
  const outer = text.replace(/\([^()]*\)/g, " ");
  return outer === text ? text : withoutBrackets(outer);
}

type Column = {
  readonly table: string;
  readonly name: string;
  readonly type: number;
  readonly isNotNull: boolean;
  /** The values of a check `in (…)`. */
  values?: readonly string[];
};

type Field = {
  readonly name: string;
  readonly dataTypeID: number;
  readonly tableID: number;
  readonly columnID: number;
};

type Description = { readonly fields: readonly Field[]; readonly parameters: readonly number[] };

/** Asks the server what a statement takes and returns. Pass it to `Client.query`. */
class Describe implements Submittable {
  readonly #text: string;
  readonly #settle = Promise.withResolvers<Description>();
  #fields: readonly Field[] = [];
  #parameters: readonly number[] = [];

  constructor(text: string) {
    this.#text = text;
  }

  get description(): Promise<Description> {
    return this.#settle.promise;
  }

  submit(connection: Connection): void {
    connection.once("parameterDescription", ({ dataTypeIDs }: { dataTypeIDs: number[] }) => {
      this.#parameters = dataTypeIDs;
    });
    const messages = [
      serialize.parse({ text: this.#text }),
      serialize.describe({ type: "S" }),
      serialize.sync(),
    ];
    connection.stream.write(Buffer.concat(messages));
  }

  handleRowDescription({ fields }: { fields: readonly Field[] }): void {
    this.#fields = fields;
  }

  handleReadyForQuery(): void {
    this.#settle.resolve({ fields: this.#fields, parameters: this.#parameters });
  }

  handleError(error: Error): void {
    this.#settle.reject(error);
  }
}

const rowTypes: Readonly<Record<string, string>> = {
  bool: "boolean",
  int2: "number",
  int4: "number",
  float8: "number",
  int8: "bigint",
  numeric: "string",
  text: "string",
  name: "string",
  date: "string",
  timestamptz: "Date",
  bytea: "Buffer",
  json: "Json",
  jsonb: "Json",
};
const parameterTypes = {
  ...rowTypes,
  int8: "bigint | number",
  numeric: "string | bigint",
  timestamptz: "Date | string",
  json: "string",
  jsonb: "string",
};

/** What PostgreSQL runs and cannot describe. */
const utility = /^(begin|commit|rollback|set|savepoint|lock)\b/i;

const kebab = (name: string) => name.replace(/(?<!^)([A-Z])/g, "-$1").toLowerCase();
const union = (values: readonly string[]) => values.map((one) => JSON.stringify(one)).join(" | ");
const arrayOf = (type: string) => (/^\w+$/.test(type) ? `${type}[]` : `(${type})[]`);

/** The schema of a database, and what it says of statements. */
class Schema {
  readonly #client: Client;
  /** By table and number, as a row description names them. */
  readonly #columns: ReadonlyMap<string, Column>;
  readonly #types: ReadonlyMap<number, string>;
  readonly #families: typeof families;

  constructor(
    client: Client,
    columns: ReadonlyMap<string, Column>,
    types: ReadonlyMap<number, string>,
    of: typeof families,
  ) {
    this.#client = client;
    this.#columns = columns;
    this.#types = types;
    this.#families = of;
  }

  /** Every table and view, with its columns in their order. */
  get tables(): ReadonlyMap<string, readonly Column[]> {
    return Map.groupBy(this.#columns.values(), ({ table }) => table);
  }

  /** The constant for a block, as source. Throws an Error with file and line of the block. */
  async render(folder: string, block: Block): Promise<string> {
    const { at, name, kind, contract } = block;
    const { text, names, marks } = bindParameters(block.sql);
    const bare = bareText(text);
    this.#checkForm(block, bare);
    const { fields, parameters } = utility.test(text)
      ? { fields: [], parameters: [] }
      : await this.#describe(text).catch((error: Error) => {
          throw fault(at, error.message);
        });
    for (const one of block.parameters.keys())
      if (!names.includes(one)) throw fault(at, `${name} has no parameter :${one}`);
    for (const one of block.results.keys())
      if (!fields.some((field) => field.name === one))
        throw fault(at, `${name} returns no column ${one}`);
    const inputs = names.map((one, index) => this.#input(block, bare, one, parameters[index] ?? 0));
    const outputs = fields.map((field) => this.#output(block, bare, marks, field));
    const doubled = outputs.find((one, index) =>
      outputs.slice(0, index).some(({ name }) => name === one.name),
    );
    if (doubled) throw fault(at, `${name}: two columns are named ${doubled.name}`);
    const id = name[0]?.toLowerCase() + name.slice(1);
    const isRun = kind === "run";
    if (isRun !== (outputs.length === 0))
      throw fault(at, isRun ? `${name} returns rows: it is no :run` : `${name} returns no rows`);
    const row = outputs.map((one) => `${camelCase(one.name)}: ${one.type}`).join("; ");
    const input = names.length === 0 ? "undefined" : `{ ${inputs.join("; ")} }`;
    const nullable = outputs.flatMap((one) => (one.mayBeNull ? [camelCase(one.name)] : []));
    const literal = outputs.map((one, index) => `${camelCase(one.name)}: v[${index}]`).join(", ");
    const values = names.map((one) => `p.${camelCase(one)}`).join(", ");
    const sent = `-- ${folder}/${kebab(name)}\n${text}`;
    const args = [
      JSON.stringify(`${folder}/${kebab(name)}`),
      `\`${sent.replace(/[\\`]|\$\{/g, "\\$&")}\``,
      names.length === 0 ? "() => []" : `(p) => [${values}]`,
      ...(isRun ? [] : [`(v) => ({ ${literal} }) as never`, JSON.stringify(nullable.join(" "))]),
      ...(block.timeoutMs === undefined ? [] : [block.timeoutMs]),
    ];
    const docs = [...block.parameters].flatMap(([one, { doc }]) =>
      doc === undefined ? [] : [`\`${camelCase(one)}\`: ${doc}`],
    );
    const type = kind[0]?.toUpperCase() + kind.slice(1);
    return [
      ...(isRun ? [] : [`export type ${name}Row = { ${row} };`]),
      `/**\n${[...contract, ...docs].map((line) => ` * ${line}`.trimEnd()).join("\n")}\n */`,
      `export const ${id}: ${type}<${input}${isRun ? "" : `, ${name}Row`}> = ${kind}(`,
      ...args.map((one) => `  ${one},`),
      ");\n",
    ].join("\n");
  }

  /** A type for the rows of each table, for lists of columns that have to be whole. */
  renderTables(): string {
    const types = [...this.tables].map(([table, columns]) => {
      const name = camelCase(`_${table}`);
      const members = columns.map((column) => {
        const type = this.#typeOf(column.type, rowTypes, `table ${table}`).one;
        const one = column.values ? union(column.values) : type;
        const whole = this.#isArray(column.type) ? arrayOf(one) : one;
        return `${camelCase(column.name)}: ${whole}${column.isNotNull ? "" : " | null"}`;
      });
      return `export type ${name}Row = { ${members.join("; ")} };\n`;
    });
    return [
      header("the migrations"),
      `import type { Json } from "../../src/postgres/statement.ts";\n`,
    ]
      .concat(types)
      .join("\n");
  }

  async #describe(text: string): Promise<Description> {
    return this.#client.query(new Describe(text)).description;
  }

  #checkForm({ at, name, sql, notEach }: Block, bare: string): void {
    // In brackets it is of a part whose columns the rest of the statement chooses by name.
    if (/\b(select|returning|distinct)\s+\*|,\s*\*|\w\.\*/i.test(withoutBrackets(bare)))
      throw fault(at, `${name}: write the columns in place of *`);
    if (/\b(public|pg_temp)\./.test(bare))
      throw fault(at, `${name}: name no schema, the session's search path finds the tables`);
    if (/(?<!["\w])family(?!["\w])/.test(bare))
      throw fault(at, `${name}: write "family" in quotes, it is a reserved word elsewhere`);
    for (const [family, columns] of Object.entries(this.#families)) {
      if (notEach.includes(family)) continue;
      const counts = columns.map(
        (column) => [...bare.matchAll(new RegExp(`(?<![\\w])"?${column}"?(?!\\w)`, "g"))].length,
      );
      const used = counts.filter((count) => count > 0).length;
      const missing = columns.filter((_, index) => counts[index] !== Math.max(...counts));
      if (used >= 2 && missing.length > 0)
        throw fault(
          at,
          `${name} has the family ${family} without ${missing.join(", ")}: add it, or write ` +
            `\`-- not each: ${family}  the reason\``,
        );
    }
    if (sql === "") throw fault(at, `${name} has no text`);
  }

  #input(block: Block, bare: string, name: string, type: number): string {
    const where = `${block.at} :${name}`;
    const note = block.parameters.get(name);
    const { isArray, one } = this.#typeOf(type, parameterTypes, where);
    const own = this.#tablesIn(bare);
    const like = note?.like === undefined ? undefined : this.#find(note.like, where);
    const known = like ? [like] : own.filter((column) => column.name === name && column.values);
    const unions = [...new Set(known.flatMap(({ values }) => (values ? [union(values)] : [])))];
    if (unions.length > 1)
      throw fault(
        where,
        `it may be ${unions.join(" or ")}: say which, as \`-- :${name} table.column\``,
      );
    const single = one === "string" ? (unions[0] ?? one) : one;
    const element = note?.elementMayBeNull ? `${single} | null` : single;
    const mayBeNull = note?.mayBeNull === true || like?.isNotNull === false;
    const whole = isArray ? `readonly ${arrayOf(element)}` : element;
    return `${camelCase(name)}: ${whole}${mayBeNull ? " | null" : ""}`;
  }

  #output(
    { at, name, results }: Block,
    bare: string,
    marks: ReadonlyMap<string, string>,
    field: Field,
  ): { readonly name: string; readonly type: string; readonly mayBeNull: boolean } {
    if (field.name === "?column?") throw fault(at, `${name} has a column without a name`);
    const where = `${at} ${field.name}`;
    const origin = this.#columns.get(`${field.tableID}/${field.columnID}`);
    const said = results.get(field.name);
    const { isArray, one } = this.#typeOf(field.dataTypeID, rowTypes, where);
    const values = said === undefined ? origin?.values : this.#valuesOf(said, where);
    const single = values ? union(values) : one;
    const mark = marks.get(field.name);
    if (mark === undefined && !origin)
      throw fault(where, `computed: write as "${field.name}!" or as "${field.name}?"`);
    if (
      mark === undefined &&
      origin?.isNotNull &&
      /\b(left|right|full)\s+(outer\s+)?join\b/i.test(bare)
    )
      throw fault(where, `an outer join: write as "${field.name}!" or as "${field.name}?"`);
    const mayBeNull = mark === undefined ? !origin?.isNotNull : mark === "?";
    const type = `${isArray ? arrayOf(single) : single}${mayBeNull ? " | null" : ""}`;
    return { name: field.name, type, mayBeNull };
  }

  #valuesOf(said: string, where: string): readonly string[] {
    if (said.startsWith("'")) return said.split(" | ").map((one) => one.slice(1, -1));
    const { values } = this.#find(said, where);
    if (!values) throw fault(where, `${said} has no list of values`);
    return values;
  }

  #find(name: string, where: string): Column {
    for (const column of this.#columns.values())
      if (`${column.table}.${column.name}` === name) return column;
    throw fault(where, `there is no column ${name}`);
  }

  #tablesIn(bare: string): Column[] {
    return [...this.tables].flatMap(([table, columns]) =>
      new RegExp(`\\b${table}\\b`).test(bare) ? columns : [],
    );
  }

  #isArray(type: number): boolean {
    return this.#types.get(type)?.startsWith("_") === true;
  }

  #typeOf(type: number, map: Readonly<Record<string, string>>, where: string) {
    const name = this.#types.get(type) ?? String(type);
    const isArray = name.startsWith("_");
    const one = map[isArray ? name.slice(1) : name];
    if (one === undefined) throw fault(where, `no type stands for ${name}`);
    return { isArray, one };
  }
}

/** Reads the schema of the database of this connection. `of`: the families of its columns. */
export async function readSchema(client: Client, of = families): Promise<Schema> {
  type ColumnRow = {
    table_id: number;
    number: number;
    table: string;
    name: string;
    type: number;
    is_not_null: boolean;
  };
  const { rows } = await client.query<ColumnRow>(`
    select a.attrelid::int as table_id, a.attnum as number, c.relname::text as table,
      a.attname::text as name, a.atttypid::int as type, a.attnotnull as is_not_null
    from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p', 'v')
      and c.relnamespace = current_schema()::regnamespace and not c.relispartition
    order by c.relname, a.attnum`);
  const columns = new Map<string, Column>(
    rows.map(({ table_id, number, is_not_null: isNotNull, ...column }) => [
      `${table_id}/${number}`,
      { ...column, isNotNull },
    ]),
  );
  const { rows: checks } = await client.query<{ table_id: number; keys: number[]; text: string }>(`
    select conrelid::int as table_id, conkey as keys, pg_get_constraintdef(oid) as text
    from pg_constraint
    where contype = 'c' and conrelid <> 0`);
  for (const { table_id, keys, text } of checks) {
    const [, list] = /^CHECK \(\(\(?"?\w+"?\)? = ANY \(ARRAY\[(.*)\]\)\)\)$/.exec(text) ?? [];
    const column = columns.get(`${table_id}/${keys[0]}`);
    if (list === undefined || keys.length > 1 || !column) continue;
    const values = [...list.matchAll(/'((?:[^']|'')*)'::text/g)].flatMap(([, one]) => one ?? []);
    if (values.length > 0) column.values = values;
  }
  const { rows: types } = await client.query<{ oid: number; name: string }>(
    "select oid::int as oid, typname::text as name from pg_type",
  );
  return new Schema(client, columns, new Map(types.map(({ oid, name }) => [oid, name])), of);
}

/** Every file of statements, in order. */
export function readFiles(): { folder: string; path: string; blocks: Block[] }[] {
  const files = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((path) => /^\w[\w-]*\/sql\/[\w-]+\.sql$/.test(path))
    .sort();
  return files.map((path) => {
    const file = join("src", path);
    const blocks = readBlocks(file, readFileSync(join(root, file), "utf8"));
    return { folder: path.split("/")[0] ?? "", path, blocks };
  });
}

const header = (of: string) => `// Made of ${of} by \`npm run generate\`. Do not edit.\n`;

/** Writes `sql/` in the folder `out`, from the statements of `src` and the database at `url`. */
export async function generate(url: string, out: string): Promise<void> {
  const { client } = await new Servers(url).connect();
  try {
    const schema = await readSchema(client);
    mkdirSync(join(out, "sql"), { recursive: true });
    writeFileSync(join(out, "sql/tables.ts"), schema.renderTables());
    for (const [folder, files] of Map.groupBy(readFiles(), ({ folder }) => folder)) {
      const sources: string[] = [];
      for (const { path, blocks } of files) {
        sources.push(`// ${basename(path)}\n`);
        for (const block of blocks) sources.push(await schema.render(folder, block));
      }
      const body = sources.join("\n");
      const kinds = ["Json", "Many", "many", "One", "one", "Optional", "optional", "Run", "run"];
      const used = kinds.filter((kind) => new RegExp(`\\b${kind}\\b[<(; |[]`).test(body));
      const imports = used.map((kind) => (/^[A-Z]/.test(kind) ? `type ${kind}` : kind)).join(", ");
      writeFileSync(
        join(out, `sql/${folder}.ts`),
        `${header(`src/${folder}/sql`)}\nimport { ${imports} } from ` +
          `"../../src/postgres/statement.ts";\n\n${body}`,
      );
    }
  } finally {
    await client.end();
  }
}

if (process.argv[1] === import.meta.filename) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-generate-"));
  const embedded = await startEmbedded(folder, createLog("error"), {
    templates: templateFolder,
    settings: ["fsync=off"],
  });
  try {
    await migrate(embedded.url);
    await generate(embedded.url, join(root, "gen"));
  } finally {
    await embedded.stop();
    rmSync(folder, { recursive: true, force: true });
  }
  console.log(`wrote ${relative(process.cwd(), join(root, "gen/sql"))}`);
}
