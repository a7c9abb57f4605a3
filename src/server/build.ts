// `npm run build`: bundles the program and the page of the console ahead, for fast starts. A
// gateway with other sources than these ignores the result.

import { writeBundle as writeConsole } from "../console/bundle.ts";
import { writeBundle } from "./bundle.ts";

console.log(`The program is in ${await writeBundle()}`);
console.log(`The page of the console is in ${await writeConsole()}`);
