-- Outages of models at providers, as the alerts know them. A row lives as long as its outage.

create table provider_outages (
  provider    text collate "C" not null,
  -- As the provider names it.
  model       text collate "C" not null,
  opened_at   timestamptz not null default now(),
  -- Since then a process gets answers, and none finds the model unusable. Null: not yet.
  answered_at timestamptz,
  primary key (provider, model)
);
