// Every statement and the ledger's own work, on every engine that is here: the embedded PostgreSQL
// always, Debian's PostgreSQL 15 and Citus on it where they are installed, and the database of
// PORTABILITY_URL.

import { readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { Client, DatabaseError } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { newRequestId, timeOrderedId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { calls } from "../../src/billing/account-calls.ts";
import { type Payer, requestKeyOf } from "../../src/billing/admission.ts";
import { ClusterNode } from "../../src/billing/cluster-node.ts";
import { HoldKeeper } from "../../src/billing/holds.ts";
import { Placement } from "../../src/billing/placement.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { traitsOf } from "../../src/postgres/engine.ts";
import { type OpenLedger, openLedger } from "../../src/postgres/open-ledger.ts";
import { type Statement, statement } from "../../src/postgres/postgres.ts";
import { emptyDatabase } from "../support/database.ts";
import { hasCitus, hasDebian, type Servers, startCitus, startDebian } from "../support/debian.ts";
import { endingWith, heldFor, holdRequest, usage } from "../support/ledger.ts";

type Database = { url: string; drop(): Promise<void> };

const engines: { name: string; open: (() => Promise<Database>) | undefined }[] = [
  { name: "the embedded PostgreSQL", open: emptyDatabase },
  { name: "Debian's PostgreSQL 15", open: hasDebian ? () => opened(startDebian()) : undefined },
  { name: "Citus with two workers", open: hasCitus ? () => opened(startCitus()) : undefined },
  {
    name: "the database of PORTABILITY_URL",
    open: process.env.PORTABILITY_URL
      ? async () => ({ url: process.env.PORTABILITY_URL ?? "", drop: async () => {} })
      : undefined,
  },
];

async function opened(starting: Promise<Servers>): Promise<Database> {
  const { url, stop } = await starting;
  return { url, drop: stop };
}

const source = join(import.meta.dirname, "../../src");
const statements: Statement[] = readdirSync(source, { recursive: true, encoding: "utf8" })
  .filter((file) => /\bsql\/[^/]+\.sql$/.test(file))
  .map((file) => {
    const caller = pathToFileURL(join(source, dirname(dirname(file)), "store.ts")).href;
    return statement(caller, basename(file, ".sql"));
  });

/** Statements of batches that `account-calls.ts` replaces. */
const batched = new RegExp(
  "^billing/(lock-pools|lock-holds|read-used-requests|read-old-requests|read-past-months|" +
    "place-holds|refuse-charged|resize-holds|settle-holds)$",
);

/** A value of a parameter's type. Arrays have one element per account. */
function sampleOf(type: string, accounts: readonly string[]): unknown {
  if (type.endsWith("[]")) return accounts.map((account) => sampleOf(type.slice(0, -2), [account]));
  switch (type) {
    case "boolean":
      return true;
    case "date":
      return "2026-11-01";
    case "jsonb":
      return "[]";
    case "bytea":
      return Buffer.from(accounts[0] ?? "");
    case "timestamp with time zone":
      return new Date("2026-11-22T00:00:00Z");
    case "interval":
      return "1 hour";
    case "text":
    case "character varying":
      return accounts[0];
    default:
      return 1;
  }
}

for (const { name, open } of engines) {
  if (open === undefined) test.skip(`${name} is not here`, () => {});
  else describe(name, () => runOn(open));
}

function runOn(open: () => Promise<Database>): void {
  let database: Database;
  let ledger: OpenLedger;
  let client: Client;
  let payers: [Payer, Payer];
  beforeAll(async () => {
    database = await open();
    ledger = await openLedger(
      { url: database.url, ownerUrl: undefined, engine: undefined },
      createLog("silent"),
    );
    client = new Client(database.url);
    await client.connect();
    payers = [await addPayer(), await addPayer()];
  });
  afterAll(async () => {
    await client.end();
    await ledger.postgres.close();
    await database.drop();
  });

  async function addPayer(): Promise<Payer> {
    const store = createLedgerStore(ledger.postgres);
    const { accountId } = await store.insertAccount("portability");
    await store.createTransfer({
      accountId,
      family: "v1",
      kind: TransferKind.BONUS,
      amountMicro: heldFor(100) * 100n,
      idempotencyKey: "bonus",
      reason: "",
      actor: "test",
    });
    const keyId = timeOrderedId("key_");
    await ledger.postgres.query(
      {
        name: "",
        text: `insert into keys (key_id, account_id, "family", name) values ($1, $2, 'v1', 'test')`,
      },
      [keyId, accountId],
    );
    return { accountId, family: "v1", keyId };
  }

  const textOf = ({ text, distributed }: Statement) =>
    (traitsOf[ledger.engine].isDistributed && distributed) || text;

  /** The types of a statement's parameters. */
  async function typesOf(text: string): Promise<string[]> {
    await client.query(`prepare checked as ${text}`);
    const { rows } = await client.query<{ types: string[] }>(
      "select parameter_types::text[] as types from pg_prepared_statements where name = 'checked'",
    );
    await client.query("deallocate checked");
    return rows[0]?.types ?? [];
  }

  for (const one of statements) {
    test(`${one.name} runs, for one account and for two`, async ({ skip }) => {
      const { isDistributed } = traitsOf[ledger.engine];
      skip(isDistributed && batched.test(one.name), "functions of the engine replace it");
      const text = textOf(one);
      const types = await typesOf(text);
      for (const count of [1, 2]) {
        const accounts = payers.slice(0, count).map(({ accountId }) => accountId);
        await client.query("begin");
        const ran = client
          .query(
            text,
            types.map((type) => sampleOf(type, accounts)),
          )
          .then(
            () => "",
            (error: unknown) => (error instanceof DatabaseError ? error.code : String(error)),
          );
        // A value may violate a constraint; the engine has run the statement then.
        expect(await ran).toMatch(/^$|^2[23]/);
        await client.query("rollback");
      }
    });
  }

  test("where accounts are spread, one server has the whole work of each queue for one account", async ({
    skip,
  }) => {
    skip(!traitsOf[ledger.engine].isDistributed, "this engine is one server");
    const queued = statements.filter(({ name }) =>
      /^billing\/(node-clock|read-keys|read-dead-secrets|checkpoint-holds)$/.test(name),
    );
    const plans: [string, unknown[]][] = [];
    for (const one of [...Object.values(calls), ...queued]) {
      const text = textOf(one).replace(/^(\s*--.*\n)+/, "");
      const values = (await typesOf(text)).map((type) => sampleOf(type, [payers[0].accountId]));
      const { rows } = await client.query<{ "QUERY PLAN": string }>(
        `explain (costs off) ${text}`,
        values,
      );
      const lines = rows.map((row) => row["QUERY PLAN"].trim());
      plans.push([one.name, lines.filter((line) => /^Task Count|Subplan/.test(line))]);
    }
    expect(plans).toEqual(plans.map(([name]) => [name, ["Task Count: 1"]]));
    expect(plans).toHaveLength(8);
  });

  test("where accounts are spread, a request commits at the server of its account alone", async ({
    skip,
  }) => {
    skip(!traitsOf[ledger.engine].isDistributed, "this engine is one server");
    const { postgres } = ledger;
    const placement = new Placement(postgres);
    const servers = new Map<string, Payer>();
    while (servers.size < 2) {
      const payer = await addPayer();
      servers.set(await placement.serverOf(payer.accountId), payer);
    }
    expect([...servers.keys()]).not.toContain("");
    // What the coordinator keeps of a commit at several servers, for a minute and longer.
    const commits = async () =>
      (await client.query("select gid from pg_dist_transaction")).rows.map(({ gid }) => gid);
    const store = createLedgerStore(postgres);
    const log = createLog("silent");
    const nodeId = timeOrderedId("node_");
    await store.registerNode(nodeId, "");
    const parts = { postgres, store, log, nodeId: () => nodeId, onLost: () => {} };
    const holds = new HoldKeeper(parts);
    const never = new AbortController().signal;
    const pair = async (payer: Payer) => {
      const hold = await holds.place(holdRequest(payer, 10), never);
      await holds.settle(hold, endingWith({ output: 3 }));
    };
    // Nodes and prices have a copy on every server. The first pair stores its price.
    for (const payer of servers.values()) await pair(payer);
    const before = await commits();
    await Promise.all([...servers.values(), ...servers.values()].map(pair));
    const after = await commits();
    await holds.close();
    await store.deleteNode(nodeId);
    expect(after.filter((gid) => !before.includes(gid))).toHaveLength(0);
  });

  test("requests of two accounts are admitted, metered, resized, settled and reaped", async () => {
    const log = createLog("silent");
    const { postgres } = ledger;
    const store = createLedgerStore(postgres);
    const node = new ClusterNode({ store, log, onLost: () => {} });
    const holds = new HoldKeeper({ postgres, store, log, nodeId: node.id, onLost: () => {} });
    await store.registerNode(node.id(), "");
    const never = new AbortController().signal;
    const requestId = newRequestId();
    const proposed = `req_proposed-${newRequestId().slice(-20)}`;
    const place = (payer: Payer, id: string) =>
      holds.place(holdRequest(payer, 100, { requestId: id }), never);
    const placed = await Promise.all(
      payers.flatMap((payer) => [
        place(payer, requestId),
        place(payer, proposed),
        place(payer, newRequestId()),
      ]),
    );
    for (const hold of placed) holds.watch(requestKeyOf(hold), () => usage({ output: 2 }));
    await holds.checkpoint();
    const [first, second, third, fourth, ...others] = placed;
    if (!first || !second || !third || !fourth) throw new Error("no holds");
    await Promise.all([first, fourth].map((hold) => holds.resize(hold, usage({ input: 150 }))));
    const receipts = await Promise.all(
      [first, second, fourth].map((hold) => holds.settle(hold, endingWith({ output: 3 }))),
    );
    expect(receipts.map(({ amountMicrocredits }) => amountMicrocredits)).toEqual([
      150n,
      150n,
      150n,
    ]);
    await expect(place(payers[0], requestId)).rejects.toMatchObject({ reason: "request_id_used" });
    await expect(place(payers[0], proposed)).rejects.toMatchObject({ reason: "request_id_used" });
    expect(await store.findCharges(requestId)).toHaveLength(2);
    expect(await store.findRunning(proposed)).toHaveLength(1);

    await client.query("update holds set deadline = now() - interval '1 second'");
    await node.poll(holds);
    for (const hold of [third, ...others])
      expect(await store.findCharge(requestKeyOf(hold))).toMatchObject({
        amountMicrocredits: 100n,
      });
    expect(await store.verifyLedger()).toEqual([]);
    await holds.close();
    await node.stop();
  });
}
