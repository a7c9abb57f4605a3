// The sinks get every charge: each is there once, whatever goes away in between. ClickHouse is a
// stand-in that stores rows by their key, as a ReplacingMergeTree does, and checks the requests.

import { once } from "node:events";
import { mkdtemp, readdir, readFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { parseSink, type SinkSettings } from "../../src/config/sink.ts";
import { Sink } from "../../src/history/sink.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { writeCharges } from "../support/charges.ts";
import { type FreshHistory, historyOfTest } from "../support/history.ts";
import { log } from "../support/ledger.ts";

const fresh = historyOfTest();
let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "gateway-sink-"));
});
afterAll(() => rm(root, { recursive: true, force: true }));

const newFolder = () => mkdtemp(join(root, "folder-"));
const filesIn = (folder: string) => parseSink(`file://${folder}`);
const hourMs = 3_600_000;

/** Charges of two accounts that were settled from `from` on, two in each step. */
async function addCharges(
  world: FreshHistory,
  count: number,
  from: Date,
  stepMs = 1_000,
): Promise<void> {
  for (const offset of [0, 1]) {
    const payer = await world.payer(0n);
    const start = new Date(from.getTime() + offset);
    await writeCharges(world.run, { payer, count: count / 2, from: start, stepMs });
  }
}

function open(
  world: FreshHistory,
  settings: SinkSettings,
  db: Runner = world.ledger.postgres,
): Sink {
  return new Sink({ db, log, settings, margin: 0 });
}

/** Lets a sink run until it lacks nothing. Transactions of other databases may keep it waiting. */
async function runAll(sink: Sink): Promise<void> {
  await expect
    .poll(
      async () => {
        await sink.run();
        return sink.lag;
      },
      { interval: 20 },
    )
    .toBe(0);
}

/** Runs a sink until it fails. As long as other databases keep it waiting, it tries nothing. */
async function nextFailure(sink: Sink): Promise<string> {
  for (;;) {
    const message = await sink.run().then(() => undefined, String);
    if (message !== undefined) return message;
    await delay(5);
  }
}

async function settledIds(world: FreshHistory): Promise<string[]> {
  const rows = await world.run<{ id: string }>(
    "select account_id || '/' || request_id as id from charges order by settled_at, request_id",
  );
  return rows.map(({ id }) => id);
}

type Line = { account_id: string; request_id: string; settled_at: string };
const idOf = ({ account_id, request_id }: Line) => `${account_id}/${request_id}`;
const parseLines = (text: string): Line[] =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

/** The lines of all files, in the order of their names. */
async function readFiles(folder: string): Promise<Line[]> {
  const names = (await readdir(folder)).sort();
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  return texts.flatMap(parseLines);
}

/** Fails every nth statement with this name, before it runs. */
function failing(db: Runner, name: string, every: number): Runner {
  let count = 0;
  return {
    run: (one, ...values) => {
      if (one.name === name && ++count % every === 0) return Promise.reject(new Error("away"));
      return db.run(one, ...values);
    },
  };
}

test("files have every charge once and in order, one file for each day of settlement", async () => {
  const world = await fresh();
  const folder = await newFolder();
  // Over a midnight that is a day ago: at any time of day, all of them are settled.
  await addCharges(world, 5_000, world.daysAgo(2, 24 * hourMs - 1_200_000));
  const sink = open(world, filesIn(folder));
  await runAll(sink);
  expect(sink.sent).toBe(5_000);
  const lines = await readFiles(folder);
  expect(lines.map(idOf)).toEqual(await settledIds(world));
  const names = await readdir(folder);
  expect(names).toHaveLength(2);
  for (const name of names)
    for (const { settled_at } of parseLines(await readFile(join(folder, name), "utf8")))
      expect(`charges-${settled_at.slice(0, 10)}.ndjson`).toBe(name);
  // Another process goes on where this one has ended.
  await sink.stop();
  await addCharges(world, 10, new Date(Date.now() - 10_000));
  await runAll(open(world, filesIn(folder)));
  expect((await readFiles(folder)).map(idOf)).toEqual(await settledIds(world));
});

test("a batch that was written and not recorded is in the file once", async () => {
  const world = await fresh();
  const folder = await newFolder();
  await addCharges(world, 5_000, new Date(Date.now() - 2 * hourMs));
  const { postgres } = world.ledger;
  for (let attempt = 0; attempt < 4; attempt++) {
    const sink = open(world, filesIn(folder), failing(postgres, "history/move-cursor", 2));
    for (let turn = 0; turn < 30; turn++) await sink.run().catch(() => undefined);
    // It leaves its lease as a process that ends; a killed one keeps it for a while.
    await sink.stop();
  }
  await runAll(open(world, filesIn(folder)));
  expect((await readFiles(folder)).map(idOf)).toEqual(await settledIds(world));
});

test("one process sends at a time, and another takes over", async () => {
  const world = await fresh();
  const folder = await newFolder();
  await addCharges(world, 4_000, new Date(Date.now() - 2 * hourMs));
  const sinks = [open(world, filesIn(folder)), open(world, filesIn(folder))];
  for (let turn = 0; turn < 5; turn++) await Promise.all(sinks.map((sink) => sink.run()));
  const [first, second] = sinks;
  expect(sinks.filter(({ lag }) => lag === undefined)).toHaveLength(1);
  await Promise.all(sinks.map((sink) => sink.stop()));
  await addCharges(world, 100, new Date(Date.now() - hourMs / 2));
  const next = first?.lag === undefined ? first : second;
  await runAll(open(world, filesIn(folder)));
  expect(next?.sent).toBe(0);
  expect((await readFiles(folder)).map(idOf)).toEqual(await settledIds(world));
});

test("a settlement whose commit is held up is waited for, and not lost", async () => {
  const world = await fresh();
  const folder = await newFolder();
  await addCharges(world, 10, new Date(Date.now() - hourMs));
  const sink = open(world, filesIn(folder));
  await runAll(sink);
  const client = new Client(world.url);
  await client.connect();
  await client.query("begin");
  await client.query(
    `insert into charges select account_id, 'req_held_up', month, family, key_id, secret_id, model,
       input, output, cache_write_5m, cache_write_1h, cache_read, thinking, price_version,
       granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis, attempts,
       admitted_at, now()
     from charges limit 1`,
  );
  await addCharges(world, 10, new Date(Date.now() + 1), 1);
  for (let turn = 0; turn < 10; turn++) await sink.run();
  expect(await readFiles(folder)).toHaveLength(10);
  await client.query("commit");
  await client.end();
  await expect
    .poll(
      async () => {
        await sink.run();
        return (await readFiles(folder)).map(idOf).sort();
      },
      { interval: 20 },
    )
    .toEqual((await settledIds(world)).sort());
});

test("nothing of the last minute is sent", async () => {
  const world = await fresh();
  const folder = await newFolder();
  await addCharges(world, 10, new Date(Date.now() - hourMs));
  await addCharges(world, 10, new Date(Date.now() - 30_000));
  const sink = new Sink({ db: world.ledger.postgres, log, settings: filesIn(folder) });
  await expect
    .poll(
      async () => {
        await sink.run();
        return (await readdir(folder)).length;
      },
      { interval: 20 },
    )
    .toBe(1);
  expect(await readFiles(folder)).toHaveLength(10);
});

test("a file that is shorter than what was written, or of another ledger, stops the sink", async () => {
  const world = await fresh();
  const folder = await newFolder();
  await addCharges(world, 10, new Date(Date.now() - hourMs));
  const sink = open(world, filesIn(folder));
  await runAll(sink);
  const [name = ""] = await readdir(folder);
  const whole = await readFile(join(folder, name));
  await truncate(join(folder, name), 5);
  await addCharges(world, 10, new Date(Date.now() - hourMs / 2));
  if (new Date(Date.now() - hourMs).getUTCDate() === new Date().getUTCDate()) {
    expect(await nextFailure(sink)).toMatch(/all processes must share the folder/);
    await writeFile(join(folder, name), whole);
    await runAll(sink);
    expect((await readFiles(folder)).map(idOf)).toEqual(await settledIds(world));
  }
  await sink.stop();

  const other = await newFolder();
  await writeFile(join(other, name), '{"request_id":"req_of_another_ledger"}\n');
  expect(await nextFailure(open(world, filesIn(other)))).toMatch(/move it away/);
  expect(await readFile(join(other, name), "utf8")).toContain("req_of_another_ledger");
});

test("a folder that is away for an hour gets every charge once when it is back", async () => {
  const world = await fresh();
  const folder = await newFolder();
  await addCharges(world, 1_000, new Date(Date.now() - 3 * hourMs));
  const sink = open(world, filesIn(folder));
  await runAll(sink);
  await rename(folder, `${folder}-unmounted`);
  await writeFile(folder, "in its place");
  await addCharges(world, 3_000, new Date(Date.now() - hourMs - 1_500_000));
  for (let failures = 0; failures < 3; failures++) await nextFailure(sink);
  expect(sink.lag).toBeGreaterThan(3_600);
  expect(sink.sent).toBe(1_000);
  await rm(folder);
  await rename(`${folder}-unmounted`, folder);
  await runAll(sink);
  expect((await readFiles(folder)).map(idOf)).toEqual(await settledIds(world));
});

type Insert = { query: URLSearchParams; headers: IncomingHttpHeaders; lines: Line[] };
type Mood = "well" | "error" | "hang-up" | "stored, then hang-up" | "error in the body";

/** Stores rows by their key, unless it is in another mood. */
async function startClickhouse() {
  const rows = new Map<string, Line>();
  const inserts: Insert[] = [];
  let mood: Mood = "well";
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const lines = parseLines(body);
    const { searchParams: query } = new URL(request.url ?? "", "http://localhost");
    inserts.push({ query, headers: request.headers, lines });
    if (mood === "hang-up") return void request.socket.destroy();
    if (mood === "error") return void response.writeHead(500).end("Code: 210. DB::Exception: away");
    if (mood === "error in the body") return void response.end("Code: 241. DB::Exception: memory");
    for (const line of lines) rows.set(idOf(line), line);
    if (mood === "stored, then hang-up") return void request.socket.destroy();
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : undefined;
  return {
    rows,
    inserts,
    port,
    settings: parseSink(`clickhouse+http://writer:p%40ss@127.0.0.1:${port}/analytics`),
    become: (next: Mood) => {
      mood = next;
    },
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

let clickhouse: Awaited<ReturnType<typeof startClickhouse>> | undefined;
afterEach(() => clickhouse?.stop());

test("ClickHouse gets every charge, through each way in which it can fail for an hour", async () => {
  const world = await fresh();
  clickhouse = await startClickhouse();
  const { rows, inserts, settings, become, port } = clickhouse;
  await addCharges(world, 3_000, new Date(Date.now() - hourMs - 1_500_000));
  const sink = open(world, settings);
  const moods: Mood[] = ["error", "hang-up", "error in the body", "stored, then hang-up"];
  for (const mood of moods) {
    become(mood);
    for (let failures = 0; failures < 3; failures++) await nextFailure(sink);
    expect(sink.lag).toBeGreaterThan(3_600);
  }
  expect(sink.sent).toBe(0);
  become("well");
  await runAll(sink);
  expect([...rows.keys()].sort()).toEqual((await settledIds(world)).sort());
  const { query, headers } = inserts.at(-1) ?? {};
  expect(Object.fromEntries(query ?? [])).toMatchObject({
    database: "analytics",
    query: "INSERT INTO charges FORMAT JSONEachRow",
    async_insert: "0",
  });
  expect(headers).toMatchObject({ "x-clickhouse-user": "writer", "x-clickhouse-key": "p@ss" });
  // The cursor, and so the log, name no credential.
  const cursors = await world.run<{ sink: string }>("select sink from sink_cursors");
  expect(cursors).toEqual([{ sink: `clickhouse+http://127.0.0.1:${port}/analytics` }]);
});

test("the address of a sink is a folder or a database of ClickHouse, without anything else", () => {
  expect(parseSink("file:///var/lib/charges/")).toEqual({
    kind: "files",
    name: "file:///var/lib/charges",
    folder: "/var/lib/charges",
  });
  expect(parseSink("clickhouse+https://db.example.com:8443/analytics")).toMatchObject({
    url: "https://db.example.com:8443/",
    user: "default",
    password: "",
  });
  for (const text of [
    "",
    "charges",
    "file://",
    "file:///",
    "file://host/folder",
    "http://localhost/analytics",
    "clickhouse+http://hidden:stuff@localhost",
    "clickhouse+http://hidden:stuff@localhost/a/b",
    "clickhouse+http://hidden:stuff@localhost/a?x=1",
    "clickhouse+http://hidden:st%uff@localhost/a",
    "clickhouse+ftp://hidden:stuff@localhost/a",
  ]) {
    expect(() => parseSink(text)).toThrow(/must be file|percent-encoded/);
    expect(() => parseSink(text)).not.toThrow(/hidden|stuff/);
  }
});
