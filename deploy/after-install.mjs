// What `npm install` does at the end. It removes what running does not need: the C headers and
// manuals of Node, 67 MB. It bundles the page of the console, so that no start and no first visitor
// waits for it; where that fails, the gateway bundles it when the page is first asked for.
//
// It begins with the Node that is there, so it is plain JavaScript of Node 20.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const modules = `${root}node_modules/`;
for (const name of readdirSync(modules))
  if (/^node-(bin-)?(linux|darwin|win)-/.test(name))
    for (const folder of ["include", "share"])
      rmSync(`${modules}/${name}/${folder}`, { recursive: true, force: true });

const installed = `${modules}.bin/node`;
const node = existsSync(installed) ? installed : process.execPath;
// Absent while an image installs packages before it copies the sources.
const build = `${root}src/console/build.ts`;
if (existsSync(build)) spawnSync(node, [build], { cwd: root, stdio: "ignore", timeout: 60_000 });
