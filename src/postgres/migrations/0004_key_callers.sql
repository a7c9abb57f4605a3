-- Who created a key (empty: unknown), and whether it reads its whole account.
alter table keys add column created_by text not null default '';
alter table keys add column account_reader boolean not null default false;
