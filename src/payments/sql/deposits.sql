-- timeout_ms=5000

-- name: UpsertDeposit :run
-- Stores what a look saw of one deposit. States only go forwards, so looks may come in any order
-- and any number. Only one that was lost before it settled may come back, where that is said.
-- Changes no row: the deposit belongs to another order. The caller has locked the order.
-- :market_rate?  micro-dollars of one coin at its first sight; null: unknown
-- :block_at?  the time of its block
-- :block_rate?  micro-dollars of one coin then, where the quote does not hold so long
-- :processor_usd_micro?  the processor's own valuation, where that counts
-- :may_return  true: its chain can come back to a block that it left
insert into payment_deposits as d (processor, external_id, order_id, account_id, "family", asset,
  network, decimals, atoms, market_rate, processor_usd_micro, state, confirmations,
  confirmations_needed, first_seen_at, block_at, block_rate, settled_at)
values (:processor, :external_id, :order_id, :account_id, :family, :asset,
  :network, :decimals, :atoms, :market_rate, :processor_usd_micro, :state, :confirmations,
  :confirmations_needed, :first_seen_at, :block_at, :block_rate,
  case when :state = 'settled' then now() end)
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
      when :may_return::boolean and d.state = 'lost' and d.settled_at is null then excluded.state
      when 'lost' in (d.state, excluded.state) then 'lost'
      when 'settled' in (d.state, excluded.state) then 'settled'
      else 'seen'
    end,
    returned = d.returned or (d.state = 'lost' and excluded.state <> 'lost'
      and not (:may_return and d.settled_at is null)),
    confirmations = greatest(d.confirmations, excluded.confirmations),
    confirmations_needed = excluded.confirmations_needed,
    block_at = coalesce(excluded.block_at, d.block_at),
    block_rate = case when d.valued_by is null then excluded.block_rate else d.block_rate end,
    first_seen_at = least(d.first_seen_at, excluded.first_seen_at),
    settled_at = coalesce(d.settled_at,
      case when d.state = 'seen' or :may_return then excluded.settled_at end)
where d.order_id = excluded.order_id;

-- name: ListDeposits :many
-- Lists what arrived for some orders, oldest first.
select order_id as "order_id!", external_id, asset, network, decimals, atoms, market_rate,
  usd_micro, valued_by, processor_usd_micro, state, returned as is_returned, confirmations,
  confirmations_needed, first_seen_at, block_at, block_rate, settled_at
from payment_deposits
where order_id = any(:order_ids::text[])
order by first_seen_at, external_id;

-- name: ValueDeposit :run
-- Stores what a deposit is worth. It never changes afterwards.
update payment_deposits
set usd_micro = :usd_micro, valued_by = :valued_by
where processor = :processor and external_id = :external_id and valued_by is null;

-- name: NoteTransaction :run
-- Keeps the hash of the transaction of a payment. Changes no row: it is kept.
insert into payment_transactions (processor, chain, tx, external_id)
values (:processor, :chain, :tx, :external_id)
on conflict do nothing;
