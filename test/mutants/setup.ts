// Runs before each suite while mutants are tried: skips the other tests once one has failed, and
// looks for no smaller counterexample of a property.

import fc from "fast-check";
import { beforeEach } from "vitest";

fc.configureGlobal({ ...fc.readConfigureGlobal(), endOnFailure: true });

let isKilled = false;

beforeEach(({ skip, onTestFailed }) => {
  if (isKilled) skip();
  onTestFailed(() => {
    isKilled = true;
  });
});
