-- compatible_from: 32
-- Which cell this database is of, and an id that no other database has. Null: no start has claimed
-- it, as in a template. A copy of the database keeps both: it is the same cell in another place.
alter table installation
  add cell            text collate "C" check (cell ~ '^[0-9]{2}$'),
  add installation_id text collate "C";
-- What has accounts was one installation alone.
update installation set cell = '00' where exists (select from accounts);
-- Challenges are signed by the content keys, which all cells share.
alter table installation drop challenge_secret;
