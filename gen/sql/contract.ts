// Made of src/contract/sql by `npm run generate`. Do not edit.

import { one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// replays.sql

export type InsertReplayRow = { madeId: string };
/**
 * Notes what a call creates under an idempotency key, in place of one that has expired. Waits for a
 * call with the same key that is in progress. No row: an earlier call has the key.
 * `sealed`: null: the answer has no secret, or none may be kept
 */
export const insertReplay: Optional<{ accountId: string; actor: string; keySha256: Buffer; method: string; requestSha256: Buffer; madeId: string; sealed: Buffer | null }, InsertReplayRow> = optional(
  "contract/insert-replay",
  `-- contract/insert-replay
insert into replays
  (account_id, actor, key_sha256, method, request_sha256, made_id, sealed, ends_at)
values ($1, $2, $3, $4, $5, $6, $7,
  now() + interval '1 day')
on conflict (account_id, actor, key_sha256) do update
set method = excluded.method, request_sha256 = excluded.request_sha256,
  made_id = excluded.made_id, sealed = excluded.sealed, ends_at = excluded.ends_at
where replays.ends_at <= now()
returning made_id`,
  (p) => [p.accountId, p.actor, p.keySha256, p.method, p.requestSha256, p.madeId, p.sealed],
  (v) => ({ madeId: v[0] }) as never,
  "",
);

export type FindReplayRow = { method: string; requestSha256: Buffer; madeId: string; sealed: Buffer | null };
/**
 * Finds what an earlier call created under an idempotency key.
 */
export const findReplay: Optional<{ accountId: string; actor: string; keySha256: Buffer }, FindReplayRow> = optional(
  "contract/find-replay",
  `-- contract/find-replay
select method, request_sha256, made_id, sealed
from replays
where account_id = $1 and actor = $2 and key_sha256 = $3`,
  (p) => [p.accountId, p.actor, p.keySha256],
  (v) => ({ method: v[0], requestSha256: v[1], madeId: v[2], sealed: v[3] }) as never,
  "sealed",
);

/**
 * Removes what is older than a day.
 */
export const removeReplays: Run<undefined> = run(
  "contract/remove-replays",
  `-- contract/remove-replays
delete from replays where ends_at <= now()`,
  () => [],
);
