-- Lists the charges of one key that match a filter, with their prices, newest first. Looks at a
-- limited number of charges. If it reaches the last of them, it returns that one too, matching or
-- not: the next page begins after it.
-- $1 account_id  $2 key_id  $3, $4 before this admitted_at and request_id  $5 from this admitted_at
-- $6 model, or null  $7 outcomes, or null  $8 least amount  $9 charges to look at
-- $10 rows at most  $11 tags that they all have, or null
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.tags, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#),
  c.is_match, c.place = $9 as is_last
from (
  select *
  from (
    select *,
      amount >= $8 and ($6::text is null or model = $6)
        and ($7::text[] is null or outcome = any($7))
        and ($11::jsonb is null or coalesce(tags @> $11, false)) as is_match,
      row_number() over (order by admitted_at desc, request_id desc) as place
    from charges
    where account_id = $1 and key_id = $2 and amount >= 0
      and (admitted_at, request_id) < ($3::timestamptz, $4) and admitted_at >= $5::timestamptz
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and month between date_trunc('month', $5 at time zone 'utc')::date
        and date_trunc('month', $3 at time zone 'utc')::date
    order by admitted_at desc, request_id desc
    limit $9
  ) looked
  where is_match or place = $9
  order by admitted_at desc, request_id desc
  limit $10
) c
join price_versions p using (price_version)
order by c.admitted_at desc, c.request_id desc;
