-- timeout_ms=5000

-- name: InsertPromotion :optional
-- Stores a promotion. No row: another one has this code.
-- :ends_at?  null: never
-- :most?  null: any number of uses
insert into promotions (code_id, code_sha256, name, "family", bonus_micro, ends_at, most,
  needs_purchase, created_by)
values (:code_id, :code_sha256, :name, :family, :bonus_micro, :ends_at, :most,
  :needs_purchase, :created_by)
on conflict (code_sha256) do nothing
returning code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at;

-- name: InsertPromotionUse :run
-- Stores the use of a code by an account. Changes no row: the account has used it.
-- :order_id?  the purchase that the code needed
insert into promotion_uses (code_id, account_id, order_id, used_at)
values (:code_id, :account_id, :order_id, now())
on conflict (code_id, account_id) do nothing;

-- name: LockRedeemer :optional
-- Locks an account until the end of the transaction: its codes are redeemed one by one.
select account_id from accounts where account_id = :account_id for no key update;

-- name: FindPromotion :optional
-- Finds the promotion of a code.
select code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at
from promotions
where code_sha256 = :code_sha256;

-- name: FindPromotionUse :optional
-- Finds the use of a code by an account. Without a transfer: its bonus is not posted yet.
select u.code_id, u.account_id, p."family", p.bonus_micro, u.transfer_id
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.code_id = :code_id and u.account_id = :account_id;

-- name: ReadBonus :one
-- Sums the bonuses of promotions that needed an order, unless a refund or a chargeback has taken
-- them.
select coalesce(sum(p.bonus_micro), 0)::bigint as "micro!"
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.order_id = :order_id and u.refund_n is null
  and (
    select coalesce(sum(g.bonus_micro), 0) from payment_grants g where g.order_id = :order_id
  ) = 0;

-- name: ListPromotions :many
-- Lists promotions, newest first.
-- :before?  the last one of the page before
select code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at
from promotions
where :before::text is null or code_id < :before
order by code_id desc
limit :rows;

-- name: StopPromotion :optional
-- Stops a promotion: its code is of no use from now on. A repeat changes nothing. No row: there is
-- no such promotion.
update promotions set stopped_at = coalesce(stopped_at, now())
where code_id = :code_id
returning code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at;

-- name: CountPromotionUse :run
-- Counts a use of a promotion. Changes no row: it has ended, was stopped, or is used up.
-- Simultaneous uses wait for each other here.
update promotions
set used = used + 1
where code_id = :code_id and stopped_at is null and (ends_at is null or ends_at > now())
  and (most is null or used < most);

-- name: SetPromotionTransfer :run
-- Notes the transfer of a bonus.
update promotion_uses set transfer_id = :transfer_id
where code_id = :code_id and account_id = :account_id and transfer_id is null;

-- name: TakeBonus :run
-- Notes that a refund takes the bonuses that needed its order. The caller has locked the order.
update promotion_uses set refund_n = :refund_n where order_id = :order_id and refund_n is null;

-- name: ReturnBonus :run
-- Notes that a refund which ended without money gives its bonuses back. The caller has locked the
-- order.
update promotion_uses set refund_n = null where order_id = :order_id and refund_n = :refund_n;
