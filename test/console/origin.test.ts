// Pages at another address than that of the console: nobody comes in there, and nothing is used up.

import { hostname } from "node:os";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Log } from "../../src/base/log.ts";
import { closedPeople } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { createInstallation } from "../../src/people/people.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { fastCatalog } from "../support/gateway.ts";
import { pathOf } from "../support/paths.ts";
import { query } from "../support/query.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

const password = "correct horse battery staple";

for (const split of [false, true]) {
  describe(split ? "a facade and a core" : "one process", () => {
    const lines: string[] = [];
    const log: Log = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
    let database: FreshDatabase;
    let smtp: TestSmtpServer;
    let core: Gateway;
    let http: Gateway;
    /** Where people reach the console. */
    let origin = "";
    beforeAll(async () => {
      database = await freshDatabase();
      smtp = await startSmtpServer();
      const signUp = { mode: "open", domains: [] } as const;
      const catalog = { ...fastCatalog(), people: { ...closedPeople, signUp } };
      const start = (env: NodeJS.ProcessEnv) => {
        const ports = { PORT: "0", GRPC_PORT: "0", HOST: "0.0.0.0", SMTP_URL: smtp.url };
        const all = { ...ports, DATA_DIR: "/nonexistent", CONTENT_KEY: contentKey, ...env };
        return startGateway({ config: readConfig(all), catalog, env: all, log });
      };
      const url = "http://localhost:8080";
      const services = { DATABASE_URL: database.url, ADMIN_TOKEN: "the-admin-token-of-a-test" };
      core = await start({ ...services, ...(split && { ROLE: "core", PUBLIC_URL: url }) });
      http = split
        ? await start({ ROLE: "facade", PUBLIC_URL: url, CORE_ADDRESS: core.grpcAddress })
        : core;
      origin = split ? url : `http://localhost:${new URL(http.httpAddress ?? "").port}`;
    });
    afterAll(async () => {
      await http.stop();
      if (split) await core.stop();
      await smtp.stop();
      await database.drop();
    });

    async function call(method: string, body: object, from: string | undefined) {
      const answer = await fetch(`${http.httpAddress}${pathOf(method)}`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(from !== undefined && { origin: from }),
        },
        body: JSON.stringify(body),
      });
      const json = Object(await answer.json());
      return {
        status: answer.status,
        reason: json.details?.[0].debug.reason,
        message: json.message,
      };
    }

    const rows = async () =>
      query<object>(
        database.postgres,
        {
          name: "test/state",
          text: `select (select json_agg(l order by link_id) from links l) as links,
                   (select json_agg(m) from mails m) as mails,
                   (select json_agg(f) from sign_in_failures f) as failures,
                   (select json_agg(s) from sessions s) as sessions,
                   (select json_agg(p) from people p) as people`,
        },
        [],
      );

    async function ownerToken(): Promise<string> {
      const publicUrl = () => new URL(origin);
      const installation = createInstallation({ postgres: database.postgres, publicUrl });
      return new URL(await installation.makeOwnerLink()).hash.slice(1);
    }

    const elsewhere = [
      "http://machine.lan:8080",
      "http://192.0.2.7:8080",
      "https://gateway.acme.com",
      "https://gateway.acme.com:8443",
      "https://localhost",
      "http://localhost:1",
      "null",
    ];
    test.for(elsewhere)("a page at %s uses up nothing, and the link still works", async (from) => {
      const token = await ownerToken();
      const before = await rows();
      const calls: [string, object][] = [
        // With which the page asks what it can offer, before anybody types.
        ["BeginSignIn", {}],
        ["BeginPasskey", { linkToken: token }],
        ["RedeemLink", { token, login: "olga", password }],
        ["SignInWithPassword", { login: "olga", password }],
        ["SignUp", { email: "ada@example.com" }],
        ["ConfirmEmail", { token, password }],
      ];
      for (const [method, body] of calls) {
        const answer = await call(method, body, from);
        expect([method, answer.status, answer.reason]).toEqual([method, 403, "NOT_PERMITTED"]);
      }
      expect(await rows()).toEqual(before);
      const login = `olga-${elsewhere.indexOf(from)}`;
      const redeemed = await call("RedeemLink", { token, login, password }, origin);
      expect(redeemed.status).toBe(200);
    });

    test("the message names the settings, with the values to paste", async () => {
      const messageAt = async (from: string) =>
        (await call("RedeemLink", { token: "t" }, from)).message;
      expect(await messageAt("http://machine.lan:8080")).toBe(
        `Nobody can sign in at http://machine.lan:8080: this gateway is reached at ${origin}. ` +
          "Nothing was used up. To reach it from elsewhere, put a proxy that speaks https in " +
          "front of it, and start it with PUBLIC_URL=https://machine.lan and " +
          "TRUSTED_PROXIES=127.0.0.1.",
      );
      expect(await messageAt("https://gateway.acme.com:8443")).toBe(
        "Nobody can sign in at https://gateway.acme.com:8443: this gateway is reached at " +
          `${origin}. Nothing was used up. To reach it from elsewhere, start it with ` +
          "PUBLIC_URL=https://gateway.acme.com:8443 and TRUSTED_PROXIES=127.0.0.1.",
      );
    });

    test("programs, which name no origin, come in as before", async () => {
      const token = await ownerToken();
      const redeemed = await call("RedeemLink", { token, login: "cli", password }, undefined);
      expect(redeemed.status).toBe(200);
      const signedIn = await call("SignInWithPassword", { login: "cli", password }, undefined);
      expect(signedIn.status).toBe(200);
    });

    test("the start says so where other machines reach it and no address is set", () => {
      const found = lines.filter((line) => line.includes("TRUSTED_PROXIES=127.0.0.1"));
      expect(found.map((line) => JSON.parse(line).msg)).toEqual(
        split
          ? []
          : [
              `people sign in to the console at ${origin} alone; to reach it from elsewhere, put ` +
                "a proxy that speaks https in front, and set " +
                `PUBLIC_URL=https://${hostname()} and TRUSTED_PROXIES=127.0.0.1`,
            ],
      );
    });
  });
}

test("a gateway with an address of its own leads there, and names no proxy", async () => {
  const database = await freshDatabase();
  const env = {
    ...{ PORT: "0", GRPC_PORT: "0", DATA_DIR: "/nonexistent", CONTENT_KEY: contentKey },
    ...{ DATABASE_URL: database.url, ADMIN_TOKEN: "the-admin-token-of-a-test" },
    PUBLIC_URL: "https://gateway.acme.com",
  };
  const log: Log = pino({ level: "silent" });
  const gateway = await startGateway({
    config: readConfig(env),
    catalog: fastCatalog(),
    env,
    log,
  });
  const answer = await fetch(`${gateway.httpAddress}${pathOf("RedeemLink")}`, {
    method: "POST",
    headers: { "content-type": "application/json", origin: "http://gateway.acme.com" },
    body: JSON.stringify({ token: "t" }),
  });
  expect([answer.status, Object(await answer.json()).message]).toEqual([
    403,
    "Nobody can sign in at http://gateway.acme.com: this gateway is reached at " +
      "https://gateway.acme.com. Nothing was used up. Open https://gateway.acme.com/console/ instead.",
  ]);
  await gateway.stop();
  await database.drop();
});
