-- The digest of a month from those of its blocks.
-- $1 month
select sha256(coalesce(string_agg(sha256, '' order by number), '')) as sha256
from closing_blocks
where month = $1::date;
