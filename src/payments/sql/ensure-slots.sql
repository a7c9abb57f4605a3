-- Gives a processor its slots for looks.
-- $1 processor  $2 slots
insert into payment_look_slots (processor, slot, used_at)
select $1, slot, now() - interval '1 hour' from generate_series(1, $2::integer) as slot
on conflict (processor, slot) do nothing;
