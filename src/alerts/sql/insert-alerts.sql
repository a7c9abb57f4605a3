-- Raises alerts that nobody has raised, with their deliveries. Returns those that are new.
-- $1 alert_ids  $2 account_ids  $3 kinds  $4 facts, as texts of JSON  $5 on_page
-- $6 alert_ids of deliveries  $7 their channels  $8 milliseconds for which each is tried
with raised as (
  insert into alerts (alert_id, account_id, kind, facts, on_page)
  select w.alert_id, w.account_id, w.kind, w.facts::jsonb, w.on_page
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])
    as w (alert_id, account_id, kind, facts, on_page)
  on conflict do nothing
  returning alert_id, account_id
), delivered as (
  insert into alert_deliveries (alert_id, channel, account_id, ends_at)
  select d.alert_id, d.channel, r.account_id,
    now() + d.tried_ms * interval '1 millisecond'
  from unnest($6::text[], $7::text[], $8::float8[]) as d (alert_id, channel, tried_ms)
  join raised r using (alert_id)
)
select alert_id from raised;
