-- Reads the settings of accounts. An account without a row has the defaults.
-- $1 account_ids
select account_id, below_credits, below_days, rules, webhook_url, webhook_secret
from alert_settings
where account_id = any($1::text[]);
