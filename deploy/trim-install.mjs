// Removes what npm brought and running does not need: the C headers and manuals of Node, 67 MB.
// `npm install` runs it with the Node that is there, so it is plain JavaScript of Node 20.

import { readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const modules = fileURLToPath(new URL("../node_modules/", import.meta.url));
for (const name of readdirSync(modules))
  if (/^node-(bin-)?(linux|darwin|win)-/.test(name))
    for (const folder of ["include", "share"])
      rmSync(`${modules}/${name}/${folder}`, { recursive: true, force: true });
