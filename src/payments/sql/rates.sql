-- timeout_ms=5000

-- name: PutSample :run
-- Keeps the rate of a minute. Changes no row: it is kept.
-- :rate  micro-dollars of one coin
insert into rate_samples (asset, at, rate) values (:asset, :at, :rate)
on conflict (asset, at) do nothing;

-- name: FindSample :optional
-- Finds the rate nearest to a moment, of those between two others.
select rate
from rate_samples
where asset = :asset and at between :from and :to
order by abs(extract(epoch from at - :at::timestamptz))
limit 1;

-- name: FindLastSample :optional
-- Finds the newest rate, however old it is.
select rate from rate_samples where asset = :asset order by at desc limit 1;

-- name: RemoveSamples :run
-- Removes the rates of more than 90 days ago.
delete from rate_samples where at < now() - interval '90 days';
