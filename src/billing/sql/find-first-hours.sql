-- Returns the first UTC day from a day on that has hours; null if there is none.
-- $1 day
select (min(hour) at time zone 'utc')::date as day
from usage_hourly
where hour >= $1::date::timestamp at time zone 'utc' and key_id >= '';
