-- timeout_ms=5000

-- name: PutSettings :run
-- Replaces the settings of an account.
-- :below_credits? alert_settings.below_credits
-- :below_days? alert_settings.below_days
-- :webhook_url?
-- :webhook_secret?
insert into alert_settings
  (account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret)
values (:account_id, :below_credits, :below_days, :percents, :rules, :webhook_url, :webhook_secret)
on conflict (account_id) do update
set below_credits = excluded.below_credits, below_days = excluded.below_days,
  percents = excluded.percents, rules = excluded.rules, webhook_url = excluded.webhook_url,
  webhook_secret = excluded.webhook_secret, changed_at = now();

-- name: ReadSettings :many
-- Reads the settings of accounts. An account without a row has the defaults.
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret
from alert_settings
where account_id = any(:account_ids::text[]);

-- name: LockSettings :optional
-- Reads the settings of an account, and locks them.
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret
from alert_settings
where account_id = :account_id
for update;
