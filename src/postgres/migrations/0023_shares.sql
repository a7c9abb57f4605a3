-- compatible_from: 22
-- Refused requests of an account and hour are bounded, as those of a key are; and an account shows
-- the promotions that it used.
create index refusals_by_account on refusals (account_id, at);
create index promotion_uses_by_account on promotion_uses (account_id, used_at);
