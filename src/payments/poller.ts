// Looks at the orders that are due, and repeats what a process that died left unposted. One
// statement a second finds out whether there is any of both, a second one leases it, so that nodes
// share the work.

import * as sql from "../../gen/sql/payments.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import { WaitGroup } from "../base/wait-group.ts";
import { applyLook, recordFailedLook } from "./crediting.ts";
import type { Parts } from "./parts.ts";

/** Looks a second at one processor, over all nodes. The last one is kept for webhooks. */
const slots = 5;
const leaseMs = 30_000;
/** Less than the lease, so that no two nodes look at an order at once. */
const lookMsMax = 20_000;
const pollMs = 1_000;
const sweepMs = 5_000;

export type Poller = {
  start(): void;
  stop(): Promise<void>;
  /** Looks for work at once: a webhook arrived, or a page was opened. */
  wake(): void;
};

/** Posts what is left unposted of an order, and the bonus of the use of a promotion. */
export type Repeat = {
  order(orderId: string): Promise<void>;
  bonus(codeId: string, accountId: string): Promise<void>;
};

export function createPoller(parts: Parts, repeat: Repeat): Poller {
  const { store, clock, log } = parts;
  const running = new WaitGroup();
  const stopping = new AbortController();
  const ready = new Set<string>();
  let sweptAtMs = Number.NEGATIVE_INFINITY;
  const polling = new Task({
    run: takeWork,
    everyMs: pollMs,
    report: warnOnce(log, {
      code: "orders_unread",
      failed: "cannot find the orders that are due",
      recovered: "orders are looked at again",
    }),
    clock,
  });

  async function takeWork(): Promise<void> {
    const withUnposted = clock.now() - sweptAtMs >= sweepMs;
    const processors = [...parts.processors().keys()];
    for (const name of processors) {
      if (!ready.has(name)) await store.run(sql.ensureSlots, { processor: name, slots });
      ready.add(name);
    }
    const { hasWork } = await store.run(sql.hasWork, { processors, withUnposted });
    const taken = { processors, slots, leaseMs, withUnposted };
    if (hasWork) for (const row of await store.run(sql.takeWork, taken)) run(toWork(row));
    if (withUnposted) sweptAtMs = clock.now();
  }

  function run(work: Work): void {
    running.add();
    doneOf(work)
      .catch((err: unknown) =>
        log.warn(
          { code: "order_work_failed", ...work, err },
          "work on an order or a bonus failed, and will be repeated",
        ),
      )
      .finally(() => running.done());
  }

  function doneOf(work: Work): Promise<void> {
    if (work.kind === "look") return lookAt(work);
    if (work.kind === "post") return repeat.order(work.orderId);
    return repeat.bonus(work.codeId, work.accountId);
  }

  async function lookAt({ orderId, processor: name, externalId, startedAt, hook }: LookWork) {
    const processor = parts.processors().get(name);
    if (!processor) return;
    const hooks = processor.readHook
      ? await store.run(sql.listNamed, { processor: name, externalId })
      : [];
    const named = hooks.map(({ depositId }) => depositId);
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(lookMsMax)]);
    const look = await processor
      .look({ orderId, externalId, named }, signal)
      .catch((err: unknown) => reportFailure(log, name, orderId, err));
    // A look that the shutdown cut off says nothing about the processor.
    if (look) await applyLook(parts, processor, orderId, { look, startedAt, hook });
    else if (!stopping.signal.aborted) await recordFailedLook(parts, orderId);
  }

  return {
    start: () => polling.start(),
    async stop() {
      stopping.abort();
      await polling.stop();
      await running.wait();
    },
    wake: () => polling.wake(),
  };
}

/** What a node is to do now. */
type Work = ReturnType<typeof toWork>;

function toWork({ work: kind, ...row }: sql.TakeWorkRow) {
  if (kind === "post") return { kind, orderId: row.orderId };
  if (kind === "bonus") return { kind, codeId: row.orderId, accountId: row.externalId };
  return { kind, ...row };
}

type LookWork = Extract<Work, { kind: "look" }>;

function reportFailure(log: Log, processor: string, orderId: string, err: unknown): undefined {
  log.warn(
    { code: "processor_silent", processor, orderId, err },
    "a processor did not answer a look",
  );
  return undefined;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** repeated by itself; look at the processor and the database if it goes on */
    order_work_failed: true;
    /** payments are credited late; look at the database */
    orders_unread: true;
  }
}
