// For `node --import`: gives a program that calls the TypeScript compiler the one of another
// package, because TypeScript 7 has no such interface.

import { createRequire, registerHooks } from "node:module";
import { pathToFileURL } from "node:url";

const ours = createRequire(import.meta.url);
const theirs = createRequire(ours.resolve("@bufbuild/protoplugin")).resolve("typescript");
registerHooks({
  resolve: (name, context, next) =>
    next(name === "typescript" ? pathToFileURL(theirs).href : name, context),
});
