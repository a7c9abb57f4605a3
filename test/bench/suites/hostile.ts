// Accounts that attack: how long their requests hold up the event loop, and how much slower they
// make the requests of another account.

import { setTimeout as delay } from "node:timers/promises";
import { freePort } from "../../support/ports.ts";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { type GatewayProcess, Lab, urlOf } from "../lab.ts";
import { quantile, residentBytes } from "../measure.ts";
import { type Result, type Row, single } from "../report.ts";

/** The load of the honest account. */
const honest = { perSecond: 40, requests: 240, concurrency: 32 };
/** The attackers' connections beside it. */
const connections = 4;
/** Requests of an attack whose turns of the event loop are measured, one after the other. */
const alone = 8;

type Attack = {
  readonly name: string;
  readonly body: string;
  readonly path?: string;
  /** Credits of the attacker. Default: none. */
  readonly microcredits?: bigint;
};

const part = { type: "text", text: "x".repeat(10) };
const ask = { model: "native", max_tokens: 100 };
const asking = (content: unknown) =>
  JSON.stringify({ ...ask, messages: [{ role: "user", content }] });
const attacks: readonly Attack[] = [
  { name: "125,000 parts", body: asking(Array(125_000).fill(part)) },
  { name: "19,000 parts", body: asking(Array(19_000).fill(part)) },
  { name: "30 MB of text", body: asking("a b ".repeat(7_500_000)) },
  { name: "30 MB of text, malformed", body: asking("a b ".repeat(7_500_000)).slice(0, -1) },
  { name: "an unknown model", body: asking("x".repeat(3_000_000)).replace("native", "unknown") },
  {
    name: "count_tokens",
    body: asking(Array(19_000).fill(part)),
    path: "/v1/messages/count_tokens",
  },
  { name: "one micro-credit", body: asking(Array(19_000).fill(part)), microcredits: 1n },
];

export async function hostile(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const port = await freePort();
  const preload = new URL("../loop-delay.ts", import.meta.url).href;
  const gateway = await lab.gateway(provider, {
    flags: ["--import", preload],
    env: { LOOP_DELAY_PORT: String(port) },
  });
  const longestTurn = async (): Promise<number> => {
    const answer: unknown = await (await fetch(`http://127.0.0.1:${port}`)).json();
    return Number(Object(answer).longestMs);
  };
  const job = {
    url: urlOf(gateway),
    path: "/v1/messages",
    headers: nativeHeaders(gateway),
    bodies: [nativeBody("native", 1_000, false)],
    ...honest,
  };
  const rows: Row[] = [];
  const notes: string[] = [];
  const faults: string[] = [];
  /** Answers of the provider to `count_tokens`, which are free. */
  let uncounted = 0;
  await lab.load(job);
  const idleBytes = residentBytes(gateway.pid);
  for (const attack of attacks) {
    const attacker = {
      url: urlOf(gateway),
      path: attack.path ?? "/v1/messages",
      headers: nativeHeaders({ ...gateway, key: await createAttacker(lab, gateway, attack) }),
      bodies: [attack.body],
    };
    const warmUp = await lab.load({ ...attacker, requests: 2, concurrency: 1 });
    await longestTurn();
    const oneByOne = await lab.load({ ...attacker, requests: alone, concurrency: 1 });
    const turnMs = await longestTurn();
    const parseMs = medianParseMs(attack.body);

    const quiet = await lab.load(job);
    const [during, attacked] = await Promise.all([
      lab.load(job),
      lab.load({
        ...attacker,
        requests: Number.MAX_SAFE_INTEGER,
        secondsMax: honest.requests / honest.perSecond,
        concurrency: connections,
      }),
    ]);
    if (during.statuses["200"] !== honest.requests)
      faults.push(`${attack.name}: honest requests ${JSON.stringify(during.statuses)}`);
    for (const { statuses } of [warmUp, oneByOne, attacked]) uncounted += statuses["200"] ?? 0;
    const p99 = (one: { totalMs: readonly number[] }) => quantile(one.totalMs, 0.99);
    const limitMs = Math.max(100, 1.5 * parseMs);
    rows.push(
      {
        measure: `${attack.name}: longest turn of the event loop`,
        value: single(turnMs),
        unit: "ms",
        must: `≤ ${Math.round(limitMs)}`,
      },
      { measure: `${attack.name}: JSON.parse of the body`, value: single(parseMs), unit: "ms" },
      {
        measure: `${attack.name}: p99 of another account ÷ quiet`,
        value: single(p99(during) / p99(quiet)),
        must: "≤ 2",
      },
      {
        measure: `${attack.name}: goodput of another account ÷ quiet`,
        value: single(goodput(during) / goodput(quiet)),
        must: "≥ 0.9",
      },
    );
    notes.push(
      `${attack.name}: ${statusesOf(oneByOne)} one by one, ${statusesOf(attacked)} at once`,
    );
  }
  const attackedBytes = residentBytes(gateway.pid);
  await delay(60_000);
  rows.push(
    { measure: "memory at the end ÷ idle", value: single(attackedBytes / idleBytes) },
    {
      measure: "memory a minute later ÷ idle",
      value: single(residentBytes(gateway.pid) / idleBytes),
      must: "≤ 1.5",
    },
  );
  return { rows, notes, faults: [...faults, ...(await lab.faults(provider, uncounted))] };
}

/** A key of an account of its own, whose rate limit admits the whole attack. */
async function createAttacker(
  lab: Lab,
  gateway: GatewayProcess,
  { microcredits = 0n }: Attack,
): Promise<string> {
  const accountId = await lab.createAccount(gateway, microcredits);
  return lab.createKey({ ...gateway, accountId }, { requestsPerMinute: 100_000 });
}

/** Milliseconds of `JSON.parse` of the body's bytes, in this process. */
function medianParseMs(body: string): number {
  const bytes = Buffer.from(body);
  const each = Array.from({ length: 5 }, () => {
    const started = performance.now();
    try {
      JSON.parse(bytes.toString());
    } catch {
      // A malformed body takes its time too.
    }
    return performance.now() - started;
  });
  return quantile(each, 0.5);
}

function goodput({ statuses, seconds }: { statuses: Record<string, number>; seconds: number }) {
  return (statuses["200"] ?? 0) / seconds;
}

function statusesOf({ statuses }: { statuses: Record<string, number> }): string {
  return Object.entries(statuses)
    .map(([status, count]) => `${count} × ${status}`)
    .join(", ");
}
