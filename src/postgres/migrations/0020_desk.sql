-- compatible_from: 19
-- The number of the operator's desk.
select 1;
