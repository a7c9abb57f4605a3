-- Stores a price version. Unique violation: it is stored already. Without "on conflict", for which
-- Citus asks the right to change the table.
-- $1 price_version  $2 model  $3 and on: micro-credits per token, one per category
insert into price_versions (price_version, model, each_category(#))
values ($1, $2, each_category($3));
