-- Lists the charges of an account that match a filter, with their prices, newest first. Looks at a
-- limited number of charges. If it reaches the last of them, it returns that one too, matching or
-- not: the next page begins after it.
-- $1 account_id  $2, $3 before this admitted_at and request_id  $4 from this admitted_at
-- $5 model, or null  $6 outcomes, or null  $7 least amount  $8 charges to look at
-- $9 rows at most  $10 tags that they all have, or null
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.tags, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#),
  c.is_match, c.place = $8 as is_last
from (
  select *
  from (
    select *,
      amount >= $7 and ($5::text is null or model = $5)
        and ($6::text[] is null or outcome = any($6))
        and ($10::jsonb is null or coalesce(tags @> $10, false)) as is_match,
      row_number() over (order by admitted_at desc, request_id desc) as place
    from charges
    where account_id = $1 and amount >= 0
      and (admitted_at, request_id) < ($2::timestamptz, $3) and admitted_at >= $4::timestamptz
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and month between date_trunc('month', $4 at time zone 'utc')::date
        and date_trunc('month', $2 at time zone 'utc')::date
    order by admitted_at desc, request_id desc
    limit $8
  ) looked
  where is_match or place = $8
  order by admitted_at desc, request_id desc
  limit $9
) c
join price_versions p using (price_version)
order by c.admitted_at desc, c.request_id desc;
