import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const folder = mkdtempSync(join(tmpdir(), "gateway-gen-"));
afterAll(() => rmSync(folder, { recursive: true }));

test("gen/ is what `npm run generate` makes of the protos", async () => {
  await promisify(execFile)("buf", ["generate", "--output", folder], {
    cwd: root,
    env: withTools(),
  });
  const ofProtos = Object.entries(readTree(join(root, "gen"))).filter(
    ([path]) => !path.startsWith("/sql/"),
  );
  expect(Object.fromEntries(ofProtos)).toEqual(readTree(join(folder, "gen")));
});

function withTools(): NodeJS.ProcessEnv {
  return { ...process.env, PATH: `${join(root, "node_modules/.bin")}:${process.env.PATH}` };
}

function readTree(folder: string): Record<string, string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const paths = files.map((entry) => join(entry.parentPath, entry.name)).sort();
  return Object.fromEntries(
    paths.map((path) => [path.slice(folder.length), readFileSync(path, "utf8")]),
  );
}
