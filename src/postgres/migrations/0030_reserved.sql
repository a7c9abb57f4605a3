-- compatible_from: 29
-- Nothing: the number is taken.
select 1;
