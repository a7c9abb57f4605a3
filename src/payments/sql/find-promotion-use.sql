-- Finds the use of a code by an account.
-- $1 code_id  $2 account_id
select u.code_id, u.account_id, p."family", p.bonus_micro, u.transfer_id
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.code_id = $1 and u.account_id = $2;
