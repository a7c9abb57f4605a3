-- Reads the settings of an account, and locks them.
-- $1 account_id
select account_id, below_credits, below_days, rules, webhook_url, webhook_secret
from alert_settings
where account_id = $1
for update;
