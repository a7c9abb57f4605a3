-- Stops a promotion: its code is of no use from now on. A repeat changes nothing. No row: there is
-- no such promotion.
-- $1 code_id
update promotions set stopped_at = coalesce(stopped_at, now())
where code_id = $1
returning code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at;
