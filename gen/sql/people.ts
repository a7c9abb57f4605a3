// Made of src/people/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// admin-tokens.sql

/**
 * Adds an admin token. Changes no row: the name is or was in use.
 * `personId`: who made it; null: the machine
 */
export const insertAdminToken: Run<{ digest: Buffer; tokenId: string; name: string; scope: "read" | "keys" | "money" | "all"; hint: string; createdBy: string; personId: string | null; allowedAddresses: readonly string[] }> = run(
  "people/insert-admin-token",
  `-- people/insert-admin-token
insert into admin_tokens
  (digest, token_id, name, scope, shown, created_by, person_id, allowed_addresses)
values ($1, $2, $3, $4, $5, $6, $7,
  $8::text[])
on conflict do nothing`,
  (p) => [p.digest, p.tokenId, p.name, p.scope, p.hint, p.createdBy, p.personId, p.allowedAddresses],
  5000,
);

export type FindAdminTokenRow = { tokenId: string; name: string; scope: "read" | "keys" | "money" | "all"; hint: string; createdBy: string; createdAt: Date; lastUsedAt: Date | null; revokedAt: Date | null; allowedAddresses: string[] };
/**
 * An admin token. No row: there is none, or it waits for an approval.
 */
export const findAdminToken: Optional<{ tokenId: string }, FindAdminTokenRow> = optional(
  "people/find-admin-token",
  `-- people/find-admin-token
select token_id, name, scope, shown as hint, created_by, created_at, used_at as last_used_at,
       revoked_at, allowed_addresses
  from admin_tokens
 where token_id = $1`,
  (p) => [p.tokenId],
  (v) => ({ tokenId: v[0], name: v[1], scope: v[2], hint: v[3], createdBy: v[4], createdAt: v[5], lastUsedAt: v[6], revokedAt: v[7], allowedAddresses: v[8] }) as never,
  "lastUsedAt revokedAt",
  5000,
);

export type FindAdminTokensRow = { digest: Buffer; tokenId: string; name: string; scope: "read" | "keys" | "money" | "all"; hint: string; personId: string | null; allowedAddresses: string[]; isRevoked: boolean };
/**
 * The admin tokens with these digests, and records their use, at most once a minute.
 */
export const findAdminTokens: Many<{ digests: readonly Buffer[] }, FindAdminTokensRow> = many(
  "people/find-admin-tokens",
  `-- people/find-admin-tokens
with touched as (
  update admin_tokens set used_at = now()
   where digest in (select digest from admin_tokens
                     where digest = any($1::bytea[]) and revoked_at is null
                       and (used_at is null or used_at < now() - interval '50 seconds')
                       for update skip locked)
)
select digest, token_id, name, scope, shown as hint, person_id, allowed_addresses,
       revoked_at is not null as is_revoked
  from admin_tokens
 where digest = any($1::bytea[])`,
  (p) => [p.digests],
  (v) => ({ digest: v[0], tokenId: v[1], name: v[2], scope: v[3], hint: v[4], personId: v[5], allowedAddresses: v[6], isRevoked: v[7] }) as never,
  "personId",
  5000,
);

export type ListAdminTokensRow = { tokenId: string; name: string; scope: "read" | "keys" | "money" | "all"; hint: string; createdBy: string; createdAt: Date; lastUsedAt: Date | null; revokedAt: Date | null; allowedAddresses: string[] };
/**
 * Admin tokens, oldest first.
 * `afterId`: empty: from the first
 */
export const listAdminTokens: Many<{ afterId: string; rows: bigint | number }, ListAdminTokensRow> = many(
  "people/list-admin-tokens",
  `-- people/list-admin-tokens
select token_id, name, scope, shown as hint, created_by, created_at, used_at as last_used_at,
       revoked_at, allowed_addresses
  from admin_tokens
 where token_id > $1
 order by token_id
 limit $2`,
  (p) => [p.afterId, p.rows],
  (v) => ({ tokenId: v[0], name: v[1], scope: v[2], hint: v[3], createdBy: v[4], createdAt: v[5], lastUsedAt: v[6], revokedAt: v[7], allowedAddresses: v[8] }) as never,
  "lastUsedAt revokedAt",
  5000,
);

export type LockAdminTokenRow = { tokenId: string };
/**
 * Locks an admin token that is not revoked until the end of the transaction. No row: there is none.
 */
export const lockAdminToken: Optional<{ tokenId: string }, LockAdminTokenRow> = optional(
  "people/lock-admin-token",
  `-- people/lock-admin-token
select token_id from admin_tokens where token_id = $1 and revoked_at is null for share`,
  (p) => [p.tokenId],
  (v) => ({ tokenId: v[0] }) as never,
  "",
  5000,
);

export type ShareTokenByNameRow = { tokenId: string };
/**
 * An admin token that is not revoked until the end of the transaction. No row: there is none.
 */
export const shareTokenByName: Optional<{ name: string }, ShareTokenByNameRow> = optional(
  "people/share-token-by-name",
  `-- people/share-token-by-name
select token_id from admin_tokens where name = $1 and revoked_at is null for share`,
  (p) => [p.name],
  (v) => ({ tokenId: v[0] }) as never,
  "",
  5000,
);

export type RevokeAdminTokenRow = { tokenId: string; name: string; scope: "read" | "keys" | "money" | "all"; hint: string; createdBy: string; createdAt: Date; lastUsedAt: Date | null; revokedAt: Date | null; allowedAddresses: string[] };
/**
 * Revokes an admin token, unless it is revoked already. No row: there is none.
 */
export const revokeAdminToken: Optional<{ tokenId: string }, RevokeAdminTokenRow> = optional(
  "people/revoke-admin-token",
  `-- people/revoke-admin-token
update admin_tokens set revoked_at = coalesce(revoked_at, now())
 where token_id = $1
returning token_id, name, scope, shown as hint, created_by, created_at, used_at as last_used_at,
          revoked_at, allowed_addresses`,
  (p) => [p.tokenId],
  (v) => ({ tokenId: v[0], name: v[1], scope: v[2], hint: v[3], createdBy: v[4], createdAt: v[5], lastUsedAt: v[6], revokedAt: v[7], allowedAddresses: v[8] }) as never,
  "lastUsedAt revokedAt",
  5000,
);

// audit-events.sql

/**
 * Stores an administrative act.
 * `accountId`: empty: it concerns no account
 */
export const insertAuditEvent: Run<{ eventId: string; at: Date | string; actor: string; accountId: string; method: string; outcome: string; facts: string; address: string }> = run(
  "people/insert-audit-event",
  `-- people/insert-audit-event
insert into audit_events (event_id, at, actor, account_id, method, outcome, facts, address)
values ($1, $2, $3, $4, $5, $6, $7, $8)`,
  (p) => [p.eventId, p.at, p.actor, p.accountId, p.method, p.outcome, p.facts, p.address],
  5000,
);

export type CountRefusalRow = { refused: number; eventId: string };
/**
 * Counts a refused call of an hour, for the event of those that leave none. Returns it with the
 * number of the call.
 * `eventId`: of that event, if this is the first of them
 * `kept`: so many leave an event each
 */
export const countRefusal: One<{ actor: string; eventId: string; kept: number }, CountRefusalRow> = one(
  "people/count-refusal",
  `-- people/count-refusal
insert into audit_refusals as r (actor, hour, refused, event_id)
values ($1, date_trunc('hour', now()), 1, $2)
on conflict (actor, hour) do update
   set refused = r.refused + 1,
       event_id = case when r.refused = $3::integer then excluded.event_id else r.event_id end
returning refused, event_id`,
  (p) => [p.actor, p.eventId, p.kept],
  (v) => ({ refused: v[0], eventId: v[1] }) as never,
  "",
  5000,
);

/**
 * Notes how many refused calls an event stands for.
 */
export const countMore: Run<{ more: string; eventId: string }> = run(
  "people/count-more",
  `-- people/count-more
update audit_events set facts = jsonb_build_object('more', $1::text) where event_id = $2`,
  (p) => [p.more, p.eventId],
  5000,
);

/**
 * Deletes counts of hours that are over.
 */
export const removeRefusals: Run<undefined> = run(
  "people/remove-refusals",
  `-- people/remove-refusals
delete from audit_refusals where hour < now() - interval '2 hours'`,
  () => [],
  5000,
);

/**
 * Deletes some of the events of refused calls of long ago.
 * `days`: since the call
 */
export const removeRefused: Run<{ days: number; rows: bigint | number }> = run(
  "people/remove-refused",
  `-- people/remove-refused
with old as (
  select event_id
    from audit_events
   where outcome <> 'ok' and at < now() - $1::integer * interval '1 day'
   order by at
   limit $2
)
delete from audit_events where event_id in (select event_id from old)`,
  (p) => [p.days, p.rows],
  5000,
);

export type ListAuditEventsRow = { eventId: string; at: Date; actor: string; accountId: string; method: string; outcome: string; facts: Json; address: string };
/**
 * Administrative acts, newest first.
 * `accountId`: null: of all accounts and of none
 * `actor`: null: of everybody
 * `method`: null: all
 * `keyId`: null: all; the acts on one key, or on several of which it is one
 * `hidden`: methods whose acts are left out
 * `before`: only those before this time; null: from the newest
 * `beforeId`: or at this time, before this event
 */
export const listAuditEvents: Many<{ accountId: string | null; actor: string | null; method: string | null; keyId: string | null; hidden: readonly string[]; from: Date | string | null; to: Date | string | null; before: Date | string | null; beforeId: string | null; rows: bigint | number }, ListAuditEventsRow> = many(
  "people/list-audit-events",
  `-- people/list-audit-events
select event_id, at, actor, account_id, method, outcome, facts, address
  from audit_events
 where ($1::text is null or account_id = $1)
   and ($2::text is null or actor = $2)
   and ($3::text is null or method = $3)
   and ($4::text is null or facts ->> 'keyId' = $4
        or $4 = any(string_to_array(facts ->> 'keyIds', ' ')))
   and method <> all($5::text[])
   and ($6::timestamptz is null or at >= $6)
   and ($7::timestamptz is null or at < $7)
   and ($8::timestamptz is null or (at, event_id) < ($8, $9::text))
 order by at desc, event_id desc
 limit $10`,
  (p) => [p.accountId, p.actor, p.method, p.keyId, p.hidden, p.from, p.to, p.before, p.beforeId, p.rows],
  (v) => ({ eventId: v[0], at: v[1], actor: v[2], accountId: v[3], method: v[4], outcome: v[5], facts: v[6], address: v[7] }) as never,
  "",
  5000,
);

/**
 * Removes the addresses from some of the audit events of long ago.
 * `days`: since the act
 */
export const removeAddresses: Run<{ days: number; rows: bigint | number }> = run(
  "people/remove-addresses",
  `-- people/remove-addresses
with old as (
  select event_id
    from audit_events
   where address <> '' and at < now() - $1::integer * interval '1 day'
   order by at
   limit $2
)
update audit_events set address = '' where event_id in (select event_id from old)`,
  (p) => [p.days, p.rows],
  5000,
);

// changes.sql

/**
 * Tells every process that what it knows of a person or an admin token is out of date.
 * `subjectId`: of the person or the token
 */
export const insertChange: Run<{ changeId: string; subjectId: string }> = run(
  "people/insert-change",
  `-- people/insert-change
insert into people_changes (change_id, subject_id) values ($1, $2)`,
  (p) => [p.changeId, p.subjectId],
  5000,
);

export type ReadChangesRow = { readAt: Date; changeId: string | null; subjectId: string | null };
/**
 * Changes of people and admin tokens since ten seconds before a time, and the time of this read.
 * One row without a change if there is none. The ten seconds: transactions do not commit in the
 * order of their times.
 * `since`: the time of the previous read; null: now
 */
export const readChanges: Many<{ since: Date | string | null }, ReadChangesRow> = many(
  "people/read-changes",
  `-- people/read-changes
select statement_timestamp() as read_at, c.change_id as change_id,
       c.subject_id as subject_id
  from (select 1) as always
  left join people_changes c
    on c.changed_at
       > coalesce($1::timestamptz, statement_timestamp()) - interval '10 seconds'`,
  (p) => [p.since],
  (v) => ({ readAt: v[0], changeId: v[1], subjectId: v[2] }) as never,
  "changeId subjectId",
  5000,
);

/**
 * Deletes changes that every running process read long ago.
 */
export const removeChanges: Run<undefined> = run(
  "people/remove-changes",
  `-- people/remove-changes
delete from people_changes where changed_at < now() - interval '1 day'`,
  () => [],
  5000,
);

// guessing.sql

export type CountAttemptsRow = { kind: "login" | "network" | "pair"; failures: number; counted: boolean; waitMs: number };
/**
 * Counts a password attempt for each subject, before its outcome is known. `counted` is false for a
 * subject that has to wait: it is not counted. After the free failures of its kind, each failure
 * doubles the wait: 1 s, 2 s, 4 s … 15 min. A login alone never waits. A subject without a failure
 * for an hour starts anew. Without a wait, `wait_until` is long past: a time of now could be ahead
 * of an attempt at the same time, whose transaction began before.
 * `subjects`: in ascending order
 */
export const countAttempts: Many<{ subjects: readonly Buffer[]; kinds: readonly ("login" | "network" | "pair")[] }, CountAttemptsRow> = many(
  "people/count-attempts",
  `-- people/count-attempts
insert into sign_in_failures as f (subject, kind, failures, last_at, wait_until)
select subject, kind, 1, now(), 'epoch'::timestamptz
  from unnest($1::bytea[], $2::text[]) as attempt (subject, kind)
 order by subject
on conflict (subject) do update
   set failures = case when f.wait_until > now() then f.failures
                       when f.last_at < now() - interval '1 hour' then 1
                       else f.failures + 1 end,
       last_at = case when f.wait_until > now() then f.last_at else now() end,
       wait_until = case
         when f.wait_until > now() then f.wait_until
         when f.kind = 'login' or f.last_at < now() - interval '1 hour' then 'epoch'
         when f.failures + 1 < case f.kind when 'pair' then 5 else 20 end then 'epoch'
         else now() + interval '1 second' * least(900, power(2, least(10,
                f.failures + 1 - case f.kind when 'pair' then 5 else 20 end)))
       end
returning kind, failures, last_at = now() as counted,
          extract(epoch from (wait_until - now()))::float8 * 1000 as wait_ms`,
  (p) => [p.subjects, p.kinds],
  (v) => ({ kind: v[0], failures: v[1], counted: v[2], waitMs: v[3] }) as never,
  "",
  5000,
);

/**
 * Uses up a challenge. Changes no row: it was answered before.
 * `lifetimeMs`: how long it is good
 */
export const spendChallenge: Run<{ digest: Buffer; lifetimeMs: number }> = run(
  "people/spend-challenge",
  `-- people/spend-challenge
insert into spent_challenges (digest, ends_at)
values ($1, now() + $2::float8 * interval '1 millisecond')
on conflict (digest) do nothing`,
  (p) => [p.digest, p.lifetimeMs],
  5000,
);

export type ReadWaitsRow = { waitMs: number };
/**
 * How long the subjects have to wait before the next password attempt. No row: none has to.
 */
export const readWaits: Optional<{ subjects: readonly Buffer[] }, ReadWaitsRow> = optional(
  "people/read-waits",
  `-- people/read-waits
select max(extract(epoch from (wait_until - now())))::float8 * 1000 as wait_ms
  from sign_in_failures
 where subject = any($1::bytea[]) and wait_until > now()
having count(*) > 0`,
  (p) => [p.subjects],
  (v) => ({ waitMs: v[0] }) as never,
  "",
  5000,
);

/**
 * Takes the count of an attempt back, because it succeeded. The login starts anew in its network.
 * Locks the subjects in the order in which attempts are counted.
 */
export const forgiveAttempt: Run<{ subjects: readonly Buffer[] }> = run(
  "people/forgive-attempt",
  `-- people/forgive-attempt
with locked as (
  select subject from sign_in_failures
   where subject = any($1::bytea[])
   order by subject
     for update
)
update sign_in_failures
   set failures = case when kind = 'pair' then 0 else greatest(0, failures - 1) end,
       wait_until = 'epoch'
 where subject in (select subject from locked)`,
  (p) => [p.subjects],
  5000,
);

/**
 * Deletes challenges whose time is over.
 */
export const removeChallenges: Run<undefined> = run(
  "people/remove-challenges",
  `-- people/remove-challenges
delete from spent_challenges where ends_at < now()`,
  () => [],
  5000,
);

/**
 * Deletes counts that have no effect any more.
 */
export const removeFailures: Run<undefined> = run(
  "people/remove-failures",
  `-- people/remove-failures
delete from sign_in_failures
 where last_at < now() - interval '1 hour' and wait_until < now()`,
  () => [],
  5000,
);

// installation.sql

export type ReadInstallationRow = { accountId: string | null };
/**
 * What this installation knows about itself. `account_id`: of the first start; null: none made one.
 */
export const readInstallation: One<undefined, ReadInstallationRow> = one(
  "people/read-installation",
  `-- people/read-installation
select account_id from installation`,
  () => [],
  (v) => ({ accountId: v[0] }) as never,
  "accountId",
  5000,
);

export type ClaimAccountRow = { accountId: string };
/**
 * Names the account of the first start, unless it has one. Returns the one that it has now.
 */
export const claimAccount: One<{ accountId: string }, ClaimAccountRow> = one(
  "people/claim-account",
  `-- people/claim-account
update installation set account_id = coalesce(account_id, $1)
returning account_id as account_id`,
  (p) => [p.accountId],
  (v) => ({ accountId: v[0] }) as never,
  "",
  5000,
);

export type ClaimCellRow = { cell: string; installationId: string };
/**
 * Makes this the database of a cell, unless it is one. Returns the cell that it has now.
 * `installationId`: a new one, for a database without
 */
export const claimCell: One<{ cell: string; installationId: string }, ClaimCellRow> = one(
  "people/claim-cell",
  `-- people/claim-cell
update installation
   set cell = coalesce(cell, $1),
       installation_id = coalesce(installation_id, $2)
returning cell as cell, installation_id as installation_id`,
  (p) => [p.cell, p.installationId],
  (v) => ({ cell: v[0], installationId: v[1] }) as never,
  "",
  5000,
);

/**
 * Notes that the token of the environment was used.
 */
export const touchAdminToken: Run<undefined> = run(
  "people/touch-admin-token",
  `-- people/touch-admin-token
update installation set admin_token_used_at = now()`,
  () => [],
  5000,
);

export type ReadAdminTokenUseRow = { usedAt: Date | null };
/**
 * When the token of the environment was used last.
 */
export const readAdminTokenUse: One<undefined, ReadAdminTokenUseRow> = one(
  "people/read-admin-token-use",
  `-- people/read-admin-token-use
select admin_token_used_at as used_at from installation`,
  () => [],
  (v) => ({ usedAt: v[0] }) as never,
  "usedAt",
  5000,
);

// links.sql

export type InsertLinkRow = { invitationId: string; role: "viewer" | "member" | "owner" | null; login: string; createdBy: string; createdAt: Date; endsAt: Date; email: string | null };
/**
 * Adds a one-time link.
 * `personId`: of a recovery or an address: the person; otherwise the id that a new person gets
 * `accountId`: null, as the role: it joins no account
 * `login`: that it proposes; empty: none
 * `email`: the address to which alone it is sent; null: it is shown
 */
export const insertLink: One<{ digest: Buffer; linkId: string; purpose: "owner" | "invitation" | "recovery" | "sign_up" | "email"; personId: string; accountId: string | null; role: "viewer" | "member" | "owner" | null; login: string; madeBy: string; lifetimeMs: number; email: string | null }, InsertLinkRow> = one(
  "people/insert-link",
  `-- people/insert-link
insert into links
  (digest, link_id, purpose, person_id, account_id, role, login, made_by, ends_at, email)
values ($1, $2, $3, $4, $5, $6, $7, $8,
        now() + $9::float8 * interval '1 millisecond', $10)
returning link_id as invitation_id, role, login, made_by as created_by, made_at as created_at,
          ends_at, email`,
  (p) => [p.digest, p.linkId, p.purpose, p.personId, p.accountId, p.role, p.login, p.madeBy, p.lifetimeMs, p.email],
  (v) => ({ invitationId: v[0], role: v[1], login: v[2], createdBy: v[3], createdAt: v[4], endsAt: v[5], email: v[6] }) as never,
  "role email",
  5000,
);

export type FindLinkRow = { linkId: string; purpose: "owner" | "invitation" | "recovery" | "sign_up" | "email"; personId: string; accountId: string | null; role: "viewer" | "member" | "owner" | null; login: string; endsAt: Date; email: string | null };
/**
 * A link that can be used.
 */
export const findLink: Optional<{ digest: Buffer }, FindLinkRow> = optional(
  "people/find-link",
  `-- people/find-link
select link_id, purpose, person_id, account_id, role, login, ends_at, email
  from links
 where digest = $1 and used_at is null and ends_at > now()`,
  (p) => [p.digest],
  (v) => ({ linkId: v[0], purpose: v[1], personId: v[2], accountId: v[3], role: v[4], login: v[5], endsAt: v[6], email: v[7] }) as never,
  "accountId role email",
  5000,
);

export type CountInvitationsRow = { made: number; resetsAt: Date | null; open: number };
/**
 * The invitations that an account made in the last 24 hours, when the oldest of them leaves that
 * time, and how many are open.
 */
export const countInvitations: One<{ accountId: string }, CountInvitationsRow> = one(
  "people/count-invitations",
  `-- people/count-invitations
select count(*) filter (where made_at > now() - interval '24 hours')::integer as made,
       min(made_at) filter (where made_at > now() - interval '24 hours') + interval '24 hours'
         as resets_at,
       count(*) filter (where used_at is null and ends_at > now())::integer as open
  from links
 where account_id = $1 and purpose = 'invitation'
   and made_at > now() - interval '8 days'`,
  (p) => [p.accountId],
  (v) => ({ made: v[0], resetsAt: v[1], open: v[2] }) as never,
  "resetsAt",
  5000,
);

export type ListInvitationsRow = { invitationId: string; role: "viewer" | "member" | "owner" | null; login: string; createdBy: string; createdAt: Date; endsAt: Date; email: string | null; mail: "waiting" | "sent" | "failed" | null; mailProblem: string | null };
/**
 * The open invitations of an account, newest first, and what became of their mail.
 */
export const listInvitations: Many<{ accountId: string }, ListInvitationsRow> = many(
  "people/list-invitations",
  `-- people/list-invitations
select l.link_id as invitation_id, l.role, l.login as login, l.made_by as created_by,
       l.made_at as created_at, l.ends_at as ends_at, l.email,
       m.state as mail, m.problem as mail_problem
  from links l
  left join mails m on m.link_id = l.link_id
 where l.account_id = $1 and l.purpose = 'invitation' and l.used_at is null
   and l.ends_at > now()
 order by l.made_at desc, l.link_id desc
 limit 1000`,
  (p) => [p.accountId],
  (v) => ({ invitationId: v[0], role: v[1], login: v[2], createdBy: v[3], createdAt: v[4], endsAt: v[5], email: v[6], mail: v[7], mailProblem: v[8] }) as never,
  "role email mail mailProblem",
  5000,
);

export type FindInvitationRow = { invitationId: string; role: "viewer" | "member" | "owner" | null; login: string; createdBy: string; createdAt: Date; endsAt: Date; email: string | null; mail: "waiting" | "sent" | "failed" | null; mailProblem: string | null };
/**
 * An invitation, also one that was used, and what became of its mail.
 */
export const findInvitation: Optional<{ accountId: string; linkId: string }, FindInvitationRow> = optional(
  "people/find-invitation",
  `-- people/find-invitation
select l.link_id as invitation_id, l.role, l.login as login, l.made_by as created_by,
       l.made_at as created_at, l.ends_at as ends_at, l.email,
       m.state as mail, m.problem as mail_problem
  from links l
  left join mails m on m.link_id = l.link_id
 where l.account_id = $1 and l.link_id = $2 and l.purpose = 'invitation'`,
  (p) => [p.accountId, p.linkId],
  (v) => ({ invitationId: v[0], role: v[1], login: v[2], createdBy: v[3], createdAt: v[4], endsAt: v[5], email: v[6], mail: v[7], mailProblem: v[8] }) as never,
  "role email mail mailProblem",
  5000,
);

/**
 * Gives an open link a new token. Changes no row: the link was used, or it has ended.
 * `digest`: of the token
 */
export const renewLink: Run<{ digest: Buffer; linkId: string }> = run(
  "people/renew-link",
  `-- people/renew-link
update links set digest = $1
 where link_id = $2 and used_at is null and ends_at > now()`,
  (p) => [p.digest, p.linkId],
  5000,
);

export type UseLinkRow = { linkId: string; purpose: "owner" | "invitation" | "recovery" | "sign_up" | "email"; personId: string; accountId: string | null; role: "viewer" | "member" | "owner" | null; login: string; endsAt: Date; email: string | null };
/**
 * Uses a link up. No row: it was used before, it expired, or there is none.
 */
export const useLink: Optional<{ digest: Buffer }, UseLinkRow> = optional(
  "people/use-link",
  `-- people/use-link
update links set used_at = now()
 where digest = $1 and used_at is null and ends_at > now()
returning link_id, purpose, person_id, account_id, role, login, ends_at, email`,
  (p) => [p.digest],
  (v) => ({ linkId: v[0], purpose: v[1], personId: v[2], accountId: v[3], role: v[4], login: v[5], endsAt: v[6], email: v[7] }) as never,
  "accountId role email",
  5000,
);

/**
 * Ends an open invitation of an account. Changes no row: there is none.
 */
export const endInvitation: Run<{ accountId: string; linkId: string }> = run(
  "people/end-invitation",
  `-- people/end-invitation
update links set used_at = now()
 where account_id = $1 and link_id = $2 and purpose = 'invitation'
   and used_at is null and ends_at > now()`,
  (p) => [p.accountId, p.linkId],
  5000,
);

/**
 * Ends the open links of a purpose.
 * `personId`: null: of everybody
 */
export const endLinks: Run<{ purpose: "owner" | "invitation" | "recovery" | "sign_up" | "email"; personId: string | null }> = run(
  "people/end-links",
  `-- people/end-links
update links set used_at = now()
 where purpose = $1 and used_at is null
   and ($2::text is null or person_id = $2)`,
  (p) => [p.purpose, p.personId],
  5000,
);

/**
 * Ends the open links that somebody made.
 * `accountId`: null: to everything
 */
export const endLinksOfMaker: Run<{ madeBy: string; accountId: string | null }> = run(
  "people/end-links-of-maker",
  `-- people/end-links-of-maker
update links set used_at = now()
 where made_by = $1 and used_at is null
   and ($2::text is null or account_id = $2)`,
  (p) => [p.madeBy, p.accountId],
  5000,
);

/**
 * Deletes the links to a person, and those that propose a login.
 */
export const deleteLinks: Run<{ personId: string; login: string }> = run(
  "people/delete-links",
  `-- people/delete-links
delete from links where person_id = $1 or login = $2`,
  (p) => [p.personId, p.login],
  5000,
);

// mails.sql

/**
 * Hands a mail in.
 * `linkId`: null: it has no link
 * `lifetimeMs`: how long it is tried
 */
export const insertMail: Run<{ mailId: string; kind: "email" | "email_changed" | "invitation" | "recovered" | "recovery" | "sign_up"; address: string; linkId: string | null; facts: string; lifetimeMs: number }> = run(
  "people/insert-mail",
  `-- people/insert-mail
insert into mails (mail_id, kind, address, link_id, facts, ends_at)
values ($1, $2, $3, $4, $5,
        now() + $6::float8 * interval '1 millisecond')`,
  (p) => [p.mailId, p.kind, p.address, p.linkId, p.facts, p.lifetimeMs],
  5000,
);

export type CountMailsRow = { made: number };
/**
 * The mails of a kind to an address in the last 24 hours.
 */
export const countMails: One<{ address: string; kind: "email" | "email_changed" | "invitation" | "recovered" | "recovery" | "sign_up" }, CountMailsRow> = one(
  "people/count-mails",
  `-- people/count-mails
select count(*)::integer as made from mails
 where address = $1 and kind = $2 and made_at > now() - interval '24 hours'`,
  (p) => [p.address, p.kind],
  (v) => ({ made: v[0] }) as never,
  "",
  5000,
);

export type ClaimMailsRow = { mailId: string; kind: "email" | "email_changed" | "invitation" | "recovered" | "recovery" | "sign_up"; address: string; linkId: string | null; facts: Json; attempts: number };
/**
 * Takes mails that are due, so that no other process sends them. Whoever takes one settles it
 * within two minutes; otherwise it is due again. `attempts` counts this one, which has no problem
 * yet.
 */
export const claimMails: Many<{ rows: bigint | number }, ClaimMailsRow> = many(
  "people/claim-mails",
  `-- people/claim-mails
update mails
   set attempts = attempts + 1, problem = '', next_at = now() + interval '2 minutes'
 where mail_id in (select mail_id from mails
                    where state = 'waiting' and next_at <= now()
                    order by next_at
                    limit $1
                      for update skip locked)
returning mail_id, kind, address, link_id, facts, attempts`,
  (p) => [p.rows],
  (v) => ({ mailId: v[0], kind: v[1], address: v[2], linkId: v[3], facts: v[4], attempts: v[5] }) as never,
  "linkId",
  5000,
);

/**
 * Records the outcome of an attempt. A mail whose time is over does not wait for another one.
 * `waitMs`: until the next attempt, of a mail that waits
 */
export const settleMail: Run<{ state: "waiting" | "sent" | "failed"; waitMs: number; problem: string; mailId: string }> = run(
  "people/settle-mail",
  `-- people/settle-mail
update mails
   set state = case
         when $1 = 'waiting' and now() + $2::float8 * interval '1 millisecond' >= ends_at
           then 'failed' else $1 end,
       problem = $3, next_at = now() + $2::float8 * interval '1 millisecond'
 where mail_id = $4 and state = 'waiting'`,
  (p) => [p.state, p.waitMs, p.problem, p.mailId],
  5000,
);

export type ListInvitationMailsRow = { mailId: string; invitationId: string; address: string; state: "waiting" | "sent" | "failed"; problem: string; attempts: number; nextAt: Date; madeAt: Date };
/**
 * Lists the mails of the invitations to an account, newest first.
 */
export const listInvitationMails: Many<{ accountId: string }, ListInvitationMailsRow> = many(
  "people/list-invitation-mails",
  `-- people/list-invitation-mails
select m.mail_id, m.link_id as invitation_id, m.address, m.state, m.problem, m.attempts,
  m.next_at, m.made_at
from links l
join mails m on m.link_id = l.link_id
-- Older mails are removed.
where l.account_id = $1 and l.made_at > now() - interval '8 days'
  and l.purpose = 'invitation'
order by m.made_at desc, m.mail_id desc
limit 1000`,
  (p) => [p.accountId],
  (v) => ({ mailId: v[0], invitationId: v[1], address: v[2], state: v[3], problem: v[4], attempts: v[5], nextAt: v[6], madeAt: v[7] }) as never,
  "",
  5000,
);

/**
 * Deletes the mails to a person, those with a link to him, and those about him. Run it before his
 * links are deleted.
 * `addresses`: his login and his address
 */
export const deleteMails: Run<{ addresses: readonly string[]; personId: string }> = run(
  "people/delete-mails",
  `-- people/delete-mails
delete from mails
 where address = any($1::text[])
    or facts ->> 'person' = $2
    or link_id in (select link_id from links where person_id = $2)`,
  (p) => [p.addresses, p.personId],
  5000,
);

/**
 * Deletes mails whose outcome nobody asks for any more. No link lives longer.
 */
export const removeMails: Run<undefined> = run(
  "people/remove-mails",
  `-- people/remove-mails
delete from mails where made_at < now() - interval '8 days'`,
  () => [],
  5000,
);

// members.sql

export type PutMemberRow = { role: "viewer" | "member" | "owner" };
/**
 * Adds a person to an account. A member keeps the higher of both roles, which it returns.
 */
export const putMember: One<{ accountId: string; personId: string; role: "viewer" | "member" | "owner" }, PutMemberRow> = one(
  "people/put-member",
  `-- people/put-member
insert into members as m (account_id, person_id, role) values ($1, $2, $3)
on conflict (account_id, person_id) do update
   set role = case when array_position(array['viewer', 'member', 'owner'], m.role)
                      >= array_position(array['viewer', 'member', 'owner'], excluded.role)
                   then m.role else excluded.role end
returning role`,
  (p) => [p.accountId, p.personId, p.role],
  (v) => ({ role: v[0] }) as never,
  "",
  5000,
);

export type FindAccountRow = { name: string; status: "active" | "suspended" | "closed" };
/**
 * The name and the status of an account. No row: there is none.
 */
export const findAccount: Optional<{ accountId: string }, FindAccountRow> = optional(
  "people/find-account",
  `-- people/find-account
select name, status from accounts where account_id = $1`,
  (p) => [p.accountId],
  (v) => ({ name: v[0], status: v[1] }) as never,
  "",
  5000,
);

export type ListMembersRow = { personId: string; login: string; name: string; role: "viewer" | "member" | "owner"; joinedAt: Date; lastSeenAt: Date | null };
/**
 * The members of an account in the order of their logins, or one of them.
 * `personId`: null: all
 */
export const listMembers: Many<{ accountId: string; personId: string | null }, ListMembersRow> = many(
  "people/list-members",
  `-- people/list-members
select m.person_id, p.login as login, p.name, m.role, m.joined_at,
       (select max(s.used_at) from sessions s where s.person_id = m.person_id) as last_seen_at
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = $1 and ($2::text is null or m.person_id = $2)
 order by p.login
 limit 1000`,
  (p) => [p.accountId, p.personId],
  (v) => ({ personId: v[0], login: v[1], name: v[2], role: v[3], joinedAt: v[4], lastSeenAt: v[5] }) as never,
  "lastSeenAt",
  5000,
);

export type ListRolesRow = { personId: string; role: "viewer" | "member" | "owner" };
/**
 * All members of an account, with their roles.
 */
export const listRoles: Many<{ accountId: string }, ListRolesRow> = many(
  "people/list-roles",
  `-- people/list-roles
select person_id, role from members where account_id = $1 order by person_id`,
  (p) => [p.accountId],
  (v) => ({ personId: v[0], role: v[1] }) as never,
  "",
  5000,
);

export type ListOwnersRow = { accountId: string; personId: string; login: string; name: string; owners: number };
/**
 * The owners of accounts: of each the first three in the order of their logins, and their number.
 */
export const listOwners: Many<{ accountIds: readonly string[] }, ListOwnersRow> = many(
  "people/list-owners",
  `-- people/list-owners
select account_id, person_id, login as login, name, owners as owners
  from (
    select m.account_id, m.person_id, p.login, p.name,
           (count(*) over (partition by m.account_id))::integer as owners,
           row_number() over (partition by m.account_id order by p.login) as position
      from members m
      join people p on p.person_id = m.person_id
     where m.account_id = any($1::text[]) and m.role = 'owner' and p.login is not null
  ) ranked
 where position <= 3
 order by account_id, position`,
  (p) => [p.accountIds],
  (v) => ({ accountId: v[0], personId: v[1], login: v[2], name: v[3], owners: v[4] }) as never,
  "",
  5000,
);

export type ListAccountsOfPersonRow = { accountId: string; name: string; role: "viewer" | "member" | "owner"; status: "active" | "suspended" | "closed"; statusReason: string; createdAt: Date };
/**
 * The accounts of a person, in the order of their names.
 */
export const listAccountsOfPerson: Many<{ personId: string }, ListAccountsOfPersonRow> = many(
  "people/list-accounts-of-person",
  `-- people/list-accounts-of-person
select m.account_id, a.name, m.role, a.status, a.status_reason, a.created_at
  from members m
  join accounts a on a.account_id = m.account_id
 where m.person_id = $1
 order by a.name, m.account_id`,
  (p) => [p.personId],
  (v) => ({ accountId: v[0], name: v[1], role: v[2], status: v[3], statusReason: v[4], createdAt: v[5] }) as never,
  "",
  5000,
);

export type ListRecipientsRow = { accountId: string; personId: string; address: string };
/**
 * The confirmed addresses of the owners of accounts, of these other members, and of the operator
 * admins for the account ''.
 */
export const listRecipients: Many<{ accountIds: readonly string[]; personIds: readonly string[] }, ListRecipientsRow> = many(
  "people/list-recipients",
  `-- people/list-recipients
select m.account_id as account_id, p.person_id as person_id, p.email as address
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = any($1::text[]) and p.email is not null and p.disabled_at is null
   and (m.role = 'owner' or m.person_id = any($2::text[]))
union all
select '', person_id, email
  from people
 where '' = any($1::text[]) and operator = 'admin' and email is not null
   and disabled_at is null`,
  (p) => [p.accountIds, p.personIds],
  (v) => ({ accountId: v[0], personId: v[1], address: v[2] }) as never,
  "",
  5000,
);

export type ListLoginsRow = { accountId: string; personId: string; login: string };
/**
 * The logins of these persons in these accounts, where they are members.
 */
export const listLogins: Many<{ accountIds: readonly string[]; personIds: readonly string[] }, ListLoginsRow> = many(
  "people/list-logins",
  `-- people/list-logins
select m.account_id, m.person_id, p.login as login
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = any($1::text[]) and m.person_id = any($2::text[])`,
  (p) => [p.accountIds, p.personIds],
  (v) => ({ accountId: v[0], personId: v[1], login: v[2] }) as never,
  "",
  5000,
);

export type LockMembersRow = { personId: string; role: "viewer" | "member" | "owner"; enabled: boolean };
/**
 * The members of an account, locked until the end of the transaction, and whether they may sign in.
 */
export const lockMembers: Many<{ accountId: string }, LockMembersRow> = many(
  "people/lock-members",
  `-- people/lock-members
select m.person_id, m.role, p.disabled_at is null as enabled
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = $1
 order by m.person_id
   for update of m`,
  (p) => [p.accountId],
  (v) => ({ personId: v[0], role: v[1], enabled: v[2] }) as never,
  "",
  5000,
);

export type LockOwnerRow = { personId: string };
/**
 * Locks an owner of an account until the end of the transaction. No row: the person is none.
 */
export const lockOwner: Optional<{ accountId: string; personId: string }, LockOwnerRow> = optional(
  "people/lock-owner",
  `-- people/lock-owner
select m.person_id
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = $1 and m.person_id = $2 and m.role = 'owner'
   and p.disabled_at is null
   for share of m, p`,
  (p) => [p.accountId, p.personId],
  (v) => ({ personId: v[0] }) as never,
  "",
  5000,
);

export type ShareMemberRow = { role: "viewer" | "member" | "owner" };
/**
 * The role of a member, who keeps it until the end of the transaction. No row: the person is none.
 */
export const shareMember: Optional<{ accountId: string; personId: string }, ShareMemberRow> = optional(
  "people/share-member",
  `-- people/share-member
select role from members where account_id = $1 and person_id = $2 for share`,
  (p) => [p.accountId, p.personId],
  (v) => ({ role: v[0] }) as never,
  "",
  5000,
);

/**
 * Sets the role of a member.
 */
export const updateMember: Run<{ role: "viewer" | "member" | "owner"; accountId: string; personId: string }> = run(
  "people/update-member",
  `-- people/update-member
update members set role = $1 where account_id = $2 and person_id = $3`,
  (p) => [p.role, p.accountId, p.personId],
  5000,
);

/**
 * Removes a member.
 */
export const deleteMember: Run<{ accountId: string; personId: string }> = run(
  "people/delete-member",
  `-- people/delete-member
delete from members where account_id = $1 and person_id = $2`,
  (p) => [p.accountId, p.personId],
  5000,
);

export type LockMemberRow = { role: "viewer" | "member" | "owner" };
/**
 * Locks a member of an account, whose changes follow each other. No row: the person is none.
 */
export const lockMember: Optional<{ accountId: string; personId: string }, LockMemberRow> = optional(
  "people/lock-member",
  `-- people/lock-member
select role from members
 where account_id = $1 and person_id = $2 for no key update`,
  (p) => [p.accountId, p.personId],
  (v) => ({ role: v[0] }) as never,
  "",
  5000,
);

// people.sql

/**
 * Adds a person. Changes no row: the login is taken.
 * `email`: a confirmed address
 */
export const insertPerson: Run<{ personId: string; login: string; name: string; operator: "none" | "support" | "admin"; email: string | null }> = run(
  "people/insert-person",
  `-- people/insert-person
insert into people (person_id, login, name, operator, email, email_verified_at)
values ($1, $2, $3, $4, $5::text,
        case when $5::text is not null then now() end)
on conflict (login) do nothing`,
  (p) => [p.personId, p.login, p.name, p.operator, p.email],
  5000,
);

export type FindPersonRow = { personId: string; login: string; name: string; operator: "none" | "support" | "admin"; email: string | null; createdAt: Date; disabledAt: Date | null; lastSeenAt: Date | null };
/**
 * A person, with the last use of a session.
 */
export const findPerson: Optional<{ personId: string }, FindPersonRow> = optional(
  "people/find-person",
  `-- people/find-person
select p.person_id, p.login as login, p.name, p.operator, p.email, p.created_at, p.disabled_at,
       (select max(s.used_at) from sessions s where s.person_id = p.person_id) as last_seen_at
  from people p
 where p.person_id = $1 and p.deleted_at is null`,
  (p) => [p.personId],
  (v) => ({ personId: v[0], login: v[1], name: v[2], operator: v[3], email: v[4], createdAt: v[5], disabledAt: v[6], lastSeenAt: v[7] }) as never,
  "email disabledAt lastSeenAt",
  5000,
);

export type FindAddressRow = { found: number };
/**
 * One row if somebody has this address, or signs in with it.
 */
export const findAddress: Optional<{ address: string }, FindAddressRow> = optional(
  "people/find-address",
  `-- people/find-address
select 1 as found from people where login = $1 or email = $1 limit 1`,
  (p) => [p.address],
  (v) => ({ found: v[0] }) as never,
  "",
  5000,
);

export type FindLoginRow = { personId: string; hash: string | null };
/**
 * The person with this login who may sign in, and the hash of the password. Null: no password.
 */
export const findLogin: Optional<{ login: string }, FindLoginRow> = optional(
  "people/find-login",
  `-- people/find-login
select p.person_id as person_id, w.hash as hash
  from people p
  left join passwords w on w.person_id = p.person_id
 where p.login = $1 and p.disabled_at is null`,
  (p) => [p.login],
  (v) => ({ personId: v[0], hash: v[1] }) as never,
  "hash",
  5000,
);

export type IsLoginTakenRow = { found: number };
/**
 * One row if somebody has this login, also if he may not sign in.
 */
export const isLoginTaken: Optional<{ login: string }, IsLoginTakenRow> = optional(
  "people/is-login-taken",
  `-- people/is-login-taken
select 1 as found from people where login = $1`,
  (p) => [p.login],
  (v) => ({ found: v[0] }) as never,
  "",
  5000,
);

export type HasOperatorRow = { found: number };
/**
 * One row if an operator admin may sign in.
 */
export const hasOperator: Optional<undefined, HasOperatorRow> = optional(
  "people/has-operator",
  `-- people/has-operator
select 1 as found from people where operator = 'admin' and disabled_at is null limit 1`,
  () => [],
  (v) => ({ found: v[0] }) as never,
  "",
  5000,
);

export type ListPeopleRow = { personId: string; login: string; name: string; operator: "none" | "support" | "admin"; email: string | null; createdAt: Date; disabledAt: Date | null; lastSeenAt: Date | null };
/**
 * People in the order of their logins. One whose login or name contains a text.
 * `text`: empty: everybody
 */
export const listPeople: Many<{ afterLogin: string; text: string; rows: bigint | number }, ListPeopleRow> = many(
  "people/list-people",
  `-- people/list-people
select p.person_id, p.login as login, p.name, p.operator, p.email, p.created_at, p.disabled_at,
       (select max(s.used_at) from sessions s where s.person_id = p.person_id) as last_seen_at
  from people p
 where p.login > $1
   and ($2::text = '' or strpos(p.login, lower($2::text)) > 0
        or strpos(lower(p.name), lower($2::text)) > 0)
 order by p.login
 limit $3`,
  (p) => [p.afterLogin, p.text, p.rows],
  (v) => ({ personId: v[0], login: v[1], name: v[2], operator: v[3], email: v[4], createdAt: v[5], disabledAt: v[6], lastSeenAt: v[7] }) as never,
  "email disabledAt lastSeenAt",
  5000,
);

export type LockPersonRow = { personId: string; login: string; name: string; operator: "none" | "support" | "admin"; email: string | null; createdAt: Date; disabledAt: Date | null };
/**
 * A person, locked until the end of the transaction.
 */
export const lockPerson: Optional<{ personId: string }, LockPersonRow> = optional(
  "people/lock-person",
  `-- people/lock-person
select person_id, login as login, name, operator, email, created_at, disabled_at
  from people where person_id = $1 and deleted_at is null for update`,
  (p) => [p.personId],
  (v) => ({ personId: v[0], login: v[1], name: v[2], operator: v[3], email: v[4], createdAt: v[5], disabledAt: v[6] }) as never,
  "email disabledAt",
  5000,
);

export type SharePersonRow = { operator: "none" | "support" | "admin" };
/**
 * The operator role of a person who may sign in, and stays so until the end of the transaction. No
 * row: he may not.
 */
export const sharePerson: Optional<{ personId: string }, SharePersonRow> = optional(
  "people/share-person",
  `-- people/share-person
select operator from people where person_id = $1 and disabled_at is null for share`,
  (p) => [p.personId],
  (v) => ({ operator: v[0] }) as never,
  "",
  5000,
);

export type ShareOperatorsRow = { personId: string };
/**
 * Those of some people who are operator admins and may sign in. They stay so until the end of the
 * transaction.
 */
export const shareOperators: Many<{ personIds: readonly string[] }, ShareOperatorsRow> = many(
  "people/share-operators",
  `-- people/share-operators
select person_id from people
 where person_id = any($1::text[]) and operator = 'admin' and disabled_at is null
 order by person_id
   for share`,
  (p) => [p.personIds],
  (v) => ({ personId: v[0] }) as never,
  "",
  5000,
);

export type LockOperatorsRow = { personId: string };
/**
 * The operator admins who may sign in, locked until the end of the transaction.
 */
export const lockOperators: Many<undefined, LockOperatorsRow> = many(
  "people/lock-operators",
  `-- people/lock-operators
select person_id from people
 where operator = 'admin' and disabled_at is null
 order by person_id
   for update`,
  () => [],
  (v) => ({ personId: v[0] }) as never,
  "",
  5000,
);

/**
 * Sets the operator role of a person, and whether the person is disabled.
 */
export const updatePerson: Run<{ operator: "none" | "support" | "admin"; isDisabled: boolean; personId: string }> = run(
  "people/update-person",
  `-- people/update-person
update people
   set operator = $1,
       disabled_at = case when $2::boolean then coalesce(disabled_at, now()) end
 where person_id = $3`,
  (p) => [p.operator, p.isDisabled, p.personId],
  5000,
);

/**
 * Sets or removes the address of a person, who is locked.
 * `email`: a confirmed address; null: none
 */
export const setEmail: Run<{ email: string | null; personId: string }> = run(
  "people/set-email",
  `-- people/set-email
update people
   set email = $1::text, email_verified_at = case when $1::text is not null then now() end
 where person_id = $2`,
  (p) => [p.email, p.personId],
  5000,
);

/**
 * Leaves only the id of a person, so that nobody else gets it.
 */
export const deletePerson: Run<{ personId: string }> = run(
  "people/delete-person",
  `-- people/delete-person
update people
   set login = null, name = '', email = null, email_verified_at = null, operator = 'none',
       disabled_at = coalesce(disabled_at, now()), deleted_at = now()
 where person_id = $1`,
  (p) => [p.personId],
  5000,
);

export type CountSignUpsRow = { made: number };
/**
 * How many accounts the people of a network got by signing up in the last 24 hours.
 */
export const countSignUps: One<{ network: Buffer }, CountSignUpsRow> = one(
  "people/count-sign-ups",
  `-- people/count-sign-ups
select count(*)::integer as made from sign_ups
 where network = $1 and made_at > now() - interval '24 hours'`,
  (p) => [p.network],
  (v) => ({ made: v[0] }) as never,
  "",
  5000,
);

/**
 * Notes that somebody gets an account by signing up.
 */
export const insertSignUp: Run<{ accountId: string; network: Buffer }> = run(
  "people/insert-sign-up",
  `-- people/insert-sign-up
insert into sign_ups (account_id, network) values ($1, $2)
on conflict (account_id) do nothing`,
  (p) => [p.accountId, p.network],
  5000,
);

/**
 * Deletes what counts no more.
 */
export const removeSignUps: Run<undefined> = run(
  "people/remove-sign-ups",
  `-- people/remove-sign-ups
delete from sign_ups where made_at < now() - interval '2 days'`,
  () => [],
  5000,
);

export type CountAdminsRow = { admins: number };
/**
 * How many operator admins may sign in.
 */
export const countAdmins: One<undefined, CountAdminsRow> = one(
  "people/count-admins",
  `-- people/count-admins
select count(*)::integer as admins from people
 where operator = 'admin' and disabled_at is null`,
  () => [],
  (v) => ({ admins: v[0] }) as never,
  "",
  5000,
);

// sessions.sql

export type InsertSessionRow = { endsAt: Date };
/**
 * Begins a session of a person.
 * `strongMs`: how long its person needs no confirmation
 * `passkeyId`: the passkey that begins it
 */
export const insertSession: One<{ digest: Buffer; sessionId: string; personId: string; method: "passkey" | "password" | "oidc"; lifetimeMs: number; strongMs: number; address: string; agent: string; passkeyId: string | null }, InsertSessionRow> = one(
  "people/insert-session",
  `-- people/insert-session
insert into sessions
  (digest, session_id, person_id, method, ends_at, strong_until, address, agent, passkey_id)
values ($1, $2, $3, $4,
        now() + $5::float8 * interval '1 millisecond',
        now() + $6::float8 * interval '1 millisecond', $7, $8, $9)
returning ends_at`,
  (p) => [p.digest, p.sessionId, p.personId, p.method, p.lifetimeMs, p.strongMs, p.address, p.agent, p.passkeyId],
  (v) => ({ endsAt: v[0] }) as never,
  "",
  5000,
);

/**
 * Ends the open sessions of a person, but for the newest.
 * `kept`: so many stay open
 */
export const endOldest: Run<{ personId: string; kept: number }> = run(
  "people/end-oldest",
  `-- people/end-oldest
update sessions set ended_at = now()
 where session_id in (select session_id from sessions
                       where person_id = $1 and ended_at is null and ends_at > now()
                       order by made_at desc, session_id desc
                      offset $2::integer)`,
  (p) => [p.personId, p.kept],
  5000,
);

export type FindSessionsRow = { digest: Buffer; sessionId: string; personId: string; method: "passkey" | "password" | "oidc"; strongUntil: Date; operator: "none" | "support" | "admin"; endsInMs: number; accountIds: string[]; roles: ("viewer" | "member" | "owner")[] };
/**
 * The open sessions with these digests, their people and the accounts of the people, and records
 * their use, at most once a minute. No row: there is none, it ended, or the person is disabled.
 * `idleMsMax`: between two uses
 */
export const findSessions: Many<{ digests: readonly Buffer[]; idleMsMax: number }, FindSessionsRow> = many(
  "people/find-sessions",
  `-- people/find-sessions
with open as (
  select digest from sessions
   where digest = any($1::bytea[]) and ended_at is null
     and ends_at > now() and used_at > now() - $2::float8 * interval '1 millisecond'
), touched as (
  update sessions set used_at = now()
   where digest in (select s.digest from sessions s join open o on o.digest = s.digest
                     where s.used_at < now() - interval '50 seconds'
                       for update of s skip locked)
)
select s.digest, s.session_id, s.person_id, s.method, s.strong_until, p.operator,
       (extract(epoch from (s.ends_at - now())) * 1000)::float8 as ends_in_ms,
       array(select m.account_id from members m
              where m.person_id = s.person_id order by m.account_id) as account_ids,
       array(select m.role from members m
              where m.person_id = s.person_id order by m.account_id) as roles
  from sessions s
  join open o on o.digest = s.digest
  join people p on p.person_id = s.person_id
 where p.disabled_at is null`,
  (p) => [p.digests, p.idleMsMax],
  (v) => ({ digest: v[0], sessionId: v[1], personId: v[2], method: v[3], strongUntil: v[4], operator: v[5], endsInMs: v[6], accountIds: v[7], roles: v[8] }) as never,
  "",
  5000,
);

export type FindProofRow = { proof: "passkey" | "password" | "oidc" };
/**
 * How the person of a session proved last who he is. No row: the session has ended.
 */
export const findProof: Optional<{ sessionId: string }, FindProofRow> = optional(
  "people/find-proof",
  `-- people/find-proof
select coalesce(confirmed_by, method) as proof
  from sessions where session_id = $1 and ended_at is null`,
  (p) => [p.sessionId],
  (v) => ({ proof: v[0] }) as never,
  "",
  5000,
);

export type ListSessionsRow = { sessionId: string; createdAt: Date; usedAt: Date; endsAt: Date; address: string; agent: string };
/**
 * The open sessions of a person, newest first.
 * `idleMsMax`: between two uses
 */
export const listSessions: Many<{ personId: string; idleMsMax: number }, ListSessionsRow> = many(
  "people/list-sessions",
  `-- people/list-sessions
select session_id, made_at as created_at, used_at, ends_at, address, agent
  from sessions
 where person_id = $1 and ended_at is null
   and ends_at > now() and used_at > now() - $2::float8 * interval '1 millisecond'
 order by made_at desc, session_id desc
 limit 1000`,
  (p) => [p.personId, p.idleMsMax],
  (v) => ({ sessionId: v[0], createdAt: v[1], usedAt: v[2], endsAt: v[3], address: v[4], agent: v[5] }) as never,
  "",
  5000,
);

export type ListSignInsRow = { sessionId: string; personId: string; login: string; address: string; agent: string; at: Date; earlier: string[]; accountIds: string[] };
/**
 * The sessions that began since ten seconds before a time, but for the first of each person, with
 * the addresses of his earlier ones that are kept, and his accounts. Oldest first.
 */
export const listSignIns: Many<{ since: Date | string; rows: bigint | number }, ListSignInsRow> = many(
  "people/list-sign-ins",
  `-- people/list-sign-ins
select s.session_id, s.person_id, p.login as login, s.address, s.agent, s.made_at as at,
       array(select distinct e.address from sessions e
              where e.person_id = s.person_id and e.made_at < s.made_at) as earlier,
       array(select m.account_id from members m
              where m.person_id = s.person_id order by m.account_id) as account_ids
  from sessions s
  join people p on p.person_id = s.person_id
 where s.made_at > $1::timestamptz - interval '10 seconds' and s.address <> ''
   and exists (select from sessions e
                where e.person_id = s.person_id and e.made_at < s.made_at)
 order by s.made_at
 limit $2`,
  (p) => [p.since, p.rows],
  (v) => ({ sessionId: v[0], personId: v[1], login: v[2], address: v[3], agent: v[4], at: v[5], earlier: v[6], accountIds: v[7] }) as never,
  "",
  5000,
);

export type ConfirmSessionRow = { strongUntil: Date };
/**
 * Records that the person of an open session proved who he is. No row: the session ended.
 * `confirmedBy`: how
 * `strongMs`: how long he needs no further confirmation
 */
export const confirmSession: Optional<{ strongMs: number; confirmedBy: "passkey" | "password" | "oidc"; sessionId: string }, ConfirmSessionRow> = optional(
  "people/confirm-session",
  `-- people/confirm-session
update sessions
   set strong_until = now() + $1::float8 * interval '1 millisecond',
       confirmed_by = $2
 where session_id = $3 and ended_at is null
returning strong_until`,
  (p) => [p.strongMs, p.confirmedBy, p.sessionId],
  (v) => ({ strongUntil: v[0] }) as never,
  "",
  5000,
);

/**
 * Ends an open session of a person. Changes no row: there is none.
 */
export const endSession: Run<{ personId: string; sessionId: string }> = run(
  "people/end-session",
  `-- people/end-session
update sessions set ended_at = now()
 where person_id = $1 and session_id = $2 and ended_at is null`,
  (p) => [p.personId, p.sessionId],
  5000,
);

/**
 * Ends the open sessions of a person.
 * `butSessionId`: stays open; null: none does
 */
export const endSessions: Run<{ personId: string; butSessionId: string | null }> = run(
  "people/end-sessions",
  `-- people/end-sessions
update sessions set ended_at = now()
 where person_id = $1 and ended_at is null
   and session_id is distinct from $2::text`,
  (p) => [p.personId, p.butSessionId],
  5000,
);

/**
 * Ends the open sessions that a passkey began, but one.
 * `butSessionId`: stays open
 */
export const endSessionsOfPasskey: Run<{ personId: string; passkeyId: string; butSessionId: string }> = run(
  "people/end-sessions-of-passkey",
  `-- people/end-sessions-of-passkey
update sessions set ended_at = now()
 where person_id = $1 and passkey_id = $2 and session_id <> $3
   and ended_at is null`,
  (p) => [p.personId, p.passkeyId, p.butSessionId],
  5000,
);

/**
 * Deletes the sessions of a person, with their addresses.
 */
export const deleteSessions: Run<{ personId: string }> = run(
  "people/delete-sessions",
  `-- people/delete-sessions
delete from sessions where person_id = $1`,
  (p) => [p.personId],
  5000,
);

/**
 * Deletes some of the sessions that ended long ago. A session also ends when it is not used.
 * `days`: since their end
 * `idleMsMax`: between two uses
 */
export const removeSessions: Run<{ days: number; idleMsMax: number; rows: bigint | number }> = run(
  "people/remove-sessions",
  `-- people/remove-sessions
with old as (
  select digest
    from sessions
   where made_at < now() - $1::integer * interval '1 day'
     and least(ended_at, ends_at, used_at + $2::float8 * interval '1 millisecond')
         < now() - $1::integer * interval '1 day'
   order by made_at
   limit $3
)
delete from sessions where digest in (select digest from old)`,
  (p) => [p.days, p.idleMsMax, p.rows],
  5000,
);

// views.sql

export type ListViewsRow = { viewId: string; personId: string | null; name: string; address: string; savedAt: Date };
/**
 * The views of an account, and those of a person in it, each in the order of their names.
 */
export const listViews: Many<{ accountId: string; personId: string }, ListViewsRow> = many(
  "people/list-views",
  `-- people/list-views
select view_id, person_id, name, address, saved_at
  from saved_views
 where account_id = $1 and (person_id is null or person_id = $2)
 order by person_id nulls first, name, view_id`,
  (p) => [p.accountId, p.personId],
  (v) => ({ viewId: v[0], personId: v[1], name: v[2], address: v[3], savedAt: v[4] }) as never,
  "personId",
  5000,
);

export type CountOtherViewsRow = { views: number };
/**
 * How many views the account has, or a person in it, besides the one of a name.
 * `personId`: null: those of the account
 */
export const countOtherViews: One<{ accountId: string; personId: string | null; name: string }, CountOtherViewsRow> = one(
  "people/count-other-views",
  `-- people/count-other-views
select count(*)::integer as views
  from saved_views
 where account_id = $1 and person_id is not distinct from $2::text
   and name <> $3`,
  (p) => [p.accountId, p.personId, p.name],
  (v) => ({ views: v[0] }) as never,
  "",
  5000,
);

export type PutViewRow = { viewId: string; personId: string | null; name: string; address: string; savedAt: Date };
/**
 * Saves a view. One of the same name is replaced, and keeps its id.
 * `personId`: null: of the account
 */
export const putView: One<{ viewId: string; accountId: string; personId: string | null; name: string; address: string }, PutViewRow> = one(
  "people/put-view",
  `-- people/put-view
insert into saved_views as v (view_id, account_id, person_id, name, address)
values ($1, $2, $3, $4, $5)
on conflict (account_id, person_id, name) do update
   set address = excluded.address, saved_at = now()
returning view_id, person_id, name, address, saved_at`,
  (p) => [p.viewId, p.accountId, p.personId, p.name, p.address],
  (v) => ({ viewId: v[0], personId: v[1], name: v[2], address: v[3], savedAt: v[4] }) as never,
  "personId",
  5000,
);

export type FindViewRow = { viewId: string; personId: string | null; name: string };
/**
 * A view of an account, or of a person in it.
 */
export const findView: Optional<{ accountId: string; viewId: string; personId: string }, FindViewRow> = optional(
  "people/find-view",
  `-- people/find-view
select view_id, person_id, name
  from saved_views
 where account_id = $1 and view_id = $2
   and (person_id is null or person_id = $3)`,
  (p) => [p.accountId, p.viewId, p.personId],
  (v) => ({ viewId: v[0], personId: v[1], name: v[2] }) as never,
  "personId",
  5000,
);

/**
 * Deletes a view of an account.
 */
export const deleteView: Run<{ accountId: string; viewId: string }> = run(
  "people/delete-view",
  `-- people/delete-view
delete from saved_views where account_id = $1 and view_id = $2`,
  (p) => [p.accountId, p.viewId],
  5000,
);

// ways-in.sql

export type InsertPasskeyRow = { passkeyId: string; name: string; createdAt: Date; usedAt: Date | null };
/**
 * Adds a passkey to a person. No row: the credential exists.
 */
export const insertPasskey: Optional<{ credentialId: string; passkeyId: string; personId: string; publicKey: Buffer; counter: bigint | number; name: string }, InsertPasskeyRow> = optional(
  "people/insert-passkey",
  `-- people/insert-passkey
insert into passkeys (credential_id, passkey_id, person_id, public_key, counter, name)
values ($1, $2, $3, $4, $5, $6)
on conflict (credential_id) do nothing
returning passkey_id, name, created_at, used_at`,
  (p) => [p.credentialId, p.passkeyId, p.personId, p.publicKey, p.counter, p.name],
  (v) => ({ passkeyId: v[0], name: v[1], createdAt: v[2], usedAt: v[3] }) as never,
  "usedAt",
  5000,
);

/**
 * Binds an identity to a person. Changes no row: it belongs to somebody.
 */
export const insertIdentity: Run<{ issuer: string; subject: string; identityId: string; personId: string }> = run(
  "people/insert-identity",
  `-- people/insert-identity
insert into identities (issuer, subject, identity_id, person_id)
values ($1, $2, $3, $4)
on conflict (issuer, subject) do nothing`,
  (p) => [p.issuer, p.subject, p.identityId, p.personId],
  5000,
);

/**
 * Sets the password of a person.
 */
export const putPassword: Run<{ personId: string; hash: string }> = run(
  "people/put-password",
  `-- people/put-password
insert into passwords (person_id, hash) values ($1, $2)
on conflict (person_id) do update set hash = excluded.hash, changed_at = now()`,
  (p) => [p.personId, p.hash],
  5000,
);

export type FindPasskeyRow = { credentialId: string; personId: string; publicKey: Buffer; counter: bigint };
/**
 * A passkey of a person who may sign in.
 */
export const findPasskey: Optional<{ credentialId: string }, FindPasskeyRow> = optional(
  "people/find-passkey",
  `-- people/find-passkey
select k.credential_id, k.person_id, k.public_key, k.counter
  from passkeys k
  join people p on p.person_id = k.person_id
 where k.credential_id = $1 and p.disabled_at is null`,
  (p) => [p.credentialId],
  (v) => ({ credentialId: v[0], personId: v[1], publicKey: v[2], counter: v[3] }) as never,
  "",
  5000,
);

export type FindPasswordRow = { hash: string };
/**
 * The hash of a person's password. No row: no password.
 */
export const findPassword: Optional<{ personId: string }, FindPasswordRow> = optional(
  "people/find-password",
  `-- people/find-password
select hash from passwords where person_id = $1`,
  (p) => [p.personId],
  (v) => ({ hash: v[0] }) as never,
  "",
  5000,
);

export type FindIdentityRow = { identityId: string; personId: string; operator: "none" | "support" | "admin"; accounts: Json };
/**
 * The person to whom an identity belongs, and the roles that its groups gave the last time: by
 * account id in `accounts`.
 */
export const findIdentity: Optional<{ issuer: string; subject: string }, FindIdentityRow> = optional(
  "people/find-identity",
  `-- people/find-identity
select identity_id, person_id, operator, accounts
  from identities where issuer = $1 and subject = $2`,
  (p) => [p.issuer, p.subject],
  (v) => ({ identityId: v[0], personId: v[1], operator: v[2], accounts: v[3] }) as never,
  "",
  5000,
);

export type CountWaysInRow = { ways: number };
/**
 * How many ways in a person has: passkeys, a password, and identities of these issuers.
 */
export const countWaysIn: One<{ personId: string; issuers: readonly string[] }, CountWaysInRow> = one(
  "people/count-ways-in",
  `-- people/count-ways-in
select ((select count(*) from passkeys where person_id = $1)
      + (select count(*) from passwords where person_id = $1)
      + (select count(*) from identities
          where person_id = $1 and issuer = any($2::text[])))::integer as ways`,
  (p) => [p.personId, p.issuers],
  (v) => ({ ways: v[0] }) as never,
  "",
  5000,
);

export type ListPasskeysRow = { credentialId: string; passkeyId: string; name: string; createdAt: Date; usedAt: Date | null };
/**
 * The passkeys of a person, oldest first.
 */
export const listPasskeys: Many<{ personId: string }, ListPasskeysRow> = many(
  "people/list-passkeys",
  `-- people/list-passkeys
select credential_id, passkey_id, name, created_at, used_at
  from passkeys where person_id = $1
 order by created_at, passkey_id`,
  (p) => [p.personId],
  (v) => ({ credentialId: v[0], passkeyId: v[1], name: v[2], createdAt: v[3], usedAt: v[4] }) as never,
  "usedAt",
  5000,
);

export type ListIdentitiesRow = { identityId: string; issuer: string; createdAt: Date; usedAt: Date };
/**
 * The identities of a person, oldest first.
 */
export const listIdentities: Many<{ personId: string }, ListIdentitiesRow> = many(
  "people/list-identities",
  `-- people/list-identities
select identity_id, issuer, created_at, used_at
  from identities where person_id = $1
 order by created_at, identity_id`,
  (p) => [p.personId],
  (v) => ({ identityId: v[0], issuer: v[1], createdAt: v[2], usedAt: v[3] }) as never,
  "",
  5000,
);

export type UsePasskeyRow = { passkeyId: string };
/**
 * Records a use of a passkey. No row: it was removed.
 */
export const usePasskey: Optional<{ counter: bigint | number; credentialId: string }, UsePasskeyRow> = optional(
  "people/use-passkey",
  `-- people/use-passkey
update passkeys set counter = greatest(counter, $1), used_at = now()
 where credential_id = $2
returning passkey_id`,
  (p) => [p.counter, p.credentialId],
  (v) => ({ passkeyId: v[0] }) as never,
  "",
  5000,
);

/**
 * Records the use of an identity, and the roles that its groups give. Changes no row: it was
 * removed.
 * `accounts`: account id → role
 */
export const useIdentity: Run<{ operator: "none" | "support" | "admin"; accounts: string; identityId: string; personId: string }> = run(
  "people/use-identity",
  `-- people/use-identity
update identities set used_at = now(), operator = $1, accounts = $2
 where identity_id = $3 and person_id = $4`,
  (p) => [p.operator, p.accounts, p.identityId, p.personId],
  5000,
);

/**
 * Removes a passkey of a person. Changes no row: there is none.
 */
export const deletePasskey: Run<{ personId: string; passkeyId: string }> = run(
  "people/delete-passkey",
  `-- people/delete-passkey
delete from passkeys where person_id = $1 and passkey_id = $2`,
  (p) => [p.personId, p.passkeyId],
  5000,
);

/**
 * Removes all passkeys of a person.
 */
export const deletePasskeys: Run<{ personId: string }> = run(
  "people/delete-passkeys",
  `-- people/delete-passkeys
delete from passkeys where person_id = $1`,
  (p) => [p.personId],
  5000,
);

/**
 * Removes the password of a person.
 */
export const deletePassword: Run<{ personId: string }> = run(
  "people/delete-password",
  `-- people/delete-password
delete from passwords where person_id = $1`,
  (p) => [p.personId],
  5000,
);

/**
 * Removes an identity of a person. Changes no row: there is none.
 */
export const deleteIdentity: Run<{ personId: string; identityId: string }> = run(
  "people/delete-identity",
  `-- people/delete-identity
delete from identities where person_id = $1 and identity_id = $2`,
  (p) => [p.personId, p.identityId],
  5000,
);

/**
 * Removes the identities of a person.
 */
export const deleteIdentities: Run<{ personId: string }> = run(
  "people/delete-identities",
  `-- people/delete-identities
delete from identities where person_id = $1`,
  (p) => [p.personId],
  5000,
);
