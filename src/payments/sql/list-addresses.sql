-- Lists the addresses of EVM chains, page by page.
-- $1 after this one  $2 at most
select address from deposit_addresses
where address > $1 and address like '0x%'
order by address
limit $2;
