-- Removes the sums of closings that have ended.
-- $1 closing_id of the closing that runs; its own are removed if it is ''
delete from closing_sums
where closing_id <> $1;
