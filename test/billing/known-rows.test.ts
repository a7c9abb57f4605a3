// Tests admissions of requests that are alone, against the batches that they stand for.

import { afterAll, beforeAll, expect, test } from "vitest";
import { newRequestId } from "../../src/base/ids.ts";
import type { Hold, HoldRequest, Payer } from "../../src/billing/admission.ts";
import { BatchConnection } from "../../src/billing/batch-queue.ts";
import { KnownRows } from "../../src/billing/known-rows.ts";
import { admissionBatch, settlementBatch } from "../../src/billing/ledger-batches.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { endingWith, freshLedger, heldFor, holdRequest } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
let postgres: Postgres;
let connection: BatchConnection;
beforeAll(async () => {
  ledger = await freshLedger();
  postgres = connectPostgres(ledger.url);
  connection = new BatchConnection(postgres);
  await ledger.holds.place(holdRequest(await ledger.payer(heldFor(1)), 1), never);
});
afterAll(async () => {
  await connection.close();
  await postgres.close();
  await ledger.close();
});

const never = new AbortController().signal;
const output = 10;
const micro = heldFor(output) * 10n;

function asking(payer: Payer, more: Partial<HoldRequest> = {}): HoldRequest {
  const asked = { ...holdRequest(payer, output, { hasNewId: true }), ...more };
  return { ...asked, kind: "place", owner: "process", nonce: newRequestId() };
}

async function admitInBatch(known: KnownRows, request: HoldRequest): Promise<Hold> {
  const batch = () => admissionBatch([request], ledger.node.id(), () => {}, known);
  const [admitted] = await connection.run(batch);
  if (admitted?.kind !== "held") throw new Error("it was not admitted");
  return admitted.hold;
}

/** Undefined: the known rows do not suffice, or are others by now. */
async function admitAlone(known: KnownRows, request: HoldRequest): Promise<Hold | undefined> {
  const admission = known.admission(request, ledger.node.id());
  const admitted = admission && (await connection.run(() => admission));
  return admitted?.kind === "held" ? admitted.hold : undefined;
}

/** The rows of a payer, known since two batches. */
async function knownRows(payer: Payer): Promise<KnownRows> {
  const known = new KnownRows();
  for (let batch = 0; batch < 2; batch++) await admitInBatch(known, asking(payer));
  return known;
}

async function payerWithSecret(more: Parameters<typeof ledger.payer>[1] = {}) {
  const payer = await ledger.payer(micro, more);
  const secretId = newRequestId();
  await ledger.run(
    "insert into key_secrets (digest, secret_id, key_id, shown) values (sha256($1), $2, $3, '')",
    [secretId, secretId, payer.keyId],
  );
  return { ...payer, secretId };
}

/** What the ledger has of a payer: the pool, and how many holds. */
async function stored({ accountId }: Payer) {
  const [holds] = await ledger.run<{ count: bigint }>(
    "select count(*) as count from holds where account_id = $1",
    [accountId],
  );
  return { pool: await ledger.pool({ accountId, family: "v1", keyId: "" }), holds: holds?.count };
}

test("a request alone is admitted by rows that two batches found the same", async () => {
  const payer = await payerWithSecret();
  const known = new KnownRows();
  const first = asking(payer);
  expect(known.admission(first, ledger.node.id())).toBeUndefined();
  await admitInBatch(known, first);
  expect(known.admission(asking(payer), ledger.node.id())).toBeUndefined();
  await admitInBatch(known, asking(payer));

  const hold = await admitAlone(known, asking(payer));

  expect(hold).toMatchObject({
    amountMicro: heldFor(output),
    freeMicro: micro - heldFor(output) * 3n,
  });
  expect(await stored(payer)).toEqual({
    pool: { posted: micro, held: heldFor(output) * 3n },
    holds: 3n,
  });
});

test.for<Partial<HoldRequest>>([
  { tags: { team: 'a "b"', job: "1" }, madeBy: "person:ana" },
  { tags: {} },
])("the row of its hold and its pool are as a batch writes them: %o", async (more) => {
  const [one, other] = [await payerWithSecret(), await payerWithSecret()];
  const known = await knownRows(one);
  const alone = await admitAlone(known, asking(one, more));
  await knownRows(other);
  const inBatch = await admitInBatch(new KnownRows(), asking(other, more));

  const rowOf = async (hold: Hold | undefined) => {
    const [row] = await ledger.run<Record<string, unknown>>(
      `select to_jsonb(p) - 'account_id' as pool, to_jsonb(h)
           - '{request_id, account_id, key_id, secret_id, nonce, admitted_at, deadline}'::text[]
         as hold,
         h.admitted_at = $2 and h.month = $3::date as is_shown,
         h.secret_id = $4 as has_secret,
         h.deadline - h.admitted_at > interval '59 s' as has_deadline
       from holds h join pools p using (account_id, family) where h.request_id = $1`,
      [hold?.requestId, hold?.admittedAt, hold?.month, hold?.payer.secretId],
    );
    return row;
  };
  const row = await rowOf(alone);
  expect(row).toMatchObject({ is_shown: true, has_secret: true, has_deadline: true });
  expect(row).toEqual(await rowOf(inBatch));
});

test("charges of this process leave the rows known", async () => {
  const payer = await payerWithSecret();
  const known = await knownRows(payer);
  for (let round = 0; round < 3; round++) {
    const hold = await admitAlone(known, asking(payer));
    if (!hold) throw new Error("it was not admitted");
    const settle = { kind: "settle", hold, ending: endingWith({ input: 7, output: 3 }) } as const;
    const [settled] = await connection.run(() => settlementBatch([settle]));
    if (settled?.kind !== "charged") throw new Error("it was not charged");
    known.charge(settled.charge);
  }
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

const allowed = ["model-test"];
const changes: Readonly<Record<string, string>> = {
  "more credits": "update pools set posted = posted + 1 where account_id = $1 and posted > 0",
  "fewer credits": "update pools set posted = posted - 1 where account_id = $1 and posted > 0",
  "more held": "update pools set held = held + 1 where account_id = $1 and posted > 0",
  "less held": "update pools set held = held - 1 where account_id = $1 and posted > 0",
  "a debt": "update pools set in_debt = true where account_id = $1",
  "a suspended account": "update pools set account_status = 'suspended' where account_id = $1",
  "a closed account": "update pools set account_status = 'closed' where account_id = $1",
  "a limit of the pool": "update pools set day_limit = 1000000 where account_id = $1",
  "a paused key": "update keys set paused = true where account_id = $1",
  "a revoked key": "update keys set status = 'revoked' where account_id = $1",
  "an expired key": "update keys set expires_at = now() where account_id = $1",
  "other models": "update keys set allowed_models = '{model-other}' where account_id = $1",
  "more models":
    "update keys set allowed_models = '{model-test,model-other}' where account_id = $1",
  "all models": "update keys set allowed_models = '{}' where account_id = $1",
  "a limit of the key": "update budgets set total_limit = 1000000 where account_id = $1",
  "requests at once of the key": "update budgets set running_limit = 5 where account_id = $1",
  "a manager with a limit": `with managed as (
    update keys set managed_by = 'person:ana' where account_id = $1 returning account_id, family
  )
  insert into budgets (account_id, family, payer, day_limit)
  select account_id, family, 'person:ana', 1000000 from managed`,
  "a revoked secret": `update key_secrets set revoked_at = now()
    where key_id in (select key_id from keys where account_id = $1)`,
  "an expired secret": `update key_secrets set expires_at = now()
    where key_id in (select key_id from keys where account_id = $1)`,
};

test.for(Object.entries(changes))(
  "%s since then: nothing is written, and a batch decides",
  async ([, change]) => {
    const payer = await payerWithSecret({ allowedModels: allowed });
    const known = await knownRows(payer);
    const request = asking(payer);
    const admission = known.admission(request, ledger.node.id());
    expect(admission).toBeDefined();
    await ledger.run(change, [payer.accountId]);
    const before = await stored(payer);

    expect(admission && (await connection.run(() => admission))).toBeUndefined();

    expect(await stored(payer)).toEqual(before);
  },
);

test("what changes nothing for it is no hindrance", async () => {
  const payer = await payerWithSecret({ allowedModels: allowed });
  const known = await knownRows(payer);
  await ledger.run(
    `with managed as (update keys set managed_by = 'person:ana', expires_at = now() + interval '1 h'
       where account_id = $1 returning account_id, family)
     insert into budgets (account_id, family, payer)
     select account_id, family, 'person:ana' from managed`,
    [payer.accountId],
  );
  expect(await admitAlone(known, asking(payer))).toBeDefined();
});

test("a node that was declared dead admits nothing", async () => {
  const payer = await payerWithSecret();
  const known = await knownRows(payer);
  const before = await stored(payer);
  const admission = known.admission(asking(payer), "node_gone");
  expect(admission && (await connection.run(() => admission))).toBeUndefined();
  expect(await stored(payer)).toEqual(before);
});

test("limits, refusals and ids of callers are left to a batch", async () => {
  const limited = await payerWithSecret({ cap: 1_000_000n });
  const known = await knownRows(limited);
  expect(known.admission(asking(limited), ledger.node.id())).toBeUndefined();

  const payer = await payerWithSecret({ allowedModels: allowed });
  const rows = await knownRows(payer);
  const refused: Partial<HoldRequest>[] = [
    { hasNewId: false },
    { model: "model-other" },
    { bounds: { ...holdRequest(payer, 1_000).bounds } },
  ];
  for (const one of refused)
    expect(rows.admission(asking(payer, one), ledger.node.id())).toBeUndefined();
  expect(rows.admission(asking(payer), ledger.node.id())).toBeDefined();
});

test("a pool that another process uses, too, is left to batches", async () => {
  const payer = await payerWithSecret();
  const [known, other] = [await knownRows(payer), new KnownRows()];
  for (let round = 0; round < 3; round++) {
    await admitInBatch(other, asking(payer));
    expect(await admitAlone(known, asking(payer))).toBeUndefined();
    await admitInBatch(known, asking(payer));
    expect(known.admission(asking(payer), ledger.node.id())).toBeUndefined();
  }
});
