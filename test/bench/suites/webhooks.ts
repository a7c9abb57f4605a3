// How soon webhooks of a payment processor are answered: each is signed, new, and about another
// order that does not exist, so each is noted in the inbox. Through one process, and through a
// facade.

import { createHmac } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Lab, urlOf } from "../lab.ts";
import { quantile } from "../measure.ts";
import { type Result, type Row, single } from "../report.ts";

const secret = "a-secret-of-the-bench";
const section = `
payments:
  processors:
    - { name: simulated, type: simulated, webhook_secret: HOOK_SECRET }
`;
const warmUps = 300;
const hooks = 2_000;
/** A busy processor. */
const perSecond = 200;

export async function webhooks(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const core = await lab.gateway(provider, {
    env: { HOOK_SECRET: secret },
    catalog: { more: section },
  });
  const facade = await lab.facade(core);
  const rows: Row[] = [];
  const faults: string[] = [];
  for (const [name, url] of [
    ["one process", urlOf(core)],
    ["through a facade", urlOf(facade)],
  ] as const) {
    const { waitsMs, wrong } = await send(url);
    if (wrong > 0) faults.push(`${name}: ${wrong} webhooks were not answered with 200`);
    for (const share of [0.5, 0.99, 1])
      rows.push({
        measure: `${name}: answered, ${share === 1 ? "slowest" : `p${share * 100}`}`,
        value: single(quantile(waitsMs, share)),
        unit: "ms",
        must: share === 0.99 ? "≤ 100 ms" : "",
      });
  }
  return { rows, faults };
}

let sent = 0;

async function send(url: string): Promise<{ waitsMs: number[]; wrong: number }> {
  const waitsMs: number[] = [];
  const pending: Promise<void>[] = [];
  let wrong = 0;
  for (let count = 0; count < warmUps + hooks; count++) {
    const body = JSON.stringify({
      delivery_id: `d${++sent}`,
      order_id: `ord_${sent}`,
      more: filler,
    });
    const signature = createHmac("sha256", secret).update(body).digest("hex");
    const headers = { "x-simulated-signature": `sha256=${signature}` };
    const startedMs = performance.now();
    const answered = fetch(`${url}/payments/simulated/webhook`, { method: "POST", body, headers });
    pending.push(
      answered.then(async (answer) => {
        await answer.arrayBuffer();
        if (answer.status !== 200) wrong++;
        if (count >= warmUps) waitsMs.push(performance.now() - startedMs);
      }),
    );
    await delay(1_000 / perSecond);
  }
  await Promise.all(pending);
  return { waitsMs, wrong };
}

/** A webhook of a processor has two kilobytes. */
const filler = "x".repeat(2_000);
