// The protos against those of the last release (`proto/released.binpb`): what clients were built
// for goes on to work.

import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const released = join(root, "proto/released.binpb");

/** What `buf breaking` finds in the module at `folder`. */
async function findBreaks(folder: string): Promise<string> {
  const path = `${join(root, "node_modules/.bin")}:${process.env.PATH}`;
  const judged = promisify(execFile)("buf", ["breaking", "--against", released], {
    cwd: folder,
    env: { ...process.env, PATH: path },
  });
  return judged.then(
    () => "",
    (error) => String(error.stdout) || String(error.stderr),
  );
}

test("no released service, method, message, field or value is gone or changed", async () => {
  expect(await findBreaks(root)).toBe("");
});

test("the judge notices a field that is gone and a method that is renamed", async () => {
  const copy = mkdtempSync(join(tmpdir(), "gateway-protos-"));
  onTestFinished(() => rmSync(copy, { recursive: true }));
  cpSync(join(root, "buf.yaml"), join(copy, "buf.yaml"));
  cpSync(join(root, "proto"), join(copy, "proto"), { recursive: true });
  const keys = join(copy, "proto/gateway/keys/v1/keys.proto");
  const changed = readFileSync(keys, "utf8")
    .replace(/^ {2}string hint = 2;$/m, "")
    .replace("rpc RevokeKey(", "rpc DropKey(");
  writeFileSync(keys, changed);
  const found = await findBreaks(copy);
  expect(found).toContain('"hint"');
  expect(found).toContain('"RevokeKey"');
});
