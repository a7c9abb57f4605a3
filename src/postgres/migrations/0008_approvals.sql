-- What waits for the approval of another person, whatever it is, and what persons gave away alone.

create table approvals (
  approval_id  text collate "C" primary key,
  kind         text not null check (kind in
    ('transfer', 'decision', 'refund', 'promotion', 'admin_token', 'operator', 'sign_in_link')),
  -- What it is about. At most one request about the same waits.
  subject      text collate "C" not null,
  -- Empty: it concerns no account.
  account_id   text collate "C" not null,
  what         text not null,
  reason       text not null,
  -- What approving does, as its service reads it. No secret: digests of them.
  request      jsonb not null,
  requested_by text collate "C" not null,
  -- Who requested it, or made the token that did.
  person_id    text collate "C" not null,
  usd_micro    bigint not null check (usd_micro >= 0),
  requested_at timestamptz not null default now(),
  ends_at      timestamptz not null default now() + interval '7 days',
  -- Replaced: another request about the same took its place.
  state        text not null default 'pending' check (state in
    ('pending', 'approved', 'rejected', 'replaced')),
  decided_by   text collate "C",
  decided_at   timestamptz
);
create unique index approvals_pending on approvals (kind, account_id, subject)
  where state = 'pending';

-- What persons gave away in a UTC day without another person, their tokens included.
create table given (
  person_id text collate "C" not null,
  day       date not null,
  usd_micro bigint not null check (usd_micro >= 0),
  primary key (person_id, day)
);

-- Who made a token. Null: the machine, by its own token or one that this made.
alter table admin_tokens add person_id text collate "C";
update admin_tokens set person_id = substr(created_by, 8) where created_by like 'person:%';

insert into approvals
  (approval_id, kind, subject, account_id, what, reason, request, requested_by, person_id,
   usd_micro, requested_at)
select 'apv_' || substr(pending_transfer_id, 5), 'transfer', idempotency_key, account_id,
       'Adds ' || amount || ' micro-credits to the pool ' || "family" || '.', reason,
       jsonb_build_object('accountId', account_id, 'family', 'FAMILY_' || upper("family"),
         'kind', 'TRANSFER_KIND_' || upper(kind), 'amountMicrocredits', amount::text,
         'idempotencyKey', idempotency_key, 'reason', reason),
       requested_by, substr(requested_by, 8), (amount + 199) / 200, requested_at
  from pending_transfers
 where state = 'pending' and requested_by like 'person:%';
drop table pending_transfers;

insert into approvals
  (approval_id, kind, subject, account_id, what, reason, request, requested_by, person_id,
   usd_micro, requested_at)
select 'apv_' || substr(d.decision_id, 5), 'decision', d.order_id, o.account_id,
       'Grants ' || sum(given.micro) || ' micro-credits for an order.', d.reason,
       jsonb_build_object('orderId', d.order_id, 'kind', d.kind, 'facts', to_jsonb(d.facts),
         'granted', jsonb_agg(jsonb_build_object('depositId', given.deposit_id,
                                                 'micro', given.micro::text))),
       d.decided_by, substr(d.decided_by, 8), (sum(given.micro)::bigint + 199) / 200, d.created_at
  from payment_decisions d
  join payment_orders o on o.order_id = d.order_id
 cross join lateral unnest(d.deposit_ids, d.micros) as given (deposit_id, micro)
 where d.state = 'pending'
 group by d.decision_id, o.account_id;
delete from payment_decisions where state <> 'done';
drop index payment_decisions_pending;
alter table payment_decisions drop column state;
alter table payment_decisions drop column done_at;
