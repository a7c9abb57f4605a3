// Several nodes on one database: what is revoked on one is dead on the others, and guesses are
// counted by all of them together.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { createGuessing } from "../../src/people/guessing.ts";
import { createPeopleStore } from "../../src/people/store.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  identify,
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
/** Of all nodes. It stands still, except in `soon`. */
const clock = new ManualClock();
beforeAll(async () => {
  people = await startTestPeople();
  [one, other] = [people.node({ clock }), people.node({ clock })];
  owner = await firstOwner(one);
});
afterAll(() => people.stop());

const { VIEWER, MEMBER } = AccountRole;
const password = "correct horse battery";
const soon = (check: () => void | Promise<void>) => passUntil(() => clock.advance(500), check);

describe("another node learns", () => {
  test("that a session was revoked", async () => {
    const person = await join(one, owner, "acc_a", VIEWER, "revoked");
    expect(await errorOf(identify(other, person.token))).toBe("no error");
    const { sessionId } = await one.as(person.token).getSession({});
    await one.as(person.token).revokeSession({ sessionId });
    expect(await errorOf(identify(one, person.token))).toBe("invalid_session");
    await soon(async () =>
      expect(await errorOf(identify(other, person.token))).toBe("invalid_session"),
    );
  });

  test("that a role changed, and that a member was removed, and tells its listeners", async () => {
    const person = await join(one, owner, "acc_a", VIEWER, "changed");
    const { personId } = person.person;
    const told: string[] = [];
    const stop = other.onCallerChange((change) => told.push(change.subjectId));
    const rolesAtOther = async () => {
      const caller = await identify(other, person.token);
      return caller.kind === "person" ? caller.memberships.map(({ role }) => role) : [];
    };
    expect(await rolesAtOther()).toEqual([VIEWER]);
    // The join itself is reported, too.
    await soon(() => expect(told).toContain(personId));
    told.length = 0;
    await one.as(owner.token).updateMember({ accountId: "acc_a", personId, role: MEMBER });
    await soon(async () => expect(await rolesAtOther()).toEqual([MEMBER]));
    await soon(() => expect(told).toContain(personId));
    await one.as(owner.token).removeMember({ accountId: "acc_a", personId });
    await soon(async () => expect(await rolesAtOther()).toEqual([]));
    stop();
  });

  test("that a person was disabled", async () => {
    const person = await join(one, owner, "acc_a", VIEWER, "disabled");
    const { personId } = person.person;
    await identify(other, person.token);
    await one.as(owner.token).updatePerson({
      personId,
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    await soon(async () =>
      expect(await errorOf(identify(other, person.token))).toBe("invalid_session"),
    );
  });
});

test("a node that cannot read the feed asks the database for each session", async () => {
  const person = await join(one, owner, "acc_a", VIEWER, "behind");
  const silent = people.node({ clock });
  // Its feed never reads: it has not learnt of any change, and must not trust its memory.
  await silent.stop();
  expect(await errorOf(identify(silent, person.token))).toBe("no error");
  await clock.advance(1_000);
  people.database.ran.length = 0;
  await identify(silent, person.token);
  expect(people.database.ran).toContain("people/find-sessions");
  const { sessionId } = await one.as(person.token).getSession({});
  await one.as(person.token).revokeSession({ sessionId });
  expect(await errorOf(identify(silent, person.token))).toBe("invalid_session");
});

describe("guesses", () => {
  async function personWithPassword(login: string): Promise<SignedIn> {
    const person = await join(one, owner, "acc_a", VIEWER, login);
    await one.as(person.token).setPassword({ password });
    return person;
  }
  const guess = (node: PeopleNode, login: string, address: string, text = "a wrong password") =>
    errorOf(node.as(undefined, address).signInWithPassword({ login, password: text }));
  const endWaits = {
    name: "test/end-waits",
    text: "update sign_in_failures set wait_until = now()",
  };

  test("from one network are counted on all nodes: the sixth has to wait", async () => {
    await personWithPassword("target");
    for (let guesses = 0; guesses < 5; guesses++)
      expect(await guess(guesses % 2 ? one : other, "target", "203.0.113.1")).toBe(
        "sign_in_failed",
      );
    expect(await guess(one, "target", "203.0.113.1")).toBe("auth_rate_limited");
    // Even the right password waits there, and nowhere else.
    expect(await guess(other, "target", "203.0.113.1", password)).toBe("auth_rate_limited");
    expect(await guess(other, "target", "203.0.113.2", password)).toBe("no error");
  });

  test("at the same time cannot all be free", async () => {
    const guesses = createGuessing({ store: createPeopleStore(people.database) });
    const begun = Array.from({ length: 30 }, () =>
      errorOf(guesses.begin("parallel", "203.0.113.3", new AbortController().signal)),
    );
    const outcomes = await Promise.all(begun);
    expect(outcomes.filter((outcome) => outcome === "no error")).toHaveLength(5);
    expect(outcomes.filter((outcome) => outcome === "auth_rate_limited")).toHaveLength(25);
  });

  test("wait for the longest of their waits, and delayed ones leave room for others", async () => {
    const store = createPeopleStore(people.database);
    const clock = new ManualClock();
    const guessesOf = (counted: Awaited<ReturnType<typeof store.countAttempts>>) =>
      createGuessing({ store: { ...store, countAttempts: async () => counted }, clock });
    const counted = { kind: "pair", failures: 6, counted: false, waitMs: 1_000 } as const;
    const two = guessesOf([counted, { ...counted, kind: "network", waitMs: 3_000.2 }]);
    const begin = (guesses: typeof two) =>
      guesses.begin("slow", "203.0.113.5", new AbortController().signal);
    await expect(begin(two)).rejects.toMatchObject({ facts: { retryAfterMs: 3_001 } });
    // After 100 failures of a login each attempt takes longer: a thousand of them at once.
    const many = guessesOf([{ kind: "login", failures: 150, counted: true, waitMs: 0 }]);
    const delayed: Promise<unknown>[] = [];
    while (delayed.length < 1_000) {
      for (let more = 0; more < 5; more++) delayed.push(begin(many));
      await expect.poll(() => clock.pending, { interval: 1 }).toBe(delayed.length);
    }
    await expect(begin(many)).rejects.toMatchObject({ facts: { retryAfterMs: 5_000 } });
    await clock.advance(4_999);
    expect(clock.pending).toBe(1_000);
    await clock.advance(1);
    await Promise.all(delayed);
    const later = begin(many);
    await expect.poll(() => clock.pending, { interval: 1 }).toBe(1);
    await clock.advance(5_000);
    await later;
  });

  test("of one login in one network wait for each other on a node, before they are counted", async () => {
    await personWithPassword("double-click");
    const outcomes = await Promise.all(
      Array.from({ length: 30 }, () => guess(one, "double-click", "203.0.113.9", password)),
    );
    expect(outcomes.filter((outcome) => outcome === "no error")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === "auth_rate_limited")).toHaveLength(29);
    expect(await guess(one, "double-click", "203.0.113.9", password)).toBe("no error");
  });

  test("wait longer each time, up to a quarter of an hour", async () => {
    const waits: number[] = [];
    for (let guesses = 0; guesses < 18; guesses++) {
      await guess(one, "nobody", "203.0.113.4");
      const text = `select round(extract(epoch from wait_until - last_at)) as wait
        from sign_in_failures where kind = 'pair' order by last_at desc limit 1`;
      const [row] = await query<{ wait: string }>(people.database, { name: "test/wait", text }, []);
      waits.push(Number(row?.wait));
      await query(people.database, endWaits, []);
    }
    expect(waits.slice(4, 10)).toEqual([1, 2, 4, 8, 16, 32]);
    expect(Math.max(...waits)).toBe(900);
  });

  test("from one /64 count as one network, for all its logins", async () => {
    await personWithPassword("ipv6");
    const outcomes: string[] = [];
    for (let guesses = 0; guesses < 22; guesses++)
      outcomes.push(await guess(one, `login-${guesses}`, `2001:db8::${guesses + 1}`));
    expect(outcomes.slice(0, 20)).toEqual(Array(20).fill("sign_in_failed"));
    expect(outcomes.slice(20)).toEqual(["auth_rate_limited", "auth_rate_limited"]);
    expect(await guess(one, "ipv6", "2001:db8:0:1::1", password)).toBe("no error");
  });

  test("from many networks lock nobody out: the right password and passkeys work", async () => {
    const person = await personWithPassword("popular");
    const many = {
      name: "test/many",
      text: "update sign_in_failures set failures = 100000 where kind = 'login'",
    };
    expect(await guess(one, "popular", "198.51.100.1")).toBe("sign_in_failed");
    await query(people.database, many, []);
    // It is delayed by five seconds.
    const idle = clock.pending;
    const right = guess(one, "popular", "198.51.100.9", password);
    const isOver = vi.fn();
    void right.then(isOver);
    await vi.waitFor(() => expect(clock.pending).toBe(idle + 1));
    await clock.advance(4_999);
    expect(isOver).not.toHaveBeenCalled();
    await clock.advance(1);
    expect(await right).toBe("no error");
    const { passkeyOptionsJson } = await one.as(undefined, "198.51.100.1").beginSignIn({});
    const answerJson = person.device.sign(passkeyOptionsJson);
    const client = one.as(undefined, "198.51.100.1");
    expect(await errorOf(client.signInWithPasskey({ answerJson }))).toBe("no error");
  });

  test("of more than a hundred at once are refused before they are counted", async () => {
    const outcomes = await Promise.all(
      Array.from({ length: 150 }, (_, index) => guess(one, `crowd-${index}`, `198.18.${index}.1`)),
    );
    const refused = outcomes.filter((outcome) => outcome === "gateway_unavailable");
    expect(refused.length).toBeGreaterThan(0);
    expect(new Set(outcomes)).toEqual(new Set(["sign_in_failed", "gateway_unavailable"]));
  });
});

test("an operator role that is taken away is gone on every node", async () => {
  const person = await join(one, owner, "acc_a", VIEWER, "was-operator");
  const { personId } = person.person;
  await one.as(owner.token).updatePerson({
    personId,
    settings: { operatorRole: OperatorRole.ADMIN },
    updateMask: { paths: ["operator_role"] },
  });
  expect(await errorOf(one.as(person.token).listPeople({}))).toBe("invalid_session");
});
