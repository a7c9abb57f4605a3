-- Begins to read a chain.
-- $1 processor  $2 chain
insert into chains (processor, chain) values ($1, $2)
on conflict (processor, chain) do nothing;
