-- Removes the counts of rejected requests before a UTC day.
-- $1 day
delete from errors_hourly
where hour < $1::date::timestamp at time zone 'utc';
