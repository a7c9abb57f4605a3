-- Stores a price version, unless it is stored already.
-- $1 price_version  $2 model  $3 and on: micro-credits per token, one per category
insert into price_versions (price_version, model, each_category(#))
values ($1, $2, each_category($3))
on conflict do nothing;
