-- A request is charged output up to the tokens that it was granted, even where its hold would cover
-- more. Requests from before this migration have no recorded bound.
alter table holds add column granted_output integer not null default 2147483647;
alter table holds alter column granted_output drop default;

alter table charges add column granted_output integer not null default 2147483647;
alter table charges alter column granted_output drop default;
-- Tokens beyond the grant, which the gateway bears.
alter table charges add column output_over integer not null default 0 check (output_over >= 0);
alter table charges add column thinking_over integer not null default 0 check (thinking_over >= 0);
