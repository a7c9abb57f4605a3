// Runs before each file of tests: what holds for every suite.
//
// - A JSON answer of our HTTP listener that is not what /openapi.json says fails its test, and so
//   does a request that is served although the document refuses it.
// - A warning of Node fails its suite.

import { afterAll, afterEach } from "vitest";
import { throwFault } from "./observe-answers.ts";
import { throwWarning } from "./worker.ts";

afterEach(throwFault);
afterAll(throwFault);
afterAll(throwWarning);
