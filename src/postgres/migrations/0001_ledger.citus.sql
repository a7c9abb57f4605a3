-- The rows of one account lie together in one shard of each table, on one worker. Every worker has
-- a copy of the other tables.
select create_reference_table('accounts');
select create_reference_table('keys');
select create_reference_table('key_secrets');
select create_reference_table('key_changes');
select create_reference_table('price_versions');
select create_reference_table('nodes');
select create_distributed_table('pools', 'account_id');
select create_distributed_table('key_months', 'account_id', colocate_with => 'pools');
select create_distributed_table('holds', 'account_id', colocate_with => 'pools');
select create_distributed_table('charges', 'account_id', colocate_with => 'pools');
select create_distributed_table('transfers', 'account_id', colocate_with => 'pools');
select create_distributed_table('usage_hourly', 'account_id', colocate_with => 'pools');
select create_distributed_table('usage_daily', 'account_id', colocate_with => 'pools');
select create_distributed_table('errors_hourly', 'account_id', colocate_with => 'pools');
select create_reference_table('usage_progress');
