-- people/sql/list-sign-ins.sql
-- The sessions that began since ten seconds before a time, but for the first of each person, with
-- the addresses of his earlier ones and his accounts.
-- $1 time  $2 rows at most
select s.session_id, s.person_id, p.login, s.address, s.agent, s.made_at,
       array(select distinct e.address from sessions e
              where e.person_id = s.person_id and e.made_at < s.made_at) as earlier,
       array(select m.account_id from members m
              where m.person_id = s.person_id order by m.account_id) as account_ids
  from sessions s
  join people p on p.person_id = s.person_id
 where s.made_at > $1::timestamptz - interval '10 seconds' and s.address <> ''
   and exists (select from sessions e
                where e.person_id = s.person_id and e.made_at < s.made_at)
 order by s.made_at
 limit $2;
