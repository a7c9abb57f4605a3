-- people/sql/list-audit-events.sql
-- Administrative acts, newest first.
-- $1 account_id; null: of all accounts and of none  $2 actor; null: all  $3 method; null: all
-- $4 from; null: the first  $5 to; null: the newest  $6 before this time  $7 and this event_id;
-- both null: from the newest  $8 limit
select event_id, at, actor, account_id, method, outcome, facts, address
  from audit_events
 where ($1::text is null or account_id = $1)
   and ($2::text is null or actor = $2)
   and ($3::text is null or method = $3)
   and ($4::timestamptz is null or at >= $4)
   and ($5::timestamptz is null or at < $5)
   and ($6::timestamptz is null or (at, event_id) < ($6, $7::text))
 order by at desc, event_id desc
 limit $8;
