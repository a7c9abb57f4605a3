import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import {
  answerOf,
  type ClientView,
  type CrashCluster,
  numbered,
  startCrashCluster,
  usageOf,
} from "../support/crash-cluster.ts";
import { sumCharges, sumCsv, sumPages, sumUsage } from "../support/sums.ts";

const kills = 30;
const clients = 6;
/** Number of gateways that run at any time. */
const gatewaysWanted = 2;

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

/** Repeatable random numbers, which place the kills among the requests. */
function createDice(seed: number): (sides: number) => number {
  let state = seed;
  return (sides) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * sides);
  };
}

test("thirty kills under load: complete answers are charged exactly, all others at most once", {
  timeout: 900_000,
}, async () => {
  const { payer, secret } = await stage.key(1_000_000_000_000n);
  // A client waits for its answer most of the time: the starts need the processors.
  stage.provider.always((request) => answerOf(request, 40));
  const dice = createDice(4_711);
  await (await stage.start()).end("SIGTERM");
  const gateways: ChildGateway[] = await Promise.all(
    Array.from({ length: gatewaysWanted }, () => stage.start()),
  );

  const seen: { number: number; seen: ClientView }[] = [];
  let sent = 0;
  let running = true;
  const client = async () => {
    while (running) {
      const number = sent++;
      const gateway = gateways[number % gateways.length];
      if (!gateway) throw new Error("no gateway runs");
      seen.push({
        number,
        seen: await stage.send(gateway, secret, { ...numbered(number), stream: number % 5 > 0 }),
      });
    }
  };
  const load = Array.from({ length: clients }, client);

  let next = stage.start();
  for (let kill = 0; kill < kills; kill++) {
    const replacement = await next;
    if (kill < kills - 1) next = stage.start();
    // Counted in requests, not in seconds, so that the kill happens under load on any machine.
    await stage.provider.received(stage.provider.requests.length + 1 + dice(20));
    const [victim] = gateways.splice(dice(gateways.length), 1, replacement);
    await victim?.end("SIGKILL");
  }
  running = false;
  await Promise.all(load);
  await stage.recover();

  for (const one of seen) {
    const charge = await stage.chargeOf(one.seen.requestId);
    if (one.seen.complete) {
      const { input, output, cost } = usageOf(one.number);
      expect(charge).toMatchObject({
        outcome: Outcome.COMPLETED,
        chargedMicrocredits: cost,
        usage: { input, output },
      });
    } else if (one.seen.status === 200) {
      // Its response head was sent, so it was admitted.
      expect(charge?.chargedMicrocredits).toBeLessThanOrEqual(usageOf(one.number).cost);
    }
  }
  const [charged] = await stage.ledger.run<{ all: bigint; reaped: bigint; posted: bigint }>(
    `select (select count(*) from charges) as all,
       (select count(*) from charges where outcome = 'reaped') as reaped,
       (select sum(posted) from pools where account_id = $1) as posted`,
    [payer.accountId],
  );
  const complete = seen.filter((one) => one.seen.complete);
  expect(complete.length).toBeGreaterThan(100);
  expect(charged?.reaped).toBeGreaterThan(0n);
  expect(charged?.all).toBeLessThanOrEqual(BigInt(sent));
  expect(charged?.all).toBeGreaterThanOrEqual(BigInt(complete.length));

  // Every way to the sums gives the same ones. The verifier has checked the ledger in `recover`.
  const sums = await sumCharges(stage.ledger, payer.accountId);
  expect(sums.requests).toBe(charged?.all);
  const usage = await sumUsage(stage.ledger, payer.accountId);
  expect(usage.pages).toBeGreaterThan(0);
  expect(usage.rows).toEqual(sums);
  expect(usage.totals).toEqual(sums);
  expect(await sumPages(stage.ledger, payer.accountId)).toEqual(sums);
  expect(await sumCsv(stage.ledger, payer.accountId)).toEqual(sums);
});
