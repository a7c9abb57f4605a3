// What `npm start` runs: the program, from its bundle if there is one of these sources.

import { enableCompileCache } from "node:module";
import { join } from "node:path";
import { findBundle } from "./server/bundle.ts";

// `npm start` finds a Node that suits. This one may have been chosen by hand.
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 24 || (major === 24 && minor < 7)) {
  console.error(`The gateway needs Node 24.7 or later, and this is ${process.version}.`);
  process.exit(1);
}

// Code that `npm install` and earlier starts have compiled: the imports below take half as long.
// Without a right to write there, as in an image, nothing is kept.
enableCompileCache(join(import.meta.dirname, "../node_modules/.cache/compiled"));

const bundle = findBundle();
await (bundle === undefined ? import("./server/program.ts") : import(bundle));
