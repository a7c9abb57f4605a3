// Where one Core of several cells sends a call.

import { create } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ReadOidcResponseSchema } from "../../gen/gateway/cells/v1/cells_pb.ts";
import { cellId, cellToken } from "../../src/base/cells.ts";
import { ApiError } from "../../src/base/errors.ts";
import { isFacade, proveFacade } from "../../src/base/facade-proof.ts";
import { type Cell, cellsCore } from "../../src/contract/cells.ts";
import { type Core, implement, type Methods, serviceTypes } from "../../src/contract/contract.ts";

type Script = {
  /** Whom the cell knows. */
  readonly knows?: readonly string[];
  readonly isAway?: boolean;
  /** The error of its searches for people. */
  readonly refusal?: ApiError;
};

/** Cells whose methods note that they were called, and answer nothing. */
function cellsOf(scripts: Readonly<Record<string, Script>>, weights?: Record<string, number>) {
  const called: string[] = [];
  const headersOf: Headers[] = [];
  const cells = Object.entries(scripts).map(
    ([name, { knows = [], isAway = false, refusal }]): Cell => {
      const away = () => new ApiError("gateway_unavailable");
      const clientOf = <T>(service: Methods) =>
        implement<T>(service, (desc) => async (_: unknown, options?: CallOptions) => {
          if (isAway) throw away();
          headersOf.push(new Headers(options?.headers));
          called.push(`${desc.name} ${name}`);
          return create(desc.output);
        });
      const core: Core = {
        billing: clientOf(serviceTypes.billing),
        keys: clientOf(serviceTypes.keys),
        inference: clientOf(serviceTypes.inference),
        people: clientOf(serviceTypes.people),
        payments: clientOf(serviceTypes.payments),
        alerts: clientOf(serviceTypes.alerts),
        operations: clientOf(serviceTypes.operations),
      };
      return {
        name,
        core,
        async locate(who) {
          if (isAway) throw away();
          if (refusal) throw refusal;
          const value = who?.value;
          return knows.includes(typeof value === "object" ? (value.subject ?? "") : (value ?? ""));
        },
        async readOidc() {
          if (isAway) throw away();
          called.push(`ReadOidc ${name}`);
          return create(ReadOidcResponseSchema, {
            identity: { issuer: "https://idp.example", subject: "pat" },
            query: "read",
          });
        },
      };
    },
  );
  const signUp = Object.entries(weights ?? {}).map(([cell, weight]) => ({ cell, weight }));
  return { core: cellsCore(cells, signUp), called, headersOf };
}

const as = (authorization: string) => ({ headers: { authorization } });

test.each([
  ["a key", `Bearer ${cellId("07", "sk-gw2-1", 43)}`, "07"],
  ["a key of the other family", `bearer ${cellId("07", "sk-gw2-2", 43)}`, "07"],
  ["a management key", `Bearer ${cellId("07", "mk-gw2-", 43)}`, "07"],
  ["an admin token", `Bearer ${cellId("07", "adm-gw2-", 43)}`, "07"],
  ["a session", `Session ${cellToken("07")}`, "07"],
  ["a key of an unknown cell", `Bearer ${cellId("42", "sk-gw2-1", 43)}`, "00"],
  ["a secret without a cell", "Bearer sk-gw2-1nobody", "00"],
  ["the token of the environment", "Bearer 07-is-the-token", "00"],
  ["nothing", "", "00"],
])("%s goes to its cell", async (_, authorization, cell) => {
  const { core, called } = cellsOf({ "00": {}, "07": {} });
  await core.keys.authenticate({}, as(authorization));
  expect(called).toEqual([`Authenticate ${cell}`]);
});

test("tokens of links decide over the session that comes with them", async () => {
  const { core, called } = cellsOf({ "00": {}, "07": {} });
  const call = as(`Session ${cellToken("00")}`);
  const token = cellToken("07");
  await core.people.redeemLink({ token }, call);
  await core.people.confirmEmail({ token });
  await core.people.beginPasskey({ linkToken: token }, call);
  await core.people.beginPasskey({}, call);
  await core.people.beginOidc({ linkToken: token });
  await core.people.finishOidc({ flow: `link.challenge.${token}` });
  expect(called).toEqual([
    ...["RedeemLink 07", "ConfirmEmail 07", "BeginPasskey 07", "BeginPasskey 00"],
    ...["BeginOidc 07", "FinishOidc 07"],
  ]);
});

test("a webhook goes to the cell at the end of the name of its processor", async () => {
  const { core, called } = cellsOf({ "00": {}, "07": {} });
  for (const processor of ["btcpay-07", "btcpay", "btcpay-42", "btcpay-7"])
    await core.payments.receiveWebhook({ processor });
  expect(called).toEqual(["07", "00", "00", "00"].map((cell) => `ReceiveWebhook ${cell}`));
});

test("who signs in is looked for in all cells", async () => {
  const { core, called } = cellsOf({ "00": {}, "07": { knows: ["pat", "passkey"] } });
  await core.people.signInWithPassword({ login: "pat" });
  await core.people.signInWithPasskey({ answerJson: '{"id":"passkey"}' });
  await core.people.signInWithPasskey({ answerJson: "no JSON" });
  await core.people.signInWithPassword({ login: "nobody" });
  await core.people.finishOidc({ flow: "sign-in.challenge", query: "code=1" });
  expect(called).toEqual([
    ...["SignInWithPassword 07", "SignInWithPasskey 07", "SignInWithPasskey 00"],
    ...["SignInWithPassword 00", "ReadOidc 00", "FinishOidc 07"],
  ]);
});

test("a new person always comes to the same cell, and new people are shared out by weight", async () => {
  const { core, called } = cellsOf({ "00": {}, "07": {} }, { "00": 1, "07": 3 });
  for (let person = 0; person < 400; person++)
    for (const email of [`p${person}@example.com`, ` P${person}@Example.com`])
      await core.people.signUp({ email });
  for (let person = 0; person < 400; person++)
    expect(called[2 * person]).toBe(called[2 * person + 1]);
  const share = called.filter((one) => one === "SignUp 07").length / called.length;
  expect(share).toBeGreaterThan(0.68);
  expect(share).toBeLessThan(0.82);
});

test("who is known signs up again where he is known", async () => {
  const { core, called } = cellsOf({ "00": {}, "07": { knows: ["pat@example.com"] } });
  await core.people.signUp({ email: "pat@example.com" });
  await core.people.signUp({ email: "new@example.com" });
  expect(called).toEqual(["SignUp 07", "SignUp 00"]);
});

test("a cell that is away fails those alone whom it may know", async () => {
  const { core, called } = cellsOf({ "00": { isAway: true }, "07": { knows: ["pat"] } });
  await core.people.beginSignIn({});
  await core.people.signInWithPassword({ login: "pat" });
  await core.people.beginOidc({ provider: "idp" });
  await core.people.finishOidc({ flow: "sign-in.challenge", query: "code=1" });
  await core.keys.authenticate({}, as(`Session ${cellToken("07")}`));
  expect(called).toEqual([
    ...["BeginSignIn 07", "SignInWithPassword 07", "BeginOidc 07", "ReadOidc 07"],
    ...["FinishOidc 07", "Authenticate 07"],
  ]);
  const away = { reason: "gateway_unavailable" };
  await expect(core.people.signInWithPassword({ login: "sam" })).rejects.toMatchObject(away);
  await expect(core.keys.authenticate({}, as(`Session ${cellToken("00")}`))).rejects.toMatchObject(
    away,
  );
});

test("a sign-up fails as the search of a cell does, unless another cell knows the person", async () => {
  const refusal = new ApiError("invalid_key");
  const { core, called } = cellsOf({ "00": { refusal }, "07": { knows: ["pat@example.com"] } });
  await core.people.signUp({ email: "pat@example.com" });
  await expect(core.people.signUp({ email: "new@example.com" })).rejects.toBe(refusal);
  const down = cellsOf({ "00": {}, "07": { isAway: true } });
  await down.core.people.signUp({ email: "new@example.com" });
  const slow = cellsOf({ "00": {}, "07": { refusal: new ApiError("timeout") } });
  await slow.core.people.signUp({ email: "new@example.com" });
  expect([called, down.called, slow.called]).toEqual([["SignUp 07"], ["SignUp 00"], ["SignUp 00"]]);
});

test("a session of a cell comes to no core of another", async () => {
  const { core, called, headersOf } = cellsOf({
    "00": {},
    "07": { knows: ["pat", "passkey", "pat@example.com"] },
  });
  const [own, other] = [`Session ${cellToken("00")}`, cellToken("07")];
  const call = { headers: { authorization: own, "x-other-sessions": other } };
  await core.people.signInWithPassword({ login: "pat" }, call);
  await core.people.signInWithPasskey({ answerJson: '{"id":"passkey"}' }, call);
  await core.people.signUp({ email: "pat@example.com" }, call);
  await core.people.getSession({}, call);
  await core.people.signOut({}, call);
  await core.operations.search({ allAccounts: true }, call);
  await core.people.beginSignIn({}, { headers: { "x-other-sessions": other } });
  await core.payments.receiveWebhook({}, { headers: { "x-other-sessions": other } });
  expect(headersOf.length).toBe(10);
  expect(headersOf.map((headers) => headers.has("x-other-sessions"))).not.toContain(true);
  for (const [index, headers] of headersOf.entries()) {
    const sent = headers.get("authorization");
    const cell = called[index]?.split(" ")[1];
    expect([null, cell === "07" ? `Session ${other}` : own]).toContain(sent);
  }
});

test("the cell of a choice is asked alone", async () => {
  const { core, called } = cellsOf({ "00": { knows: ["pat"] }, "07": { knows: ["pat"] } });
  await core.people.signInWithPassword({ login: "pat", cell: "07" });
  expect(called).toEqual(["SignInWithPassword 07"]);
});

test("the proof of a facade is good for a minute, and by a shared key alone", () => {
  const [key, old, other] = [1, 2, 3].map((byte) => Buffer.alloc(32, byte));
  if (!key || !old || !other) throw new Error("no keys");
  const proof = proveFacade([old], 1_000_000);
  expect(isFacade([key, old], proof, 1_059_000)).toBe(true);
  expect(isFacade([key, old], proof, 1_061_000)).toBe(false);
  expect(isFacade([key, other], proof, 1_000_000)).toBe(false);
  expect(isFacade([key, old], proof.replace("1000000", "1000001"), 1_000_000)).toBe(false);
  expect(isFacade([key, old], "Facade 1000000.", 1_000_000)).toBe(false);
});
