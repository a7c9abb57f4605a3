-- Notes the transfer of a bonus.
-- $1 code_id  $2 account_id  $3 transfer_id
update promotion_uses set transfer_id = $3
where code_id = $1 and account_id = $2 and transfer_id is null;
