-- people/sql/spend-challenge.sql
-- Uses up a challenge. No row: it was answered before.
-- $1 digest  $2 good for milliseconds
insert into spent_challenges (digest, ends_at)
values ($1, now() + $2::float8 * interval '1 millisecond')
on conflict (digest) do nothing
returning digest;
