// The open page of models and prices, for people and for programs.

import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { openCatalog, secretNames } from "../support/open-page.ts";

const bytesMax = 30_000;

for (const split of [false, true])
  describe(split ? "a facade and a core" : "one process", () => {
    let gateway: TestGateway;
    beforeAll(async () => {
      gateway = await startTestGateway({ catalog: openCatalog(), split });
    });
    afterAll(() => gateway.stop());
    const get = (path: string, headers: Record<string, string> = {}) =>
      fetch(gateway.address + path, { headers, redirect: "manual" });

    test("is small, has no script and names no provider, no route and no cost", async () => {
      const page = await get("/models");
      expect(page.status).toBe(200);
      expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
      expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(page.headers.get("set-cookie")).toBeNull();
      const html = await page.text();
      expect(Buffer.byteLength(html)).toBeLessThanOrEqual(bytesMax);
      expect(html).not.toMatch(/<script|\son\w+=|javascript:/i);
      const json = await (await get("/models.json")).text();
      for (const body of [html, json])
        for (const name of secretNames) expect(body).not.toContain(name);
      expect(html).toContain("Olga &amp; &lt;Sons&gt;");
      expect(html).toContain('href="https://sons.example/terms"');
      expect(html).toContain('href="mailto:help@sons.example"');
      expect(html).toContain("1,000 USD: 200,000 credits");
      // Nobody may sign up here.
      expect(html).not.toContain("/console/sign-up");
      expect(html).toContain('href="/console/sign-in"');
    });

    test("says what a typical call costs, as its prices do", async () => {
      const html = await (await get("/models")).text();
      // Opus: 2,000 × 700 + 8,000 × 70 + 1,000 × 3,500 micro-credits.
      expect(html).toContain("1,000 out costs 0.0273 USD (5.46 credits)");
      expect(html).toContain('<tr><th scope="row">Output<td>17.50<td>3,500');
      const key = { authorization: `Bearer ${gateway.v1}` };
      const info = Object(await (await get("/v1/models/info", key)).json());
      const open = Object(await (await get("/models.json")).json());
      expect(open.models).toEqual(info.data);
      expect(open).toMatchObject({
        packs: [{ usd: "5", credits: "1000" }, { usd: "20" }, { usd: "1000" }],
        coins: ["play money"],
        seller: { name: "Olga & <Sons>", contact: "help@sons.example" },
      });
    });

    test("is the list of models for a key, with or without /v1", async () => {
      const key = { authorization: `Bearer ${gateway.v1}` };
      const list = await (await get("/models", key)).json();
      expect(list).toEqual(await (await get("/v1/models", key)).json());
      expect((await get("/models", { "x-api-key": "sk-gw2-wrong" })).status).toBe(401);
      for (const path of ["/v1/models", "/v1/models/info", "/models/info"])
        expect((await get(path)).status).toBe(401);
      expect((await get("/models")).headers.get("vary")).toContain("authorization");
    });

    test("is kept for a minute, known by its tag, and not listed by search engines", async () => {
      for (const path of ["/models", "/models.json"]) {
        const { headers } = await get(path);
        expect(headers.get("cache-control")).toBe("public, max-age=60");
        expect(headers.get("x-robots-tag")).toBe("noindex");
        const again = await get(path, { "if-none-match": headers.get("etag") ?? "" });
        expect([again.status, await again.text()]).toEqual([304, ""]);
      }
    });

    test("is where a browser without a session begins", async () => {
      const accept = "text/html,application/xhtml+xml";
      const start = async (headers: Record<string, string>) => {
        const answer = await get("/", headers);
        return [answer.status, answer.headers.get("location")];
      };
      expect(await start({ accept })).toEqual([302, "/models"]);
      const { port } = new URL(gateway.ownerLink);
      const cookie = `gateway-session-${port}=of-somebody`;
      expect(await start({ accept, cookie })).toEqual([302, "/console/"]);
      expect(await start({ accept: "application/json" })).toEqual([200, null]);
    });

    // A facade reads the file by itself.
    test.skipIf(split)(
      "follows the file, and is gone where the operator does not want it",
      async () => {
        const before = (await get("/models")).headers.get("etag");
        gateway.reload(openCatalog("index: true"));
        expect((await get("/models")).headers.get("x-robots-tag")).toBeNull();
        gateway.reload(openCatalog("tax_id: DE1"));
        expect((await get("/models")).headers.get("etag")).toBe(before);
        for (const catalog of [openCatalog("public_models: false"), fastCatalog()]) {
          gateway.reload(catalog);
          expect((await get("/models")).status).toBe(401);
          expect((await get("/models.json")).status).toBe(404);
          const start = await get("/", { accept: "text/html" });
          expect(start.headers.get("location")).toBe("/console/");
        }
        gateway.reload(openCatalog());
      },
    );

    test("is served while the database is down", async () => {
      const before = (await get("/models")).headers.get("etag");
      const url = new URL(gateway.databaseUrl);
      const name = url.pathname.slice(1);
      url.pathname = "/postgres";
      const server = new Client({ connectionString: url.href });
      await server.connect();
      try {
        await server.query(`alter database "${name}" allow_connections false`);
        await server.query(
          "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1",
          [name],
        );
        for (const path of ["/models", "/models.json"]) expect((await get(path)).status).toBe(200);
        expect((await get("/models")).headers.get("etag")).toBe(before);
        expect((await get("/", { accept: "text/html" })).headers.get("location")).toBe("/models");
      } finally {
        await server.query(`alter database "${name}" allow_connections true`);
        await server.end();
      }
    });
  });
