// Made of src/contract/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// approvals.sql

/**
 * Ends what waits about the same, unless it is the same request.
 */
export const replaceApproval: Run<{ requestedBy: string; kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; accountId: string; subject: string; reason: string; request: string }> = run(
  "contract/replace-approval",
  `-- contract/replace-approval
update approvals set state = 'replaced', decided_by = $1, decided_at = now()
 where kind = $2 and account_id = $3 and subject = $4 and state = 'pending'
   and (ends_at <= now() or requested_by <> $1 or reason <> $5
        or request <> $6::jsonb)`,
  (p) => [p.requestedBy, p.kind, p.accountId, p.subject, p.reason, p.request],
  5000,
);

/**
 * Lets a request wait. Changes no row: the same request waits.
 */
export const insertApproval: Run<{ approvalId: string; kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; subject: string; accountId: string; what: string; reason: string; request: string; requestedBy: string; personId: string; usdMicro: bigint | number }> = run(
  "contract/insert-approval",
  `-- contract/insert-approval
insert into approvals
  (approval_id, kind, subject, account_id, what, reason, request, requested_by, person_id,
   usd_micro)
values ($1, $2, $3, $4, $5, $6, $7, $8,
        $9, $10)
on conflict (kind, account_id, subject) where state = 'pending' do nothing`,
  (p) => [p.approvalId, p.kind, p.subject, p.accountId, p.what, p.reason, p.request, p.requestedBy, p.personId, p.usdMicro],
  5000,
);

/**
 * Notes that the machine did what a person could not alone.
 */
export const insertBypass: Run<{ approvalId: string; kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; subject: string; accountId: string; what: string; reason: string; request: string; requestedBy: string; usdMicro: bigint | number }> = run(
  "contract/insert-bypass",
  `-- contract/insert-bypass
insert into approvals
  (approval_id, kind, subject, account_id, what, reason, request, requested_by, person_id,
   usd_micro, state)
values ($1, $2, $3, $4, $5, $6, $7, $8, '',
        $9, 'bypassed')`,
  (p) => [p.approvalId, p.kind, p.subject, p.accountId, p.what, p.reason, p.request, p.requestedBy, p.usdMicro],
  5000,
);

export type ListBypassesRow = { approvalId: string; accountId: string; what: string; requestedBy: string; requestedAt: Date };
/**
 * What the machine did alone since ten seconds before a time, oldest first.
 */
export const listBypasses: Many<{ since: Date | string; rows: bigint | number }, ListBypassesRow> = many(
  "contract/list-bypasses",
  `-- contract/list-bypasses
select approval_id, account_id, what, requested_by, requested_at
  from approvals
 where state = 'bypassed' and requested_at > $1::timestamptz - interval '10 seconds'
 order by requested_at
 limit $2`,
  (p) => [p.since, p.rows],
  (v) => ({ approvalId: v[0], accountId: v[1], what: v[2], requestedBy: v[3], requestedAt: v[4] }) as never,
  "",
  5000,
);

export type FindWaitingRow = { approvalId: string; kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; subject: string; accountId: string; what: string; reason: string; requestedBy: string; personId: string; usdMicro: bigint; requestedAt: Date; endsAt: Date; givenUsdMicro: bigint };
/**
 * What waits about a subject: with the id, if there is one.
 */
export const findWaiting: Optional<{ kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; accountId: string; subject: string; approvalId: string | null }, FindWaitingRow> = optional(
  "contract/find-waiting",
  `-- contract/find-waiting
select a.approval_id, a.kind, a.subject, a.account_id, a.what, a.reason, a.requested_by,
       a.person_id, a.usd_micro, a.requested_at, a.ends_at,
       coalesce((select g.usd_micro from given g
                  where g.person_id = a.person_id
                    and g.day = (now() at time zone 'UTC')::date), 0) as given_usd_micro
  from approvals a
 where a.kind = $1 and a.account_id = $2 and a.subject = $3
   and a.state = 'pending' and a.ends_at > now()
   and a.approval_id = coalesce($4, a.approval_id)`,
  (p) => [p.kind, p.accountId, p.subject, p.approvalId],
  (v) => ({ approvalId: v[0], kind: v[1], subject: v[2], accountId: v[3], what: v[4], reason: v[5], requestedBy: v[6], personId: v[7], usdMicro: v[8], requestedAt: v[9], endsAt: v[10], givenUsdMicro: v[11] }) as never,
  "",
  5000,
);

export type FindApprovalRow = { kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; accountId: string; request: Json; reason: string; requestedBy: string; personId: string; state: "pending" | "approved" | "rejected" | "replaced" | "bypassed"; decidedBy: string | null; isOver: boolean };
/**
 * A request that waits, or waited.
 */
export const findApproval: Optional<{ approvalId: string }, FindApprovalRow> = optional(
  "contract/find-approval",
  `-- contract/find-approval
select kind, account_id, request, reason, requested_by, person_id, state, decided_by,
       ends_at <= now() as is_over
  from approvals
 where approval_id = $1`,
  (p) => [p.approvalId],
  (v) => ({ kind: v[0], accountId: v[1], request: v[2], reason: v[3], requestedBy: v[4], personId: v[5], state: v[6], decidedBy: v[7], isOver: v[8] }) as never,
  "decidedBy",
  5000,
);

export type ListApprovalsRow = { approvalId: string; kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; subject: string; accountId: string; what: string; reason: string; requestedBy: string; personId: string; usdMicro: bigint; requestedAt: Date; endsAt: Date; givenUsdMicro: bigint };
/**
 * What waits, newest first.
 * `before`: the last one of the page before; null: from the newest
 */
export const listApprovals: Many<{ before: string | null; rows: bigint | number }, ListApprovalsRow> = many(
  "contract/list-approvals",
  `-- contract/list-approvals
select a.approval_id, a.kind, a.subject, a.account_id, a.what, a.reason, a.requested_by,
       a.person_id, a.usd_micro, a.requested_at, a.ends_at,
       coalesce((select g.usd_micro from given g
                  where g.person_id = a.person_id
                    and g.day = (now() at time zone 'UTC')::date), 0) as given_usd_micro
  from approvals a
 where a.state = 'pending' and a.ends_at > now()
   and ($1::text is null or a.approval_id < $1)
 order by a.approval_id desc
 limit $2`,
  (p) => [p.before, p.rows],
  (v) => ({ approvalId: v[0], kind: v[1], subject: v[2], accountId: v[3], what: v[4], reason: v[5], requestedBy: v[6], personId: v[7], usdMicro: v[8], requestedAt: v[9], endsAt: v[10], givenUsdMicro: v[11] }) as never,
  "",
  5000,
);

export type CountApprovalsRow = { accountId: string; approvals: number };
/**
 * How many requests about an account wait, by account.
 */
export const countApprovals: Many<{ rows: bigint | number }, CountApprovalsRow> = many(
  "contract/count-approvals",
  `-- contract/count-approvals
select account_id, count(*)::integer as approvals
  from approvals
 where state = 'pending' and ends_at > now() and account_id <> ''
 group by account_id
 order by account_id desc
 limit $1`,
  (p) => [p.rows],
  (v) => ({ accountId: v[0], approvals: v[1] }) as never,
  "",
  5000,
);

/**
 * Ends the waiting of a request. Changes no row: it does not wait.
 */
export const endApproval: Run<{ state: "pending" | "approved" | "rejected" | "replaced" | "bypassed"; decidedBy: string; approvalId: string }> = run(
  "contract/end-approval",
  `-- contract/end-approval
update approvals set state = $1, decided_by = $2, decided_at = now()
 where approval_id = $3 and state = 'pending' and ends_at > now()`,
  (p) => [p.state, p.decidedBy, p.approvalId],
  5000,
);

export type LockGivenRow = { usdMicro: bigint };
/**
 * What a person gave away alone in this UTC day, locked until the end of the transaction.
 */
export const lockGiven: One<{ personId: string }, LockGivenRow> = one(
  "contract/lock-given",
  `-- contract/lock-given
insert into given (person_id, day, usd_micro)
values ($1, (now() at time zone 'UTC')::date, 0)
on conflict (person_id, day) do update set usd_micro = given.usd_micro
returning usd_micro`,
  (p) => [p.personId],
  (v) => ({ usdMicro: v[0] }) as never,
  "",
  5000,
);

/**
 * Adds to it.
 */
export const addGiven: Run<{ usdMicro: bigint | number; personId: string }> = run(
  "contract/add-given",
  `-- contract/add-given
update given set usd_micro = usd_micro + $1
 where person_id = $2 and day = (now() at time zone 'UTC')::date`,
  (p) => [p.usdMicro, p.personId],
  5000,
);

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
 * Notes another id of what a call created.
 */
export const nameReplay: Run<{ madeId: string; accountId: string; actor: string; keySha256: Buffer }> = run(
  "contract/name-replay",
  `-- contract/name-replay
update replays
set made_id = $1
where account_id = $2 and actor = $3 and key_sha256 = $4`,
  (p) => [p.madeId, p.accountId, p.actor, p.keySha256],
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
