// Charges that tests write straight into the ledger, with pools, months and roll-ups left alone:
// for tests of how charges are read.

import type { Payer } from "../../src/billing/admission.ts";
import { price } from "./ledger.ts";

type Run = (text: string, values?: unknown[]) => Promise<unknown>;

export type WrittenCharges = {
  readonly payer: Payer;
  readonly count: number;
  /** Time of admission of the first one. The others follow, `stepMs` apart. */
  readonly from: Date;
  readonly stepMs: number;
  readonly model?: string;
  readonly outcome?: string;
  /** The amount of the nth one is this plus n. */
  readonly amountMicro?: bigint;
  /** An SQL expression of the number `n`. Default: no tags. */
  readonly tags?: string;
};

/** Writes charges, in one statement. Their ids are `req_`, the name of the key, and a number. */
export async function writeCharges(run: Run, charges: WrittenCharges): Promise<void> {
  const { payer, count, from, stepMs } = charges;
  const { model = "model-test", outcome = "completed", amountMicro = 100n } = charges;
  const { tags = "null" } = charges;
  await addPartitions(run, from);
  await run(
    "insert into price_versions values ($1, $2, 10000, 50000, 12000, 20000, 1000, 60000) on conflict do nothing",
    [price.priceVersion, "model-test"],
  );
  await run(
    `insert into charges (account_id, request_id, month, "family", key_id, model, input, output,
       cache_write_5m, cache_write_1h, cache_read, thinking, price_version, granted_output, hold,
       amount, overrun, output_over, thinking_over, outcome, basis, admitted_at, settled_at,
       tags)
     select $1, 'req_' || $2 || '_' || lpad(n::text, 7, '0'),
       date_trunc('month', at at time zone 'utc')::date, 'v1', $2, $3, n, 1, 0, 0, 0, 0, $4, 10,
       $5::bigint + n, $5::bigint + n, 0, 0, 0, $6, 'reported', at, at,
       ${tags}::jsonb
     from (
       select n, $7::timestamptz + n * $8::bigint * interval '1 millisecond' as at
       from generate_series(0, $9::int - 1) n
     ) times`,
    [
      payer.accountId,
      payer.keyId,
      model,
      price.priceVersion,
      amountMicro,
      outcome,
      from,
      stepMs,
      count,
    ],
  );
}

/** Adds the partitions from the month of `from` on. */
async function addPartitions(run: Run, from: Date): Promise<void> {
  await run(
    `do $$
     declare month date;
     begin
       for month in
         select generate_series(
           date_trunc('month', '${from.toISOString()}'::timestamptz at time zone 'UTC'),
           now() at time zone 'UTC', interval '1 month'
         )::date
       loop
         if to_regclass('charges_' || to_char(month, 'YYYY_MM')) is null then
           execute format('create table %I partition of charges for values from (%L) to (%L)',
             'charges_' || to_char(month, 'YYYY_MM'), month, (month + interval '1 month')::date);
         end if;
       end loop;
     end $$`,
  );
}
