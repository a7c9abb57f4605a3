// Admin tokens: made, used, listed and revoked, on two nodes.

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  CreateAdminTokenRequestSchema as createType,
  RevokeAdminTokenRequestSchema as revokeType,
} from "../../gen/gateway/people/v1/admin_tokens_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { callBy } from "../support/calls.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  type SignedIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";
import { query } from "../support/query.ts";

let people: TestPeople;
let one: PeopleNode;
let other: PeopleNode;
let owner: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  [one, other] = [people.node(), people.node()];
  owner = await firstOwner(one);
});
afterAll(() => people.stop());

const { READ, KEYS, MONEY, ALL } = AdminScope;
// The promise is a second. Tests of a loaded machine wait for longer, and fail if it never comes.
const soon = { timeout: 10_000, interval: 20 };

let made = 0;
async function make(scope: AdminScope, name = `token ${++made}`) {
  const { token, secret } = await one.as(owner.token).createAdminToken({ name, scope });
  if (!token) return expect.unreachable("the answer has the token");
  return { token, secret };
}

const headersOf = (secret: string) => new Headers({ authorization: `Bearer ${secret}` });
const identify = (node: PeopleNode, secret: string) => node.authenticate(headersOf(secret));

test("a token is recognized by its form, and names its caller on every node", async () => {
  const { token, secret } = await make(KEYS, "deploy");
  expect(secret).toMatch(/^adm-gw2-[0-9A-Za-z]{43}$/);
  expect(token).toMatchObject({
    name: "deploy",
    scope: KEYS,
    hint: `${secret.slice(0, 14)}…${secret.slice(-4)}`,
    createdBy: toActor(`person:${owner.person.personId}`),
  });
  expect([token.lastUsedAt, token.revokedAt]).toEqual([undefined, undefined]);
  const { personId } = owner.person;
  const caller = { kind: "admin", name: "deploy", scope: KEYS, tokenId: token.tokenId, personId };
  for (const node of [one, other]) expect(await identify(node, secret)).toEqual(caller);
});

test("only the digest of a secret is stored", async () => {
  const { secret } = await make(READ);
  const text = { name: "test/tokens", text: "select t::text as row from admin_tokens t" };
  const rows = await query<{ row: string }>(people.database, text, []);
  expect(rows.length).toBeGreaterThan(0);
  expect(rows.map(({ row }) => row).join()).not.toContain(secret.slice(12, -4));
});

test("the list has the token of the environment first, and each token with its last use", async () => {
  const { token, secret } = await make(MONEY);
  await identify(other, secret);
  const { tokens } = await one.as(owner.token).listAdminTokens({});
  expect(tokens[0]).toMatchObject({ tokenId: "ADMIN_TOKEN", name: "ADMIN_TOKEN", scope: ALL });
  const listed = tokens.find(({ tokenId }) => tokenId === token.tokenId);
  expect(listed).toEqual({ ...token, lastUsedAt: expect.anything() });
});

test("the list comes in pages, with the token of the environment on the first one", async () => {
  for (let count = 0; count < 3; count++) await make(READ);
  const names: string[] = [];
  let pageToken = "";
  do {
    const page = await one.as(owner.token).listAdminTokens({ pageSize: 2, pageToken });
    names.push(...page.tokens.map(({ name }) => name));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  expect(names.filter((name) => name === "ADMIN_TOKEN")).toHaveLength(1);
  expect(new Set(names).size).toBe(names.length);
});

test("a token with a list of addresses is good there alone, on every node", async () => {
  const { token, secret } = await one.as(owner.token).createAdminToken({
    ...{ name: "at home", scope: READ, allowedAddresses: ["::ffff:198.51.100.0/120"] },
  });
  expect(token?.allowedAddresses).toEqual(["198.51.100.0/24"]);
  for (const node of [one, other]) {
    const from = (peer?: string) =>
      errorOf(node.authenticate(headersOf(secret), peer === undefined ? undefined : { peer }));
    expect(await from("198.51.100.7")).toBe("no error");
    for (const peer of ["192.0.2.1", "", undefined])
      expect(await from(peer)).toBe("address_not_allowed");
  }
  await expect(one.authenticate(headersOf(secret), { peer: "192.0.2.1" })).rejects.toThrow(
    "This admin token may not be used from 192.0.2.1.",
  );
  const wrong = { name: "nowhere", scope: READ, allowedAddresses: ["home"] };
  expect(await errorOf(one.as(owner.token).createAdminToken(wrong))).toBe(
    "invalid_request allowed_addresses[0]",
  );
});

describe("a revoked token", () => {
  test("is dead on both nodes within a second, and stays in the list", async () => {
    const { token, secret } = await make(ALL);
    for (const node of [one, other]) expect(await errorOf(identify(node, secret))).toBe("no error");
    const { tokenId } = token;
    const revoked = (await one.as(owner.token).revokeAdminToken({ tokenId })).token;
    expect(revoked?.revokedAt).toBeDefined();
    expect(await errorOf(identify(one, secret))).toBe("revoked_key");
    await vi.waitFor(
      async () => expect(await errorOf(identify(other, secret))).toBe("revoked_key"),
      soon,
    );
    expect((await one.as(owner.token).revokeAdminToken({ tokenId })).token).toEqual(revoked);
  });

  test("tells the streams of the other node", async () => {
    const { token } = await make(ALL);
    const told: string[] = [];
    const stop = other.onCallerChange(({ subjectId }) => told.push(subjectId));
    await one.as(owner.token).revokeAdminToken({ tokenId: token.tokenId });
    await vi.waitFor(() => expect(told).toContain(token.tokenId), soon);
    stop();
  });

  test("makes and revokes no other one, even where the node does not know yet", async () => {
    const { token } = await make(ALL);
    const next = await make(ALL);
    const { tokenId, name, scope } = token;
    await one.as(owner.token).revokeAdminToken({ tokenId });
    const caller = { kind: "admin", name, scope, tokenId } as const;
    const call = callBy(caller);
    const { service } = other;
    const creating = service.createAdminToken(
      create(createType, { name: "after", scope: ALL }),
      call,
    );
    expect(await errorOf(creating)).toBe("not_permitted");
    const revoking = service.revokeAdminToken(
      create(revokeType, { tokenId: next.token.tokenId }),
      call,
    );
    expect(await errorOf(revoking)).toBe("not_permitted");
  });
});

test("a token of scope ALL makes tokens, which name it", async () => {
  const { token } = await make(ALL, "root");
  const { tokenId, name, scope } = token;
  const caller = { kind: "admin", name, scope, tokenId } as const;
  const request = create(createType, { name: "made by root", scope: READ });
  const answer = await one.service.createAdminToken(request, callBy(caller));
  expect(actorText(answer.token?.createdBy)).toBe("token:root");
});

describe("no token", () => {
  test.for([
    ["without a name", " ", "invalid_request name"],
    ["with markup in its name", "<b>x</b>", "invalid_request name"],
    ["with a line break in its name", "a\nb", "invalid_request name"],
    ["with a name of 10,000 characters", "x".repeat(10_000), "invalid_request name"],
    ["with the name of the environment's", "admin_Token", "name_taken name"],
    ["with a name that is in use, whatever its case", "TAKEN", "name_taken name"],
    ["with a name that a revoked one had", "gone", "name_taken name"],
  ])("is made %s", async ([, name = "", expected]) => {
    if (name === "TAKEN") await make(READ, "taken");
    if (name === "gone") {
      const { tokenId } = (await make(READ, "gone")).token;
      await one.as(owner.token).revokeAdminToken({ tokenId });
    }
    expect(await errorOf(make(READ, name))).toBe(expected);
  });

  test("is made twice with one name by two calls at once", async () => {
    const calls = Array.from({ length: 8 }, () => errorOf(make(READ, "raced")));
    const outcomes = (await Promise.all(calls)).toSorted();
    expect(outcomes).toEqual(
      ["name_taken name", "no error"].flatMap((outcome, index) =>
        Array(index === 0 ? 7 : 1).fill(outcome),
      ),
    );
  });

  test.for([
    ["of the environment", "ADMIN_TOKEN", "invalid_request token_id"],
    ["that does not exist", "tok_none", "not_found token_id"],
  ])("%s is revoked", async ([, tokenId = "", expected]) => {
    expect(await errorOf(one.as(owner.token).revokeAdminToken({ tokenId }))).toBe(expected);
  });

  test.for([
    "adm-gw2-",
    `adm-gw2-${"0".repeat(43)}`,
    `adm-gw2-${"0".repeat(42)}_`,
    `adm-gw2-${"0".repeat(10_000)}`,
  ])("is %j", async (secret) => {
    expect(await errorOf(identify(one, secret))).toBe("invalid_key");
  });

  test("is made or revoked by support, by members, or without a confirmation", async () => {
    const support = await join(one, owner, "acc_a", 3, "support");
    const { personId } = support.person;
    const request = { name: "of support", scope: READ };
    expect(await errorOf(one.as(support.token).createAdminToken(request))).toBe("not_permitted");
    await one.as(owner.token).updatePerson({
      personId,
      settings: { operatorRole: OperatorRole.SUPPORT },
      updateMask: { paths: ["operator_role"] },
    });
    expect(await errorOf(one.as(support.token).createAdminToken(request))).toBe("invalid_session");
  });
});

test("making and revoking leaves events with the names, and no secret", async () => {
  const { token, secret } = await make(MONEY, "audited");
  await one.as(owner.token).revokeAdminToken({ tokenId: token.tokenId });
  const { events } = await one.as(owner.token).listAuditEvents({ allAccounts: true });
  const facts = events
    .filter(({ facts }) => facts.name === "audited")
    .map(({ method, facts }) => [method, facts.tokenId, facts.scope]);
  expect(facts).toEqual([
    ["RevokeAdminToken", token.tokenId, "MONEY"],
    ["CreateAdminToken", token.tokenId, "MONEY"],
  ]);
  expect(JSON.stringify(events.map((event) => event.facts))).not.toContain(secret.slice(12, -4));
});
