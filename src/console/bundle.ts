// The page of the console, bundled from its sources by esbuild. `npm install` and `npm run
// build` do it ahead; otherwise, or when a source has changed since, the gateway does it
// when the page is first asked for. Nothing is written then.

import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import type { BuildOptions, Metafile, Plugin } from "esbuild";
import { describeMessages } from "./describe-messages.ts";

const root = join(import.meta.dirname, "../..");
const web = join(import.meta.dirname, "web");
/** What `npm run build` writes. Git ignores it. */
const builtFolder = join(root, "console-bundle");

/** A file that never changes: its name has a hash of its content. */
export type Asset = {
  readonly type: string;
  readonly content: Buffer;
  /** Absent until they are ready, some milliseconds after the bundle. */
  compressed?: { readonly br: Buffer; readonly gzip: Buffer };
};

export type Bundle = {
  /**
   * The page of every address of the console. It names the assets that everybody loads. Those of
   * operators are loaded by need.
   */
  readonly html: string;
  /** The same for people who are signed in: they see the frame of all pages before it runs. */
  readonly framedHtml: string;
  /** By the path at which they are served. */
  readonly assets: ReadonlyMap<string, Asset>;
};

let bundle: Promise<Bundle> | undefined;
let building: Promise<unknown> | undefined;

/** The bundle, made once in each process. Rejects if that is not possible. */
export function loadBundle(): Promise<Bundle> {
  bundle ??= readBuilt()
    .then((built) => built ?? buildOnce())
    .catch((error: unknown) => {
      // The next caller tries again: the machine may only have been out of something.
      bundle = undefined;
      throw error;
    });
  return bundle;
}

/** Settles, and never rejects, when the bundler has ended. Undefined: it does not run. */
export function bundleInProgress(): Promise<unknown> | undefined {
  return building;
}

function buildOnce(): Promise<Bundle> {
  const made = build();
  building = made
    .catch(() => undefined)
    .finally(() => {
      building = undefined;
    });
  return made;
}

/** Where pages hear of changed sources. Present while `watchSources` watches them. */
export let changes: EventTarget | undefined;

/** Bundles again whenever a source changes, for people who work on the page. */
export async function watchSources(): Promise<void> {
  const esbuild = await import("esbuild");
  const target = new EventTarget();
  changes = target;
  const context = await esbuild.context({
    ...settings,
    minify: false,
    sourcemap: "inline",
    plugins: [
      ...settings.plugins,
      {
        name: "keep",
        setup: ({ onEnd }) =>
          onEnd(({ outputFiles = [], metafile, errors }) => {
            if (errors.length > 0 || !metafile) return;
            const reload = '<script type="module" src="/console/dev.js"></script>';
            bundle = toBundle({ outputFiles, metafile }, reload);
            target.dispatchEvent(new Event("change"));
          }),
      },
    ],
  });
  await context.watch();
}

/** Writes the bundle and the hash of its sources. Resolves with the folder. */
export async function writeBundle(folder = builtFolder): Promise<string> {
  const sources = hashSources();
  const { html, framedHtml, assets } = await build();
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  for (const [path, { type, content: bundled }] of assets) {
    const file = join(folder, basename(path));
    const content = type === types.js ? await shrink(bundled) : bundled;
    const { br, gzip } = await compress(content, best);
    await Promise.all([
      writeFile(file, content),
      writeFile(`${file}.br`, br),
      writeFile(`${file}.gz`, gzip),
    ]);
  }
  // Last: without it, nothing of the folder counts.
  const about = { sources, html, framedHtml, assets: [...assets.keys()] };
  await writeFile(join(folder, "bundle.json"), JSON.stringify(about));
  return folder;
}

const main = join(web, "main.tsx");
const byNeed = "by need";

const settings = {
  entryPoints: {
    main,
    theme: join(web, "theme.css"),
    first: join(web, "first-theme.ts"),
    // Of the documents, which have the theme, too.
    docs: join(web, "docs.css"),
    "docs-copy": join(web, "docs-copy.ts"),
  },
  outdir: "/console/assets",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  // What is imported by need is a file of its own, and so is what it shares with the rest.
  splitting: true,
  metafile: true as const,
  write: false as const,
  format: "esm" as const,
  target: "es2023",
  minify: true,
  // Fewer bytes than escapes.
  charset: "utf8" as const,
  legalComments: "none" as const,
  jsx: "automatic" as const,
  jsxImportSource: "preact",
  logLevel: "silent" as const,
  plugins: [describeMessages(root, web), shareOneFile()],
} satisfies BuildOptions;

/**
 * A bundler puts what two files share in a file of its own, so that a page whose parts are loaded
 * by need would begin with a file for each combination of them. Here each such part imports the
 * whole page that loads it, and the page has everything in `parts/`, which several pages show. So
 * all of that is shared by all of them, and it is one file, which is compressed better than many.
 */
function shareOneFile(): Plugin {
  return {
    name: "share-one-file",
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /\.tsx?$/ }, ({ kind, path, resolveDir }) =>
        kind === "dynamic-import"
          ? { path: join(resolveDir, path), pluginData: byNeed }
          : undefined,
      );
      onLoad({ filter: /\.tsx?$/ }, async ({ path, pluginData }) => {
        const isNeeded = pluginData === byNeed;
        if (!isNeeded && path !== main) return undefined;
        const shared = isNeeded ? [main] : globSync(join(web, "parts/*"));
        const imports = shared.map((file) => `import ${JSON.stringify(file)};`).join("");
        return { contents: `${await readFile(path, "utf8")}${imports}`, loader: "tsx" };
      });
    },
  };
}

async function build(): Promise<Bundle> {
  // Imported by need: a gateway with a built bundle does without.
  const esbuild = await import("esbuild");
  const result = await esbuild.build(settings);
  // Its process would stay for as long as ours.
  await esbuild.stop();
  return toBundle(result);
}

/** The bundle that was made ahead. Undefined: there is none, or not of these sources. */
export async function readBuilt(folder = builtFolder): Promise<Bundle | undefined> {
  const text = await readFile(join(folder, "bundle.json"), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  const { sources, html, framedHtml, assets } = Object(JSON.parse(text));
  if (sources !== hashSources() || !Array.isArray(assets)) return undefined;
  if (typeof html !== "string" || typeof framedHtml !== "string") return undefined;
  const entries = assets.map(async (path: unknown) => {
    const file = join(folder, basename(String(path)));
    const [content, br, gzip] = await Promise.all([
      readFile(file),
      readFile(`${file}.br`),
      readFile(`${file}.gz`),
    ]);
    return [
      String(path),
      { type: typeOf(String(path)), content, compressed: { br, gzip } },
    ] as const;
  });
  return { html, framedHtml, assets: new Map(await Promise.all(entries)) };
}

/** Of the page, what it imports, and the versions of the packages. */
function hashSources(): string {
  const hash = createHash("sha256");
  const files = globSync(
    [
      "src/console/web/**/*.*",
      "src/console/*.ts",
      "src/base/token-categories.ts",
      "src/base/shown-figures.ts",
      "src/base/model-facts.ts",
      "src/base/cost.ts",
      "src/base/money.ts",
      "gen/**/*.ts",
      "package.json",
    ],
    { cwd: root },
  );
  for (const file of files.sort()) {
    hash.update(`${file}\0`);
    hash.update(readFileSync(join(root, file)));
  }
  return hash.digest("hex");
}

type Built = {
  readonly outputFiles: readonly { readonly path: string; readonly contents: Uint8Array }[];
  readonly metafile: Metafile;
};

async function toBundle({ outputFiles, metafile }: Built, scripts = ""): Promise<Bundle> {
  const assets = new Map(
    outputFiles.map(({ path, contents }) => [path, toAsset(path, Buffer.from(contents))]),
  );
  // The entry does nothing but import the one file that all share: the page begins with that.
  const [entry = "", shared = ""] = filesOfEntry(metafile, "main.tsx");
  assets.delete(entry);
  const [theme = ""] = filesOfEntry(metafile, "theme.css");
  const [first = ""] = filesOfEntry(metafile, "first-theme.ts");
  const page = await readFile(join(web, "index.html"), "utf8");
  const html = page
    .replace("main.tsx", shared)
    .replace("theme.css", theme)
    .replace("first-theme.ts", first)
    .replace("</html>", `${scripts}</html>`);
  const frame = await readFile(join(web, "first-frame.html"), "utf8");
  const place = '<div id="app">';
  return { html, framedHtml: html.replace(place, place + frame), assets };
}

/** The path of an entry, then those of the files that it imports at its start. */
function filesOfEntry({ outputs }: Metafile, entry: string): string[] {
  const begin = Object.keys(outputs).find((name) => {
    const { entryPoint = "" } = outputs[name] ?? {};
    return basename(entryPoint) === entry;
  });
  const files = new Set(begin === undefined ? [] : [begin]);
  // A set is walked to its end, also over what is added meanwhile.
  for (const file of files)
    for (const { path, kind } of outputs[file]?.imports ?? [])
      if (kind === "import-statement") files.add(path);
  return [...files].map((file) => `${settings.outdir}/${basename(file)}`);
}

const types: Readonly<Record<string, string>> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
};

const typeOf = (path: string) => types[path.split(".").at(-1) ?? ""] ?? "";

function toAsset(path: string, content: Buffer): Asset {
  const asset: Asset = { type: typeOf(path), content };
  void compress(content, quick).then((compressed) => {
    asset.compressed = compressed;
  });
  return asset;
}

/**
 * A script without what esbuild leaves: it looks at one expression, terser at whole functions. That
 * saves 2.7 % of what is sent, and takes seconds.
 */
async function shrink(script: Buffer): Promise<Buffer> {
  const { minify } = await import("terser");
  const { code } = await minify(script.toString(), { module: true });
  return code === undefined ? script : Buffer.from(code);
}

/** Qualities of brotli. The best one saves a tenth, and takes two seconds: no start has them. */
const [quick, best] = [5, 11];

async function compress(content: Buffer, quality: number): Promise<{ br: Buffer; gzip: Buffer }> {
  const params = { [constants.BROTLI_PARAM_QUALITY]: quality };
  const [br, zipped] = await Promise.all([
    promisify(brotliCompress)(content, { params }),
    promisify(gzip)(content),
  ]);
  return { br, gzip: zipped };
}
