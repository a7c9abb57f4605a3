import { expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { readCommandConfig } from "../../src/config/environment.ts";
import { startupErrorMessage } from "../../src/server/startup-error.ts";

test("a command names the database that it lost, and why, without its password", () => {
  const config = readCommandConfig({ DATABASE_URL: "postgres://user:hidden@127.0.0.1:1/ledger" });
  const cause = Object.assign(new Error("connect"), { code: "ECONNREFUSED" });
  expect(startupErrorMessage(new ApiError("database_unavailable", { cause }), config)).toBe(
    "cannot start: the database at 127.0.0.1:1 is not reachable (ECONNREFUSED); check DATABASE_URL",
  );
});
