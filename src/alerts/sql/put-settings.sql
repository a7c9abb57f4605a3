-- Replaces the settings of an account.
-- $1 account_id  $2 below_credits  $3 below_days  $4 rules  $5 webhook_url  $6 webhook_secret
insert into alert_settings
  (account_id, below_credits, below_days, rules, webhook_url, webhook_secret)
values ($1, $2, $3, $4, $5, $6)
on conflict (account_id) do update
set below_credits = excluded.below_credits, below_days = excluded.below_days,
  rules = excluded.rules, webhook_url = excluded.webhook_url,
  webhook_secret = excluded.webhook_secret, changed_at = now();
