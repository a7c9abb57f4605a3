// `npm run build-console`: bundles the page of the console ahead, for images whose start should not
// need a bundler. A gateway with other sources than these ignores the result.

import { writeBundle } from "./bundle.ts";

console.log(`The bundle of the console is in ${await writeBundle()}`);
