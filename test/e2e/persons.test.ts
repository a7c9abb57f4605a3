// A person, keys and account readers over HTTP and gRPC: in one process, and with separate roles.

import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { Authenticator } from "../support/authenticator.ts";
import { callAll, methods } from "../support/bindings.ts";
import { as, outcomeOf, pathOf } from "../support/contract-cases.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { errorOf } from "../support/keys.ts";
import { leastRequest } from "../support/samples/messages.ts";

for (const split of [false, true]) {
  describe(split ? "a facade and a core" : "one process", () => {
    let gateway: TestGateway;
    let authorization = "";
    beforeAll(async () => {
      gateway = await startTestGateway({ split });
      const link = new URL(gateway.ownerLink);
      const device = new Authenticator(link.origin);
      const token = link.hash.slice(1);
      const person = { linkToken: token, login: "olga" };
      const { people } = gateway.admin.core;
      const { passkeyOptionsJson } = await people.beginPasskey(person);
      const passkeyAnswerJson = device.register(passkeyOptionsJson);
      const { grant } = await people.redeemLink({ token, login: "olga", passkeyAnswerJson });
      authorization = `Session ${grant?.token}`;
    });
    afterAll(() => gateway.stop());

    /** Calls a method over Connect, as the person unless another credential is given. */
    async function call(method: string, body: object, credential = authorization) {
      const answer = await fetch(`${gateway.address}/gateway.${method}`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: credential },
        body: JSON.stringify(body),
      });
      return Object(await answer.json());
    }

    const createKey = async (settings: object = {}, { accountId } = gateway) => {
      const key = { accountId, family: "FAMILY_V1", settings: { name: "k", ...settings } };
      return call("keys.v1.KeysService/CreateKey", key);
    };

    async function get(path: string, key: string) {
      const answer = await fetch(gateway.address + path, { headers: { "x-api-key": key } });
      return { status: answer.status, body: Object(await answer.json()) };
    }

    test("a session manages keys over both listeners, and each key names its creator", async () => {
      const { key } = await createKey();
      expect(key.createdBy.personId).toMatch(/^per_/);
      const { core } = gateway.admin;
      const listed = await core.keys.listKeys(
        { accountId: gateway.accountId },
        { headers: { authorization } },
      );
      expect(listed.keys.map(({ keyId }) => keyId)).toContain(key.keyId);
    });

    test("an operator has to name the account", async () => {
      const { details } = await createKey({}, { ...gateway, accountId: "" });
      expect(details[0].debug.reason).toBe("INVALID_REQUEST");
    });

    test("a key sees its own receipt and what is free, an account reader everything", async () => {
      const { secret: plain } = await createKey();
      const { secret: reader } = await createKey({ accountReader: true });
      const { secret: other } = await createKey();
      const answer = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": other,
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "haiku",
          max_tokens: 10,
          messages: [{ role: "user", content: "Hello" }],
        }),
      });
      await answer.text();
      expect(answer.status).toBe(200);
      const path = `/v1/receipts/${answer.headers.get("request-id")}`;
      const seen = await Promise.all([other, reader, plain].map((key) => get(path, key)));
      expect(seen.map(({ status }) => status)).toEqual([200, 200, 404]);
      const pools = await Promise.all([plain, reader].map((key) => get("/v1/credits", key)));
      expect(pools.map(({ body }) => Object.keys(body.pool).sort())).toEqual([
        ["family", "free_credits"],
        ["family", "free_credits", "held_credits", "posted_credits"],
      ]);
    });

    test("the alerts of an owner who is a viewer from now on end, and open again", async () => {
      const { people, alerts } = gateway.admin.core;
      const { accountId } = gateway;
      const olga = { headers: { authorization } };
      const invited = await people.createInvitation({ accountId, role: AccountRole.OWNER }, olga);
      const token = new URL(invited.link).hash.slice(1);
      const { grant, person } = await people.redeemLink({
        ...{ token, login: "oskar", password: "a long password" },
      });
      const oskar = { headers: { authorization: `Session ${grant?.token}` } };
      const watching = alerts.watchAlerts({ accountId }, oskar)[Symbol.asyncIterator]();
      expect((await watching.next()).value?.newest).toBeDefined();
      const ended = errorOf(watching.next());
      const { personId = "" } = person ?? {};
      await people.updateMember({ accountId, personId, role: AccountRole.VIEWER }, olga);
      expect(await ended).toBe("not_permitted");
      const again = alerts.watchAlerts({ accountId }, oskar)[Symbol.asyncIterator]();
      expect((await again.next()).value?.newest).toBeDefined();
      await again.return?.();
    });

    test("what the person did is in the audit, with where from and without the secret", async () => {
      const { key, secret } = await createKey({ requestsPerMinute: 7 });
      const { accountId } = gateway;
      const { events } = await call("audit.v1.AuditService/ListAuditEvents", { accountId });
      const event = events.find(
        ({ facts }: { facts: Record<string, string> }) => facts.keyId === key.keyId,
      );
      expect(event).toMatchObject({
        method: "CreateKey",
        accountId,
        actor: key.createdBy,
        facts: { requestsPerMinute: "7" },
        address: "127.0.0.1",
      });
      expect(JSON.stringify(events)).not.toContain(secret);
    });
  });
}

test("a password session of an operator may call what persons may, and changes no way in", async () => {
  await using stack = new AsyncDisposableStack();
  const env = { PUBLIC_URL: "https://gateway.example.com" };
  const gateway = stack.adopt(await startTestGateway({ env }), (one) => one.stop());
  const { core } = gateway.admin;
  const { origin, hash } = new URL(gateway.ownerLink);
  const token = hash.slice(1);
  const password = "correct horse battery staple";
  const { passkeyOptionsJson } = await core.people.beginPasskey({ linkToken: token });
  const passkeyAnswerJson = new Authenticator(origin).register(passkeyOptionsJson);
  const { grant } = await core.people.redeemLink({ token, login: "olga", passkeyAnswerJson });
  const strong = as(`Session ${grant?.token}`);
  await core.people.setPassword({ password }, strong);
  const weak = await core.people.signInWithPassword({ login: "olga", password });
  const session = as(`Session ${weak.grant?.token}`);

  // These end the session.
  const left = methods.filter(({ name }) => !/^(SignOut|DeletePerson)$/.test(name));
  const outcomes = new Map<string, string>();
  for (const desc of left)
    outcomes.set(
      pathOf(desc),
      await outcomeOf(callAll(core, desc, leastRequest(desc.input), session)),
    );
  const mayCall = (desc: DescMethod) => {
    const { person, anyone } = getOption(desc, callers);
    return person !== 0 || anyone;
  };
  const wrong = left.filter(
    (desc) => (outcomes.get(pathOf(desc)) !== "not_permitted") !== mayCall(desc),
  );
  expect(wrong.map(({ name }) => name)).toEqual([]);
  const ofOwnWays = left.filter(({ name }) =>
    /^(DeletePasskey|DeleteIdentity|SetPassword|SetEmail)$/.test(name),
  );
  expect(ofOwnWays.map((desc) => outcomes.get(pathOf(desc)))).toEqual(
    Array(4).fill("confirm_identity"),
  );
  // The operator himself may.
  expect(await outcomeOf(core.people.listPeople({}, strong))).toBe("ok");
});
