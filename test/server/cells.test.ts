// Two cells behind one facade: what a plain installation does, each of them does for its own
// accounts.

import { createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { SignInService } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { anyServes } from "../../src/server/cells.ts";
import { startCell, startFacade, type TestCell } from "../support/cells.ts";

let zero: TestCell;
let seven: TestCell;
let facade: Awaited<ReturnType<typeof startFacade>>;

beforeAll(async () => {
  [zero, seven] = await Promise.all([startCell("00"), startCell("07")]);
  facade = await startFacade([zero, seven]);
}, 120_000);

afterAll(async () => {
  await facade?.stop();
  await Promise.all([zero?.stop(), seven?.stop()]);
}, 60_000);

const ask = (key: string, base = facade.address) =>
  fetch(`${base}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": key,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 50,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });

function people() {
  return createClient(SignInService, transport());
}

function transport(token?: string) {
  const withToken: Interceptor = (next) => (request) => {
    if (token !== undefined) request.header.set("authorization", token);
    return next(request);
  };
  return createConnectTransport({
    baseUrl: facade.address,
    httpVersion: "1.1",
    interceptors: [withToken],
  });
}

test("each secret names its cell, and its hint shows it", async () => {
  for (const cell of [zero, seven]) {
    expect(cell.v1.slice(8, 10)).toBe(cell.name);
    expect(cell.ownerLink.split("#")[1]?.slice(0, 2)).toBe(cell.name);
    const keys = createClient(KeysService, transport(`Bearer ${cell.v1}`));
    const { key, secret } = await keys.authenticate({});
    expect(key?.accountId).toBe(cell.accountId);
    expect(secret?.hint.slice(0, 14)).toBe(cell.v1.slice(0, 14));
  }
});

test("a paid call is charged in the cell of its key, and in no other", async () => {
  for (const [own, other] of [
    [zero, seven],
    [seven, zero],
  ] as const) {
    const before = await balances();
    const answer = await ask(own.v1);
    expect(answer.status).toBe(200);
    await answer.text();
    // The settlement may come after the answer.
    await expect
      .poll(async () => (await balances()).get(own.name))
      .toBeLessThan(before.get(own.name) ?? 0n);
    expect((await balances()).get(other.name)).toBe(before.get(other.name));
  }
});

/** What the first key of each cell has left. */
async function balances(): Promise<Map<string, bigint>> {
  const entries = [zero, seven].map(async (cell) => {
    const billing = createClient(BillingService, transport(`Bearer ${cell.v1}`));
    const { pools } = await billing.getPools({});
    const free = pools.reduce((sum, pool) => sum + pool.freeMicrocredits, 0n);
    return [cell.name, free] as const;
  });
  return new Map(await Promise.all(entries));
}

test("a key of a cell is unknown at the core of another", async () => {
  const core = grpcCore({ addresses: [zero.address] });
  const call = { headers: { authorization: `Bearer ${seven.v1}` } };
  await expect(core.keys.authenticate({}, call)).rejects.toMatchObject({ reason: "invalid_key" });
  core.close();
});

test("a key of no cell and one of an unknown cell are wrong keys, of cell 00", async () => {
  for (const key of ["sk-gw2-1nobody", zero.v1.replace("sk-gw2-100", "sk-gw2-142")])
    expect((await ask(key)).status).toBe(401);
});

test("the gRPC listener of the facade routes as its HTTP listener does", async () => {
  const core = grpcCore({ addresses: [facade.grpcAddress] });
  for (const cell of [zero, seven]) {
    const call = { headers: { authorization: `Bearer ${cell.v1}` } };
    const { key } = await core.keys.authenticate({}, call);
    expect(key?.accountId).toBe(cell.accountId);
    const { pools } = await core.billing.getPools({}, call);
    expect(pools.length).toBeGreaterThan(0);
  }
  await expect(
    core.billing.getPools({}, { headers: { authorization: "Bearer sk-gw2-1nobody" } }),
  ).rejects.toMatchObject({ reason: "invalid_key" });
  expect(await core.isServing(2_000)).toBe(true);
  core.close();
});

describe("people", () => {
  const password = "a password of a person";
  const signIn = (login: string, more: { password?: string; cell?: string } = {}) =>
    people().signInWithPassword({ login, password, ...more });

  test("a link opens in its own cell, and its person signs in there", async () => {
    for (const cell of [zero, seven]) {
      const token = cell.ownerLink.split("#")[1] ?? "";
      const { link } = await people().beginPasskey({ linkToken: token });
      expect(link?.purpose).toBe(1);
      const login = `owner-${cell.name}`;
      await people().redeemLink({ token, login, password });
      const { person, choices } = await signIn(login);
      expect(person?.login).toBe(login);
      expect(choices).toEqual([]);
    }
  });

  test("a link of a cell that the facade lacks is no link", async () => {
    const token = `42${(seven.ownerLink.split("#")[1] ?? "").slice(2)}`;
    await expect(people().redeemLink({ token, login: "x", password })).rejects.toThrow(
      /This link is not valid/,
    );
  });

  test("a wrong password and a login that nobody has look alike", async () => {
    for (const login of ["owner-07", "nobody"])
      await expect(signIn(login, { password: "not the password" })).rejects.toMatchObject({
        rawMessage: "These sign-in details are not right.",
      });
  });

  test("a person of two cells chooses between them", async () => {
    const login = "both";
    for (const cell of [zero, seven]) {
      const core = grpcCore({ addresses: [cell.address] });
      const owner = { login: `owner-${cell.name}`, password };
      const { grant } = await core.people.signInWithPassword(owner);
      const { link } = await core.people.createInvitation(
        { accountId: cell.accountId, role: AccountRole.MEMBER, login },
        { headers: { authorization: `Session ${grant?.token}` } },
      );
      const token = link.split("#")[1] ?? "";
      await people().redeemLink({ token, login, password });
      core.close();
    }
    const { person, choices } = await signIn(login);
    expect(person).toBeUndefined();
    expect(choices.map(({ cell }) => cell)).toEqual(["00", "07"]);
    for (const { cell } of choices) {
      const chosen = await signIn(login, { cell });
      expect(chosen.person?.login).toBe(login);
    }
  });
});

test("a browser has a session in each cell, goes from one to another, and leaves both", async () => {
  let cookie = "";
  const keep = (answer: Response) => {
    const set = answer.headers.getSetCookie().find((one) => /session/.test(one));
    if (set) cookie = set.split(";")[0] ?? "";
  };
  const call = async (method: string, body: object) => {
    const answer = await fetch(`${facade.address}/gateway.people.v1.${method}`, {
      method: "POST",
      headers: {
        ...{ "content-type": "application/json", origin: "http://localhost:8080" },
        ...(cookie !== "" && { cookie }),
      },
      body: JSON.stringify(body),
    });
    keep(answer);
    return Object(await answer.json());
  };
  const goTo = async (cell: string) => {
    const answer = await fetch(`${facade.address}/console/cell/${cell}?next=/console/x`, {
      headers: { cookie },
      redirect: "manual",
    });
    keep(answer);
    return answer.headers.get("location");
  };
  const password = "a password of a person";
  for (const cell of ["00", "07"])
    await call("SignInService/SignInWithPassword", { login: `owner-${cell}`, password });
  expect((await call("ProfileService/GetSession", {})).cells).toEqual([
    { cell: "00", signedIn: true },
    { cell: "07", current: true, signedIn: true },
  ]);
  expect(await goTo("00")).toBe("/console/x");
  expect((await call("ProfileService/GetSession", {})).person.login).toBe("owner-00");
  expect(await goTo("42")).toBe("/console/sign-in?cell=42&next=%2Fconsole%2Fx");
  const before = cookie;
  await call("ProfileService/SignOut", {});
  cookie = before;
  for (const cell of ["00", "07"]) {
    await goTo(cell);
    expect((await call("ProfileService/GetSession", {})).code).toBe("unauthenticated");
  }
});

test("a search of an operator finds what is in both cells, each with its name", async () => {
  const tokens = await Promise.all(
    [zero, seven].map(async (cell) => {
      const core = grpcCore({ addresses: [cell.address] });
      const login = { login: `owner-${cell.name}`, password: "a password of a person" };
      const { grant } = await core.people.signInWithPassword(login);
      core.close();
      return grant?.token ?? "";
    }),
  );
  const core = grpcCore({ addresses: [facade.grpcAddress] });
  const headers = { authorization: `Session ${tokens[1]}`, "x-other-sessions": tokens[0] ?? "" };
  const { hits } = await core.operations.search(
    { query: "default", allAccounts: true },
    { headers },
  );
  core.close();
  expect(hits.map(({ cell, accountId }) => [cell, accountId])).toEqual([
    ["07", seven.accountId],
    ["00", zero.accountId],
  ]);
});

test("a facade refuses cores that are not what CORE_ADDRESS says", async () => {
  const problems = [
    [
      [{ name: "07", address: zero.address }],
      `CORE_ADDRESS: the core at ${zero.address} serves cell 00, not 07`,
    ],
    [
      [{ name: "00", address: `${zero.address}+${seven.address}` }],
      `CORE_ADDRESS: the core at ${seven.address} serves cell 07, not 00`,
    ],
  ] as const;
  for (const [cells, problem] of problems)
    await expect(startFacade(cells)).rejects.toThrow(problem);
});

test("a facade refuses a core with another content key", async () => {
  const other = { CONTENT_KEY: Buffer.alloc(32, 9).toString("base64") };
  await expect(startFacade([zero], other)).rejects.toThrow(
    `CORE_ADDRESS: the core at ${zero.address} has another CONTENT_KEY`,
  );
});

test("cells serve as soon as one does, and fail if none answers", async () => {
  const away = () => Promise.reject(new ApiError("gateway_unavailable"));
  const [yes, no] = [true, false].map((answer) => Promise.resolve(answer));
  const late = new Promise<boolean>((resolve) => setTimeout(resolve, 10, true));
  if (!yes || !no) throw new Error("no answers");
  expect(await anyServes([no, late])).toBe(true);
  expect(await anyServes([away(), yes, new Promise(() => {})])).toBe(true);
  expect(await anyServes([away(), no])).toBe(false);
  await expect(anyServes([away(), away()])).rejects.toThrow();
});

test("two cores of one cell with different databases are refused", async () => {
  const other = await startCell("07");
  try {
    await expect(
      startFacade([{ name: "07", address: `${seven.address}+${other.address}` }]),
    ).rejects.toThrow("has another database than the other cores of cell 07");
  } finally {
    await other.stop();
  }
});

test("a core refuses the database of another cell, and claims none", async () => {
  await expect(startCell("08", { databaseUrl: seven.databaseUrl })).rejects.toThrow(
    "this is the database of cell 07, and CELL is 08",
  );
});

test("a cell that is down fails its own callers alone", async () => {
  await seven.halt();
  try {
    expect((await ask(seven.v1)).status).toBe(503);
    expect((await ask(zero.v1)).status).toBe(200);
    expect((await people().beginSignIn({})).passkeyOptionsJson).not.toBe("");
    const login = { login: "owner-00", password: "a password of a person" };
    expect((await people().signInWithPassword(login)).person?.login).toBe("owner-00");
    expect((await fetch(`${facade.address}/health`)).status).toBe(200);
  } finally {
    await seven.resume();
  }
  await expect.poll(async () => (await ask(seven.v1)).status, { timeout: 10_000 }).toBe(200);
}, 30_000);
