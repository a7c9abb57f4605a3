// `npm run sign-in-link`: what the machine itself may do, and how many hashes run at once.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { createInstallation } from "../../src/people/people.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";

const program = join(import.meta.dirname, "../../src/cli/sign-in-link.ts");

test("the command prints a link that makes an operator, and ends the link before", async () => {
  await using stack = new AsyncDisposableStack();
  const database = stack.adopt(await freshDatabase(), (one) => one.drop());
  const { PATH, HOME, NODE_COMPILE_CACHE } = process.env;
  const env = {
    PATH,
    HOME,
    NODE_COMPILE_CACHE,
    DATABASE_URL: database.url,
    PUBLIC_URL: "https://gateway.example.com",
  };
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, [program, ...args], { env });
  const { postgres } = database;
  const installation = createInstallation({ postgres, publicUrl: () => new URL(env.PUBLIC_URL) });
  const { stdout, stderr } = await run();
  // No warning of an experimental feature, and nothing else either.
  expect(stderr).toBe("");
  const [link] = /https:\/\/gateway\.example\.com\/console\/welcome#[\w-]{43}/.exec(stdout) ?? [];
  expect(link).toBeDefined();
  const open = { name: "test/open", text: "select purpose from links where used_at is null" };
  expect(await query(database.postgres, open, [])).toEqual([{ purpose: "owner" }]);
  await installation.makeOwnerLink();
  expect(await query(database.postgres, open, [])).toHaveLength(1);
  expect(await installation.hasOperator()).toBe(false);
  await expect(run("--person", "per_nobody")).rejects.toMatchObject({
    code: 1,
    stderr: "there is no such person\n",
  });
});
