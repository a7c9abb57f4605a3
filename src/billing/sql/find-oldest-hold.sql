-- Returns the UTC day of the oldest hold of all accounts; null if there is none.
select (min(admitted_at) at time zone 'utc')::date as day
from holds;
