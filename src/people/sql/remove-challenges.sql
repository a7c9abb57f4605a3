-- people/sql/remove-challenges.sql
-- Deletes challenges whose time is over.
delete from spent_challenges where ends_at < now();
