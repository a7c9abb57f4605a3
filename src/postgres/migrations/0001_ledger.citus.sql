-- The rows of one account lie together in one shard of each table, on one worker. Every worker has
-- a copy of the other tables.
select create_reference_table('accounts');
select create_reference_table('keys');
select create_reference_table('key_secrets');
select create_reference_table('key_changes');
select create_reference_table('price_versions');
select create_reference_table('pending_transfers');
select create_reference_table('nodes');
select create_reference_table('verifications');
select create_distributed_table('pools', 'account_id');
select create_distributed_table('key_months', 'account_id', colocate_with => 'pools');
select create_distributed_table('holds', 'account_id', colocate_with => 'pools');
select create_distributed_table('charges', 'account_id', colocate_with => 'pools');
select create_distributed_table('transfers', 'account_id', colocate_with => 'pools');
select create_distributed_table('usage_hourly', 'account_id', colocate_with => 'pools');
select create_distributed_table('usage_daily', 'account_id', colocate_with => 'pools');
select create_distributed_table('tags_daily', 'account_id', colocate_with => 'pools');
select create_distributed_table('errors_hourly', 'account_id', colocate_with => 'pools');
select create_distributed_table('closed_months', 'account_id', colocate_with => 'pools');
select create_distributed_table('closing_sums', 'account_id', colocate_with => 'pools');
select create_reference_table('usage_progress');
select create_reference_table('closing_blocks');
select create_reference_table('month_closings');
select create_reference_table('month_archives');
select create_reference_table('sink_cursors');
select create_reference_table('history_leases');

-- The transactions of one account, as functions that run on the worker with its rows: the servers
-- exchange one message instead of a dozen. Every statement names the account and one table, so
-- that the worker keeps its plan. Values are fields of a record, never elements of an array: an
-- update that sets a column to an element crashes the worker (Citus 13.2). Each locks the pools of
-- the account first, which guard all its other rows: a request is never held or charged between
-- the look at its id and its hold.
-- billing/account-calls.ts calls them. each_category(…) and the like are expanded as
-- in every statement.

-- Locks the pools of an account, and reads what the admission of its requests needs. `_proposed`:
-- ids that a caller proposed, whose charges may be old. `_months`: of the growing holds. Amounts
-- are texts, because JSON numbers are not exact.
create function lock_account(_account text, _key_ids text[], _request_ids text[],
  _proposed text[], _months date[]) returns jsonb language plpgsql as $$
declare
  _month date := date_trunc('month', now() at time zone 'utc')::date;
  _before date := (_month - interval '1 month')::date;
  _pools jsonb := '[]';
  _key_months jsonb;
  _holds jsonb;
  _charges jsonb;
  _old jsonb;
  _used jsonb;
  _prices jsonb := '[]';
  _pool pools%rowtype;
begin
  for _pool in
    select * from pools where account_id = _account order by "family" for update
  loop
    _pools := _pools || jsonb_build_object('family', _pool."family",
      'posted', _pool.posted::text, 'held', _pool.held::text, 'in_debt', _pool.in_debt,
      'account_status', _pool.account_status);
  end loop;
  select jsonb_agg(jsonb_build_object('key_id', key_id, 'month', month,
      'spent', spent::text, 'held', held::text))
    into _key_months
    from key_months
    where account_id = _account and key_id = any(_key_ids) and month = any(_month || _months);
  select jsonb_agg(jsonb_build_object('request_id', request_id, 'node_id', node_id,
      'nonce', nonce, 'key_id', key_id, 'model', model, 'amount', amount::text,
      'granted_output', granted_output, 'admitted_at', admitted_at, 'month', month,
      'price_version', price_version))
    into _holds
    from holds
    where account_id = _account and request_id = any(_request_ids);
  select jsonb_agg(jsonb_build_object('request_id', request_id, 'node_id', '', 'nonce', '',
      'key_id', key_id, 'model', model, 'amount', '0', 'granted_output', granted_output,
      'admitted_at', admitted_at, 'month', month, 'price_version', price_version))
    into _charges
    from charges
    where account_id = _account and request_id = any(_request_ids)
      and month between _before and _month;
  if cardinality(_proposed) > 0 then
    select jsonb_agg(jsonb_build_object('request_id', request_id, 'node_id', '', 'nonce', '',
        'key_id', key_id, 'model', model, 'amount', '0', 'granted_output', granted_output,
        'admitted_at', admitted_at, 'month', month, 'price_version', price_version))
      into _old
      from charges
      where account_id = _account and request_id = any(_proposed) and month < _before;
  end if;
  _used := coalesce(_old, '[]') || coalesce(_charges, '[]') || coalesce(_holds, '[]');
  if jsonb_array_length(_used) > 0 then
    select jsonb_agg(to_jsonb(p))
      into _prices
      from price_versions p
      where price_version in (select value ->> 'price_version' from jsonb_array_elements(_used));
  end if;
  return jsonb_build_object('pools', _pools, 'months', coalesce(_key_months, '[]'),
    'used', _used, 'prices', coalesce(_prices, '[]'));
end
$$;

-- Stores holds and adds them to their pools and months. The caller has called lock_account in the
-- same transaction, and found that the pools and months cover the holds.
create function place_account(_account text, _request_ids text[], _families text[],
  _key_ids text[], _secret_ids text[], _models text[], _amounts bigint[], _price_versions text[],
  _nonces text[], _deadlines integer[], _node_ids text[], _granted integer[], _tags jsonb[])
returns void language plpgsql as $$
declare
  _month date := date_trunc('month', now() at time zone 'utc')::date;
  _now timestamptz := date_trunc('milliseconds', now());
  _one record;
begin
  for _one in
    select *, now() + deadline_ms * interval '1 millisecond' as deadline
    from unnest(_request_ids, _families, _key_ids, _secret_ids, _models, _amounts,
      _price_versions, _nonces, _deadlines, _node_ids, _granted, _tags)
      as h (request_id, "family", key_id, secret_id, model, amount, price_version, nonce,
        deadline_ms, node_id, granted_output, tags)
  loop
    insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
      price_version, node_id, nonce, admitted_at, deadline, granted_output, tags)
    values (_account, _one.request_id, _one."family", _one.key_id, _one.secret_id, _one.model,
      _month, _one.amount, _one.price_version, _one.node_id, _one.nonce, _now, _one.deadline,
      _one.granted_output, _one.tags);
    update pools
    set held = held + _one.amount
    where account_id = _account and "family" = _one."family";
    insert into key_months as m (account_id, key_id, month, held)
    values (_account, _one.key_id, _month, _one.amount)
    on conflict (account_id, key_id, month) do update
    set held = m.held + excluded.held;
  end loop;
end
$$;

-- Changes the amounts of holds, and with them the held amounts of their pools and months. A hold
-- that no longer exists is ignored. `_may_grow`: whether a hold may become larger.
create function resize_account(_account text, _request_ids text[], _amounts bigint[],
  _may_grow boolean) returns void language plpgsql as $$
declare
  _hold holds%rowtype;
  _added bigint;
  _one record;
begin
  perform 1 from pools where account_id = _account order by "family" for update;
  for _one in
    select * from unnest(_request_ids, _amounts) as h (request_id, amount)
  loop
    select * into _hold from holds where account_id = _account and request_id = _one.request_id;
    _added := _one.amount - _hold.amount;
    continue when _added is null or _added = 0 or (_added > 0 and not _may_grow);
    update holds
    set amount = _one.amount
    where account_id = _account and request_id = _one.request_id;
    update pools
    set held = held + _added, in_debt = in_debt and (posted < held + _added or posted < 0)
    where account_id = _account and "family" = _hold."family";
    update key_months
    set held = held + _added
    where account_id = _account and key_id = _hold.key_id and month = _hold.month;
  end loop;
end
$$;

-- Turns holds into charges, as billing/sql/settle-holds.sql does. Returns the charges.
create function settle_account(_account text, _request_ids text[], _costs_input bigint[],
  _costs_cache bigint[], _costs_thinking bigint[], _costs bigint[], _costs_over bigint[],
  _outputs_over integer[], _thinkings_over integer[], _outcomes text[], _bases text[],
  _attempts jsonb[], _first_events integer[], each_category(_# integer[]))
returns jsonb language plpgsql as $$
declare
  _hold holds%rowtype;
  _amount bigint;
  _overrun bigint;
  _for_input bigint;
  _for_cache bigint;
  _for_thinking bigint;
  _first integer;
  _hour timestamptz;
  _now timestamptz := now();
  _charged jsonb := '[]';
  _one record;
begin
  perform 1 from pools where account_id = _account order by "family" for update;
  for _one in
    select *
    from unnest(_request_ids, _costs_input, _costs_cache, _costs_thinking, _costs, _costs_over,
      _outputs_over, _thinkings_over, _outcomes, _bases, _attempts, _first_events,
      each_category(_#))
      as e (request_id, cost_input, cost_cache, cost_thinking, cost, cost_over, output_over,
        thinking_over, outcome, basis, attempts, first_event, each_category(#))
  loop
    delete from holds
    where account_id = _account and request_id = _one.request_id
    returning * into _hold;
    continue when _hold.request_id is null;
    _amount := least(_one.cost, _hold.amount);
    _overrun := greatest(_one.cost - _hold.amount, 0) + _one.cost_over;
    insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
      price_version, admitted_at, granted_output, hold, amount, overrun, output_over,
      thinking_over, outcome, basis, attempts, settled_at, tags, each_category(#))
    values (_account, _one.request_id, _hold.month, _hold."family", _hold.key_id,
      _hold.secret_id, _hold.model, _hold.price_version, _hold.admitted_at,
      _hold.granted_output, _hold.amount, _amount, _overrun, _one.output_over,
      _one.thinking_over, _one.outcome, _one.basis, _one.attempts, _now, _hold.tags,
      each_category(_one.#));
    -- A debt ends when the credits that are left cover the running holds.
    update pools
    set posted = posted - _amount, held = held - _hold.amount,
      in_debt = in_debt
        and (posted - _amount < held - _hold.amount or posted - _amount < 0)
    where account_id = _account and "family" = _hold."family";
    update key_months
    set spent = spent + _amount, held = held - _hold.amount,
      last_used_at = greatest(last_used_at, _now)
    where account_id = _account and key_id = _hold.key_id and month = _hold.month;
    -- A hold that is too small covers the input first, then the cache, then thinking, then output.
    _for_input := least(_one.cost_input, _hold.amount);
    _for_cache := least(_one.cost_cache, _hold.amount) - _for_input;
    _for_thinking := least(_one.cost_thinking, _hold.amount) - _for_input - _for_cache;
    _first := coalesce(_one.first_event, 0);
    _hour := date_trunc('hour', _hold.admitted_at, 'UTC');
    insert into usage_hourly as u (account_id, key_id, model, hour, each_sum(#))
    values (_account, _hold.key_id, _hold.model, _hour, each_category(_one.#),
      _amount, _for_input, _amount - _for_input - _for_cache - _for_thinking, _for_cache,
      _for_thinking, 1,
      (_one.outcome = 'completed')::int,
      (_one.outcome in ('provider_failed', 'provider_broke', 'gateway_failed', 'reaped',
        'input_above_hold'))::int,
      (_one.outcome in ('client_left_before_acceptance', 'client_left_before_content',
        'client_left', 'revoked', 'time_limit'))::int,
      each_first_event((_first = #)::int))
    on conflict (account_id, hour, key_id, model) do update
    set each_sum(# = u.# + excluded.#);
    _charged := _charged || jsonb_build_object('request_id', _one.request_id,
      'hold', _hold.amount::text, 'amount', _amount::text, 'overrun', _overrun::text,
      'settled_at_ms', floor(extract(epoch from _now) * 1000)::bigint);
  end loop;
  return jsonb_build_object('account_id', _account, 'charges', _charged);
end
$$;

select create_distributed_function(p.oid::regprocedure, '_account', colocate_with => 'pools',
  force_delegation => true)
from pg_proc p
where p.proname in ('lock_account', 'place_account', 'resize_account', 'settle_account')
  and p.pronamespace = current_schema()::regnamespace;
