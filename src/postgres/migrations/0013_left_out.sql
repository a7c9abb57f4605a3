-- Facts of a charge that no sum needs. `left_out`: parts of the request that its provider did not
-- get. Null: there are none, as for nearly all.
alter table charges add facts jsonb;
