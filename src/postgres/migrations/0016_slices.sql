-- Ids begin the key of charges: a request is found by its id alone, however many accounts there
-- are. New ids come in the order of their time, so that they lie close together in this index. It
-- is built anew here, which takes about a minute for 30 million charges.
alter table charges
  drop constraint charges_pkey,
  add primary key (request_id, account_id, month);

-- Hours are removed by slices of accounts: those of the day `hours_from` are removed of the
-- accounts up to this one.
alter table usage_progress add removed_to text collate "C" not null default '';

-- The sums of the tags of a day of an account that has too many charges for one transaction, while
-- they are added up. Nobody else reads them.
create table tag_sums (
  account_id      text collate "C" not null,
  day             date not null,
  tag             text collate "C" not null,
  value           text collate "C" not null,
  key_id          text collate "C" not null,
  model           text not null,
  input           bigint not null,
  output          bigint not null,
  thinking        bigint not null,
  cache_write_5m  bigint not null,
  cache_write_1h  bigint not null,
  cache_read      bigint not null,
  web_searches    bigint not null,
  amount          bigint not null,
  amount_input    bigint not null,
  amount_output   bigint not null,
  amount_cache    bigint not null,
  amount_thinking bigint not null,
  requests        bigint not null,
  completed       bigint not null,
  failed          bigint not null,
  cut             bigint not null,
  primary key (account_id, day, tag, value, key_id, model)
);
