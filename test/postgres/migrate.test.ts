// Which databases a start takes: its own, those made before digests were noted, older and newer
// ones that suit it; and how it refuses the others.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fromJson } from "@bufbuild/protobuf";
import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import {
  CreateTransferRequestSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogue } from "../../src/postgres/catalogue.ts";
import { migrate, readMigrations, toMigration } from "../../src/postgres/migrate.ts";
import { emptyDatabase, freshDatabase } from "../support/database.ts";

const folder = join(import.meta.dirname, "../../src/postgres/migrations");
const own = readMigrations();
const next = own.length + 1;

/** A migrated database, and a connection of its owner. */
async function open({ isEmpty = false } = {}) {
  const { url, drop } = isEmpty ? await emptyDatabase() : await freshDatabase();
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await drop();
  });
  const run = async (text: string) => (await client.query(text)).rows;
  const applied = () => run("select * from migrations where number > 0 order by number");
  return { url, client, run, applied };
}

/** A further migration of a newer program. */
const later = (compatibleFrom: number) =>
  toMigration(
    `${String(next).padStart(4, "0")}_later.sql`,
    `-- compatible_from: ${compatibleFrom}\ncreate table later (id integer)`,
  );

test("each migration is the file whose digest was committed with it", () => {
  const digests: unknown = JSON.parse(readFileSync(join(folder, "digests.json"), "utf8"));
  expect(Object.fromEntries(own.map(({ name, sha256 }) => [name, sha256]))).toEqual(digests);
});

test("a migration is noted with its digest, whatever the line ends of its file", async () => {
  const { applied } = await open();
  const noted = own.map(({ number, name, sha256, compatibleFrom: compatible_from }) =>
    expect.objectContaining({ number, name, sha256, compatible_from }),
  );
  expect(await applied()).toEqual(noted);
  const source = readFileSync(join(folder, "0001_ledger.sql"), "utf8");
  const windows = toMigration("0001_ledger.sql", source.replaceAll("\n", "\r\n"));
  expect(windows).toEqual(own[0]);
});

test("a changed migration refuses the start in one sentence, and nothing is done", async () => {
  const { url, applied } = await open();
  const before = await applied();
  const changed = own.map((one) =>
    one.number === 3 ? toMigration(`${one.name}.sql`, `${one.text}\n`) : one,
  );
  await expect(migrate(url, { migrations: [...changed, later(1)] })).rejects.toThrow(
    /^migration 0003_payments was changed after this database ran it \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\): database [0-9a-f]{12}…, program [0-9a-f]{12}…$/,
  );
  expect(await applied()).toEqual(before);
});

test("a migration of another name under the same number refuses the start", async () => {
  const { url } = await open();
  const renamed = own.map((one) => (one.number === 2 ? { ...one, name: "0002_persons" } : one));
  await expect(migrate(url, { migrations: renamed })).rejects.toThrow(
    "migration 2 of this database is 0002_people, and that of this program is 0002_persons",
  );
});

test("a database without digests is taken over if its schema is the one of its migrations", async () => {
  const { url, run, applied } = await open();
  const before = await applied();
  await run("update migrations set sha256 = null, compatible_from = null");
  await migrate(url);
  expect(await applied()).toEqual(before);
});

test("and if it was made before the columns for them were", async () => {
  const { url, client, run, applied } = await open({ isEmpty: true });
  await migrate(url, { migrations: own.slice(0, 2) });
  await run("alter table migrations drop column sha256, drop column compatible_from");
  await migrate(url);
  expect(await applied()).toHaveLength(own.length);
  const fresh = await open();
  expect(await readCatalogue(client)).toEqual(await readCatalogue(fresh.client));
});

test("a database without digests whose schema differs is refused with the differences by name", async () => {
  const { url, run } = await open();
  await run("update migrations set sha256 = null");
  await run("alter table nodes drop column report");
  await run("create index my_own on holds (model)");
  await expect(migrate(url)).rejects.toThrow(
    "its schema differs from theirs: it lacks table nodes column report jsonb; " +
      "has index CREATE INDEX my_own ON holds USING btree (model). Start with an empty database",
  );
  await run("drop index my_own");
  await run("alter table nodes add column report jsonb");
  await migrate(url);
});

test("an older program starts on a newer schema that allows it, and leaves its rights alone", async () => {
  const { url, run } = await open();
  await migrate(url, { migrations: [...own, later(own.length)] });
  await run("revoke all on later from model_gateway");
  await migrate(url);
  const [row] = await run("select has_table_privilege('model_gateway', 'later', 'select') as may");
  expect(row).toEqual({ may: false });
});

test("an older program is refused on a newer schema that does not allow it", async () => {
  const { url } = await open();
  await migrate(url, { migrations: [...own, later(next)] });
  await expect(migrate(url)).rejects.toThrow(
    `the database is newer than this program: it has migration ${later(next).name}, ` +
      `and this program knows ${own.length} migrations.`,
  );
});

test("a migration that older programs do not bear waits until none of them runs", async () => {
  const { url, run } = await open();
  await run("insert into nodes (node_id) values ('node_a'), ('node_b')");
  const migrations = [...own, later(next)];
  await expect(migrate(url, { migrations })).rejects.toThrow(
    `migration ${later(next).name} may not run beside an older version of the gateway, ` +
      "and node_a, node_b still run: stop what is older",
  );
  await run("update nodes set silent_polls = 12 where node_id = 'node_a'");
  await run("update nodes set polled_at = now() - interval '13 seconds' where node_id = 'node_b'");
  await migrate(url, { migrations });
});

test("what waited for another person waits on as an approval, and what was decided does not", async () => {
  const { url, run, client } = await open({ isEmpty: true });
  await migrate(url, { migrations: own.slice(0, 7) });
  await run(`
    insert into accounts (account_id, name) values ('acc_a', 'A');
    insert into pending_transfers (pending_transfer_id, account_id, "family", kind, amount,
        idempotency_key, reason, requested_by, state, decided_by, decided_at)
      values
        ('ptr_1', 'acc_a', 'v1', 'bonus', 100000000001, 'key-1', 'goodwill', 'person:per_ann',
          'pending', null, null),
        ('ptr_2', 'acc_a', 'v1', 'bonus', 5, 'key-2', 'done', 'person:per_ann',
          'approved', 'person:per_bob', now());
    insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
        processor, method, asset, network, decimals, created_by, quoted_until, watched_until)
      select id, 'acc_a', 'v2', id, 5000000, 'p', 'm', 'BTC', 'bitcoin', 8, 'person:per_ann',
        now(), now()
      from unnest(array['ord_1', 'ord_2']) id;
    insert into payment_decisions (decision_id, order_id, kind, facts, deposit_ids, micros, reason,
        state, decided_by)
      values
        ('dec_3', 'ord_1', 'grant', '{late}', '{dep_1,""}', '{1000,201}', 'late', 'pending',
          'person:per_bob'),
        ('dec_2', 'ord_2', 'close', '{lost}', '{}', '{}', 'lost', 'done', 'person:per_bob')`);
  await migrate(url);
  const { rows } = await client.query(`
    select approval_id, kind, subject, account_id, reason, request, requested_by, person_id,
      usd_micro, state, decided_by
    from approvals order by kind`);
  expect(rows).toEqual([
    {
      ...{ approval_id: "apv_3", kind: "decision", subject: "ord_1", account_id: "acc_a" },
      ...{ reason: "late", requested_by: "person:per_bob", person_id: "per_bob" },
      request: {
        ...{ orderId: "ord_1", kind: "grant", facts: ["late"] },
        granted: [
          { depositId: "dep_1", micro: "1000" },
          { depositId: "", micro: "201" },
        ],
      },
      // 1,201 micro-credits, rounded up.
      ...{ usd_micro: "7", state: "pending", decided_by: null },
    },
    {
      ...{ approval_id: "apv_1", kind: "transfer", subject: "key-1", account_id: "acc_a" },
      ...{ reason: "goodwill", requested_by: "person:per_ann", person_id: "per_ann" },
      request: expect.any(Object),
      ...{ usd_micro: "500000001", state: "pending", decided_by: null },
    },
  ]);
  // As the one who carries it out reads it.
  expect(fromJson(CreateTransferRequestSchema, rows[1].request)).toMatchObject({
    ...{ accountId: "acc_a", family: Family.V1, kind: TransferKind.BONUS },
    ...{ amountMicrocredits: 100_000_000_001n, idempotencyKey: "key-1", reason: "goodwill" },
  });
  expect(await run("select decision_id from payment_decisions")).toEqual([
    { decision_id: "dec_2" },
  ]);
});
