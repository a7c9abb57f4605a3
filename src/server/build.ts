// `npm run build`: bundles the program and the page of the console ahead, and makes the template of
// the embedded database, for fast starts. A gateway with other sources than these ignores the
// results.

import { writeBundle as writeConsole } from "../console/bundle.ts";
import { writeTemplate } from "../postgres/embedded/make-template.ts";
import { writeBundle } from "./bundle.ts";

console.log(`The program is in ${await writeBundle()}`);
console.log(`The page of the console is in ${await writeConsole()}`);
// Not on every machine there is an embedded PostgreSQL, and few need one.
const template = await writeTemplate().catch((error: Error) => error);
console.log(
  template instanceof Error
    ? `There is no template of a database: ${template.message}`
    : `The template of the embedded database is ${template}`,
);
