// Runs before each file of tests: from now on, every JSON answer of our HTTP listener that is not
// what /openapi.json says fails its test, and so does a request that is served although the
// document refuses it.

import { afterAll, afterEach } from "vitest";
import { throwFault } from "./observe-answers.ts";

afterEach(throwFault);
afterAll(throwFault);
