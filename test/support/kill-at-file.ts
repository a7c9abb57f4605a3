// Preloaded into a process with `node --import`: kills it with SIGKILL before a call of a function
// for files. KILL_AT names it, such as `writeFileSync 500`: before the 500th.

import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

const [name = "", count = ""] = (process.env.KILL_AT ?? "").split(" ");
let left = Number(count);

for (const functions of [fs, fs.promises]) {
  const original: unknown = Reflect.get(functions, name);
  if (typeof original !== "function") continue;
  Reflect.set(functions, name, (...args: unknown[]): unknown => {
    if (--left === 0) process.kill(process.pid, "SIGKILL");
    return Reflect.apply(original, functions, args);
  });
}
syncBuiltinESMExports();
