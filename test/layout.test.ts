// The shape of the sources: which folder may import which, through which files, whose tables a
// folder's SQL may touch, and how wide a line is.

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { parseSync, Visitor } from "oxc-parser";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "..");

/** Every file in the root of `src/`. */
const rootFiles = ["main.ts"];

/**
 * Every folder of `src/`, from the top down, with its faces: the only files that other folders may
 * import. Imports point down; folders of one row do not import each other.
 */
const rows: readonly Readonly<Record<string, readonly string[]>>[] = [
  // Programs. A command is an entry point, as `main.ts` is.
  { cli: [] },
  { server: ["bundle", "program", "startup-error"] },
  {
    http: ["http", "connections", "authenticate", "connect", "key-load", "sealed-content"],
    grpc: ["grpc", "client"],
    console: ["console", "bundle"],
  },
  { inference: ["inference"] },
  {
    alerts: ["alerts"],
    billing: ["billing"],
    history: ["history"],
    keys: ["keys"],
    operations: ["operations"],
    payments: ["payments"],
    people: ["people"],
    "rate-limits": ["rate-limits", "shared-windows"],
    sales: ["sales"],
  },
  {
    contract: [
      "contract",
      "generation",
      "approvals",
      "callers",
      "cells",
      "forward",
      "interceptor",
      "decode-request",
      "descriptors",
      "message-limits",
      "reason",
      "replays",
      "update-mask",
      "limits",
    ],
  },
  { providers: ["providers", "check-providers"] },
  {
    formats: [
      ...["native/native", "chat/chat", "responses/responses"],
      ...[
        "aws-event-stream",
        "codec",
        "events",
        "fit",
        "hosted-tools",
        "json",
        "packs",
        "text-run",
        "turns",
      ],
    ],
  },
  {
    postgres: [
      "postgres",
      "statement",
      "backup",
      "horizon",
      "lease",
      "open-ledger",
      "pipeline",
      "preflight",
      "wait-for-database",
      "embedded/embedded",
      "embedded/make-template",
    ],
    redis: ["redis"],
    mail: ["mail"],
    metrics: ["metrics"],
    tracing: ["tracing"],
    docs: ["docs"],
  },
  { config: ["environment", "database-url", "redis-url", "catalog", "describe"] },
  // The floor: every file may be imported by all, and imports nothing but generated code.
  {
    base: [
      "actors",
      "attempt-outcomes",
      "base62",
      "bounded-map",
      "budgets",
      "cells",
      "change-feed",
      "client-address",
      "clock",
      "cost",
      "csv",
      "error-details",
      "errors",
      "facade-proof",
      "families",
      "headers-init.d",
      "ids",
      "json-schema",
      "keep-alive",
      "left-out",
      "log",
      "mail-address",
      "model-facts",
      "money",
      "names",
      "nearest-name",
      "outbound",
      "paging",
      "plain-text",
      "query",
      "reasoning-effort",
      "reasons",
      "revenue-kinds",
      "secret-cache",
      "secret-lookup",
      "shortage",
      "shown-figures",
      "slices",
      "stderr",
      "stopwatch",
      "tags",
      "task",
      "tls-problem",
      "token-categories",
      "transfer-kinds",
      "wait-group",
      "watched-file",
    ],
  },
];

/** The tables that a folder's SQL may write. */
const ownTables: Readonly<Record<string, readonly string[]>> = {
  alerts: ["alert_deliveries", "alert_progress", "alert_settings", "alerts", "provider_outages"],
  billing: [
    "accounts",
    "budgets",
    "charges",
    "ended_requests",
    "errors_hourly",
    "holds",
    "limit_changes",
    "nodes",
    "pools",
    "price_list_versions",
    "price_lists",
    "price_versions",
    "refusals",
    "tag_sums",
    "tags_daily",
    "transfers",
    "usage_daily",
    "usage_hourly",
    "usage_progress",
    "verifications",
  ],
  contract: ["approvals", "given", "replays"],
  history: [
    "closed_budgets",
    "closed_months",
    "closing_blocks",
    "closing_sums",
    "month_archives",
    "month_closings",
    "sink_cursors",
  ],
  keys: ["key_changes", "key_secrets", "key_tags", "keys", "management_keys", "management_secrets"],
  payments: [
    "address_balances",
    "address_dust",
    "chain_blocks",
    "chain_payments",
    "chains",
    "deposit_addresses",
    "deposit_keys",
    "payment_accounts",
    "payment_decisions",
    "payment_deposits",
    "payment_documents",
    "payment_events",
    "payment_grants",
    "payment_hooks",
    "payment_look_slots",
    "payment_numbers",
    "payment_orders",
    "payment_refunds",
    "payment_transactions",
    "promotion_uses",
    "promotions",
    "rate_samples",
    "simulated_faults",
    "simulated_payments",
    "sweep_payments",
    "sweeps",
  ],
  operations: ["account_notes"],
  sales: [
    "cost_versions",
    "provider_bills",
    "sales_daily",
    "sales_monthly",
    "sales_progress",
    "sales_totals",
  ],
  postgres: ["leases"],
  people: [
    "admin_tokens",
    "audit_events",
    "audit_refusals",
    "identities",
    "installation",
    "links",
    "mails",
    "members",
    "passkeys",
    "passwords",
    "people",
    "people_changes",
    "saved_views",
    "sessions",
    "sign_in_failures",
    "sign_ups",
    "spent_challenges",
  ],
};

/** The tables of other folders that a folder's SQL may read, with the reason. */
const foreignReads: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  billing: {
    keys: "the admission transaction decides a paid call, never a cache; exports name keys",
    key_secrets: "that transaction refuses a dead secret; operators find an account by a hint",
    management_keys: "alerts about budgets name them",
    month_closings: "the verifier takes the sums of closed months instead of their charges",
    closed_budgets: "these sums, by person",
    closed_months: "these sums; and who was charged in a month that was archived",
    month_archives: "a receipt of an archived month is not just unknown",
    sales_daily: "the verifier compares the sums of sales with the days of the usage",
    sales_monthly: "those of months with those of days",
    sales_totals: "those of all accounts with those of each",
    sales_progress: "a day whose charges are not all in them is no violation",
    ...Object.fromEntries(
      [
        "payment_documents",
        "payment_grants",
        "payment_numbers",
        "payment_orders",
        "payment_refunds",
        "promotion_uses",
        "promotions",
      ].map((table) => [table, "the verifier compares payments with their transfers"]),
    ),
  },
  history: {
    accounts: "a closing goes through them by slices",
    charges: "what is closed, exported and sent",
    holds: "a month with a request that runs is not closed",
    price_versions: "a closing checks the amounts of its charges",
    sales_progress: "charges are removed when the sums of sales have them",
    usage_daily: "a closed month is the sum of its days",
    usage_progress: "a month is closed when its days are",
  },
  keys: {
    budgets: "what a key spends and may spend is shown with the key",
    holds: "what runs with a key without a limit is shown with it, too",
    accounts: "the keys of a suspended account are refused",
  },
  operations: {
    members: "operators look for an account by its owners",
    ...Object.fromEntries(
      [
        "accounts",
        "chain_payments",
        "deposit_addresses",
        "key_secrets",
        "keys",
        "management_keys",
        "management_secrets",
        "payment_deposits",
        "payment_documents",
        "payment_orders",
        "payment_transactions",
        "people",
        "promotion_uses",
        "promotions",
        "transfers",
      ].map((table) => [table, "one statement finds what people type, whatever it is"]),
    ),
  },
  payments: {
    accounts: "codes of one account are redeemed one by one, under its lock",
    installation: "the numbers of documents carry the cell",
  },
  sales: {
    charges: "what is summed up",
    keys: "usage by hours and days does not say the family of its key",
    month_archives: "sums of charges that were removed are kept",
    pools: "what is owed is what they have posted",
    transfers: "what was added to them, and what of it were gifts",
    usage_daily: "what was charged after a day",
    usage_hourly: "the same, of days that are open",
    usage_progress: "which of both has a day",
    ...Object.fromEntries(
      ["payment_deposits", "payment_documents", "payment_grants", "payment_orders"]
        .concat("payment_refunds")
        .map((table) => [table, "revenue is what documents say"]),
    ),
  },
  people: { accounts: "a person sees the names of his accounts, and joins only one that exists" },
};

type Import = { from: string; to: string };

function findFiles(folder: string, ending: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name).split(sep).join("/"));
}

function readText(file: string): string {
  return readFileSync(join(root, file), "utf8");
}

const importPattern = /(?:^|\s)(?:from|import)\s*\(?\s*"([^"]+)"/g;

function readImports(file: string): string[] {
  return [...readText(file).matchAll(importPattern)].map((match) => match[1] ?? "");
}

function resolveImports(file: string): Import[] {
  return readImports(file)
    .filter((one) => one.startsWith("."))
    .map((one) => ({
      from: file,
      to: relative(root, join(root, dirname(file), one))
        .split(sep)
        .join("/"),
    }));
}

/** The folder of `src/` that a file is in; undefined in the root. */
function folderOf(file: string): string | undefined {
  const parts = file.split("/");
  return parts.length > 2 ? parts[1] : undefined;
}

function rowOf(folder: string | undefined): number {
  return folder === undefined ? -1 : rows.findIndex((row) => folder in row);
}

// The page of the console is a program of its own: it runs in browsers.
const pageFolder = "src/console/web/";
const allSources = [...findFiles("src", ".ts"), ...findFiles("src", ".tsx")];
const sources = allSources.filter((file) => !file.startsWith(pageFolder));
const imports = sources.flatMap(resolveImports);
const inner = imports.filter(({ to }) => to.startsWith("src/"));

test("every file of the root and every folder is listed", () => {
  const inRoot = sources.filter((file) => folderOf(file) === undefined);
  expect(inRoot).toEqual(rootFiles.map((name) => `src/${name}`));
  const folders = [...new Set(sources.map(folderOf).filter((name) => name !== undefined))];
  expect(folders.sort()).toEqual(rows.flatMap((row) => Object.keys(row)).sort());
});

test("imports point down, and neighbours do not import each other", () => {
  const wrong = inner.filter(
    ({ from, to }) =>
      folderOf(from) !== folderOf(to) && rowOf(folderOf(from)) >= rowOf(folderOf(to)),
  );
  expect(wrong).toEqual([]);
});

test("a folder is imported through its faces, and every face is imported", () => {
  const faces = rows.flatMap((row) =>
    Object.entries(row).flatMap(([folder, names]) =>
      names.map((name) => `src/${folder}/${name}.ts`),
    ),
  );
  const crossing = inner.filter(({ from, to }) => folderOf(from) !== folderOf(to));
  expect(crossing.filter(({ to }) => !faces.includes(to))).toEqual([]);
  // A declaration file is found by the compiler, not imported.
  const used = new Set([...crossing.map(({ to }) => to), "src/base/headers-init.d.ts"]);
  expect(faces.filter((face) => !used.has(face))).toEqual([]);
});

test("the floor names each of its files", () => {
  const named = Object.values(rows.at(-1) ?? {}).flat();
  const found = findFiles("src/base", ".ts").map((file) => file.slice("src/base/".length, -3));
  expect(found.sort()).toEqual([...named].sort());
});

test("no file imports itself through others, types included", () => {
  const targets = new Map(sources.map((file) => [file, new Set<string>()]));
  for (const { from, to } of inner) targets.get(from)?.add(to);
  // A file whose imports are all removed is in no circle: remove such files until none is left.
  for (let before = -1; before !== targets.size; ) {
    before = targets.size;
    for (const [file, left] of targets) {
      for (const to of left) if (!targets.has(to)) left.delete(to);
      if (left.size === 0) targets.delete(file);
    }
  }
  expect([...targets.keys()]).toEqual([]);
});

test("every value that a file exports, and all that it hands on, has a reader", () => {
  const named = /(?:import|export)\s+(?:type\s+)?\{([^}]*)\}\s*from\s*"([^"]+)"/g;
  const whole = /import(?:\s+\*\s+as\s+\w+\s+from\s+|\()"([^"]+)"/g;
  const read = new Set<string>();
  const readWhole = new Set<string>();
  const readers = ["test", "gen/sql"].flatMap((folder) => findFiles(folder, ".ts"));
  for (const file of [...allSources, ...readers, ...findFiles("test", ".tsx")]) {
    const text = readText(file);
    const resolve = (path = "") => relative(root, join(root, dirname(file), path));
    for (const [, names = "", path] of text.matchAll(named))
      for (const name of names.matchAll(/(\w+)(?:\s+as\s+\w+)?\s*(?:,|$)/g))
        read.add(`${resolve(path)} ${name[1]}`);
    for (const [, path] of text.matchAll(whole)) readWhole.add(resolve(path));
  }
  const unread = allSources
    .filter((file) => !readWhole.has(file))
    .flatMap((file) => {
      const text = readText(file);
      const handedOn = [...text.matchAll(/^export (?:type )?\{([^}]*)\} from/gm)].flatMap(
        ([, names = ""]) => [...names.matchAll(/(\w+)\s*(?:,|$)/g)],
      );
      const own = text.matchAll(/^export (?:async )?(?:function\*?|const|class) (\w+)/gm);
      return [...own, ...handedOn].map(([, name]) => `${file} ${name}`);
    })
    .filter((one) => !read.has(one));
  expect(unread).toEqual([]);
});

test("sources import sources, generated code and packages, never tests", () => {
  const outside = imports.filter(({ to }) => !to.startsWith("src/") && !to.startsWith("gen/"));
  expect(outside).toEqual([]);
});

test("the page of the console imports itself, generated code, what it shares with the services, and packages for browsers", () => {
  const shared =
    /^src\/base\/(token-categories|shown-figures|cost|model-facts|actors|reasons)\.ts$/;
  const packages = /^(preact|@preact\/signals|@bufbuild\/protobuf|uqr)(\/|$)/;
  const files = allSources.filter((file) => file.startsWith(pageFolder));
  expect(files.length).toBeGreaterThan(0);
  const foreign = files
    .flatMap(resolveImports)
    .filter(({ to }) => !to.startsWith(pageFolder) && !to.startsWith("gen/"))
    .filter(({ to }) => !shared.test(to));
  expect(foreign).toEqual([]);
  // Without texts of several lines: samples for people import other packages.
  const code = (file: string) => readText(file).replace(/`[^`]*`/g, "``");
  const names = files
    .flatMap((file) => [...code(file).matchAll(importPattern)].map((found) => found[1] ?? ""))
    .filter((name) => !name.startsWith("."));
  expect(names.filter((name) => !packages.test(name))).toEqual([]);
});

/** A component should fit on a screen or two. A longer one is cut by what its parts mean. */
const componentLinesMax = 100;

/** The functions of a file that are too long. Formatted, each ends with a brace in column 1. */
function findLong(text: string): string[] {
  const functions = /^(?:export )?(?:async )?function\*? (\w+)[\s\S]*?^\}$/gm;
  return [...text.matchAll(functions)]
    .filter(([whole]) => whole.split("\n").length > componentLinesMax)
    .map(([, name = ""]) => name);
}

test("no component of the console, and no other function of it, is longer than 100 lines", () => {
  const long = allSources
    .filter((file) => file.startsWith(pageFolder))
    .flatMap((file) => findLong(readText(file)).map((name) => `${file} ${name}`));
  expect(long).toEqual([]);
  const sample = (lines: number) => `function Long() {\n${"  a();\n".repeat(lines - 2)}}\n`;
  expect(findLong(sample(101) + sample(100))).toEqual(["Long"]);
});

/** Functions that may be longer, with the reason. Biome holds their complexity below 20. */
const longFunctions: Readonly<Record<string, string>> = {
  "src/billing/billing.ts createBilling": "a list of parts, and of the methods that they serve",
  "src/keys/keys.ts createKeys": "its service lists each method, with what it needs",
  "src/keys/store.ts createKeyStore": "a list of statements and the methods that run them",
  "src/payments/payments.ts createPayments": "a list of parts, and of the methods that they serve",
};

/**
 * The functions of a file with more than 100 lines of their own: the lines of a function within
 * count for that one alone, so that a closure which only holds methods is as long as they are.
 */
function findLongOwn(file: string, text: string): string[] {
  type Lines = { readonly name: string; own: number };
  const open: Lines[] = [];
  const long: string[] = [];
  type Span = { readonly start: number; readonly end: number; readonly id?: unknown };
  const enter = ({ start, end, id }: Span) => {
    const lines = text.slice(start, end).split("\n").length - 1;
    const around = open.at(-1);
    if (around) around.own -= lines;
    open.push({ name: String(Object(id).name ?? ""), own: lines + 1 });
  };
  const leave = () => {
    const ended = open.pop();
    if (ended && ended.own > componentLinesMax) long.push(`${file} ${ended.name}`);
  };
  new Visitor({
    FunctionDeclaration: enter,
    "FunctionDeclaration:exit": leave,
    FunctionExpression: enter,
    "FunctionExpression:exit": leave,
    ArrowFunctionExpression: enter,
    "ArrowFunctionExpression:exit": leave,
  }).visit(parseSync(file, text).program);
  return long;
}

test("no function has more than 100 lines of its own, but those with a reason", () => {
  const long = allSources.flatMap((file) => findLongOwn(file, readText(file)));
  expect(long.sort()).toEqual(Object.keys(longFunctions).sort());
  const within = `  const inner = () => {\n${"    a();\n".repeat(90)}  };\n`;
  const around = `function outer() {\n${"  a();\n".repeat(90)}${within}}\n`;
  expect(findLongOwn("a.ts", around)).toEqual([]);
  expect(findLongOwn("a.ts", `function outer() {\n${"  a();\n".repeat(99)}}\n`)).toEqual([
    "a.ts outer",
  ]);
});

test("generated code imports nothing of ours but the form of statements", () => {
  const outside = findFiles("gen", ".ts")
    .flatMap(resolveImports)
    .filter(({ to }) => !to.startsWith("gen/") && to !== "src/postgres/statement.ts");
  expect(outside).toEqual([]);
});

test("the statements of a folder are run in that folder", () => {
  const strangers = sources
    .flatMap(resolveImports)
    .filter(({ to }) => to.startsWith("gen/sql/") && to !== "gen/sql/tables.ts")
    .filter(({ from, to }) => to !== `gen/sql/${from.split("/")[1]}.ts`);
  expect(strangers).toEqual([]);
});

test("the codecs are pure: they reach no file, socket or clock service", () => {
  const effects =
    /^(node:(fs|net|tls|http|https|http2|dns|child_process|worker_threads|timers)|pg|ioredis|undici|fastify)\b/;
  const codecs = sources.filter((file) => file.startsWith("src/formats/"));
  expect(codecs.filter((file) => readImports(file).some((one) => effects.test(one)))).toEqual([]);
});

test("SQL is in `.sql` files: no source runs a statement that it spells out", () => {
  const inline = /\.query\(\s*["'`]/;
  const callers = sources.filter((file) => !file.startsWith("src/postgres/"));
  expect(callers.filter((file) => inline.test(readText(file)))).toEqual([]);
});

const allTables = Object.values(ownTables).flat();

test("every table has one owner", () => {
  const text = findFiles("src/postgres/migrations", ".sql").map(readText).join("\n");
  const changes =
    /^(?:create table (?:if not exists )?(?<made>\w+)|alter table (?<old>\w+) rename to (?<now>\w+)|alter table \w+ attach partition (?<part>\w+)|drop table (?<gone>\w+))/gm;
  const kept = new Set<string>();
  for (const { groups: { made, old, now, part, gone } = {} } of text.matchAll(changes)) {
    for (const name of [old, part, gone]) if (name !== undefined) kept.delete(name);
    for (const name of [made, now]) if (name !== undefined) kept.add(name);
  }
  expect([...kept].sort()).toEqual([...allTables].sort());
});

for (const file of findFiles("src", ".sql").filter((one) => !one.includes("/migrations/"))) {
  test(`${file} touches only the tables that its folder may touch`, () => {
    const text = readText(file).replace(/--.*$/gm, "");
    const named = (pattern: RegExp) =>
      [...text.matchAll(pattern)]
        .map((match) => match[1] ?? "")
        .filter((name) => allTables.includes(name));
    const folder = folderOf(file) ?? "";
    const owned = ownTables[folder] ?? [];
    const written = named(/\b(?:insert\s+into|update|delete\s+from|truncate)\s+([a-z_]+)/gi);
    expect(written.filter((name) => !owned.includes(name))).toEqual([]);
    const mentioned = allTables.filter((name) => new RegExp(`\\b${name}\\b(?!\\s*\\.)`).test(text));
    const read = named(/\b(?:from|join)\s+([a-z_]+)/gi);
    const readable = [...owned, ...Object.keys(foreignReads[folder] ?? {})];
    expect(read.filter((name) => !readable.includes(name))).toEqual([]);
    // A statement that names no table at all would pass unseen.
    expect(mentioned.length).toBeGreaterThan(0);
  });
}

test("one file calls other servers over HTTP, and webhooks go by their guard alone", () => {
  const calls = /(?<![.#\w])(?:globalThis\.)?fetch\(|\bimport (?!type\b)[^;]*from "undici"/;
  const node = /\bimport [^;]*\b(?:request|get)\b[^;]*from "node:https?"/;
  const calling = sources.filter((file) => {
    const text = readText(file);
    return calls.test(text.replaceAll("await fetch()", "")) || node.test(text);
  });
  expect(calling.sort()).toEqual(["src/alerts/webhook.ts", "src/base/outbound.ts"]);
});

test("no line of code or prose is wider than 100 columns", () => {
  const tracked = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
    cwd: root,
    encoding: "utf8",
  });
  const ours = tracked
    .split("\n")
    .filter((name) => /^(src|test|proto|docs|deploy)\/|^README\.md$|^\.ci\//.test(name))
    .filter((name) => /\.(tsx?|css|sql|lua|proto|md|yaml|sh)$|\.ci\/run$/.test(name));
  const wide = ours.flatMap((file) =>
    readText(file)
      .split("\n")
      .flatMap((line, index) => (isTooWide(file, line) ? [`${file}:${index + 1}`] : [])),
  );
  expect(wide).toEqual([]);
});

/** Only what cannot be broken may be wider: rows of a Markdown table, addresses, and literals. */
function isTooWide(file: string, line: string): boolean {
  if ([...line].length <= 100) return false;
  if (/https?:\/\/\S{60}/.test(line)) return false;
  if (file.endsWith(".md")) return !line.startsWith("|");
  if (/^\s*(\/\/|\/?\*|--)/.test(line)) return true;
  if (/^import .* from "/.test(line)) return false;
  return !/(["'`]).{50,}\1|\/.{50,}\/[dgimsuvy]*/.test(line);
}
