-- people/sql/insert-session.sql
-- Begins a session of a person.
-- $1 digest  $2 session_id  $3 person_id  $4 method  $5 lifetime in milliseconds
-- $6 confirmed for milliseconds  $7 address  $8 agent  $9 passkey_id; null: of another method
insert into sessions
  (digest, session_id, person_id, method, ends_at, strong_until, address, agent, passkey_id)
values ($1, $2, $3, $4, now() + $5::float8 * interval '1 millisecond',
        now() + $6::float8 * interval '1 millisecond', $7, $8, $9)
returning ends_at;
