-- Documents are numbered by the id of their seller: a name may change. The numbers of before go on.
alter table payment_orders add column seller_id text collate "C" not null default 'main';
update payment_orders set seller_id = 'simulated:main'
where seller_name like '%(simulated, no real money)';
insert into payment_numbers as n (seller, kind, year, last)
select case when seller like '%(simulated, no real money)' then 'simulated:main' else 'main' end,
  kind, year, max(last)
from payment_numbers
group by 1, 2, 3
on conflict (seller, kind, year) do update set last = greatest(n.last, excluded.last);

-- The bonus of a promotion goes with the purchase that it needed, and comes back with it.
alter table payment_grants
  -- Micro-credits that it takes of such bonuses, or gives back.
  add column bonus_micro bigint not null default 0,
  drop constraint payment_grants_micro_check,
  add constraint payment_grants_micro_check check ((micro <> 0) <> (bonus_micro <> 0));

-- Less than 1 USD asks nobody.
update payment_orders set attention = null where attention = 'dust';

alter table approvals
  drop constraint approvals_kind_check,
  add constraint approvals_kind_check check (kind in ('transfer', 'decision', 'refund', 'promotion',
    'admin_token', 'operator', 'sign_in_link', 'sweep_payment'));
