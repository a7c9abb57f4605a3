// What a free account, or one person, can make: each bound, and one beyond.

import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { closedPeople } from "../../src/config/catalog.ts";
import type { Mailer } from "../../src/mail/mail.ts";
import { codeGuesses } from "../../src/people/guessing.ts";
import { apiErrorOf } from "../support/bindings.ts";
import { errorOf } from "../support/keys.ts";
import { idpEnv, idpSettings, RedirectBrowser, startIdp, type TestIdp } from "../support/oidc.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  publicUrl,
  type SignedIn,
  signIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";
import { query } from "../support/query.ts";

const { VIEWER, OWNER } = AccountRole;

let people: TestPeople;
let idp: TestIdp;
let node: PeopleNode;
let owner: SignedIn;
const mailer: Mailer = { send: async () => {}, close: () => {} };
beforeAll(async () => {
  idp = await startIdp({ redirectUris: [`${publicUrl}/console/oidc/acme/callback`] });
  people = await startTestPeople();
  const signUp = { mode: "open", domains: [] } as const;
  const oidc = { acme: idpSettings(idp, { signUp }) };
  node = people.node({ env: idpEnv, settings: { ...closedPeople, oidc }, mailer });
  owner = await firstOwner(node);
});
beforeEach(() => run("forget", "truncate sign_in_failures, sign_ups, audit_refusals"));
afterAll(async () => {
  await people.stop();
  await idp.stop();
});

const run = <Row>(name: string, text: string, values: unknown[] = []) =>
  query<Row>(people.database, { name: `test/${name}`, text }, values);
const failureOf = (call: Promise<unknown>) => call.then(() => undefined, apiErrorOf);

test("a person has fifty open sessions, and the oldest ends at the next sign-in", async () => {
  const ana = await join(node, owner, "acc_a", VIEWER, "ana");
  const sessions = [ana];
  for (let count = 1; count < 51; count++) sessions.push(await signIn(node, ana));
  const isOpen = ({ token }: SignedIn) => errorOf(node.as(token).getSession({}));
  expect(await isOpen(ana)).toBe("invalid_session");
  for (const one of sessions.slice(1)) expect(await isOpen(one)).toBe("no error");
  expect((await node.as(sessions[50]?.token).listSessions({})).sessions).toHaveLength(50);
});

test("an account has a hundred open invitations, and one that is revoked makes room", async () => {
  const invite = () => node.as(owner.token).createInvitation({ accountId: "acc_b", role: VIEWER });
  const ids: string[] = [];
  for (let count = 0; count < 100; count++) {
    await run(
      "age",
      "update links set made_at = made_at - interval '25 hours' where account_id = 'acc_b' and made_at > now() - interval '1 hour'",
    );
    ids.push((await invite()).invitation?.invitationId ?? "");
    await run(
      "within",
      "update links set made_at = now() - interval '2 days' where account_id = 'acc_b'",
    );
  }
  expect(await failureOf(invite())).toMatchObject({
    reason: "limit_reached",
    facts: { limit: { name: "open_invitations", limit: 100n, used: 100n } },
  });
  await node.as(owner.token).revokeInvitation({ accountId: "acc_b", invitationId: ids[0] ?? "" });
  expect(await failureOf(invite())).toBeUndefined();
});

test("an address gets three invitations a day", async () => {
  const invite = (email: string) =>
    node.as(owner.token).createInvitation({ accountId: "acc_a", role: VIEWER, email });
  await run("age-all", "update links set made_at = made_at - interval '2 days'");
  for (let count = 0; count < 3; count++) await invite("dora@example.com");
  expect(await failureOf(invite("dora@example.com"))).toMatchObject({
    reason: "limit_reached",
    facts: { field: "email", limit: { name: "mails_per_address", limit: 3n, used: 3n } },
  });
  expect(await failureOf(invite("emil@example.com"))).toBeUndefined();
});

let subjects = 0;
async function come(claims: object, address: string): Promise<unknown> {
  const person = `subject-${++subjects}`;
  idp.people.set(person, { email: `${person}@acme.com`, email_verified: true, ...claims });
  idp.person = person;
  const client = node.as(undefined, address);
  const { authorizationUrl, flow } = await client.beginOidc({ provider: "acme" });
  const back = await new RedirectBrowser().follow(
    authorizationUrl,
    ({ origin }) => origin === publicUrl,
  );
  const request = { provider: "acme", flow: flow?.token ?? "", query: back.search.slice(1) };
  return failureOf(client.finishOidc(request));
}

test("a network that guesses codes of one kind may still use those of another, and sign in", async () => {
  const [wrong, right] = [codeGuesses("one kind", "Wait."), codeGuesses("another kind", "Wait.")];
  const address = "192.0.2.7";
  await people.database.transaction(async (tx) => {
    for (let account = 0; account < 25; account++) await wrong.count(tx, `acc_${account}`, address);
  });
  const check = (guesses: typeof wrong, from: string) =>
    errorOf(people.database.transaction((tx) => guesses.check(tx, "acc_new", from)));
  expect(await check(wrong, address)).toBe("auth_rate_limited");
  expect(await check(wrong, "198.51.100.7")).toBe("no error");
  expect(await check(right, address)).toBe("no error");
  const signing = node.as(undefined, address).signInWithPassword({ login: "x", password: "wrong" });
  expect(await errorOf(signing)).toBe("sign_in_failed");
});

test("the people of a network get ten accounts a day by signing up", async () => {
  for (let count = 0; count < 10; count++) expect(await come({}, "198.51.100.7")).toBeUndefined();
  expect(await come({}, "198.51.100.7")).toMatchObject({ reason: "sign_up_closed" });
  const [row] = await run<{ accounts: number }>(
    "accounts",
    "select count(*)::int4 as accounts from accounts where account_id like 'acc\\_01%'",
  );
  expect(row?.accounts).toBe(10);
  expect(await come({}, "203.0.113.7")).toBeUndefined();
  await run("a-day", "update sign_ups set made_at = made_at - interval '1 day'");
  expect(await come({}, "198.51.100.7")).toBeUndefined();
});

test("nobody gets an account without a confirmed address", async () => {
  expect(await come({ email_verified: false }, "192.0.2.44")).toMatchObject({
    reason: "sign_up_closed",
    message: expect.stringContaining("address"),
  });
});

test("of 120 refused calls at once sixty leave an event each, and one counts the others", async () => {
  const ana = await join(node, owner, "acc_a", VIEWER, "ana-refused");
  const refused = Array.from({ length: 120 }, () =>
    errorOf(node.as(ana.token).updateMember({ accountId: "acc_a", personId: "x", role: OWNER })),
  );
  expect(new Set(await Promise.all(refused))).toEqual(new Set(["not_permitted"]));
  const { personId } = ana.person;
  const rows = await run<{ facts: { more?: string }; account_id: string }>(
    "events",
    "select facts, account_id from audit_events where actor = $1 and outcome <> 'ok'",
    [`person:${personId}`],
  );
  expect(rows).toHaveLength(61);
  expect(rows.filter(({ facts }) => facts.more === "60")).toHaveLength(1);
  // What was done leaves an event as ever.
  await node.as(ana.token).setEmail({ email: "" });
  const { events } = await node.as(owner.token).listAuditEvents({
    allAccounts: true,
    actor: toActor(`person:${personId}`),
    method: "SetEmail",
  });
  expect(events).toHaveLength(1);
  // The next hour begins anew.
  await run("an-hour", "update audit_refusals set hour = hour - interval '1 hour'");
  await errorOf(
    node.as(ana.token).updateMember({ accountId: "acc_a", personId: "x", role: OWNER }),
  );
  const again = await run(
    "again",
    "select 1 from audit_events where actor = $1 and outcome <> 'ok'",
    [`person:${personId}`],
  );
  expect(again).toHaveLength(62);
});
