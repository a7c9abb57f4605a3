-- Removes the hours of a UTC day.
-- $1 day
delete from usage_hourly
where hour >= $1::date::timestamp at time zone 'utc'
  and hour < ($1::date + 1)::timestamp at time zone 'utc' and key_id >= '';
