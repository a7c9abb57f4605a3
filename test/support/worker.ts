// Loaded once in each worker of a test run, which runs many suites.

import fc from "fast-check";
import { vi } from "vitest";
import { checkRows } from "../../src/postgres/statement.ts";

// A null where the type of a row has none fails its test.
checkRows();

// `npm test` tries the same values in each run; `npm run test:deep` tries new ones.
if (process.env.TEST_RUN !== "deep") fc.configureGlobal({ seed: 20_261_126 });

// `vi.waitFor` and `vi.waitUntil` wait as long as `expect.poll` does, unless a test says how long:
// their own default, a second, is short on a busy machine.
const { waitFor, waitUntil } = vi;
const atMost = { timeout: 60_000 };
vi.waitFor = (callback, options) =>
  waitFor(callback, typeof options === "number" ? options : { ...atMost, ...options });
vi.waitUntil = (callback, options) =>
  waitUntil(callback, typeof options === "number" ? options : { ...atMost, ...options });

/** Warnings of Node that are known, with the reason why nothing is wrong. */
const knownWarnings: readonly { readonly text: RegExp; readonly reason: string }[] = [
  {
    text: /^DeprecationWarning: Setting the TLS ServerName to an IP address/,
    reason: "grpc-js names the address it calls, where it is no name; Node does not send it",
  },
];

const unknownWarnings: Error[] = [];

process.on("warning", (warning) => {
  const text = `${warning.name}: ${warning.message}`;
  if (!knownWarnings.some((known) => known.text.test(text))) unknownWarnings.push(warning);
});

/** Throws the first warning since the last call that is not known. */
export function throwWarning(): void {
  const [first] = unknownWarnings.splice(0);
  if (first) throw new Error(`a warning of Node: ${first.message}`, { cause: first });
}
