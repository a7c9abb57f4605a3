-- timeout_ms=5000

-- name: HasAccount :one
-- True if there is such an account.
select exists (select from accounts where account_id = :account_id) as "has_account!";

-- name: ListPromotionUses :many
-- Lists the promotions that an account used, newest first.
-- :before?  the last one of the page before
-- =family promotions.family
select p.code_id, p.name, p."family", p.bonus_micro, coalesce(u.order_id, '') as "order_id!",
  u.refund_n is not null as "is_taken_back!", u.used_at,
  coalesce(u.transfer_id, '') as "transfer_id!"
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.account_id = :account_id
  and (:before::text is null or (u.used_at, u.code_id) < (
    select used_at, code_id
    from promotion_uses
    where account_id = :account_id and code_id = :before))
order by u.used_at desc, u.code_id desc
limit :rows;

-- name: ListDocumentsOf :many
-- Lists the receipts and credit notes of an account, newest first.
-- :before?  the number of the last one of the page before
-- =kind payment_documents.kind
select d.number, d.kind, d.order_id, d.issued_at
from payment_orders o
join payment_documents d on d.order_id = o.order_id
where o.account_id = :account_id
  and (:before::text is null or (d.issued_at, d.number) < (
    select issued_at, number from payment_documents where number = :before))
order by d.issued_at desc, d.number desc
limit :rows;
