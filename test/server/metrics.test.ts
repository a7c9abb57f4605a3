// GET /metrics of a whole gateway: its sums are those of the ledger.

import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Outcome, OutcomeSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { categoryColumns, tokenCategories } from "../../src/base/token-categories.ts";
import { definitions } from "../../src/metrics/metrics.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { ManualClock } from "../support/clock.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type Scrape, scrape } from "../support/metrics.ts";
import { findProgram } from "../support/programs.ts";
import { query } from "../support/query.ts";

let gateway: TestGateway;
let postgres: Postgres;
beforeAll(async () => {
  gateway = await startTestGateway({
    env: { METRICS_PORT: "0", METRICS_GENAI: "true" },
    split: false,
  });
  postgres = connectPostgres(gateway.databaseUrl);
});
afterAll(async () => {
  await postgres.close();
  await gateway.stop();
});

const messages = [{ role: "user", content: "Hello" }];
const slowTokenMs = 20;
const slowTokens = 15;
const slowText = `[[simulate tokens=${slowTokens} token_ms=${slowTokenMs}]]`;
/** How long the model pauses between the tokens of a stream and a plain answer. */
const pausedSeconds = (2 * (slowTokens - 1) * slowTokenMs) / 1000;
const slowMessages = [{ role: "user", content: slowText }];

function post(
  path: string,
  body: unknown,
  more: RequestInit = {},
  { address, v1 } = gateway,
): Promise<Response> {
  return fetch(address + path, {
    method: "POST",
    headers: {
      authorization: `Bearer ${v1}`,
      "x-api-key": v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
    ...more,
  });
}

/** Paid requests of both formats, free ones, rejected ones, and one whose client leaves. */
async function sendMixed(): Promise<void> {
  const paid = { model: "haiku", max_tokens: 40, messages };
  for (const stream of [false, true])
    for (const model of ["haiku", "sonnet"])
      for (const path of ["/v1/messages", "/v1/chat/completions", "/messages"])
        await (await post(path, { ...paid, model, stream })).text();
  await (await post("/v1/messages/count_tokens", { model: "haiku", messages })).text();
  await (await post("/v1/messages", { ...paid, model: "no-such-model" })).text();
  await (await post("/v1/messages", paid, { headers: { "x-api-key": "sk-wrong" } })).text();
  await (await fetch(`${gateway.address}/nowhere`)).text();
  const text = "[[simulate tokens=200 token_ms=50]]";
  const leaving = new AbortController();
  const long = {
    ...paid,
    stream: true,
    max_tokens: 300,
    messages: [{ role: "user", content: text }],
  };
  const answer = await post("/v1/messages", long, { signal: leaving.signal });
  const reader = answer.body?.getReader();
  await reader?.read();
  leaving.abort();
  await reader?.read().catch(() => undefined);
}

type Sums = { model: string; family: string; outcome: string; charges: number };

async function readLedger(): Promise<{ sums: Sums[]; tokens: Record<string, number>[] }> {
  const columns = tokenCategories.map((category) => categoryColumns[category]);
  const tokens = columns.map((column) => `sum(${column})::float8 as ${column}`).join(", ");
  const sums = {
    name: "test/sum-charges",
    text: `select model, "family", outcome, count(*)::int as charges from charges group by 1, 2, 3`,
  };
  const byModel = {
    name: "test/sum-tokens",
    text: `select model, sum(amount)::float8 as amount, sum(overrun)::float8 as overrun, ${tokens}
      from charges group by 1`,
  };
  return {
    sums: await query<Sums>(postgres, sums, []),
    tokens: await query<Record<string, number>>(postgres, byModel, []),
  };
}

/** The scrape when every request has ended. */
async function settled(): Promise<Scrape> {
  let last = await scrape(gateway.metricsAddress);
  await vi.waitFor(
    async () => {
      last = await scrape(gateway.metricsAddress);
      expect(last.sum("gateway_unsettled_requests")).toBe(0);
      expect(last.sum("gateway_open_requests")).toBe(0);
      expect(last.sum("gateway_charges_total")).toBe(13);
    },
    { interval: 50 },
  );
  return last;
}

test("requests, tokens and micro-credits are those of the ledger, exactly", async () => {
  await sendMixed();
  gateway.reload(fastCatalog());
  const all = await settled();
  const { sums, tokens } = await readLedger();
  expect(sums.reduce((sum, { charges }) => sum + charges, 0)).toBe(13);
  for (const { charges, ...labels } of sums)
    expect(all.sum("gateway_charges_total", labels)).toBe(charges);
  for (const { model, amount, overrun, ...byCategory } of tokens) {
    const labels = { model: String(model) };
    expect(all.sum("gateway_charged_microcredits_total", labels)).toBe(amount);
    expect(all.sum("gateway_overrun_microcredits_total", labels)).toBe(overrun);
    for (const [category, sum] of Object.entries(byCategory))
      expect(all.sum("gateway_tokens_total", { ...labels, category })).toBe(sum);
    const genai = { gen_ai_response_model: String(model), gen_ai_token_modality: "unknown" };
    const { input, cache_read, cache_write_5m, cache_write_1h, output, thinking } = byCategory;
    expect(all.sum("gen_ai_client_inference_usage_input_tokens_total", genai)).toBe(
      Number(input) + Number(cache_read) + Number(cache_write_5m) + Number(cache_write_1h),
    );
    expect(all.sum("gen_ai_client_inference_usage_output_tokens_total", genai)).toBe(
      Number(output) + Number(thinking),
    );
  }
});

test("each request is counted once, by the first spelling of its path and by its outcome", async () => {
  const all = await settled();
  const of = (labels: Record<string, string>) => all.sum("gateway_requests_total", labels);
  expect(of({ route: "/v1/messages", outcome: "completed" })).toBe(8);
  expect(of({ route: "/v1/chat/completions", outcome: "completed" })).toBe(4);
  expect(of({ route: "/v1/messages", outcome: "hung_up" })).toBe(1);
  expect(of({ route: "/v1/messages", outcome: "rejected", status: "404" })).toBe(1);
  expect(of({ route: "/v1/messages", outcome: "rejected", status: "401" })).toBe(1);
  expect(of({ route: "none", status: "404" })).toBe(1);
  expect(of({ route: "/v1/messages/count_tokens", outcome: "free" })).toBe(1);
  expect(all.sum("gateway_request_duration_seconds_count", { route: "/v1/messages" })).toBe(11);
  expect(all.sum("gateway_time_to_first_event_seconds_count")).toBe(7);
  expect(all.sum("gateway_provider_attempts_total")).toBe(13);
  for (const reason of ["invalid_key", "model_not_found"])
    expect(all.sum("gateway_errors_total", { reason })).toBe(1);
  const outcomes = OutcomeSchema.values
    .filter(({ number }) => number !== Outcome.UNSPECIFIED && number !== Outcome.RUNNING)
    .map(({ localName }) => localName.toLowerCase());
  expect([...outcomes, "free", "failed", "hung_up", "rejected"]).toEqual(
    expect.arrayContaining(all.valuesOf("gateway_requests_total", "outcome")),
  );
});

test("a first event comes after its request began, and before the answer is whole", async () => {
  const all = await settled();
  for (const [first, whole] of [
    ["gen_ai_server_time_to_first_token_seconds", "gen_ai_server_request_duration_seconds"],
    ["gateway_time_to_first_event_seconds", "gateway_request_duration_seconds"],
  ] as const) {
    expect(all.sum(`${first}_count`), first).toBeGreaterThan(0);
    expect(all.sum(`${first}_sum`), first).toBeGreaterThan(0);
    expect(all.sum(`${first}_sum`), first).toBeLessThan(all.sum(`${whole}_sum`));
  }
  expect(all.sum("gen_ai_server_time_per_output_token_seconds_sum")).toBeGreaterThan(0);
});

test("no label holds an account, a key, a request id or text of a client", async () => {
  const { text } = await settled();
  for (const secret of [gateway.accountId, gateway.v1, "no-such-model", "nowhere"])
    expect(text).not.toContain(secret);
  expect(text).not.toMatch(/\b(req|key|acc|sec)_[0-9a-zA-Z]{12}/);
});

test("every metric is defined, and every definition has a value", async () => {
  const { names } = await settled();
  // Nothing of it happened here, or it is not configured: the history's own suites have the last.
  const absent = [
    ...["gateway_ledger_failures_total", "gateway_history_months_due", "gateway_carried_total"],
    ...["gateway_certificate_end_seconds", "gateway_left_out_total"],
    ...["gateway_ledger_violations", "gateway_ledger_verified_seconds"],
    "gateway_sales_lag_seconds",
    ...["gateway_sink_charges_total", "gateway_sink_failures_total", "gateway_sink_lag_seconds"],
  ];
  expect([...names].sort()).toEqual(
    Object.keys(definitions)
      .filter((name) => !absent.includes(name))
      .sort(),
  );
});

test("the public port has no metrics", async () => {
  expect((await fetch(`${gateway.address}/metrics`)).status).toBe(404);
});

test("only GET /metrics is served", async () => {
  const address = gateway.metricsAddress ?? "";
  expect((await fetch(`${address}/`)).status).toBe(404);
  expect((await fetch(`${address}/metrics`, { method: "POST" })).status).toBe(405);
  const head = await fetch(`${address}/metrics`, { method: "HEAD" });
  expect(head.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
});

const promtool = findProgram("promtool");
if (!promtool) console.warn("skipped: promtool is not installed (Debian: prometheus)");

test.skipIf(!promtool)("promtool finds nothing wrong with a scrape", async () => {
  const { text } = await settled();
  execFileSync(promtool ?? "", ["check", "metrics"], { input: text });
});

test("the overhead is known of every request, and leaves out the waits for its provider", async () => {
  const before = await scrape(gateway.metricsAddress);
  const slow = { model: "haiku", max_tokens: 60, messages: slowMessages };
  for (const stream of [true, false])
    expect((await (await post("/v1/messages", { ...slow, stream })).text()).length).toBeGreaterThan(
      0,
    );
  await (await fetch(`${gateway.address}/nowhere`)).text();
  const requests = before.sum("gateway_requests_total");
  const after = await vi.waitUntil(async () => {
    const now = await scrape(gateway.metricsAddress);
    return now.sum("gateway_requests_total") === requests + 3 && now;
  });
  const grown = (name: string, route: string) =>
    after.sum(name, { route }) - before.sum(name, { route });
  const [took, added] = ["gateway_request_duration_seconds_sum", "gateway_overhead_seconds_sum"];
  for (const route of ["/v1/messages", "none"])
    expect(grown("gateway_overhead_seconds_count", route)).toBe(
      grown("gateway_request_duration_seconds_count", route),
    );
  const waited = grown(took, "/v1/messages") - grown(added, "/v1/messages");
  expect(waited).toBeGreaterThan(pausedSeconds * 0.95);
  // A request that waits for nobody is overhead from its beginning to its end.
  expect(grown(added, "none")).toBeCloseTo(grown(took, "none"), 9);
});

test("a facade counts its requests, without the waits for its core, and the core their charges", async () => {
  const split = await startTestGateway({ env: { METRICS_PORT: "0" }, split: true });
  const slow = { model: "haiku", max_tokens: 60, messages: slowMessages };
  for (const stream of [true, false])
    await (await post("/v1/messages", { ...slow, stream }, {}, split)).text();
  const [facade, core] = await vi.waitUntil(async () => {
    const both = [await scrape(split.httpMetricsAddress), await scrape(split.metricsAddress)];
    return both[0]?.sum("gateway_requests_total") === 2 && both;
  });
  const seconds = (name: string) => facade?.sum(`${name}_sum`, { route: "/v1/messages" }) ?? 0;
  const took = seconds("gateway_request_duration_seconds");
  const added = seconds("gateway_overhead_seconds");
  expect(facade?.sum("gateway_overhead_seconds_count")).toBe(2);
  expect(took - added).toBeGreaterThan(pausedSeconds * 0.95);
  expect(added).toBeGreaterThan(0);
  expect(core?.sum("gateway_charges_total", { outcome: "completed" })).toBe(2);
  // What one of them counts, the other does not: sums over both count nothing twice.
  const shared = facade?.names.filter((name) => core?.names.includes(name)) ?? [];
  expect(shared.filter((name) => name.startsWith("gateway_")).sort()).toEqual([
    "gateway_build_info",
    "gateway_draining",
  ]);
  await split.stop();
});

test("a draining gateway still answers, and says that it drains", async () => {
  const clock = new ManualClock({ creeps: true });
  const draining = await startTestGateway({
    env: { METRICS_PORT: "0", DRAIN_DELAY_SECONDS: "3" },
    split: false,
    clock,
  });
  expect((await scrape(draining.metricsAddress)).sum("gateway_draining")).toBe(0);
  const stopped = draining.stop();
  await vi.waitFor(async () =>
    expect((await scrape(draining.metricsAddress)).sum("gateway_draining")).toBe(1),
  );
  await clock.advance(2_999);
  expect((await scrape(draining.metricsAddress)).sum("gateway_draining")).toBe(1);
  await clock.advance(1);
  await stopped;
});
