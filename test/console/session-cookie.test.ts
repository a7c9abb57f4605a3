// The session of a browser over HTTP: how the cookie begins and ends, and who may use it.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Authenticator } from "../support/authenticator.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { pathOf } from "../support/paths.ts";

let gateway: TestGateway;
let origin = "";
let cookie = "";
let setCookie = "";
beforeAll(async () => {
  gateway = await startTestGateway();
  const link = new URL(gateway.ownerLink);
  ({ origin } = link);
  const device = new Authenticator(origin);
  const linkToken = link.hash.slice(1);
  const begun = await (await post("BeginPasskey", { linkToken, login: "olga" })).json();
  const redeemed = await post("RedeemLink", {
    token: linkToken,
    login: "olga",
    passkeyAnswerJson: device.register(Object(begun).passkeyOptionsJson),
  });
  setCookie = redeemed.headers.get("set-cookie") ?? "";
  cookie = setCookie.split(";")[0] ?? "";
  const answer = Object(await redeemed.json());
  expect(answer.person).toMatchObject({ login: "olga" });
  expect(answer).not.toHaveProperty("grant");
});
afterAll(() => gateway.stop());

function post(
  method: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${gateway.address}${pathOf(method)}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

async function reasonOf(answer: Response): Promise<string> {
  if (answer.ok) return "no error";
  const { details } = Object(await answer.json());
  return details[0].debug.reason;
}

test("the cookie is out of reach of scripts and lasts as long as the session may", () => {
  expect(setCookie).toMatch(
    /^gateway-session-\d+=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=25\d{5}$/,
  );
});

test("the cookie works on our own page, also for a browser that sends only the origin", async () => {
  for (const proof of [{ "sec-fetch-site": "same-origin" }, { origin }]) {
    const answer = await post("GetSession", {}, { cookie, ...proof });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  }
});

describe("the cookie is refused", () => {
  const own = { "sec-fetch-site": "same-origin" };
  test.for<[string, Record<string, string>]>([
    ["from another site", { "sec-fetch-site": "cross-site" }],
    ["from a neighbour of our host", { "sec-fetch-site": "same-site" }],
    ["from an address that was typed", { "sec-fetch-site": "none" }],
    ["from another origin", { origin: "https://evil.example.com" }],
    ["without any of both", {}],
    ["with another type", { ...own, "content-type": "application/proto" }],
    ["with the type of a form", { ...own, "content-type": "text/plain" }],
  ])("%s", async ([, headers]) => {
    const answer = await post("GetSession", {}, { cookie, ...headers });
    expect(answer.status).toBeGreaterThanOrEqual(400);
  });

  test("by GET", async () => {
    const url = `${gateway.address}/gateway.people.v1.ProfileService/SignOut?message=%7B%7D`;
    const answer = await fetch(`${url}&encoding=json`, { headers: { cookie, ...own } });
    expect(answer.status).toBe(405);
  });

  test("on /v1, where it is ignored", async () => {
    for (const path of ["/v1/models", "/v1/credits"]) {
      const answer = await fetch(gateway.address + path, { headers: { cookie, ...own } });
      expect(answer.status).toBe(401);
    }
  });
});

test("a session is no API key, and a key is no session", async () => {
  const token = cookie.split("=")[1] ?? "";
  for (const headers of [{ "x-api-key": token }, { authorization: `Bearer ${token}` }]) {
    const answer = await fetch(`${gateway.address}/v1/models`, { headers });
    expect(answer.status).toBe(401);
  }
  for (const secret of [gateway.v1, gateway.adminToken]) {
    const answer = await post("GetSession", {}, { authorization: `Session ${secret}` });
    expect(await reasonOf(answer)).toBe("INVALID_SESSION");
  }
  const asSession = await post("GetSession", {}, { authorization: `Session ${token}` });
  expect(asSession.status).toBe(200);
  const asKey = await post("GetSession", {}, { authorization: `Bearer ${gateway.v1}` });
  expect(await reasonOf(asKey)).toBe("NOT_PERMITTED");
});

test("the address that a client claims for itself counts only behind a proxy of ours", async () => {
  const answer = await post(
    "ListSessions",
    {},
    { cookie, origin, "x-client-address": "203.0.113.7" },
  );
  const { sessions } = Object(await answer.json());
  expect(sessions[0].address).not.toBe("203.0.113.7");
});

test("a sign-out ends the session and removes the cookie", async () => {
  const answer = await post("SignOut", {}, { cookie, origin });
  expect(answer.headers.get("set-cookie")).toMatch(/^gateway-session-\d+=; .*Max-Age=0$/);
  expect(await reasonOf(await post("GetSession", {}, { cookie, origin }))).toBe("INVALID_SESSION");
});
