-- One lease for all work that one process does at a time, and what the alerts know of providers.

alter table history_leases rename to leases;
alter table leases rename constraint history_leases_pkey to leases_pkey;

alter table alert_progress drop column evaluated_at, drop column leased_until;
alter table installation drop column cleaned_at;

-- Outages of models at providers. A row lives as long as its outage.
create table provider_outages (
  provider    text collate "C" not null,
  -- As the provider names it.
  model       text collate "C" not null,
  opened_at   timestamptz not null default now(),
  -- Since then a process gets answers, and none finds the model unusable. Null: not yet.
  answered_at timestamptz,
  primary key (provider, model)
);
