// What `npm ci` and `npm install` do at the end, in a clone and of the package. It removes what running does not need: the C
// headers and manuals of Node, 67 MB. It bundles the program and the page of the console, makes the
// template of the embedded database, and compiles the bundle, so that no start and no first visitor
// waits for it. Where that fails, the gateway does without, or does it when it has to.
//
// It begins with the Node that is there, so it is plain JavaScript of Node 20.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
// The packages of an installed package are beside it.
const isPackage = /[\\/]node_modules[\\/][^\\/]+[\\/]$/.test(root);
const modules = isPackage ? dirname(root) : `${root}node_modules`;
for (const name of readdirSync(modules))
  if (/^node-(linux|darwin|win)-/.test(name))
    for (const folder of ["include", "share"])
      rmSync(`${modules}/${name}/${folder}`, { recursive: true, force: true });

// Absent while an image installs packages before it copies the sources.
if (existsSync(`${root}src`)) {
  const NODE_COMPILE_CACHE = `${root}node_modules/.cache/compiled`;
  const env = { ...process.env, NODE_COMPILE_CACHE };
  // The Node of a start: what another one compiled would be of no use to it. Windows has no shell.
  const [node, ...first] =
    process.platform === "win32" ? [process.execPath] : ["sh", "deploy/node.sh"];
  const run = (...args) =>
    spawnSync(node, [...first, ...args], { cwd: root, env, stdio: "ignore", timeout: 60_000 });
  // A package brings its bundles.
  if (isPackage)
    run("-e", 'await (await import("./server-bundle/make-template.js")).writeTemplate()');
  else run("src/server/build.ts");
  // With the flags of a start: V8 takes no code that was compiled with others.
  const { scripts } = JSON.parse(readFileSync(`${root}package.json`, "utf8"));
  const flags = scripts.start.split(" ").filter((word) => word.startsWith("--"));
  run(
    ...flags,
    "-e",
    'await import("./server-bundle/run.js"); await import("./server-bundle/gateway.js")',
  );
}
