-- Writes the sums of the tags of a UTC day of all accounts from its charges. No sum of the day may
-- be there. An account keeps the 1,000 values of a day that cost most, of all its tags together;
-- the others of each tag are one value, `(other)`.
-- $1 day
insert into tags_daily (account_id, day, tag, value, key_id, model, each_charged(#))
select account_id, $1::date, tag, case when place <= 1000 then value else '(other)' end,
  key_id, model, each_charged(sum(#)::bigint)
from (
  select *, dense_rank() over (partition by account_id order by value_amount desc, tag, value)
    as place
  from (
    select *, sum(amount) over (partition by account_id, tag, value) as value_amount
    from (
      select account_id, tag, value, key_id, model, each_charged(sum(#) as #)
      from (
        select c.account_id, t.tag, t.value, c.key_id, c.model, charged_of(c, p)
        from charges c
        join price_versions p using (price_version)
        cross join lateral jsonb_each_text(c.tags) as t (tag, value)
        where c.tags is not null and c.amount >= 0
          and c.month = date_trunc('month', $1::date::timestamp)::date
          and c.admitted_at >= $1::date::timestamp at time zone 'utc'
          and c.admitted_at < ($1::date + 1)::timestamp at time zone 'utc'
          -- True for every charge of the day, and found by an index.
          and c.settled_at >= $1::date::timestamp at time zone 'utc'
      ) tagged
      group by account_id, tag, value, key_id, model
    ) summed
  ) weighed
) ranked
group by account_id, tag, 4, key_id, model;
