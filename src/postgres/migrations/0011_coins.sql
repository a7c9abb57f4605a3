-- Payments on chains are called by what they are: what one address got of one asset in one block,
-- or, of Bitcoin, in one transaction. Rows of before get the new names. No older process may run
-- beside it.

-- The transactions of payments: the largest 50 of each.
create table payment_transactions (
  processor   text collate "C" not null,
  chain       text collate "C" not null,
  -- Its hash.
  tx          text collate "C" not null,
  external_id text collate "C" not null,
  primary key (processor, chain, tx, external_id)
);
create index payment_transactions_by_payment on payment_transactions (processor, external_id);

-- How many transactions a payment has. Ether, found by its balance, has none that is known.
alter table chain_payments add column transactions integer not null default 0;

-- What arrived in pieces below 1 USD, by block. At 1 USD the whole becomes one payment.
create table address_dust (
  processor    text collate "C" not null,
  chain        text collate "C" not null,
  address      text collate "C" not null references deposit_addresses (address),
  asset        text not null,
  -- The block, or of older pieces together, the newest of their blocks.
  height       bigint not null,
  decimals     smallint not null,
  atoms        numeric(78, 0) not null check (atoms > 0),
  since        timestamptz not null,
  -- The height of the payment that it became part of. Null: it waits.
  taken_height bigint,
  primary key (processor, chain, address, asset, height)
);
create index address_dust_by_height on address_dust (processor, chain, height);
create index address_dust_taken on address_dust (processor, chain, taken_height)
  where taken_height is not null;

-- Who was looked at: others come before him.
alter table payment_look_slots add column account_id text collate "C";

alter table chains
  add column added_at timestamptz not null default now(),
  -- Blocks that one transaction reads at most, and the failures since it last changed.
  add column chunk_blocks integer not null default 500 check (chunk_blocks > 0),
  add column failures integer not null default 0,
  -- The block that could not be read, though it was asked for alone. Null: there is none.
  add column unread_block bigint;

-- The rates of coins, each minute of the last 90 days.
create table rate_samples (
  asset text not null,
  at    timestamptz not null,
  -- Micro-dollars of one coin.
  rate  bigint not null check (rate > 0),
  primary key (asset, at)
);
create index rate_samples_by_time on rate_samples (at);

-- The time of the block of a payment, and the rate of then where the quote does not hold so long.
alter table chain_payments add column block_at timestamptz;
alter table payment_deposits
  add column block_at timestamptz,
  add column block_rate bigint check (block_rate > 0),
  drop constraint payment_deposits_valued_by_check,
  add constraint payment_deposits_valued_by_check
    check (valued_by in ('quote', 'market', 'lowest', 'processor'));

-- Addresses that the operator empties. What comes to them meanwhile is not credited by itself.
create table sweeps (
  sweep_id   text collate "C" primary key,
  processor  text collate "C" not null,
  network    text collate "C" not null,
  addresses  text[] not null,
  -- It ends by itself then.
  until      timestamptz not null,
  began_at   timestamptz not null default now(),
  -- Null: nobody has ended it.
  ended_at   timestamptz,
  created_by text not null
);
create index sweeps_by_end on sweeps (processor, network, until);

-- What came to addresses during a sweep, by the difference of their balances.
create table sweep_payments (
  processor   text collate "C" not null,
  external_id text collate "C" not null,
  sweep_id    text collate "C" not null references sweeps,
  address     text collate "C" not null,
  asset       text not null,
  decimals    smallint not null,
  atoms       numeric(78, 0) not null check (atoms > 0),
  height      bigint not null,
  hash        text not null,
  at          timestamptz not null,
  -- Null: nobody has granted it.
  granted_by  text,
  granted_at  timestamptz,
  primary key (processor, external_id)
);
create index sweep_payments_by_sweep on sweep_payments (sweep_id, at);

-- Settling goes by address.
drop index chain_payments_unsettled;
create index chain_payments_unsettled on chain_payments (processor, chain, address, height)
  where state = 'seen' and height is not null;
create index chain_payments_unmined on chain_payments (processor, chain)
  where state <> 'lost' and height is null;

-- EVM payments whose block the chain left are lost with it.
update payment_orders o
set hook_at = now(), next_look_at = now()
from chain_payments p
where p.order_id = o.order_id and p.address like '0x%' and p.height is null and p.state <> 'lost';
update chain_payments set state = 'lost', missing_since = null
where address like '0x%' and height is null and state <> 'lost';

-- What waits below 1 USD: of Ether it becomes part of the next difference of balances, of others
-- it is dust. What is above the cursor of an EVM chain is read again.
create temporary table waiting on commit drop as
select p.processor, p.chain, p.external_id, p.address, p.asset, p.decimals, p.atoms, p.height,
  p.first_seen_at, p.address like '0x%' and p.height > coalesce(c.height, 0) as is_read_again
from chain_payments p
join chains c on c.processor = p.processor and c.chain = p.chain
where p.order_id is null and p.state <> 'lost' and p.height is not null
  and (p.asset in ('USDT', 'USDC') or p.market_rate is not null);
update address_balances b
set atoms = greatest(0, b.atoms - w.atoms)
from (
  select processor, chain, address, sum(atoms) as atoms
  from waiting where asset = 'ETH' group by processor, chain, address
) w
where b.processor = w.processor and b.chain = w.chain and b.address = w.address;
insert into address_dust (processor, chain, address, asset, height, decimals, atoms, since)
select processor, chain, address, asset, height, max(decimals), sum(atoms), min(first_seen_at)
from waiting
where asset <> 'ETH' and not is_read_again
group by processor, chain, address, asset, height;
delete from chain_payments p
using waiting w
where p.processor = w.processor and p.external_id = w.external_id;

-- The new names. Rows of one payment become one, where they belong to one order and have one state.
create temporary table renamed on commit drop as
with named as (
  select p.processor, p.chain, p.external_id as old_id, p.order_id, p.state, p.asset, p.atoms,
    case
      when p.address not like '0x%' then split_part(p.external_id, ':', 1) || ':' || p.address
      else p.chain || ':' || p.hash || ':' || p.address || ':' || p.asset
    end as new_id,
    case
      when p.address not like '0x%' then split_part(p.external_id, ':', 1)
      when p.asset <> 'ETH' then split_part(p.external_id, ':', 2)
    end as tx
  from chain_payments p
  where p.address not like '0x%' or p.hash is not null
)
select n.*, row_number() over payment as place, sum(n.atoms) over payment_rows as sum,
  count(n.tx) over payment_rows as transactions
from named n
join (
  select processor, new_id
  from named
  group by processor, new_id
  having count(distinct coalesce(order_id, '')) = 1 and count(distinct state) = 1
) alike using (processor, new_id)
window payment as (partition by n.processor, n.new_id order by n.old_id),
  payment_rows as (partition by n.processor, n.new_id);
create unique index on renamed (processor, old_id);

insert into payment_transactions (processor, chain, tx, external_id)
select distinct processor, chain, tx, new_id from renamed where tx is not null;
insert into payment_transactions (processor, chain, tx, external_id)
select p.processor, p.chain, split_part(p.external_id, ':', 2), p.external_id
from chain_payments p
where p.address like '0x%' and p.asset <> 'ETH' and not exists (
  select from renamed r where r.processor = p.processor and r.old_id = p.external_id
);

delete from chain_payments p
using renamed r
where p.processor = r.processor and p.external_id = r.old_id and r.place > 1;
update chain_payments p
set external_id = r.new_id, atoms = r.sum, transactions = r.transactions
from renamed r
where p.processor = r.processor and p.external_id = r.old_id;

-- Their deposits likewise.
create temporary table renamed_deposits on commit drop as
select r.processor, r.old_id, r.new_id, sum(d.atoms) over payment_rows as atoms,
  sum(d.usd_micro) over payment_rows as usd_micro, row_number() over payment as place
from renamed r
join payment_deposits d on d.processor = r.processor and d.external_id = r.old_id
window payment as (partition by r.processor, r.new_id order by r.old_id),
  payment_rows as (partition by r.processor, r.new_id);
delete from payment_deposits d
using renamed_deposits r
where d.processor = r.processor and d.external_id = r.old_id and r.place > 1;
update payment_deposits d
set external_id = r.new_id, atoms = r.atoms, usd_micro = r.usd_micro
from renamed_deposits r
where d.processor = r.processor and d.external_id = r.old_id;
update payment_refunds f
set external_id = r.new_id
from renamed r, payment_orders o
where o.order_id = f.order_id and r.processor = o.processor and r.old_id = f.external_id;

-- What persons decided names them, too: as deposits, and in facts such as `late:<id>`.
update payment_decisions d
set deposit_ids = (
  select array_agg(coalesce(r.new_id, one.id) order by one.place)
  from unnest(d.deposit_ids) with ordinality as one (id, place)
  left join renamed r on r.old_id = one.id
)
where exists (select from renamed r where r.old_id = any(d.deposit_ids));
create function fact_of_now(fact text) returns text language sql stable as $$
  select coalesce((
    select split_part(fact, ':', 1) || ':' || r.new_id
      || case when fact like '%:returned' then ':returned' else '' end
    from renamed r
    where r.old_id = regexp_replace(fact, '^[a-z_]+:|:returned$', '', 'g')
  ), fact)
$$;
update payment_decisions d
set facts = array(
  select fact_of_now(one.fact)
  from unnest(d.facts) with ordinality as one (fact, place)
  order by one.place
)
from payment_orders o
where o.order_id = d.order_id and d.facts <> '{}'
  and exists (select from renamed r where r.processor = o.processor);
update payment_orders o
set handled = array(select distinct fact_of_now(one) from unnest(o.handled) as one order by 1)
where o.handled <> '{}' and exists (select from renamed r where r.processor = o.processor);
drop function fact_of_now(text);
