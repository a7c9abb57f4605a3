// Accounts that attack: how long their requests hold up the event loop, and how much slower they
// make the requests of another account.

import { request as httpRequest } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort } from "../../support/ports.ts";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { type GatewayProcess, Lab, urlOf } from "../lab.ts";
import { quantile, residentBytes } from "../measure.ts";
import { type Result, type Row, single } from "../report.ts";

/** The load of the honest account. */
const honest = { perSecond: 100, requests: 1_000, concurrency: 32 };
/** The attackers' connections beside it. */
const connections = 4;
/** An attack begins before the honest load: its first requests use what a key may use freely. */
const headStartSeconds = 3;
/** Requests of an attack whose turns of the event loop are measured, one after the other. */
const alone = 2;
/** Uploads of 30 MB that are begun and not finished. */
const unfinished = 50;

type Attack = {
  readonly name: string;
  readonly body: string;
  readonly path?: string;
  /** Credits of the attacker. Default: none. */
  readonly microcredits?: bigint;
  /** Also send the same traffic to a server that drops it. Default: false. */
  readonly hasFloor?: true;
};

/** What must hold for the honest account. */
type Musts = { readonly p99?: { must: string }; readonly goodput?: { must: string } };
const required: Musts = { p99: { must: "≤ 2" }, goodput: { must: "≥ 0.9" } };

const part = { type: "text", text: "x".repeat(10) };
const ask = { model: "native", max_tokens: 100 };
const asking = (content: unknown) =>
  JSON.stringify({ ...ask, messages: [{ role: "user", content }] });
const attacks: readonly Attack[] = [
  { name: "125,000 parts", body: asking(Array(125_000).fill(part)) },
  { name: "19,000 parts", body: asking(Array(19_000).fill(part)), hasFloor: true },
  { name: "30 MB of text", body: asking("a b ".repeat(7_500_000)), hasFloor: true },
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

  /** Compares the honest load beside `attack` with a quiet one. Returns what `attack` returns. */
  const compare = async <T>(name: string, musts: Musts, attack: () => Promise<T>): Promise<T> => {
    const quiet = await lab.load(job);
    const attacking = attack();
    await delay(headStartSeconds * 1_000);
    const [during, attacked] = await Promise.all([lab.load(job), attacking]);
    if (during.statuses["200"] !== honest.requests)
      faults.push(`${name}: honest requests ${JSON.stringify(during.statuses)}`);
    rows.push(
      {
        measure: `${name}: p99 of another account ÷ quiet`,
        value: single(quantile(during.totalMs, 0.99) / quantile(quiet.totalMs, 0.99)),
        ...musts.p99,
      },
      {
        measure: `${name}: goodput of another account ÷ quiet`,
        value: single(goodput(during) / goodput(quiet)),
        ...musts.goodput,
      },
    );
    return attacked;
  };
  const secondsMax = headStartSeconds + honest.requests / honest.perSecond;
  const flood = { requests: Number.MAX_SAFE_INTEGER, secondsMax, concurrency: connections };

  const discard = await lab.start([fileURLToPath(new URL("../discard.ts", import.meta.url))]);
  for (const { name, body } of attacks.filter(({ hasFloor }) => hasFloor)) {
    const traffic = { url: urlOf(discard), path: "/", headers: {}, bodies: [body], ...flood };
    await compare(`${name}, at another server that drops it`, {}, () => lab.load(traffic));
  }

  for (const attack of attacks) {
    const attackerWith = async (key: Promise<string>) => ({
      url: urlOf(gateway),
      path: attack.path ?? "/v1/messages",
      headers: nativeHeaders({ ...gateway, key: await key }),
      bodies: [attack.body],
    });
    const measured = await attackerWith(createAttacker(lab, gateway, attack));
    const warmUp = await lab.load({ ...measured, requests: 1, concurrency: 1 });
    await longestTurn();
    const oneByOne = await lab.load({ ...measured, requests: alone, concurrency: 1 });
    const turnMs = await longestTurn();
    const parseMs = medianParseMs(attack.body);
    const limitMs = Math.max(100, 1.5 * parseMs);
    rows.push(
      {
        measure: `${attack.name}: longest turn of the event loop`,
        value: single(turnMs),
        unit: "ms",
        must: `≤ ${Math.round(limitMs)}`,
      },
      { measure: `${attack.name}: JSON.parse of the body`, value: single(parseMs), unit: "ms" },
    );
    const attacker = await attackerWith(createAttacker(lab, gateway, attack));
    const attacked = await compare(attack.name, required, () =>
      lab.load({ ...attacker, ...flood }),
    );
    for (const { statuses } of [warmUp, oneByOne, attacked]) uncounted += statuses["200"] ?? 0;
    notes.push(
      `${attack.name}: ${statusesOf(oneByOne)} one by one, ${statusesOf(attacked)} at once`,
    );
  }

  const key = await createAttacker(lab, gateway, {});
  let uploadBytes = 0;
  const statuses = await compare(`${unfinished} unfinished uploads`, required, async () => {
    const uploads = beginUploads(urlOf(gateway), nativeHeaders({ ...gateway, key }));
    await delay(secondsMax * 1_000);
    uploadBytes = residentBytes(gateway.pid);
    return uploads.end();
  });
  rows.push({
    measure: `memory during ${unfinished} unfinished uploads ÷ idle`,
    value: single(uploadBytes / idleBytes),
  });
  notes.push(`${unfinished} unfinished uploads: ${statusesOf({ statuses })}`);
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

/** Sends the first half of each upload. `end` resolves with the statuses that were answered. */
function beginUploads(url: string, headers: Record<string, string>) {
  const statuses: Record<string, number> = { none: unfinished };
  const bytes = 30_000_000;
  const requests = Array.from({ length: unfinished }, () => {
    const request = httpRequest(`${url}/v1/messages`, {
      method: "POST",
      headers: { ...headers, "content-length": bytes },
    });
    request.on("error", () => {});
    request.once("response", (response) => {
      const status = response.statusCode ?? 0;
      statuses[status] = (statuses[status] ?? 0) + 1;
      statuses.none = (statuses.none ?? 0) - 1;
      response.resume();
    });
    request.write(Buffer.alloc(bytes / 2, "x"));
    return request;
  });
  return {
    end() {
      for (const request of requests) request.destroy();
      return statuses;
    },
  };
}

/** A key of an account of its own, whose rate limit admits the whole attack. */
async function createAttacker(
  lab: Lab,
  gateway: GatewayProcess,
  { microcredits = 0n }: Pick<Attack, "microcredits">,
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
