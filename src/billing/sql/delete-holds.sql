-- $1 request_ids
delete from holds where request_id = any($1::text[]);
