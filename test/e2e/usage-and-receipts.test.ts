// GET /v1/usage and GET /v1/receipts as customers with a key read them: whose figures they are,
// what they add up to, their filters, pages and errors. In one process, and with separate roles.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { parseCredits } from "../../src/base/money.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

type Row = {
  readonly from?: string;
  readonly key_id?: string;
  readonly model?: string;
  readonly family?: string;
  readonly requests: number;
  readonly completed: number;
  readonly tokens: Readonly<Record<string, number>>;
  readonly charge_credits: string;
};
type Usage = {
  readonly from: string;
  readonly to: string;
  readonly complete_until: string;
  readonly data: readonly Row[];
  readonly totals?: Row;
  readonly next_page_token: string | null;
};
type Receipt = {
  readonly request_id: string;
  readonly key_id: string;
  readonly model: string;
  readonly outcome: string;
  readonly tokens: Readonly<Record<string, number>>;
  readonly charge_credits: string;
};
type Receipts = {
  readonly data: readonly Receipt[];
  readonly has_more: boolean;
  readonly next_page_token: string | null;
  readonly searched_to: string | null;
};

const micro = (credits = "") => parseCredits(credits) ?? -1n;
const sum = (rows: readonly { readonly charge_credits: string }[]) =>
  rows.reduce((all, { charge_credits }) => all + micro(charge_credits), 0n);
const count = (rows: readonly Row[]) => rows.reduce((all, { requests }) => all + requests, 0);

for (const split of [false, true]) {
  describe(split ? "a facade and a core" : "one process", () => {
    let gateway: TestGateway;
    /** Two keys of the account, one that reads all of it, and the key of a stranger. */
    let one: { secret: string; keyId: string };
    let two: { secret: string; keyId: string };
    let reader: { secret: string; keyId: string };
    let stranger: { secret: string; keyId: string; accountId: string };
    let requestsOfOne: string[];

    async function createKey(accountId: string, accountReader = false) {
      const settings = { name: "usage", accountReader };
      const request = { accountId, family: Family.V1, settings };
      const { key, secret } = await gateway.admin.core.keys.createKey(request, gateway.admin.call);
      return { secret, keyId: key?.keyId ?? "" };
    }

    async function ask(secret: string, model: string, words: number): Promise<string> {
      const answer = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": secret,
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model,
          max_tokens: 10,
          messages: [{ role: "user", content: "word ".repeat(words) }],
        }),
      });
      await answer.arrayBuffer();
      expect(answer.status).toBe(200);
      return answer.headers.get("request-id") ?? "";
    }

    beforeAll(async () => {
      gateway = await startTestGateway({ split });
      const { accountId, admin } = gateway;
      [one, two, reader] = await Promise.all([
        createKey(accountId),
        createKey(accountId),
        createKey(accountId, true),
      ]);
      const { account } = await admin.core.billing.createAccount(
        { settings: { name: "other" } },
        admin.call,
      );
      const other = account?.accountId ?? "";
      stranger = { ...(await createKey(other)), accountId: other };
      requestsOfOne = [];
      for (const [index, model] of ["haiku", "sonnet", "haiku", "haiku", "sonnet"].entries())
        requestsOfOne.push(await ask(one.secret, model, index + 1));
      await ask(two.secret, "haiku", 50);
      await ask(two.secret, "sonnet", 50);
    });
    afterAll(() => gateway.stop());

    const get = (path: string, secret = one.secret, header: "x-api-key" | "bearer" = "x-api-key") =>
      fetch(`${gateway.address}/v1/${path}`, {
        headers:
          header === "bearer" ? { authorization: `Bearer ${secret}` } : { "x-api-key": secret },
      });
    async function read<Answer>(path: string, secret?: string): Promise<Answer> {
      const answer = await get(path, secret);
      expect(answer.status, path).toBe(200);
      return Object(await answer.json());
    }
    const usage = (query: string, secret?: string) => read<Usage>(`usage?${query}`, secret);
    const receipts = (query: string, secret?: string) =>
      read<Receipts>(`receipts?${query}`, secret);

    async function failure(path: string, secret?: string, header?: "x-api-key" | "bearer") {
      const answer = await get(path, secret, header);
      return { status: answer.status, body: Object(await answer.json()) };
    }

    /** All pages of one row each. */
    async function pagesOf<Page extends { next_page_token: string | null }>(
      path: string,
      secret?: string,
    ): Promise<Page[]> {
      const pages: Page[] = [];
      let token: string | null = "";
      while (token !== null) {
        const page: Page = await read(`${path}&limit=1&page_token=${token}`, secret);
        pages.push(page);
        token = page.next_page_token;
      }
      return pages;
    }

    test("a key reads its own figures, an account reader those of the account", async () => {
      const seen = await Promise.all(
        [one, two, reader].map(async ({ secret }) => {
          const { totals } = await usage("", secret);
          const { data } = await receipts("", secret);
          expect(micro(totals?.charge_credits)).toBe(sum(data));
          expect(sum(data)).toBeGreaterThan(0n);
          return [totals?.requests, totals?.completed, data.length];
        }),
      );
      expect(seen).toEqual([
        [5, 5, 5],
        [2, 2, 2],
        [7, 7, 7],
      ]);
    });

    test("tools read a balance in dollars at OpenAI's paths: the limit less the usage", async () => {
      type Answer = Readonly<Record<string, number>>;
      const month = new Date().toISOString().slice(0, 7);
      const [free, spent] = [
        Object(await read("credits")).pool.free_credits,
        sum((await receipts("")).data),
      ];
      const paths = [
        "dashboard/billing/subscription",
        `dashboard/billing/usage?start_date=${month}-01`,
        "dashboard/billing/credit_grants",
        "dashboard/billing/usage",
      ];
      const [subscription, usage, grants, unbounded] = await Promise.all(
        paths.map((path) => read<Answer>(path)),
      );
      const usd = (microCredits: bigint) => Number(microCredits) / 200_000_000;
      expect(subscription?.hard_limit_usd).toBeCloseTo(usd(micro(free) + spent), 8);
      expect(usage?.total_usage).toBeCloseTo(100 * usd(spent), 6);
      expect(unbounded).toEqual(usage);
      expect(grants?.total_available).toBeCloseTo(usd(micro(free)), 8);
      expect(grants?.total_used).toBeCloseTo(usd(spent), 8);
      expect(grants?.total_granted).toBe(subscription?.hard_limit_usd);
      // Of an account reader it is its own spending, which is none.
      for (const path of [paths[1] ?? "", "dashboard/billing/usage"])
        expect(await read(path, reader.secret)).toMatchObject({ total_usage: 0 });
      const empty = await read<Answer>("dashboard/billing/subscription", stranger.secret);
      expect(empty).toMatchObject({ hard_limit_usd: 0, has_payment_method: true });
      const wrong = await failure("dashboard/billing/usage?start_date=2026-02-30");
      expect([wrong.status, wrong.body.error.param]).toEqual([400, "start_date"]);
    });

    test("a cap of the month bounds the balance that tools read", async () => {
      const { core, call } = gateway.admin;
      const capped = await core.keys.createKey(
        {
          accountId: gateway.accountId,
          family: Family.V1,
          settings: { name: "capped", monthlyCapMicrocredits: 3_000_000n },
        },
        call,
      );
      const grants = await read("dashboard/billing/credit_grants", capped.secret);
      expect(grants).toMatchObject({ total_available: 0.015, total_used: 0, total_granted: 0.015 });
    });

    test("a pool in debt has no balance, not less than none", async () => {
      const { core, call } = gateway.admin;
      const { account } = await core.billing.createAccount({ settings: { name: "in debt" } }, call);
      const owner = { accountId: account?.accountId ?? "", family: Family.V1 };
      await core.billing.createTransfer(
        {
          ...{ ...owner, kind: TransferKind.CHARGEBACK, amountMicrocredits: 5_000_000n },
          ...{ idempotencyKey: "of the debt", reason: "a payment was taken back" },
        },
        call,
      );
      const { secret } = await core.keys.createKey(
        { ...owner, settings: { name: "in debt" } },
        call,
      );
      expect(await read("dashboard/billing/credit_grants", secret)).toMatchObject({
        ...{ total_available: 0, total_used: 0, total_granted: 0 },
      });
    });

    test("the admin token reads the account that it names", async () => {
      const query = `account_id=${gateway.accountId}`;
      expect((await usage(query, gateway.adminToken)).totals?.requests).toBe(7);
      expect((await receipts(query, gateway.adminToken)).data).toHaveLength(7);
      const unnamed = await failure("usage", gateway.adminToken);
      expect([unnamed.status, unnamed.body.error.param]).toEqual([400, "account_id"]);
    });

    test("the tokens and credits of a report are those of its receipts", async () => {
      const { totals } = await usage("");
      const { data } = await receipts("");
      const tokens: Record<string, number> = {};
      for (const receipt of data)
        for (const [category, number] of Object.entries(receipt.tokens))
          tokens[category] = (tokens[category] ?? 0) + number;
      expect(totals?.tokens).toEqual(tokens);
      expect(tokens.input).toBeGreaterThan(0);
      expect(data.map(({ request_id }) => request_id)).toEqual(requestsOfOne.toReversed());
    });

    test.for([
      { group: "", rows: 1, names: [] },
      { group: "model", rows: 2, names: ["model"] },
      { group: "key", rows: 2, names: ["key_id"] },
      { group: "family", rows: 1, names: ["family"] },
      { group: "key,model,family", rows: 4, names: ["key_id", "model", "family"] },
    ])("grouped by '$group' it has $rows rows, which add up", async ({ group, rows, names }) => {
      for (const bucket of ["none", "hour", "day", "month"]) {
        const { data, totals } = await usage(`group_by=${group}&bucket=${bucket}`, reader.secret);
        // Seven requests may lie on both sides of a full hour.
        if (bucket === "none") expect(data).toHaveLength(rows);
        expect([count(data), sum(data)]).toEqual([7, micro(totals?.charge_credits)]);
        for (const row of data)
          expect(Object.keys(row).filter((name) => name !== "from")).toEqual([
            ...names,
            ...["requests", "completed", "failed", "cut", "tokens", "web_searches"],
            ...["charge_credits", "charge_usd"],
          ]);
      }
    });

    test("filters choose, and what is unknown or another's looks unused", async () => {
      const requests = async (query: string, secret = reader.secret) => [
        (await usage(query, secret)).totals?.requests,
        (await receipts(query, secret)).data.length,
      ];
      expect(await requests(`key_id=${one.keyId}`)).toEqual([5, 5]);
      const [{ model: sonnet = "" } = {}] = (await usage("group_by=model")).data.toReversed();
      expect(await requests(`model=${sonnet}`)).toEqual([3, 3]);
      expect(
        (await usage(`key_id=${one.keyId},${two.keyId}`, reader.secret)).totals?.requests,
      ).toBe(7);
      const nobody = [`key_id=${stranger.keyId}`, "key_id=key_none", "model=model-none"];
      for (const query of nobody) expect(await requests(query), query).toEqual([0, 0]);
      // A key that sees only itself cannot look at its neighbour.
      expect(await requests(`key_id=${two.keyId}`, one.secret)).toEqual([0, 0]);
      expect(await requests(`key_id=${one.keyId}`, one.secret)).toEqual([5, 5]);
      expect(await requests("", stranger.secret)).toEqual([0, 0]);
    });

    test("receipts are chosen by their outcome and their least charge", async () => {
      const { data } = await receipts("", reader.secret);
      const least = data.map(({ charge_credits }) => micro(charge_credits)).toSorted(byValue)[4];
      const credits = data.find(({ charge_credits }) => micro(charge_credits) === least);
      const dear = await receipts(`min_credits=${credits?.charge_credits}`, reader.secret);
      expect(dear.data).toEqual(
        data.filter(({ charge_credits }) => micro(charge_credits) >= (least ?? 0n)),
      );
      expect(dear.data.length).toBeLessThan(7);
      expect((await receipts("outcome=completed,REAPED", reader.secret)).data).toHaveLength(7);
      expect((await receipts("outcome=REVOKED", reader.secret)).data).toEqual([]);
    });

    test("a range begins with its first moment and ends before its last", async () => {
      const { data } = await receipts("");
      const times = data.map((receipt) => String(Reflect.get(receipt, "admitted_at"))).toReversed();
      const range = `from=${times[1]}&to=${times[3]}`;
      expect((await receipts(range)).data.map(({ request_id }) => request_id)).toEqual(
        requestsOfOne.slice(1, 3).toReversed(),
      );
      const empty = await usage(`from=${times[1]}&to=${times[1]}`);
      expect([empty.from, empty.data.length, empty.totals?.requests]).toEqual([empty.to, 0, 0]);
      const day = times[0]?.slice(0, 10);
      const whole = await usage(`from=${day}`);
      expect(whole.from).toBe(`${day}T00:00:00Z`);
      // The oldest running request, or a minute ago: this one may be younger.
      expect(Date.parse(whole.complete_until)).toBeLessThanOrEqual(Date.now() - 59_000);
    });

    test("pages have every row once, and totals on the first page alone", async () => {
      const query = "usage?group_by=key,model";
      const whole = await usage("group_by=key,model", reader.secret);
      const pages = await pagesOf<Usage>(query, reader.secret);
      expect(pages.flatMap(({ data }) => data).map(({ from, ...row }) => row)).toEqual(
        whole.data.map(({ from, ...row }) => row),
      );
      expect(pages.map(({ totals }) => totals?.requests)).toEqual([7, ...Array(3).fill(undefined)]);

      const all = (await receipts("", reader.secret)).data;
      const lists = await pagesOf<Receipts>("receipts?model=", reader.secret);
      expect(lists.flatMap(({ data }) => data)).toEqual(all);
      expect(lists.map(({ has_more }) => has_more)).toEqual([...Array(6).fill(true), false]);
      expect(lists.at(-1)?.searched_to).toBeNull();
    });

    test("a page token is good for its own question and its own caller", async () => {
      const first = {
        usage: (await usage("group_by=key,model&limit=1", reader.secret)).next_page_token,
        receipts: (await receipts("limit=1", reader.secret)).next_page_token,
      };
      for (const [path, secret] of [
        [`usage?group_by=model&page_token=${first.usage}`, reader.secret],
        [`usage?group_by=key,model&bucket=day&page_token=${first.usage}`, reader.secret],
        [`usage?group_by=key,model&page_token=${first.usage}`, one.secret],
        [`usage?group_by=key,model&page_token=${first.receipts}`, reader.secret],
        [`receipts?key_id=${one.keyId}&page_token=${first.receipts}`, reader.secret],
        [`receipts?page_token=${first.receipts}`, stranger.secret],
        [`receipts?page_token=${first.usage}`, reader.secret],
        ["receipts?page_token=AAAA", reader.secret],
        [`usage?page_token=${"A".repeat(4_000)}`, reader.secret],
      ] as const) {
        const { status, body } = await failure(path, secret);
        expect([path, status, body.error?.param]).toEqual([path, 400, "page_token"]);
      }
      // Another size is the same question.
      const rest = await usage(
        `group_by=key,model&limit=9&page_token=${first.usage}`,
        reader.secret,
      );
      expect(rest.data).toHaveLength(3);
    });

    test.for([
      ["usage?form=2026-11-01", "form"],
      ["usage?from=yesterday", "from"],
      ["usage?from=2026-02-30", "from"],
      ["usage?from=2026-13-01", "from"],
      ["usage?from=0000-01-01", "from"],
      ["usage?from=2026-11-01T12:00:00", "from"],
      ["usage?from=2026-11-01&from=2026-11-02", "from"],
      ["usage?from=2026-11-02&to=2026-11-01", "to"],
      ["usage?from=2999-01-01", "from"],
      ["usage?from=2010-01-01", "from"],
      ["usage?from=2026-01-01&bucket=hour", "from"],
      ["usage?bucket=week", "bucket"],
      ["usage?bucket=constructor", "bucket"],
      ["usage?group_by=team", "group_by"],
      ["usage?limit=0", "limit"],
      ["usage?limit=2001", "limit"],
      ["usage?limit=1.5", "limit"],
      ["usage?model=a%00b", "model"],
      ["usage?outcome=COMPLETED", "outcome"],
      [`usage?key_id=${Array(1_001).fill("key_1").join()}`, "key_id"],
      ["receipts?bucket=day", "bucket"],
      ["receipts?from=2026-11-02&to=2026-11-01", "to"],
      ["receipts?from=2010-01-01", "from"],
      ["receipts?limit=1001", "limit"],
      ["receipts?limit=-1", "limit"],
      ["receipts?outcome=RUNNING", "outcome"],
      ["receipts?outcome=UNSPECIFIED", "outcome"],
      ["receipts?min_credits=-1", "min_credits"],
      ["receipts?min_credits=0.0000001", "min_credits"],
      ["receipts?made_by=billing-bot", "made_by"],
      ["receipts?made_by=token:", "made_by"],
      ["receipts?key_id=a&key_id=b", "key_id"],
      ["receipts?key_id=%00", "key_id"],
    ])("%s is an error of that parameter", async ([path = "", param]) => {
      for (const header of ["x-api-key", "bearer"] as const) {
        const { status, body } = await failure(path, one.secret, header);
        expect(status).toBe(400);
        // The one parses `type` and `error.type`, the other `error.param` and `error.code`.
        expect(body).toMatchObject({
          type: "error",
          error: { type: "invalid_request_error", param },
          request_id: expect.stringMatching(/^req_/),
        });
        expect(body.error.message).toContain(param);
      }
    });

    test("a foreign account looks like one that does not exist", async () => {
      for (const path of ["usage", "receipts"]) {
        const foreign = await failure(`${path}?account_id=${stranger.accountId}`, reader.secret);
        const absent = await failure(`${path}?account_id=acc_none`, reader.secret);
        expect(foreign.status).toBe(404);
        for (const { body } of [foreign, absent]) delete body.request_id;
        expect(foreign).toEqual(absent);
        const named = await get(`${path}?account_id=${gateway.accountId}`, one.secret);
        expect(named.status).toBe(200);
      }
    });

    test("without a good key nothing is read, and nothing is said about the query", async () => {
      for (const path of ["usage?bucket=week", "receipts?limit=0"]) {
        expect((await fetch(`${gateway.address}/v1/${path}`)).status).toBe(401);
        expect((await get(path, "sk-gw2-1wrong")).status).toBe(401);
      }
    });

    test("the official clients of both formats read reports, and their errors", async () => {
      const native = new Anthropic({ apiKey: reader.secret, baseURL: gateway.address });
      const chat = new OpenAI({ apiKey: reader.secret, baseURL: `${gateway.address}/v1` });
      expect(await native.get("/v1/usage")).toMatchObject({ totals: { requests: 7 } });
      expect(await chat.get("/usage")).toMatchObject({ totals: { requests: 7 } });
      const failed = (work: PromiseLike<unknown>) =>
        Promise.resolve(work).then(
          () => expect.unreachable(),
          (error: unknown) => error,
        );
      const ofNative = await failed(native.get("/v1/receipts?limit=0"));
      expect(ofNative).toBeInstanceOf(Anthropic.BadRequestError);
      expect(ofNative).toMatchObject({ error: { error: { type: "invalid_request_error" } } });
      const ofChat = await failed(chat.get("/receipts?limit=0"));
      expect(ofChat).toBeInstanceOf(OpenAI.BadRequestError);
      expect(ofChat).toMatchObject({ param: "limit", type: "invalid_request_error" });
    });
  });
}

function byValue(one: bigint, two: bigint): number {
  return one < two ? -1 : one > two ? 1 : 0;
}
