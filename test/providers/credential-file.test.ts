// Credentials in files, which somebody replaces while the gateway runs.

import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { keyAuthenticator } from "../../src/providers/endpoint.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring, passUntil } from "../support/clock.ts";
import { recordLog } from "../support/log.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeStream } from "../support/provider-answers.ts";
import { attemptsOf, openProviders, readAll, textOf } from "../support/providers.ts";

const oldKey = "old-credential-of-the-operator";
const newKey = "new-credential-of-the-operator";

let folder: string;
let path: string;
let provider: FakeProvider;
let clock: ManualClock;
let recorded: ReturnType<typeof recordLog>;
const opened: ManagedProviders[] = [];
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "credential-"));
  path = join(folder, "key");
  writeFileSync(path, oldKey);
  provider = await startFakeProvider();
  provider.always(nativeStream({ text: ["Hello"] }));
  clock = new ManualClock();
  recorded = recordLog();
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
  await provider.stop();
  rmSync(folder, { recursive: true });
});

const textWith = (file = path, kind: "anthropic" | "openai" = "anthropic") =>
  catalogFor({ real: { kind, url: provider.url, more: `credential_file: ${file}` } });

function open(text = textWith()): ManagedProviders {
  const providers = openProviders(text, { clock, log: recorded.log });
  opened.push(providers);
  return providers;
}

/** As tools do it: a reader sees the old content or the new one. */
function replace(content: string): void {
  writeFileSync(`${path}.next`, content);
  renameSync(`${path}.next`, path);
}

const messages = () => recorded.lines().map(({ msg }) => msg);
const hear = (message: string) =>
  passUntil(
    () => clock.advance(10_000),
    () => expect(messages()).toContain(message),
  );
const sentKeys = () => provider.requests.map(({ headers }) => headers["x-api-key"]);

test.for([oldKey, `${oldKey}\n`, `  ${oldKey}\r\n\n`])(
  "the credential is the only word of the file: %j",
  async (content) => {
    writeFileSync(path, content);
    await readAll(open(), "Hi");
    expect(sentKeys()).toEqual([oldKey]);
  },
);

test("a refused key is sent anew where another look has found the next one", async () => {
  const key = { value: oldKey, path, refresh: async () => false };
  const authenticator = keyAuthenticator(key, "x-api-key");
  const refused = { status: 401 };
  await authenticator.headers({ method: "POST", path: "/", headers: [], body: new Uint8Array() });
  expect(await authenticator.refresh?.(refused)).toBe(false);
  key.value = newKey;
  expect(authenticator.secrets()).toContain(newKey);
  expect(await authenticator.refresh?.(refused)).toBe(true);
});

test("kind openai sends it as Bearer", async () => {
  await readAll(open(textWith(path, "openai")), "Hi");
  expect(provider.requests[0]?.headers.authorization).toBe(`Bearer ${oldKey}`);
});

test("a replaced file changes the header, and not the connection", async () => {
  const providers = open();
  await readAll(providers, "Hi");
  replace(`${newKey}\n`);
  await readAll(providers, "Hi");
  await hear("new credential_file of real in use");
  const before = await provider.connections();
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([oldKey, oldKey, newKey]);
  expect(await provider.connections()).toBe(before);
});

test("a folder that a cluster replaces whole is noticed, too", async () => {
  for (const [name, key] of [
    ["one", oldKey],
    ["two", newKey],
  ] as const) {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, "key"), key);
  }
  const link = join(folder, "current");
  symlinkSync("one", link);
  const providers = open(textWith(join(link, "key")));
  unlinkSync(link);
  symlinkSync("two", link);
  await hear("new credential_file of real in use");
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([newKey]);
});

/** Takes one key alone. */
function accept(key: string): void {
  provider.always(({ headers }) =>
    headers["x-api-key"] === key
      ? nativeStream({ text: ["Hello"] })
      : errorAnswer(401, "authentication_error", `the key ${headers["x-api-key"]} is expired`),
  );
}

test("after a 401 the file is looked at, and the same attempt goes on with a new key", async () => {
  const providers = open();
  replace(newKey);
  accept(newKey);
  const outcome = await readAll(providers, "Hi");
  expect([textOf(outcome.events), attemptsOf(outcome), sentKeys()]).toEqual([
    "Hello",
    ["real delivered 200"],
    [oldKey, newKey],
  ]);
  expect(recorded.lines().filter(({ code }) => code !== undefined)).toEqual([]);
});

test("a 401 with nothing new in the file is sent once, and is an alarm without the key", async () => {
  const providers = open();
  accept(newKey);
  expect((await readAll(providers, "Hi")).apiError?.reason).toBe("upstream_error");
  expect(sentKeys()).toEqual([oldKey]);
  expect(messages()).toEqual(["the provider refuses our credential or account with status 401"]);
  expect(JSON.stringify([recorded.lines(), providers.conditions()])).not.toContain(oldKey);
});

test("keys of before and of now are in no log and no reason", async () => {
  const providers = open();
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([oldKey]);
  replace(newKey);
  await hear("new credential_file of real in use");
  provider.always(errorAnswer(500, "api_error", `${oldKey} or ${newKey}`));
  await passDuring(() => clock.endPause(2_000), readAll(providers, "Hi"));
  const said = JSON.stringify([recorded.lines(), providers.conditions()]);
  expect(said).toContain("[redacted] or [redacted]");
  expect(said).not.toMatch(/(old|new)-credential/);
});

test("under load, a key is replaced many times and every request has one of them", async () => {
  const providers = open();
  const keys = Array.from({ length: 10 }, (_, number) => `credential-number-${number}`);
  const known = new Set([oldKey, ...keys]);
  const answers: Promise<string>[] = [];
  for (const key of keys) {
    for (let call = 0; call < 20; call++)
      answers.push(readAll(providers, "Hi").then(({ events }) => textOf(events)));
    replace(key);
    await passUntil(
      () => clock.advance(10_000),
      async () => {
        await readAll(providers, "Hi");
        expect(sentKeys().at(-1)).toBe(key);
      },
    );
  }
  expect(new Set(await Promise.all(answers))).toEqual(new Set(["Hello"]));
  expect(sentKeys().filter((key) => typeof key !== "string" || !known.has(key))).toEqual([]);
});

const broken: readonly (readonly [string, (path: string) => void, string])[] = [
  ["is gone", (at) => unlinkSync(at), "the file cannot be read (ENOENT)"],
  ["is empty", (at) => writeFileSync(at, "\n"), "the file is empty"],
  [
    "holds two words",
    (at) => writeFileSync(at, "one two"),
    "the file holds more than one visible ASCII word",
  ],
  [
    "is a folder",
    (at) => {
      unlinkSync(at);
      mkdirSync(at);
    },
    "the file cannot be read (EISDIR)",
  ],
];

test.for(broken)("a file that %s stops a start", ([, ruin, problem]) => {
  ruin(path);
  expect(() => open()).toThrow(`providers.real.credential_file: ${problem}`);
});

test.for(broken)("a file that %s later leaves the key of before", async ([, ruin, problem]) => {
  const providers = open();
  ruin(path);
  await hear("the credential_file of real cannot be read again: what it held before stays in use");
  await clock.advance(30_000);
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([oldKey]);
  const warnings = recorded.lines().filter(({ code }) => code === "file_not_taken");
  expect(warnings).toMatchObject([{ err: { message: problem } }]);
  rmSync(path, { recursive: true, force: true });
  replace(newKey);
  await hear("the credential_file of real is in order again");
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([oldKey, newKey]);
});

test("another configuration file looks at other files, and no more at these", async () => {
  const providers = open();
  const other = join(folder, "other");
  writeFileSync(other, newKey);
  providers.reload(readCatalogFile(textWith(other)));
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([newKey]);
  expect(clock.pending).toBe(1);
  writeFileSync(other, "");
  const next = textWith(path).replace("credential_file", "idle_ms: 5000, credential_file");
  rmSync(path);
  expect(() => providers.reload(readCatalogFile(next))).toThrow("cannot be read (ENOENT)");
  await readAll(providers, "Hi");
  expect(sentKeys()).toEqual([newKey, newKey]);
});
