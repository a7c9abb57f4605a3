-- Records a verified export of a month. No row: the charges were removed before.
-- $1 month  $2 SHA-256 of its lines  $3 place
insert into month_archives (month, sha256, place, verified_at)
values ($1::date, $2, $3, now())
on conflict (month) do update
set sha256 = excluded.sha256, place = excluded.place, verified_at = excluded.verified_at
where month_archives.dropped_at is null
returning month;
