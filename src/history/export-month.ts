// The export of a closed month: a folder with the lines of its charges and a manifest.
//
// The folder gets its name when all of it is written, read back from the disk and found to be what
// was closed. An export that is killed leaves a folder `.<month>.part-…`, which nobody takes for
// one.

import { createHash } from "node:crypto";
import { mkdir, mkdtemp, open, readFile, rename, rm } from "node:fs/promises";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import * as sql from "../../gen/sql/history.ts";
import type { OpenLedger } from "../postgres/open-ledger.ts";
import type { Runner } from "../postgres/statement.ts";
import type { Closing } from "./closing.ts";
import {
  blockLines,
  figureNames,
  firstPlace,
  lineForm,
  MonthDigest,
  placeOf,
  readFigures,
} from "./digest.ts";
import { HistoryError } from "./history-error.ts";
import { nameOfMonth } from "./months.ts";

const linesPerPage = 5_000;
const manifestName = "manifest.json";

/** What `manifest.json` has. Numbers that may be large are decimal texts. */
export type Manifest = {
  readonly format: "model-gateway charges";
  /** The form of the lines. */
  readonly version: number;
  /** `YYYY-MM`. */
  readonly month: string;
  readonly closedAt: string;
  readonly charges: string;
  /** Sums of members of the lines, by their names. */
  readonly sums: Readonly<Record<string, string>>;
  /** The digest of the closing: the SHA-256 of the SHA-256s of `blockLines` lines each. */
  readonly sha256: string;
  readonly blockLines: number;
  readonly file: string;
  readonly bytes: string;
  /** What `sha256sum` says of the file. */
  readonly fileSha256: string;
};

type Ledger = Pick<OpenLedger, "asOwner"> & { readonly postgres: Runner };

/**
 * Exports a closed month, `YYYY-MM-01`, into a folder of its name in `to`, and records that the
 * export was verified. Where that folder exists, verifies it. Returns its path and manifest. Throws
 * a `HistoryError` for a month that is open or whose charges were removed, and an Error for a
 * folder or charges that are not what was closed.
 */
export async function exportMonth(
  ledger: Ledger,
  { month, to }: { readonly month: string; readonly to: string },
): Promise<{ folder: string; manifest: Manifest }> {
  const name = nameOfMonth(month);
  const closing = await ledger.postgres.run(sql.findClosing, { month });
  if (!closing)
    throw new HistoryError(
      `${name} is open; npm run close-month -- --month ${name} closes it for good`,
    );
  await mkdir(to, { recursive: true });
  const folder = resolve(to, name);
  const found = await readManifest(folder);
  if (found === undefined) {
    if (closing.isDropped)
      throw new HistoryError(`the charges of ${name} were removed after an export`);
    if (closing.form !== lineForm)
      throw new HistoryError(
        `${name} was closed by another version of the gateway, whose lines have form ${closing.form}; export it with that one`,
      );
    await writeFolder(ledger.postgres, closing, folder);
  }
  const manifest = await verifyFolder(folder, closing);
  const archive = { month, sha256: closing.sha256, place: `${hostname()}:${folder}` };
  await ledger.asOwner((owner) => owner.run(sql.putArchive, archive));
  return { folder, manifest };
}

/** Reads an export from its folder, and compares it with its manifest and with its closing. */
async function verifyFolder(folder: string, closing: Closing): Promise<Manifest> {
  const manifest = await readManifest(folder);
  if (manifest === undefined) throw new Error(`${folder} has no ${manifestName}`);
  const file = join(folder, fileOf(closing.month));
  const actual = manifestOf(closing, await inspect(file));
  const isSame = JSON.stringify(manifest) === JSON.stringify(actual);
  if (!isSame) throw new Error(`${folder} is not what its ${manifestName} says`);
  compareWithClosing(file, actual, closing);
  return actual;
}

function compareWithClosing(file: string, manifest: Manifest, closing: Closing): void {
  const { charges, amountMicro, sha256 } = closing;
  const isSame =
    manifest.charges === String(charges) &&
    manifest.sums.amount === String(amountMicro) &&
    manifest.sha256 === sha256.toString("hex");
  if (isSame) return;
  throw new Error(
    `${file} is not what was closed: ${manifest.charges} charges of ${charges}, amount ` +
      `${manifest.sums.amount} of ${amountMicro}, SHA-256 ${manifest.sha256} of ` +
      sha256.toString("hex"),
  );
}

/** Undefined: there is no such folder. Throws an Error for one without a manifest. */
async function readManifest(folder: string): Promise<unknown> {
  try {
    const text = await readFile(join(folder, manifestName), "utf8");
    return JSON.parse(text);
  } catch (error) {
    if (isMissing(error) && (await isAbsent(folder))) return undefined;
    throw new Error(`${folder} has no readable ${manifestName}: move the folder away`, {
      cause: error,
    });
  }
}

async function isAbsent(folder: string): Promise<boolean> {
  return open(folder).then(
    (handle) => handle.close().then(() => false),
    (error: unknown) => isMissing(error),
  );
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

async function writeFolder(db: Runner, closing: Closing, folder: string): Promise<void> {
  const parent = resolve(folder, "..");
  const part = await mkdtemp(join(parent, `.${nameOfMonth(closing.month)}.part-`));
  try {
    const file = join(part, fileOf(closing.month));
    await writeDurably(file, linesOf(db, closing.month));
    const manifest = manifestOf(closing, await inspect(file));
    compareWithClosing(file, manifest, closing);
    await writeDurably(join(part, manifestName), [`${JSON.stringify(manifest, null, 2)}\n`]);
    await syncFolder(part);
    await rename(part, folder);
    await syncFolder(parent);
  } catch (error) {
    await rm(part, { recursive: true, force: true });
    throw error;
  }
}

/** The lines of a month, page by page. */
async function* linesOf(db: Runner, month: string): AsyncGenerator<string> {
  let place = firstPlace;
  for (let charges = linesPerPage; charges === linesPerPage; ) {
    const page = await db.run(sql.readLines, { month, ...place, rows: linesPerPage });
    charges = page.charges;
    yield page.lines ?? "";
    place = placeOf(page);
  }
}

/** Returns when the text is on the disk. */
async function writeDurably(
  path: string,
  texts: Iterable<string> | AsyncIterable<string>,
): Promise<void> {
  const handle = await open(path, "wx", 0o640);
  try {
    for await (const text of texts) await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path);
  await handle.sync().finally(() => handle.close());
}

type Inspected = {
  readonly charges: bigint;
  readonly sums: readonly bigint[];
  readonly sha256: string;
  readonly bytes: bigint;
  readonly fileSha256: string;
};

const lineFeed = 10;

/** Reads a file of lines from its first to its last byte. */
async function inspect(path: string): Promise<Inspected> {
  const digest = new MonthDigest();
  const whole = createHash("sha256");
  const sums: bigint[] = figureNames.map(() => 0n);
  let block = createHash("sha256");
  let linesOfBlock = 0;
  let charges = 0n;
  let bytes = 0n;
  let rest = Buffer.alloc(0);
  const take = (line: Buffer) => {
    const figures = readFigures(line.toString("utf8", 0, line.length - 1));
    if (!figures) throw new Error(`${path}:${charges + 1n}: not the line of a charge`);
    figures.forEach((figure, index) => {
      sums[index] = (sums[index] ?? 0n) + figure;
    });
    charges += 1n;
    block.update(line);
    linesOfBlock += 1;
    if (linesOfBlock < blockLines) return;
    digest.add(block.digest());
    block = createHash("sha256");
    linesOfBlock = 0;
  };
  const handle = await open(path);
  try {
    for await (const chunk of handle.createReadStream({ highWaterMark: 1 << 20 })) {
      const read = Buffer.concat([rest, chunk]);
      whole.update(chunk);
      bytes += BigInt(chunk.length);
      let start = 0;
      for (let end = read.indexOf(lineFeed); end >= 0; end = read.indexOf(lineFeed, start)) {
        take(read.subarray(start, end + 1));
        start = end + 1;
      }
      rest = read.subarray(start);
    }
  } finally {
    await handle.close();
  }
  if (rest.length > 0) throw new Error(`${path}: its last line has no end`);
  if (linesOfBlock > 0) digest.add(block.digest());
  return {
    charges,
    sums,
    bytes,
    sha256: digest.end().toString("hex"),
    fileSha256: whole.digest("hex"),
  };
}

const fileOf = (month: string) => `charges-${nameOfMonth(month)}.ndjson`;

function manifestOf({ month, closedAt }: Closing, found: Inspected): Manifest {
  return {
    format: "model-gateway charges",
    version: lineForm,
    month: nameOfMonth(month),
    closedAt: closedAt.toISOString(),
    charges: String(found.charges),
    sums: Object.fromEntries(
      figureNames.flatMap((name, index) => {
        const sum = found.sums[index] ?? 0n;
        // As in the lines, which had none before.
        return name === "web_searches" && sum === 0n ? [] : [[name, String(sum)]];
      }),
    ),
    sha256: found.sha256,
    blockLines,
    file: fileOf(month),
    bytes: String(found.bytes),
    fileSha256: found.fileSha256,
  };
}
