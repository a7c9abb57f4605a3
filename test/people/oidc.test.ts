// Signing in at a provider of OIDC: a real one on loopback, good and tampered with.

import { pino } from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { OidcPurpose } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import type { Log } from "../../src/base/log.ts";
import { closedPeople, type OidcSettings, type PeopleSettings } from "../../src/config/catalog.ts";
import { errorOf } from "../support/keys.ts";
import {
  encodeForeign,
  encodeUnsigned,
  idpEnv,
  idpSettings,
  RedirectBrowser,
  startIdp,
  type TestIdp,
} from "../support/oidc.ts";
import {
  firstOwner,
  identify,
  join,
  type PeopleNode,
  publicUrl,
  redeem,
  type SignedIn,
  startTestPeople,
  type TestPeople,
  tokenOf,
} from "../support/people.ts";
import { query } from "../support/query.ts";

const callback = (name: string) => `${publicUrl}/console/oidc/${name}/callback`;
const { VIEWER, MEMBER, OWNER, UNSPECIFIED } = AccountRole;
const closed = { mode: "closed", domains: [] } as const;
const open = { mode: "open", domains: [] } as const;

let people: TestPeople;
let idp: TestIdp;
let node: PeopleNode;
let owner: SignedIn;
beforeAll(async () => {
  idp = await startIdp({ redirectUris: ["acme", "open", "domains"].map(callback) });
  people = await startTestPeople();
  node = people.node({ env: idpEnv, settings: settingsOf() });
  owner = await firstOwner(node);
});
afterEach(() => idp.reset());
afterAll(async () => {
  await people.stop();
  await idp.stop();
});

/** The same provider three times: closed, open, and for one domain. */
function settingsOf(more: Partial<OidcSettings> = {}): PeopleSettings {
  const domains = { mode: "domains", domains: ["acme.com"] } as const;
  const join = { accountId: "acc_b", role: "viewer" } as const;
  return {
    signUp: closed,
    limits: closedPeople.limits,
    oidc: {
      acme: idpSettings(idp, more),
      open: idpSettings(idp, { signUp: open, ...more }),
      domains: idpSettings(idp, { signUp: { ...domains, join }, ...more }),
    },
  };
}

type Begin = { provider: string; purpose?: OidcPurpose; linkToken?: string };

/** Sends a new browser to the provider. What it brings back is not handed in yet. */
async function comeBack(begin: Begin, token?: string, from = node) {
  const { authorizationUrl, flow } = await from.as(token).beginOidc(begin);
  const back = await new RedirectBrowser().follow(
    authorizationUrl,
    ({ origin }) => origin === publicUrl,
  );
  expect(back.href).toMatch(`${callback(begin.provider)}?`);
  return { provider: begin.provider, flow: flow?.token ?? "", query: back.search.slice(1) };
}

async function signInAt(begin: Begin, token?: string) {
  return node.as(token).finishOidc(await comeBack(begin, token));
}

async function sessionOf(token: string | undefined) {
  return node.as(token).getSession({});
}

let networks = 0;
/** Somebody without a session, in a network of his own: failures of the others do not count. */
function anyone(from = node) {
  networks++;
  return from.as(undefined, `10.${networks >> 8}.${networks & 255}.1`);
}

let count = 0;
/** Somebody new at the provider, who is its next person. */
function newPerson(claims: object = {}): string {
  const subject = `person-${++count}`;
  const confirmed = { email: `${subject}@example.com`, email_verified: true };
  idp.people.set(subject, { name: `Person ${count}`, ...confirmed, ...claims });
  idp.person = subject;
  return subject;
}

/** Somebody who has signed up at the provider `open`. */
async function signedUp(claims: object = {}) {
  const subject = newPerson(claims);
  const back = await comeBack({ provider: "open" });
  const { grant, person } = await anyone().finishOidc(back);
  return { subject, token: grant?.token ?? "", personId: person?.personId ?? "", person };
}

test("an unknown person signs up where that is open, and signs in again as the same", async () => {
  const email = "ada@example.com";
  const one = await signedUp({ email, email_verified: true, name: "Ada" });
  expect(one.person).toMatchObject({ login: email, name: "Ada", email });
  const session = await sessionOf(one.token);
  expect(session.accounts).toMatchObject([{ name: "Ada", role: OWNER }]);
  expect(session.identities).toMatchObject([{ provider: "acme" }]);
  expect(session.passkeys).toEqual([]);

  const again = await signInAt({ provider: "acme" });
  expect(again.person?.personId).toBe(one.personId);
  expect(again.grant?.token).not.toBe(one.token);
});

test("the providers are told before a sign-in, in their order", async () => {
  expect(await anyone().beginSignIn({})).toMatchObject({
    providers: [
      { name: "acme", title: "ACME" },
      { name: "open", title: "ACME" },
      { name: "domains", title: "ACME" },
    ],
    signUp: false,
  });
});

test("nobody signs up where that is closed", async () => {
  newPerson({ email: "closed@example.com", email_verified: true });
  expect(await errorOf(signInAt({ provider: "acme" }))).toBe("sign_up_closed");
  const { people: found } = await node.as(owner.token).listPeople({ query: "closed@" });
  expect(found).toEqual([]);
});

describe("where only one domain may sign up", () => {
  test.for([
    ["a confirmed address of it", { email: "ann@ACME.com", email_verified: true }, "no error"],
    ["an unconfirmed one", { email: "bob@acme.com", email_verified: false }, "sign_up_closed"],
    [
      "one without a word on it",
      { email: "cid@acme.com", email_verified: undefined },
      "sign_up_closed",
    ],
    ["another domain", { email: "dan@example.com", email_verified: true }, "sign_up_closed"],
    ["a domain below it", { email: "eve@x.acme.com", email_verified: true }, "sign_up_closed"],
    ["an end like it", { email: "fay@evilacme.com", email_verified: true }, "sign_up_closed"],
    ["two addresses", { email: "g@x.com,h@acme.com", email_verified: true }, "sign_up_closed"],
    ["no address", {}, "sign_up_closed"],
  ] as const)("%s: the outcome is right", async ([, claims, outcome]) => {
    newPerson(claims);
    expect(await errorOf(signInAt({ provider: "domains" }))).toBe(outcome);
  });

  test("a new person joins the configured account", async () => {
    newPerson({ email: "joins@acme.com", email_verified: true });
    const { grant } = await signInAt({ provider: "domains" });
    const { accounts } = await sessionOf(grant?.token);
    expect(accounts).toMatchObject([{ accountId: "acc_b", role: VIEWER }]);
  });
});

test("two identities with one address are two people, and neither is an earlier person", async () => {
  const email = "twice@example.com";
  const named = await join(node, owner, "acc_a", MEMBER, email);
  const one = await signedUp({ email, email_verified: true });
  const other = await signedUp({ email, email_verified: true });
  expect(new Set([named.person.personId, one.personId, other.personId]).size).toBe(3);
  expect(one.person?.login).toBe("twice@example.com#open");
  expect(other.person?.login).toMatch(/^twice@example\.com#open-\w{8}$/);
  expect((await sessionOf(one.token)).accounts).not.toMatchObject([{ accountId: "acc_a" }]);
});

test("an unconfirmed address is nobody's login here, and gets no account", async () => {
  const claims = { email: "ceo@example.com", email_verified: false };
  expect(await errorOf(signedUp(claims))).toBe("sign_up_closed");
});

test("the same new person in two windows becomes one person", async () => {
  newPerson({ email: "windows@example.com", email_verified: true });
  const backs = await Promise.all([1, 2, 3].map(() => comeBack({ provider: "open" })));
  const answers = await Promise.all(backs.map((back) => anyone().finishOidc(back)));
  expect(new Set(answers.map(({ person }) => person?.personId)).size).toBe(1);
});

test("what one node began another one finishes, and no node a second time", async () => {
  const other = people.node({ env: idpEnv, settings: settingsOf() });
  newPerson();
  const back = await comeBack({ provider: "open" });
  const { grant } = await anyone(other).finishOidc(back);
  expect(await identify(node, grant?.token ?? "")).toMatchObject({ kind: "person" });
  for (const one of [node, other])
    expect(await errorOf(anyone(one).finishOidc(back))).toBe("sign_in_failed");
});

describe("what comes back is refused", () => {
  let known: Awaited<ReturnType<typeof signedUp>>;
  beforeAll(async () => {
    idp.reset();
    known = await signedUp();
  });
  const outcome = async (spoil: (back: Awaited<ReturnType<typeof comeBack>>) => unknown) => {
    idp.person = known.subject;
    const back = await comeBack({ provider: "acme" });
    const spoilt = Object(await spoil(back));
    return errorOf(anyone().finishOidc({ ...back, ...spoilt }));
  };

  test("nothing else is wrong with it", async () => {
    expect(await outcome((back) => back)).toBe("no error");
  });

  test.for<[string, (query: URLSearchParams) => void]>([
    ["with another state", (query) => query.set("state", "x".repeat(43))],
    ["without a state", (query) => query.delete("state")],
    ["with two states", (query) => query.append("state", query.get("state") ?? "")],
    ["with another issuer", (query) => query.set("iss", "https://evil.example.com")],
    ["without an issuer, which this provider sends", (query) => query.delete("iss")],
    ["with another code", (query) => query.set("code", "x".repeat(43))],
    ["without a code", (query) => query.delete("code")],
    [
      "as an error of the provider",
      (query) => {
        query.delete("code");
        query.set("error", "access_denied");
      },
    ],
  ])("%s", async ([, spoil]) => {
    const changed = await outcome(({ query }) => {
      const parameters = new URLSearchParams(query);
      spoil(parameters);
      return { query: parameters.toString() };
    });
    expect(changed).toBe("sign_in_failed");
  });

  test.for<[string, (claims: Record<string, unknown>) => Record<string, unknown>]>([
    ["another nonce", (claims) => ({ ...claims, nonce: "another" })],
    ["no nonce", ({ nonce: _, ...claims }) => claims],
    ["another issuer", (claims) => ({ ...claims, iss: "https://evil.example.com" })],
    ["another audience", (claims) => ({ ...claims, aud: "another-client" })],
    ["a time that is over", (claims) => ({ ...claims, exp: Number(claims.iat) - 3_600 })],
    ["no end", ({ exp: _, ...claims }) => claims],
    ["no subject", ({ sub: _, ...claims }) => claims],
    ["another person than the provider describes", (claims) => ({ ...claims, sub: "mallory" })],
  ])("an ID token with %s", async ([, change]) => {
    idp.change = change;
    expect(await outcome((back) => back)).toBe("sign_in_failed");
  });

  test("an ID token without a signature", async () => {
    idp.encode = encodeUnsigned;
    expect(await outcome((back) => back)).toBe("sign_in_failed");
  });

  test("an ID token that somebody else has signed", async () => {
    idp.encode = encodeForeign;
    expect(await outcome((back) => back)).toBe("sign_in_failed");
  });

  test("a second time, and the provider is not asked", async () => {
    idp.person = known.subject;
    const back = await comeBack({ provider: "acme" });
    expect(await errorOf(anyone().finishOidc(back))).toBe("no error");
    const { requests } = idp;
    expect(await errorOf(anyone().finishOidc(back))).toBe("sign_in_failed");
    expect(idp.requests).toBe(requests);
  });

  test("of which two arrive at once: one signs in", async () => {
    idp.person = known.subject;
    const back = await comeBack({ provider: "acme" });
    const outcomes = await Promise.all([1, 2].map(() => errorOf(anyone().finishOidc(back))));
    expect(outcomes.sort()).toEqual(["no error", "sign_in_failed"]);
  });

  test("to the browser of another flow", async () => {
    expect(
      await outcome(async () => {
        const other = await anyone().beginOidc({ provider: "acme" });
        return { flow: other.flow?.token };
      }),
    ).toBe("sign_in_failed");
  });

  test("for another provider than it was begun at", async () => {
    expect(await outcome(() => ({ provider: "open" }))).toBe("sign_in_failed");
  });

  test("with a flow that is none of ours", async () => {
    for (const flow of ["x", "sign-in", "sign-in.AAAA", "sign-in..", "confirm.AAAA", "a.b.c.d"])
      expect(await outcome(() => ({ flow }))).toBe("sign_in_failed");
    expect(await outcome(({ flow }) => ({ flow: flow.replace("sign-in", "link") }))).toBe(
      "sign_in_failed",
    );
    expect(await outcome(({ flow }) => ({ flow: `${flow.replace("sign-in", "link")}.abc` }))).toBe(
      "sign_in_failed",
    );
  });

  test("of a person who is disabled", async () => {
    const { personId, subject } = await signedUp();
    await node.as(owner.token).updatePerson({
      personId,
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    idp.person = subject;
    expect(await errorOf(signInAt({ provider: "acme" }))).toBe("sign_in_failed");
  });

  test("that is too long, or for no provider", async () => {
    expect(await outcome(() => ({ query: "x".repeat(8_193) }))).toBe("invalid_request query");
    expect(await outcome(() => ({ provider: "nobody" }))).toBe("not_found provider");
    expect(await errorOf(anyone().beginOidc({ provider: "../acme" }))).toBe("not_found provider");
  });
});

describe("a provider that does not answer", () => {
  test.for(["hangs", "fails", "stalls", "floods"] as const)(
    "is told in time when its tokens are due: it %s",
    async (how) => {
      const impatient = people.node({ env: idpEnv, settings: settingsOf({ answerMs: 200 }) });
      const { subject } = await signedUp();
      idp.person = subject;
      // The answers before these may take their time.
      const back = await comeBack({ provider: "acme" });
      idp[how] = "/token";
      expect(await errorOf(anyone(impatient).finishOidc(back))).toBe("gateway_unavailable");
    },
  );

  test.for(["hangs", "fails", "stalls", "floods"] as const)(
    "is told in time from the beginning: it %s",
    async (how) => {
      // Long enough for the answers of the end, on a busy machine as well.
      const impatient = people.node({ env: idpEnv, settings: settingsOf({ answerMs: 1_000 }) });
      idp[how] = "";
      expect(await errorOf(anyone(impatient).beginOidc({ provider: "acme" }))).toBe(
        "gateway_unavailable",
      );
      // It works as soon as the provider does.
      idp.reset();
      expect(await errorOf(anyone(impatient).beginOidc({ provider: "acme" }))).toBe("no error");
    },
  );

  test("locks nobody out: passkeys and passwords work", async () => {
    idp.hangs = "";
    const { passkeyOptionsJson } = await anyone().beginSignIn({});
    const answerJson = owner.device.sign(passkeyOptionsJson);
    expect(await errorOf(anyone().signInWithPasskey({ answerJson }))).toBe("no error");
  });

  test("or has another issuer than configured, is not used", async () => {
    const issuer = new URL(`${idp.issuer.replace("127.0.0.1", "localhost")}/`);
    const wrong = people.node({ env: idpEnv, settings: settingsOf({ issuer }) });
    expect(await errorOf(anyone(wrong).beginOidc({ provider: "acme" }))).toBe(
      "gateway_unavailable",
    );
  });
});

test("twenty failures of a network have to wait; other networks and passkeys do not", async () => {
  const attempt = async (address: string) => {
    const { flow, authorizationUrl } = await anyone().beginOidc({ provider: "acme" });
    const state = new URL(authorizationUrl).searchParams.get("state") ?? "";
    const query = new URLSearchParams({ code: "wrong", state, iss: idp.issuer }).toString();
    const request = { provider: "acme", flow: flow?.token ?? "", query };
    return errorOf(node.as(undefined, address).finishOidc(request));
  };
  for (let index = 0; index < 20; index++)
    expect(await attempt("198.51.100.7")).toBe("sign_in_failed");
  expect(await attempt("198.51.100.7")).toBe("auth_rate_limited");
  expect(await attempt("198.51.100.8")).toBe("sign_in_failed");
});

describe("a link", () => {
  const invite = async (role: AccountRole = MEMBER, accountId = "acc_a") =>
    tokenOf((await node.as(owner.token).createInvitation({ accountId, role })).link);

  test("is taken by a new person, though signing up is closed", async () => {
    const linkToken = await invite();
    newPerson({ email: "invited@example.com", email_verified: true });
    const { grant, person } = await signInAt({ provider: "acme", linkToken });
    expect(person?.login).toBe("invited@example.com");
    const { accounts } = await sessionOf(grant?.token);
    expect(accounts).toMatchObject([{ accountId: "acc_a", role: MEMBER }]);
    expect(await errorOf(signInAt({ provider: "acme", linkToken }))).toBe("not_found token");
  });

  test("is taken by a person whose identity is known", async () => {
    const linkToken = await invite(VIEWER);
    const one = await signedUp();
    const { person } = await signInAt({ provider: "acme", linkToken });
    expect(person?.personId).toBe(one.personId);
    const { accounts } = await sessionOf(one.token);
    expect(accounts).toHaveLength(2);
  });

  test("of a recovery replaces the identities of its person", async () => {
    const one = await signedUp();
    const { link } = await node
      .as(owner.token)
      .createSignInLink({ personId: one.personId, reason: "locked out" });
    newPerson();
    const { person } = await signInAt({ provider: "acme", linkToken: tokenOf(link) });
    expect(person?.personId).toBe(one.personId);
    expect(await errorOf(sessionOf(one.token))).toBe("invalid_session");
    idp.person = one.subject;
    expect(await errorOf(signInAt({ provider: "acme" }))).toBe("sign_up_closed");
  });

  test("of a recovery is not taken with the identity of another person", async () => {
    const [one, other] = [await signedUp(), await signedUp()];
    const { link } = await node
      .as(owner.token)
      .createSignInLink({ personId: one.personId, reason: "locked out" });
    idp.person = other.subject;
    expect(await errorOf(signInAt({ provider: "acme", linkToken: tokenOf(link) }))).toBe(
      "login_taken",
    );
    expect(await errorOf(redeem(node, link, ""))).toBe("no error");
  });

  test("that is wrong begins nothing", async () => {
    const begin = { provider: "acme", linkToken: "x".repeat(43) };
    expect(await errorOf(anyone().beginOidc(begin))).toBe("not_found token");
  });
});

describe("a confirmation", () => {
  const purpose = OidcPurpose.CONFIRM;
  const isStrong = async (token: string) => {
    const { strongUntil } = await sessionOf(token);
    return Number(strongUntil?.seconds) * 1000 > Date.now();
  };

  test("is needed after a sign-in of unknown age, and makes the session strong", async () => {
    const { token } = await signedUp();
    expect(await isStrong(token)).toBe(false);
    expect(await errorOf(node.as(token).setPassword({ password: "a long password" }))).toBe(
      "confirm_identity",
    );
    const answer = await signInAt({ provider: "acme", purpose }, token);
    expect(answer.grant).toBeUndefined();
    expect(answer.purpose).toBe(purpose);
    expect(await isStrong(token)).toBe(true);
    expect(await errorOf(node.as(token).setPassword({ password: "a long password" }))).toBe(
      "no error",
    );
  });

  test("asks the provider to prove the person anew", async () => {
    const { token } = await signedUp();
    const { authorizationUrl } = await node.as(token).beginOidc({ provider: "acme", purpose });
    const { searchParams } = new URL(authorizationUrl);
    expect(searchParams.get("prompt")).toBe("login");
    expect(searchParams.get("max_age")).toBe("0");
  });

  test.for<[string, (claims: Record<string, unknown>) => Record<string, unknown>]>([
    ["with an earlier proof", (claims) => ({ ...claims, auth_time: Number(claims.iat) - 60 })],
    ["without the time of the proof", ({ auth_time: _, ...claims }) => claims],
  ])("%s is refused", async ([, change]) => {
    const { token } = await signedUp();
    idp.change = change;
    expect(await errorOf(signInAt({ provider: "acme", purpose }, token))).toBe("sign_in_failed");
    idp.reset();
    expect(await isStrong(token)).toBe(false);
  });

  test("by another person of the provider is refused", async () => {
    const [one, other] = [await signedUp(), await signedUp()];
    idp.person = other.subject;
    expect(await errorOf(signInAt({ provider: "acme", purpose }, one.token))).toBe(
      "sign_in_failed",
    );
  });

  test("belongs to the session that began it", async () => {
    const one = await signedUp();
    const second = await signInAt({ provider: "acme" });
    const back = await comeBack({ provider: "acme", purpose }, one.token);
    expect(await errorOf(node.as(second.grant?.token).finishOidc(back))).toBe("sign_in_failed");
    expect(await errorOf(anyone().finishOidc(back))).toBe("sign_in_failed");
    expect(await errorOf(node.as(one.token).finishOidc(back))).toBe("no error");
  });

  test("needs a session", async () => {
    const begin = anyone().beginOidc({ provider: "acme", purpose });
    expect(await errorOf(begin)).toBe("invalid_session");
  });
});

describe("a further identity", () => {
  const purpose = OidcPurpose.ADD;

  test("is added to the person of a session, and signs him in", async () => {
    const person = await join(node, owner, "acc_a", VIEWER, "adds-one");
    newPerson();
    const answer = await signInAt({ provider: "acme", purpose }, person.token);
    expect(answer).toMatchObject({ purpose, person: { personId: person.person.personId } });
    const again = await signInAt({ provider: "acme" });
    expect(again.person?.personId).toBe(person.person.personId);
  });

  test("of another person is not added", async () => {
    const person = await join(node, owner, "acc_a", VIEWER, "adds-none");
    await signedUp();
    expect(await errorOf(signInAt({ provider: "acme", purpose }, person.token))).toBe(
      "login_taken",
    );
  });

  test("needs a confirmation", async () => {
    const { token } = await signedUp();
    const begin = node.as(token).beginOidc({ provider: "acme", purpose });
    expect(await errorOf(begin)).toBe("confirm_identity");
  });

  test("can be removed, but not the last way in", async () => {
    const { token } = await signedUp();
    await signInAt({ provider: "acme", purpose: OidcPurpose.CONFIRM }, token);
    const identityId = (await sessionOf(token)).identities[0]?.identityId ?? "";
    const remove = () => errorOf(node.as(token).deleteIdentity({ identityId }));
    expect(await remove()).toBe("last_one");
    await node.as(token).setPassword({ password: "a long password" });
    expect(await remove()).toBe("no error");
    expect(await remove()).toBe("not_found identity_id");
    expect(await errorOf(signInAt({ provider: "acme" }))).toBe("sign_up_closed");
  });

  test("at a provider that is gone is no way in", async () => {
    const person = await join(node, owner, "acc_a", VIEWER, "left-over");
    newPerson();
    await signInAt({ provider: "acme", purpose }, person.token);
    const without = people.node();
    const { passkeys, identities } = await without.as(person.token).getSession({});
    expect(identities).toMatchObject([{ provider: "" }]);
    const passkeyId = passkeys[0]?.passkeyId ?? "";
    expect(await errorOf(without.as(person.token).deletePasskey({ passkeyId }))).toBe("last_one");
    expect(await errorOf(node.as(person.token).deletePasskey({ passkeyId }))).toBe("no error");
  });
});

describe("groups", () => {
  const groups = [
    { group: "gateway-admins", operator: "admin" },
    { group: "helpdesk", operator: "support" },
    { group: "team", member: { accountId: "acc_a", role: "member" } },
    { group: "leads", member: { accountId: "acc_a", role: "owner" } },
    { group: "ghosts", member: { accountId: "acc_none", role: "owner" } },
  ] as const;
  let grouped: PeopleNode;
  beforeAll(() => {
    grouped = people.node({ env: idpEnv, settings: settingsOf({ groups }) });
  });
  const signInWith = async (subject: string, names: readonly string[]) => {
    idp.person = subject;
    idp.people.set(subject, { ...idp.people.get(subject), groups: names });
    const { grant } = await anyone(grouped).finishOidc(
      await comeBack({ provider: "open" }, undefined, grouped),
    );
    const session = await grouped.as(grant?.token).getSession({});
    const role = session.accounts.find(({ accountId }) => accountId === "acc_a")?.role;
    return { ...session, token: grant?.token ?? "", role: role ?? UNSPECIFIED };
  };

  test("give roles at the first sign-in, change them, and take them back", async () => {
    const subject = newPerson();
    const first = await signInWith(subject, ["team", "helpdesk", "unknown", "ghosts"]);
    expect(first).toMatchObject({ role: MEMBER, operatorRole: OperatorRole.SUPPORT });
    const second = await signInWith(subject, ["team", "leads", "gateway-admins"]);
    expect(second).toMatchObject({ role: OWNER, operatorRole: OperatorRole.ADMIN });
    // The operator role changed: earlier sessions have ended.
    expect(await errorOf(grouped.as(first.token).getSession({}))).toBe("invalid_session");
    // What an owner may invite to, a member may not: his open links end with his role.
    const { link } = await node
      .as(owner.token)
      .createInvitation({ accountId: "acc_b", role: MEMBER });
    const made = {
      name: "test/made",
      text: `update links set made_by = $1, account_id = 'acc_a'
        where link_id = (select max(link_id) from links)`,
    };
    await query(people.database, made, [`person:${second.person?.personId}`]);
    const open = { linkToken: tokenOf(link), login: "guest" };
    expect((await anyone(grouped).beginPasskey(open)).link?.role).toBe(MEMBER);
    await signInWith(subject, ["team", "leads", "gateway-admins"]);
    expect((await anyone(grouped).beginPasskey(open)).link?.role).toBe(MEMBER);
    await signInWith(subject, ["team", "gateway-admins"]);
    expect(await errorOf(anyone(grouped).beginPasskey(open))).toBe("not_found token");
    const third = await signInWith(subject, []);
    expect(third).toMatchObject({ role: UNSPECIFIED, operatorRole: OperatorRole.UNSPECIFIED });
  });

  test("give roles to whoever takes a link", async () => {
    const { link } = await node
      .as(owner.token)
      .createInvitation({ accountId: "acc_b", role: VIEWER });
    newPerson({ groups: ["team"] });
    const begin = { provider: "acme", linkToken: tokenOf(link) };
    const { grant } = await anyone(grouped).finishOidc(await comeBack(begin, undefined, grouped));
    const { accounts } = await grouped.as(grant?.token).getSession({});
    expect(accounts).toMatchObject([
      { accountId: "acc_a", role: MEMBER },
      { accountId: "acc_b", role: VIEWER },
    ]);
  });

  test("give nothing that is not configured", async () => {
    const subject = newPerson();
    const { grant } = await signInAt({ provider: "open" });
    idp.people.set(subject, { groups: ["gateway-admins", "leads"] });
    const again = await signInAt({ provider: "open" });
    for (const token of [grant?.token, again.grant?.token])
      expect((await sessionOf(token)).operatorRole).toBe(OperatorRole.UNSPECIFIED);
  });

  test("are found at a path, in the ID token or at userinfo, also under a name with dots", async () => {
    const claims = [
      ["realm_access.roles", { realm_access: { roles: ["team"], other: 1 } }],
      ["https://acme.com/groups", { "https://acme.com/groups": ["team"] }],
      ["realm_access.acme.com.roles", { realm_access: { "acme.com": { roles: "team" } } }],
    ] as const;
    for (const [groupsClaim, said] of claims)
      for (const isInToken of [false, true]) {
        const from = people.node({
          env: idpEnv,
          settings: settingsOf({ groups, groupsClaim }),
        });
        newPerson(isInToken ? {} : said);
        if (isInToken) idp.change = (token) => ({ ...token, ...said });
        const begin = { provider: "open" };
        const { grant } = await anyone(from).finishOidc(await comeBack(begin, undefined, from));
        idp.reset();
        const { accounts } = await from.as(grant?.token).getSession({});
        expect(accounts).toContainEqual(
          expect.objectContaining({ accountId: "acc_a", role: MEMBER }),
        );
      }
  });

  test("the log says how many there were, or that the claim is absent", async () => {
    const written: string[] = [];
    const log: Log = pino(
      { base: null, timestamp: false },
      { write: (line) => written.push(line) },
    );
    const groupsClaim = "realm_access.roles";
    const settings = settingsOf({ groups, groupsClaim });
    const from = people.node({ env: idpEnv, settings, log });
    const lineOf = async (claims: object) => {
      newPerson(claims);
      const begin = { provider: "open" };
      await anyone(from).finishOidc(await comeBack(begin, undefined, from));
      return JSON.parse(written.splice(0).find((line) => line.includes("came back")) ?? "{}");
    };
    expect(await lineOf({ realm_access: { roles: ["team", "x"] } })).toMatchObject({
      oidc: "open",
      groups: 2,
    });
    expect(await lineOf({ realm_access: { roles: [] } })).toMatchObject({ groups: 0 });
    for (const claims of [{}, { groups: ["team"] }, { realm_access: ["roles"] }])
      expect(await lineOf(claims)).toMatchObject({
        groups: "the claim realm_access.roles is absent",
      });
  });

  test("take back nothing that somebody gave here", async () => {
    const subject = newPerson();
    const { person } = await signInWith(subject, ["team"]);
    const personId = person?.personId ?? "";
    await node.as(owner.token).updateMember({ accountId: "acc_a", personId, role: OWNER });
    await node.as(owner.token).updatePerson({
      personId,
      settings: { operatorRole: OperatorRole.SUPPORT },
      updateMask: { paths: ["operator_role"] },
    });
    expect(await signInWith(subject, [])).toMatchObject({
      role: OWNER,
      operatorRole: OperatorRole.SUPPORT,
    });
  });

  test("leave the last owner of an account and the last operator", async () => {
    const alone = await startTestPeople();
    try {
      const one = alone.node({ env: idpEnv, settings: settingsOf({ groups }) });
      const subject = newPerson({ groups: ["leads", "gateway-admins"] });
      const enter = async () => {
        const { grant } = await anyone(one).finishOidc(
          await comeBack({ provider: "open" }, undefined, one),
        );
        return one.as(grant?.token).getSession({});
      };
      expect((await enter()).operatorRole).toBe(OperatorRole.ADMIN);
      idp.people.set(subject, { groups: [] });
      const last = await enter();
      expect(last.operatorRole).toBe(OperatorRole.ADMIN);
      expect(last.accounts.map(({ accountId }) => accountId)).toContain("acc_a");
    } finally {
      await alone.stop();
    }
  });

  test("leave an event in the account whose role changed", async () => {
    const subject = newPerson();
    const { person } = await signInWith(subject, ["team"]);
    const { events } = await node
      .as(owner.token)
      .listAuditEvents({ accountId: "acc_a", method: "FinishOidc" });
    expect(events[0]).toMatchObject({
      actor: toActor(`person:${person?.personId}`),
      ...{ succeeded: true, reason: Reason.UNSPECIFIED },
      facts: { role: "MEMBER", oldRole: "UNSPECIFIED" },
    });
  });
});

test("operators may sign in at a provider where passwords give no operator role", async () => {
  const url = "https://gateway.example.com";
  const apart = await startTestPeople(url);
  const away = await startIdp({ redirectUris: [`${url}/console/oidc/open/callback`] });
  try {
    const groups = [{ group: "admins", operator: "admin" }] as const;
    const oidc = { open: idpSettings(away, { signUp: open, groups }) };
    const one = apart.node({ env: idpEnv, settings: { ...closedPeople, oidc } });
    away.people.set("ada", { groups: ["admins"], email: "a@b.example", email_verified: true });
    const { authorizationUrl, flow } = await anyone(one).beginOidc({ provider: "open" });
    const back = await new RedirectBrowser().follow(
      authorizationUrl,
      ({ origin }) => origin === url,
    );
    const { grant } = await anyone(one).finishOidc({
      provider: "open",
      flow: flow?.token ?? "",
      query: back.search.slice(1),
    });
    expect(await identify(one, grant?.token ?? "")).toMatchObject({ operator: OperatorRole.ADMIN });
  } finally {
    await apart.stop();
    await away.stop();
  }
});

test("the log of a failure has no code, token or claim", async () => {
  const lines: string[] = [];
  const { createLog } = await import("../../src/base/log.ts");
  const log = createLog("silent");
  const record = (...args: unknown[]) => void lines.push(JSON.stringify(args));
  Object.assign(log, { warn: record, error: record });
  const watched = people.node({ env: idpEnv, settings: settingsOf(), log });
  newPerson({ email: "secret@example.com", email_verified: true });
  idp.change = (claims) => ({ ...claims, nonce: "another" });
  const back = await comeBack({ provider: "open" }, undefined, watched);
  expect(await errorOf(anyone(watched).finishOidc(back))).toBe("sign_in_failed");
  const text = lines.join("\n");
  expect(text).toContain("a sign-in at the provider failed");
  const code = new URLSearchParams(back.query).get("code") ?? "";
  for (const secret of [code, back.flow, "secret@example.com", "eyJ"])
    expect(text).not.toContain(secret);
});
