// Whatever people do, in any order: an account that has an owner keeps one, every person who was
// not deleted keeps a way in, an operator stays, and nothing stays of who was deleted.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  redeem,
  type SignedIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";
import { query } from "../support/query.ts";

let people: TestPeople;
let node: PeopleNode;
let everybody: SignedIn[];
beforeAll(async () => {
  people = await startTestPeople();
  node = people.node();
  const owner = await firstOwner(node);
  everybody = [owner];
  for (const login of ["second", "third"])
    everybody.push(await join(node, owner, "acc_a", AccountRole.OWNER, login));
  await query(people.database, ownBoth, []);
});
const ownBoth = {
  name: "test/own-both",
  text: `insert into members (account_id, person_id, role)
    select 'acc_b', person_id, 'owner' from people where deleted_at is null
    on conflict do nothing`,
};
afterAll(() => people.stop());

/** A new person in the place of each one who was deleted. */
async function replaceDeleted(): Promise<void> {
  const text = "select person_id from people where deleted_at is null";
  const rows = await query<{ person_id: string }>(
    people.database,
    { name: "test/alive", text },
    [],
  );
  const alive = new Set(rows.map(({ person_id }) => person_id));
  for (const [index, { person }] of everybody.entries()) {
    if (alive.has(person.personId)) continue;
    const link = await node.installation.makeOwnerLink();
    everybody[index] = await redeem(node, link, `next-${person.personId}`);
  }
  await query(people.database, ownBoth, []);
}

const accountId = fc.constantFrom("acc_a", "acc_b");
const who = fc.nat({ max: 2 });
const role = fc.constantFrom(AccountRole.VIEWER, AccountRole.MEMBER, AccountRole.OWNER);
const act = fc.oneof(
  fc.record({ kind: fc.constant("role" as const), who, whom: who, role, accountId }),
  fc.record({ kind: fc.constant("remove" as const), who, whom: who, accountId }),
  fc.record({ kind: fc.constant("invite" as const), who, whom: who, role, accountId }),
  fc.record({ kind: fc.constant("delete" as const), who, whom: who }),
  fc.record({ kind: fc.constant("passkey" as const), who }),
  fc.record({ kind: fc.constant("no password" as const), who }),
  fc.record({ kind: fc.constant("password" as const), who }),
  fc.record({
    kind: fc.constant("operator" as const),
    who,
    whom: who,
    operator: fc.constantFrom(OperatorRole.UNSPECIFIED, OperatorRole.ADMIN),
    disabled: fc.boolean(),
  }),
);
type Act = typeof act extends fc.Arbitrary<infer A> ? A : never;

const openSessions = {
  name: "test/open-sessions",
  // Acts end sessions. The people of this test stay signed in, whatever happens.
  text: "update sessions set ended_at = null, strong_until = now() + interval '1 hour'",
};
const forgetLinks = { name: "test/forget-links", text: "delete from links" };

async function run(one: Act): Promise<void> {
  await query(people.database, openSessions, []);
  await query(people.database, forgetLinks, []);
  // A node that remembers nothing of the sessions that were opened again.
  const fresh = people.node();
  const person = (index: number) => everybody[index] ?? Promise.reject(new Error("nobody"));
  const actor = await person(one.who);
  const client = fresh.as(actor.token);
  switch (one.kind) {
    case "role": {
      const { personId } = (await person(one.whom)).person;
      await client.updateMember({ accountId: one.accountId, personId, role: one.role });
      return;
    }
    case "remove": {
      const { personId } = (await person(one.whom)).person;
      await client.removeMember({ accountId: one.accountId, personId });
      return;
    }
    case "delete": {
      const { personId } = (await person(one.whom)).person;
      await client.deletePerson({ personId });
      return;
    }
    case "invite": {
      const { link } = await client.createInvitation({ accountId: one.accountId, role: one.role });
      const token = new URL(link).hash.slice(1);
      await fresh.as((await person(one.whom)).token).redeemLink({ token });
      return;
    }
    case "passkey": {
      const { passkeys } = await client.getSession({});
      await client.deletePasskey({ passkeyId: passkeys[0]?.passkeyId ?? "" });
      return;
    }
    case "no password":
      await client.setPassword({ password: "" });
      return;
    case "password":
      await client.setPassword({ password: "correct horse battery" });
      return;
    case "operator": {
      const { personId } = (await person(one.whom)).person;
      await client.updatePerson({
        personId,
        settings: { operatorRole: one.operator, disabled: one.disabled },
        updateMask: { paths: ["operator_role", "disabled"] },
      });
      return;
    }
  }
}

const broken = {
  name: "test/broken",
  text: `
    select 'no owner: ' || account_id as fault from accounts a
     where not exists
       (select 1 from members m where m.account_id = a.account_id and m.role = 'owner')
    union all
    select 'no operator'
     where not exists
       (select 1 from people where operator = 'admin' and disabled_at is null)
    union all
    select 'no way in: ' || p.login from people p
     where p.deleted_at is null
       and not exists (select 1 from passkeys k where k.person_id = p.person_id)
       and not exists (select 1 from passwords w where w.person_id = p.person_id)
    union all
    select 'left behind: ' || p.person_id from people p
     where p.deleted_at is not null
       and (p.name <> '' or p.operator <> 'none' or p.disabled_at is null
         or exists (select 1 from members m where m.person_id = p.person_id)
         or exists (select 1 from sessions s where s.person_id = p.person_id)
         or exists (select 1 from passkeys k where k.person_id = p.person_id)
         or exists (select 1 from passwords w where w.person_id = p.person_id)
         or exists (select 1 from links l where l.person_id = p.person_id))`,
};

/** The accounts with an owner who may sign in. */
const owned = {
  name: "test/owned",
  text: `select distinct m.account_id
    from members m
    join people p on p.person_id = m.person_id
   where m.role = 'owner' and p.disabled_at is null
   order by m.account_id`,
};

test("no sequence of calls breaks an account, locks a person out, or leaves no operator", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 1, maxLength: 6 }), async (acts) => {
      await replaceDeleted();
      // Some at the same time, as they come.
      for (let at = 0; at < acts.length; at += 2) {
        const both = acts.slice(at, at + 2);
        const before = await query(people.database, owned, []);
        await Promise.all(
          both.map((one) =>
            run(one).catch((error: unknown) => {
              if (!(error instanceof ApiError) || error.reason === "internal") throw error;
            }),
          ),
        );
        // Only an operator who disables somebody takes the last owner who may sign in.
        if (!both.some((one) => one.kind === "operator" && one.disabled))
          expect(await query(people.database, owned, [])).toEqual(expect.arrayContaining(before));
      }
      expect(await query(people.database, broken, [])).toEqual([]);
    }),
    { numRuns: 25 },
  );
});
