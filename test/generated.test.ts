import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { longest } from "../gen/form-limits.ts";
import { KeySettingsSchema } from "../gen/gateway/keys/v1/keys_pb.ts";
import { writeFormLimits } from "../src/console/generate.ts";
import { readCredits, readWhole } from "../src/console/web/parts/bounds.ts";
import { limitsOf } from "../src/contract/limits.ts";

const root = join(import.meta.dirname, "..");
const folder = mkdtempSync(join(tmpdir(), "gateway-gen-"));
afterAll(() => rmSync(folder, { recursive: true }));

test("gen/ is what `npm run generate` makes of the protos", async () => {
  await promisify(execFile)("buf", ["generate", "--output", folder], {
    cwd: root,
    env: withTools(),
  });
  const ofProtos = Object.entries(readTree(join(root, "gen"))).filter(
    ([path]) => !path.startsWith("/sql/") && path !== "/form-limits.ts",
  );
  expect(Object.fromEntries(ofProtos)).toEqual(readTree(join(folder, "gen")));
});

test("gen/form-limits.ts has the limits of the protos", () => {
  expect(readFileSync(join(root, "gen/form-limits.ts"), "utf8")).toBe(writeFormLimits());
  expect(longest.name).toBe(limitsOf(KeySettingsSchema.field.name)?.lengthMax);
  expect(longest["SearchRequest.query"]).toBe(200);
});

test("a form refuses a number above the limit of its field, before it is sent", () => {
  const { requestsPerMinute, monthlyCapMicrocredits } = KeySettingsSchema.field;
  expect(readWhole("1,000,000", requestsPerMinute)).toBe(1_000_000);
  expect(() => readWhole("1,000,001", requestsPerMinute)).toThrow("1,000,000");
  expect(readCredits("9007199254.740992", monthlyCapMicrocredits)).toBe(2n ** 53n);
  expect(() => readCredits("9007199254.740993", monthlyCapMicrocredits)).toThrow();
});

function withTools(): NodeJS.ProcessEnv {
  return { ...process.env, PATH: `${join(root, "node_modules/.bin")}:${process.env.PATH}` };
}

function readTree(folder: string): Record<string, string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const paths = files.map((entry) => join(entry.parentPath, entry.name)).sort();
  return Object.fromEntries(
    paths.map((path) => [path.slice(folder.length), readFileSync(path, "utf8")]),
  );
}
