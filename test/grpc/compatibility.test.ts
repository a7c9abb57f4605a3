// Compares the protos with those of the last release: clients of that release must go on working.

import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const root = join(import.meta.dirname, "../..");
/** The descriptors of the last release. The first release makes this file. */
const released = join(root, "proto/released.binpb");

const env = { ...process.env, PATH: `${join(root, "node_modules/.bin")}:${process.env.PATH}` };
const run = async (command: string, args: string[], cwd = root): Promise<string> =>
  (await promisify(execFile)(command, args, { cwd, env })).stdout;

/** The findings of `buf breaking` for the protos in `folder`, compared with `image`. */
function findBreaks(folder: string, image: string): Promise<string> {
  return run("buf", ["breaking", "proto", "--against", image], folder).catch(
    (error) => String(error.stdout) || String(error.stderr),
  );
}

test("no released service, method, message, field or value is removed or changed", async ({
  skip,
}) => {
  const tags = await run("git", ["tag", "--list", "v*"]);
  if (tags === "" && !existsSync(released))
    skip("there is no release yet, so the protos may change freely");
  expect(await findBreaks(root, released)).toBe("");
});

test("a removed field and a renamed method are found", async () => {
  const copy = mkdtempSync(join(tmpdir(), "gateway-protos-"));
  onTestFinished(() => rmSync(copy, { recursive: true }));
  const before = join(copy, "before.binpb");
  await run("buf", ["build", "proto", "--exclude-source-info", "--output", before]);
  for (const name of ["buf.yaml", "proto", "third_party"])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  const keys = join(copy, "proto/gateway/keys/v1/keys.proto");
  const changed = readFileSync(keys, "utf8")
    .replace(/^ {2}string hint = 2;$/m, "")
    .replace("rpc RevokeKey(", "rpc DropKey(");
  writeFileSync(keys, changed);
  const found = await findBreaks(copy, before);
  expect(found).toContain('"hint"');
  expect(found).toContain('"RevokeKey"');
});
