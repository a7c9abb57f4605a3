-- people/sql/count-ways-in.sql
-- How many ways in a person has: passkeys, a password, and identities of these issuers.
-- $1 person_id  $2 issuers
select ((select count(*) from passkeys where person_id = $1)
      + (select count(*) from passwords where person_id = $1)
      + (select count(*) from identities
          where person_id = $1 and issuer = any($2::text[])))::integer as ways;
