-- Persons: how they confirm who they are.

-- How the person of a session proved last who he is: at its beginning, or by a confirmation.
alter table sessions add confirmed_by text check (confirmed_by in ('passkey', 'password', 'oidc'));
update sessions set confirmed_by = method;
alter table sessions alter confirmed_by set not null;
