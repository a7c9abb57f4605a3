// Runs before each suite while mutants are tried: skips the other tests once one has failed.

import { beforeEach } from "vitest";

let isKilled = false;

beforeEach(({ skip, onTestFailed }) => {
  if (isKilled) skip();
  onTestFailed(() => {
    isKilled = true;
  });
});
