// A database template: the data of a cluster that was shut down, with the migrated database of a
// gateway, in one compressed file. A first start that unpacks one saves `initdb` and the
// migrations, two thirds of its time. It has no password: nobody can log in before one is set.

import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { deserialize, serialize } from "node:v8";
import { constants, zstdCompress, zstdDecompressSync } from "node:zlib";

const root = join(import.meta.dirname, "../../..");
/** Where `npm run build` keeps a template. Git ignores it. */
export const templateFolder = join(root, "database-template");

/** A folder, or a file with its content. Paths from the folder of the data. */
type Entry = readonly [path: string, content: Buffer | undefined];

/**
 * Of everything that decides what a template holds: the migrations and the code that runs them,
 * what that may import (test/layout.test.ts), and `programs`, the installed package of PostgreSQL.
 * The content and not its time: a file that was copied or unpacked may be older than what it
 * replaces.
 */
export function digestSources(programs: string, from = root): string {
  const hash = createHash("sha256").update(programs);
  const files = globSync("src/{base,config,postgres}/**/*.{ts,sql}", { cwd: from });
  for (const file of files.sort())
    hash.update(`\0${file}\0`).update(readFileSync(join(from, file)));
  return hash.digest("hex");
}

/** The template with this digest. Undefined: there is none, or its time has not come. */
export function findTemplate(folder: string, digest: string): string | undefined {
  const path = pathOf(folder, digest);
  const made = statSync(path, { throwIfNoEntry: false });
  // Rows have the time at which they were made. Nothing of a gateway may be before them.
  return made && Math.floor(made.mtimeMs) <= Date.now() ? path : undefined;
}

/**
 * Makes the files of the template in `folder`. Throws for a file that is not whole. Blocks the
 * thread for 60 ms: awaited one after another, the fifteen hundred files take three times as long.
 */
export function unpackTemplate(path: string, folder: string): void {
  const entries: Entry[] = deserialize(zstdDecompressSync(readFileSync(path), { chunkSize }));
  for (const [name, content] of entries)
    if (content === undefined) mkdirSync(join(folder, name), { mode: 0o700 });
    else writeFileSync(join(folder, name), content, { flag: "wx", mode: 0o600 });
}

// More than a template has. In the pieces of 16 kB that are the default, it takes 50 ms more.
const chunkSize = 2 ** 25;

/**
 * Packs the data in `cluster`, whose server has stopped, as the only template of `folder`. `left`:
 * names of files in `cluster` that stay out. Resolves with its path.
 */
export async function packTemplate(
  cluster: string,
  { folder, digest, left }: { folder: string; digest: string; left: readonly string[] },
): Promise<string> {
  const path = pathOf(folder, digest);
  const packed = await compress(serialize(await readEntries(cluster, left)));
  await mkdir(folder, { recursive: true });
  // Nobody finds a part of it.
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, packed, { flush: true });
  await rename(draft, path);
  for (const name of await readdir(folder))
    if (name !== basename(path)) await rm(join(folder, name), { recursive: true, force: true });
  return path;
}

function pathOf(folder: string, digest: string): string {
  return join(folder, `${digest}.zst`);
}

async function readEntries(cluster: string, left: readonly string[]): Promise<Entry[]> {
  const found = await readdir(cluster, { recursive: true, withFileTypes: true });
  const paths = new Map(
    found.map((one) => [join(one.parentPath, one.name).slice(cluster.length + 1), one]),
  );
  const contents = new Map<string, Buffer>();
  const entries: Entry[] = [];
  // A folder before what is in it.
  for (const [name, entry] of [...paths].sort(([one], [other]) => (one < other ? -1 : 1))) {
    if (left.includes(name)) continue;
    if (entry.isDirectory()) entries.push([name, undefined]);
    else if (entry.isFile())
      entries.push([name, onceOf(contents, readFileSync(join(cluster, name)))]);
    else throw new Error(`neither a file nor a folder: ${name}`);
  }
  return entries;
}

/** A third of the bytes are copies: each database begins as one. They are serialized once. */
function onceOf(contents: Map<string, Buffer>, content: Buffer): Buffer {
  const hash = createHash("sha256").update(content).digest("hex");
  const known = contents.get(hash) ?? content;
  contents.set(hash, known);
  return known;
}

function compress(bytes: Buffer): Promise<Buffer> {
  const params = {
    [constants.ZSTD_c_compressionLevel]: 12,
    // The databases share most of their content, at a distance of megabytes.
    [constants.ZSTD_c_enableLongDistanceMatching]: 1,
    // So that a damaged file is not unpacked.
    [constants.ZSTD_c_checksumFlag]: 1,
  };
  return promisify(zstdCompress)(bytes, { params });
}
