-- timeout_ms=5000

-- name: PutSettings :run
-- Replaces the settings of an account, and switches its webhook on.
-- :keeps_webhook  it stays as it is: on, failing or off
-- :below_credits? alert_settings.below_credits
-- :below_days? alert_settings.below_days
-- :webhook_url?
-- :webhook_secret?
insert into alert_settings
  (account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret,
   webhook_form)
values (:account_id, :below_credits, :below_days, :percents, :rules, :webhook_url,
  :webhook_secret, :webhook_form)
on conflict (account_id) do update
set below_credits = excluded.below_credits, below_days = excluded.below_days,
  percents = excluded.percents, rules = excluded.rules, webhook_url = excluded.webhook_url,
  webhook_secret = excluded.webhook_secret, webhook_form = excluded.webhook_form,
  failing_since = case when :keeps_webhook::boolean then alert_settings.failing_since end,
  last_failed_at = case when :keeps_webhook then alert_settings.last_failed_at end,
  webhook_off_at = case when :keeps_webhook then alert_settings.webhook_off_at end,
  changed_at = now();

-- name: ReadSettings :many
-- Reads the settings of accounts. An account without a row has the defaults.
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret,
  webhook_form, failing_since, webhook_off_at
from alert_settings
where account_id = any(:account_ids::text[]);

-- name: EnsureSettings :run
-- Stores the settings of an account that has none, so that LockSettings finds a row to lock.
-- :below_days? alert_settings.below_days
insert into alert_settings (account_id, below_days, percents, rules)
values (:account_id, :below_days, :percents, :rules)
on conflict (account_id) do nothing;

-- name: LockSettings :one
-- Reads the settings of an account, and locks them.
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret,
  webhook_form, failing_since, webhook_off_at
from alert_settings
where account_id = :account_id
for update;

-- name: NotePostFailed :optional
-- Notes that a post to a webhook failed. It is switched off if its receiver is gone, or if for so
-- many days every post failed. A day in which nothing was posted says nothing of the receiver: the
-- days begin anew. No row: it is another one by now, or off already.
update alert_settings s
set failing_since = f.since, last_failed_at = now(),
  -- In milliseconds, as programs read it: lists go on after it.
  webhook_off_at = case
    when :is_gone::boolean or f.since <= now() - :days::integer * interval '1 day'
      then date_trunc('milliseconds', now())
  end
from (
  select account_id,
    case when last_failed_at > now() - interval '1 day' then failing_since else now() end as since
  from alert_settings
  where account_id = :account_id
  for update
) f
where s.account_id = f.account_id and s.webhook_url = :webhook_url and s.webhook_off_at is null
returning s.webhook_off_at is not null as "is_off!";

-- name: NotePostTaken :run
-- Notes that a webhook has taken a post. Changes no row where none had failed.
update alert_settings set failing_since = null, last_failed_at = null
where account_id = :account_id and webhook_url = :webhook_url and failing_since is not null
  and webhook_off_at is null;

-- name: ListSwitchedOff :many
-- Lists the webhooks that were switched off within a week, newest first.
-- :before?  only those of before this time; null: from the newest
-- :before_id  or at this time, of an account before this one
select account_id, webhook_url as "webhook_url!", failing_since as "failing_since!",
  webhook_off_at as "webhook_off_at!"
from alert_settings
where webhook_off_at > now() - interval '7 days'
  and (:before::timestamptz is null or (webhook_off_at, account_id) < (:before, :before_id::text))
order by webhook_off_at desc, account_id desc
limit :rows;

-- name: ListSecrets :many
-- Lists the signing secrets of webhooks as they are stored, by account.
select account_id, webhook_secret as "webhook_secret!"
from alert_settings
where webhook_secret is not null and account_id > :after
order by account_id
limit :rows;

-- name: ReplaceSecret :run
-- Stores a signing secret in another form. Changes no row: it is another one by now.
update alert_settings set webhook_secret = :sealed
where account_id = :account_id and webhook_secret = :stored;
