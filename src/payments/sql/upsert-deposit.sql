-- Stores what a look saw of one deposit. States only go forwards, so looks may come in any order
-- and any number. No row: the deposit belongs to another order. The caller has locked the order.
-- $1 processor  $2 external_id  $3 order_id  $4 account_id  $5 family  $6 asset  $7 network
-- $8 decimals  $9 atoms  $10 market_rate or null  $11 the processor's own value or null  $12 state
-- $13 confirmations  $14 confirmations_needed  $15 first_seen_at
insert into payment_deposits as d (processor, external_id, order_id, account_id, "family", asset,
  network, decimals, atoms, market_rate, processor_usd_micro, state, confirmations,
  confirmations_needed, first_seen_at, settled_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
  case when $12 = 'settled' then now() end)
on conflict (processor, external_id) do update
set atoms = case
      when d.state <> 'seen' then d.atoms
      when excluded.state = 'settled' then excluded.atoms
      else greatest(d.atoms, excluded.atoms)
    end,
    processor_usd_micro = case
      when d.state = 'seen' then excluded.processor_usd_micro
      else d.processor_usd_micro
    end,
    state = case
      when 'lost' in (d.state, excluded.state) then 'lost'
      when 'settled' in (d.state, excluded.state) then 'settled'
      else 'seen'
    end,
    returned = d.returned or (d.state = 'lost' and excluded.state <> 'lost'),
    confirmations = greatest(d.confirmations, excluded.confirmations),
    confirmations_needed = excluded.confirmations_needed,
    first_seen_at = least(d.first_seen_at, excluded.first_seen_at),
    settled_at = coalesce(d.settled_at, case when d.state = 'seen' then excluded.settled_at end)
where d.order_id = excluded.order_id
returning external_id;
