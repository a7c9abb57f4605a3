-- $1 sums of tags of the days before this one are written
update usage_progress
set tags_to = $1::date;
