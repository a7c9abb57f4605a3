-- Lists which of some addresses are ours.
-- $1 addresses
select address from deposit_addresses where address = any($1::text[]);
