-- The database's time of this transaction.
select now() as at;
