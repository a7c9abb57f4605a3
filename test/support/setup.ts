// Runs before each file of tests: what holds for every suite.
//
// - A JSON answer of our HTTP listener that is not what /openapi.json says fails its test, and so
//   does a request that is served although the document refuses it.
// - A method that throws a reason that its comment does not name fails its suite.
// - A warning of Node fails its suite.

import { afterAll, afterEach, vi } from "vitest";
import type * as interceptor from "../../src/contract/interceptor.ts";
import { throwFault } from "./observe-answers.ts";
import { throwUndocumented } from "./observe-errors.ts";
import { throwWarning } from "./worker.ts";

// The mock is made here: of the modules that a worker shares, this one alone runs for each file.
vi.mock("../../src/contract/interceptor.ts", async (load) => {
  const { lookingAt } = await import("./observe-errors.ts");
  return lookingAt(await load<typeof interceptor>());
});

afterEach(throwFault);
afterAll(throwFault);
afterAll(throwUndocumented);
afterAll(throwWarning);
