// Whatever people do, in any order: an account that has an owner keeps one, every person keeps a
// way in, and an operator stays.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  type SignedIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";

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
});
afterAll(() => people.stop());

const who = fc.nat({ max: 2 });
const role = fc.constantFrom(AccountRole.VIEWER, AccountRole.MEMBER, AccountRole.OWNER);
const act = fc.oneof(
  fc.record({ kind: fc.constant("role" as const), who, whom: who, role }),
  fc.record({ kind: fc.constant("remove" as const), who, whom: who }),
  fc.record({ kind: fc.constant("invite" as const), who, whom: who, role }),
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
  await people.database.query(openSessions, []);
  await people.database.query(forgetLinks, []);
  // A node that remembers nothing of the sessions that were opened again.
  const fresh = people.node();
  const person = (index: number) => everybody[index] ?? Promise.reject(new Error("nobody"));
  const actor = await person(one.who);
  const client = fresh.as(actor.token);
  switch (one.kind) {
    case "role": {
      const { personId } = (await person(one.whom)).person;
      await client.updateMember({ accountId: "acc_a", personId, role: one.role });
      return;
    }
    case "remove": {
      const { personId } = (await person(one.whom)).person;
      await client.removeMember({ accountId: "acc_a", personId });
      return;
    }
    case "invite": {
      const { link } = await client.invite({ accountId: "acc_a", role: one.role });
      const token = new URL(link).hash.slice(1);
      await fresh.as((await person(one.whom)).token).redeemLink({ token });
      return;
    }
    case "passkey": {
      const { passkeys } = await client.getSession({});
      await client.removePasskey({ passkeyId: passkeys[0]?.passkeyId ?? "" });
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
      await client.updatePerson({ personId, operator: one.operator, disabled: one.disabled });
      return;
    }
  }
}

const broken = {
  name: "test/broken",
  text: `
    select 'no owner' as fault
     where not exists (select 1 from members where account_id = 'acc_a' and role = 'owner')
    union all
    select 'no operator'
     where not exists
       (select 1 from people where operator = 'admin' and disabled_at is null)
    union all
    select 'no way in: ' || p.login from people p
     where not exists (select 1 from passkeys k where k.person_id = p.person_id)
       and not exists (select 1 from passwords w where w.person_id = p.person_id)`,
};

test("no sequence of calls breaks an account, locks a person out, or leaves no operator", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 1, maxLength: 6 }), async (acts) => {
      // Some at the same time, as they come.
      for (let at = 0; at < acts.length; at += 2)
        await Promise.all(
          acts.slice(at, at + 2).map((one) =>
            run(one).catch((error: unknown) => {
              if (!(error instanceof ApiError) || error.reason === "internal") throw error;
            }),
          ),
        );
      expect(await people.database.query(broken, [])).toEqual([]);
    }),
    { numRuns: 25 },
  );
}, 120_000);
