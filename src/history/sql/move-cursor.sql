-- Records that charges are in a sink. No row: another process has moved the cursor meanwhile.
-- $1 sink  $2, $3, $4 the last charge before  $5, $6, $7 the last charge now
-- $8 file and $9 bytes of it
update sink_cursors
set settled_at = $5::timestamptz, request_id = $6, account_id = $7, file = $8, bytes = $9,
  moved_at = now()
where sink = $1
  and (settled_at, request_id, account_id) = ($2::timestamptz, $3, $4)
returning sink;
