-- Sums the bonuses of promotions that needed an order, and that no refund has taken.
-- $1 order_id
select coalesce(sum(p.bonus_micro), 0)::bigint as micro
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.order_id = $1 and u.refund_n is null;
