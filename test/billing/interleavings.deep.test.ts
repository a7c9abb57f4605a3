// Random commands of eight clients over several processes, with repeats and deaths at any moment.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { ApiError, type ErrorReason } from "../../src/base/errors.ts";
import type { FamilyName } from "../../src/base/families.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type { Hold, Payer, PlacedHold } from "../../src/billing/admission.ts";
import {
  endingWith,
  freshLedger,
  heldFor,
  holdRequest,
  startNode,
  usage,
} from "../support/ledger.ts";

type Ledger = Awaited<ReturnType<typeof freshLedger>>;
type Node = Awaited<ReturnType<typeof startNode>>;

let ledger: Ledger;
let nodes: Node[];
beforeAll(async () => {
  ledger = await freshLedger();
  // Only the clients poll the nodes here, so nodes are declared dead and register again all the
  // time.
  nodes = await Promise.all(
    Array.from({ length: 4 }, () =>
      startNode(ledger.url, { silentPollsMax: 3, pollIntervalMs: 0 }),
    ),
  );
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  await ledger.close();
});

const request = fc.nat(9);
const node = fc.nat(3);
const key = fc.nat(2);
const output = fc.nat(120);
const command = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("place" as const),
      node,
      key,
      request,
      output,
      nonce: fc.nat(1),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("settle" as const), node, request, output }),
  },
  fc.record({ do: fc.constant("checkpoint" as const), node, request, output }),
  fc.record({ do: fc.constant("fit" as const), node, request, input: fc.nat(900) }),
  fc.record({ do: fc.constant("expire" as const), request }),
  fc.record({ do: fc.constant("poll" as const), node }),
  fc.record({
    do: fc.constant("transfer" as const),
    node,
    account: fc.nat(1),
    kind: fc.constantFrom(
      TransferKind.BONUS,
      TransferKind.REFUND,
      TransferKind.CHARGEBACK,
      TransferKind.ADJUSTMENT,
    ),
    credits: fc.integer({ min: -9_000, max: 9_000 }),
    idempotency: fc.nat(4),
  }),
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

/** The errors that a client may get. Any other one is a bug. */
const expected = new Set<ErrorReason>([
  "request_id_used",
  "credits_exhausted",
  "credits_held",
  "monthly_cap_reached",
  "insufficient_funds",
  "idempotency_key_reused",
  "not_found",
  // The node was declared dead, or the growing hold has been settled.
  "gateway_unavailable",
]);

const placing = { do: "place", node: 0, key: 1, output: 100, nonce: 0 } as const;
/** Of one client alone, which meets every border that a request meets. */
const oneClient: Command[][] = [
  [
    { ...placing, request: 0 },
    { ...placing, request: 1 },
    { do: "settle", node: 0, request: 0, output: 100 },
    { ...placing, request: 1 },
    { ...placing, request: 0, nonce: 1 },
  ],
];
/** The accounts, keys and requests of one run. All runs share a database. */
async function openWorld() {
  const first = await ledger.payer(heldFor(100) * 6n);
  const second = await ledger.payer(heldFor(100) * 3n, { cap: heldFor(120) });
  const sibling = await ledger.payer(0n, { accountId: first.accountId, cap: heldFor(120) });
  const payers: [Payer, Payer, Payer] = [first, second, sibling];
  return {
    payers,
    requestIds: Array.from({ length: 10 }, () => newRequestId()),
    known: new Map<string, Hold>(),
  };
}
type World = Awaited<ReturnType<typeof openWorld>>;

// Requests do not wait for held credits here: the next command may be the one that releases them.
const noWaiting = AbortSignal.abort();

async function run(world: World, one: Command): Promise<void> {
  const at = <T>(list: readonly T[], index: number): T => {
    const found = list[index % list.length];
    if (found === undefined) throw new Error("an empty list");
    return found;
  };
  if (one.do === "expire") {
    const requestId = at(world.requestIds, one.request);
    await ledger.run(
      "update holds set deadline = now() - interval '1 second' where request_id = $1",
      [requestId],
    );
    return;
  }
  const { holds, store, node } = at(nodes, one.node);
  switch (one.do) {
    case "place": {
      const requestId = at(world.requestIds, one.request);
      const request = holdRequest(at(world.payers, one.key), one.output, {
        requestId,
        nonce: `nonce-${one.nonce}-of-test`,
      });
      world.known.set(requestId, await holds.place(request, noWaiting));
      return;
    }
    case "settle": {
      const hold = await holdOf(world, store, at(world.requestIds, one.request));
      if (hold) await holds.settle(hold, endingWith({ output: one.output }));
      return;
    }
    case "checkpoint": {
      const requestId = at(world.requestIds, one.request);
      const { accountId } = world.known.get(requestId)?.payer ?? world.payers[0];
      holds.watch({ accountId, requestId }, () => usage({ output: one.output }));
      await holds.checkpoint();
      return;
    }
    case "fit": {
      const requestId = at(world.requestIds, one.request);
      const hold = await holdOf(world, store, requestId);
      if (hold)
        world.known.set(
          requestId,
          await holds.resize(
            {
              freeMicro: 0n,
              left: { ofPool: undefined, ofKey: undefined, ofManager: undefined },
              manager: undefined,
              ...hold,
            },
            usage({ input: one.input }),
          ),
        );
      return;
    }
    case "poll":
      return node.poll(holds);
    case "transfer": {
      const { accountId } = at(world.payers, one.account);
      const isTaking = one.kind === TransferKind.REFUND || one.kind === TransferKind.CHARGEBACK;
      const size = BigInt(one.credits === 0 ? 1 : Math.abs(one.credits));
      const signed = one.kind === TransferKind.ADJUSTMENT && one.credits < 0 ? -size : size;
      const family: FamilyName = one.idempotency % 2 === 0 ? "v1" : "v2";
      await store.createTransfer({
        accountId,
        family,
        kind: one.kind,
        amountMicro: isTaking ? -size : signed,
        idempotencyKey: `key-${one.idempotency}-of-test`,
        reason: "",
        actor: "test",
      });
    }
  }
}

/** The hold that the client got, or the one that another process reads. */
async function holdOf(
  world: World,
  store: Node["store"],
  requestId: string,
): Promise<PlacedHold | undefined> {
  return world.known.get(requestId) ?? (await store.findRunning(requestId))[0]?.hold;
}

async function runAll(
  world: World,
  commands: readonly Command[],
  seen: ErrorReason[],
): Promise<void> {
  for (const one of commands) {
    await run(world, one).catch((error: unknown) => {
      if (!(error instanceof ApiError && expected.has(error.reason))) throw error;
      seen.push(error.reason);
    });
  }
}

/**
 * Must be true at every moment, not only at the end. Caps bound who starts, not how far a hold
 * grows: `decisions.test.ts` has their law.
 */
const overdrawn = "select account_id from pools where held > posted and not in_debt";

test("with random calls of eight clients on several processes, no pool is overdrawn and the ledger is consistent", async () => {
  const seen: ErrorReason[] = [];
  let charged = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(command, { maxLength: 14 }), { minLength: 8, maxLength: 8 }),
      async (clients) => {
        const world = await openWorld();
        let running = true;
        const watching = (async () => {
          while (running) expect(await ledger.run(overdrawn)).toEqual([]);
        })();
        await Promise.all(clients.map((commands) => runAll(world, commands, seen))).finally(() => {
          running = false;
        });
        await watching;
        expect(await ledger.store.verifyLedger()).toEqual([]);

        // All running requests end. Then nothing is held, and each request has at most one charge.
        for (const requestId of world.requestIds) {
          for (const { hold } of await ledger.store.findRunning(requestId))
            await ledger.holds.settle(hold, endingWith({ output: 1 }));
        }
        const [left] = await ledger.run<{ held: bigint; charges: bigint }>(
          "select (select count(*) from holds) as held, (select count(*) from charges where request_id = any($1)) as charges",
          [world.requestIds],
        );
        expect(left?.held).toBe(0n);
        // An id names one request of each account.
        expect(left?.charges).toBeLessThanOrEqual(2 * world.requestIds.length);
        charged += Number(left?.charges);
        expect(await ledger.store.verifyLedger()).toEqual([]);
      },
    ),
    { numRuns: 60, endOnFailure: true, examples: [[oneClient]] },
  );
  expect(charged).toBeGreaterThan(0);
  expect([...new Set(seen)]).toEqual(
    expect.arrayContaining(["credits_held", "monthly_cap_reached", "request_id_used"]),
  );
});
