// Runs before each file of tests: `vi.waitFor` and `vi.waitUntil` wait as long as `expect.poll`
// does, unless a test says how long. Their own default, a second, is short on a busy machine.

import { vi } from "vitest";

const { waitFor, waitUntil } = vi;
const patient = { timeout: 60_000 };

vi.waitFor = (callback, options) =>
  waitFor(callback, typeof options === "number" ? options : { ...patient, ...options });
vi.waitUntil = (callback, options) =>
  waitUntil(callback, typeof options === "number" ? options : { ...patient, ...options });
