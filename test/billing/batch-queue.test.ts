import { expect, test, vi } from "vitest";
import { BatchQueue, type BatchQueueSettings } from "../../src/billing/batch-queue.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";

class Unconfirmed extends Error {}
class Unsent extends Error {}
class Blocked extends Error {}

const usual: Omit<BatchQueueSettings<string, string>, "runBlocked"> = {
  batchMax: 3,
  queueMax: 10,
  pauseMs: 0,
  maxWaitMs: Number.POSITIVE_INFINITY,
  classify(error) {
    if (error instanceof Unsent) return "unsent";
    if (error instanceof Blocked) return "blocked";
    return error instanceof Unconfirmed ? "unconfirmed" : "rejected";
  },
  // Items are letters followed by a number.
  groupOf: (item) => item.replace(/\d+$/, ""),
};

/** Batches that the test completes or fails. */
function playedBatches() {
  const batches: {
    items: readonly string[];
    isRepeat: boolean;
    answer: PromiseWithResolvers<readonly string[]>;
  }[] = [];
  const run = (items: readonly string[], isRepeat: boolean) => {
    const answer = Promise.withResolvers<readonly string[]>();
    batches.push({ items, isRepeat, answer });
    return answer.promise;
  };
  const next = async (index: number) => {
    await vi.waitFor(() => expect(batches.length).toBeGreaterThan(index));
    const batch = batches[index];
    if (!batch) throw new Error("no batch");
    return batch;
  };
  return {
    batches,
    run,
    next,
    /** Completes the batch of this number with its items in upper case. */
    async pass(index: number) {
      const { items, answer } = await next(index);
      answer.resolve(items.map((item) => item.toUpperCase()));
      return items;
    },
    async fail(index: number, error: Error) {
      (await next(index)).answer.reject(error);
    },
  };
}

/** A queue over a database that the test plays: each batch waits for `pass` or `fail`. */
function playedQueue(more: Partial<BatchQueueSettings<string, string>> = {}) {
  const { run, ...played } = playedBatches();
  const { run: runBlocked, ...separate } = playedBatches();
  return {
    queue: new BatchQueue<string, string>(run, { ...usual, runBlocked, ...more }),
    ...played,
    separate,
  };
}

test("a lone item runs at once, and later items share the next batch", async () => {
  const { queue, batches, pass } = playedQueue();
  const first = queue.submit("a");
  await pass(0);
  expect(await first).toBe("A");
  const more = ["b", "c", "d", "e", "f"].map((item) => queue.submit(item));
  expect(await pass(1)).toEqual(["b", "c", "d"]);
  expect(await pass(2)).toEqual(["e", "f"]);
  expect(await Promise.all(more)).toEqual(["B", "C", "D", "E", "F"]);
  expect(batches).toHaveLength(3);
});

test("a batch is a repeat once an earlier one with some of its items may have been committed", async () => {
  const { queue, batches, separate, fail, pass } = playedQueue();
  const all = ["a1", "b1"].map((item) => queue.submit(item));
  await fail(0, new Unsent());
  await fail(1, new Unconfirmed());
  all.push(queue.submit("c1"));
  await fail(2, new Unsent());
  await fail(3, new Blocked());
  await separate.fail(0, new Unsent());
  for (const group of [1, 2, 3]) await separate.pass(group);
  const late = queue.submit("d1");
  await pass(4);
  await Promise.all([...all, late]);
  const seen = (played: typeof batches) =>
    played.map(({ items, isRepeat }) => `${items.join("+")} ${isRepeat}`);
  expect(seen(batches)).toEqual([
    "a1+b1 false",
    "a1+b1 false",
    "a1+b1+c1 true",
    "a1+b1+c1 true",
    "d1 false",
  ]);
  expect(seen(separate.batches).toSorted()).toEqual(
    ["a1 true", "a1 true", "b1 true", "c1 false"].toSorted(),
  );
});

test("items of a batch that was rejected run one by one, as repeats", async () => {
  const { queue, batches, fail, pass } = playedQueue();
  const all = ["a1", "b1"].map((item) => queue.submit(item));
  await fail(0, new Error("a value is at fault"));
  await pass(1);
  await pass(2);
  await Promise.all(all);
  expect(batches.map(({ isRepeat }) => isRepeat)).toEqual([false, true, true]);
});

test("one batch is in flight at a time", async () => {
  const { queue, batches, next, pass } = playedQueue();
  const all = ["a", "b", "c", "d"].map((item) => queue.submit(item));
  await next(0);
  await new Promise((resolve) => setImmediate(resolve));
  expect(batches).toHaveLength(1);
  await pass(0);
  await pass(1);
  await Promise.all(all);
});

test("an unconfirmed batch is repeated with the same items in the same order, before all others", async () => {
  const { queue, fail, pass } = playedQueue();
  const all = ["a", "b"].map((item) => queue.submit(item));
  await fail(0, new Unconfirmed());
  const late = queue.submit("c");
  expect(await pass(1)).toEqual(["a", "b", "c"]);
  expect(await Promise.all([...all, late])).toEqual(["A", "B", "C"]);
});

test("a rejected item does not fail the other items of its batch", async () => {
  const { queue, fail, pass } = playedQueue();
  const all = Promise.allSettled(["a", "bad", "c"].map((item) => queue.submit(item)));
  await fail(0, new Error("rejected"));
  expect(await pass(1)).toEqual(["a"]);
  await fail(2, new Error("rejected"));
  expect(await pass(3)).toEqual(["c"]);
  expect(await all).toMatchObject([
    { value: "A" },
    { reason: { message: "rejected" } },
    { value: "C" },
  ]);
});

test("items that fail unconfirmed when they run one by one are repeated", async () => {
  const { queue, fail, pass } = playedQueue();
  const all = Promise.all(["a", "b"].map((item) => queue.submit(item)));
  await fail(0, new Error("rejected"));
  await fail(1, new Unconfirmed());
  expect(await pass(2)).toEqual(["b"]);
  expect(await pass(3)).toEqual(["a"]);
  expect(await all).toEqual(["A", "B"]);
});

test("a full queue rejects new items at once, and completes the others", async () => {
  const { queue, pass } = playedQueue({ queueMax: 4, batchMax: 4 });
  const all = Promise.allSettled(["a", "b", "c", "d", "e"].map((item) => queue.submit(item)));
  await pass(0);
  expect(await all).toMatchObject([
    { value: "A" },
    { value: "B" },
    { value: "C" },
    { value: "D" },
    { reason: { reason: "gateway_unavailable" } },
  ]);
});

test("an item that waited too long for the database fails", async () => {
  const { queue, fail } = playedQueue({ maxWaitMs: -1 });
  const waiting = queue.submit("a");
  const failed = expect(waiting).rejects.toMatchObject({ reason: "billing_unavailable" });
  await fail(0, new Unconfirmed());
  await failed;
});

test("a drained queue has completed its items and accepts no more", async () => {
  const { queue, fail, pass } = playedQueue();
  const all = Promise.all(["a", "b", "c", "d"].map((item) => queue.submit(item)));
  const drained = queue.drain(20_000);
  await fail(0, new Unconfirmed());
  await pass(1);
  await pass(2);
  await drained;
  expect(await all).toEqual(["A", "B", "C", "D"]);
  await expect(queue.submit("e")).rejects.toMatchObject({ reason: "gateway_unavailable" });
});

test("blocked groups run separately, one by one, and other groups do not wait for them", async () => {
  const { queue, fail, pass, separate } = playedQueue({ batchMax: 4 });
  const all = Promise.all(["a1", "b1", "a2", "c1"].map((item) => queue.submit(item)));
  const queued = ["a3", "d1"].map((item) => queue.submit(item));
  await fail(0, new Blocked());
  expect(await pass(1)).toEqual(["d1"]);
  // Later items of a blocked group join its queue.
  const late = ["a4", "e1"].map((item) => queue.submit(item));
  expect(await pass(2)).toEqual(["e1"]);
  await separate.fail(0, new Blocked());
  expect(await separate.pass(1)).toEqual(["b1"]);
  expect(await separate.pass(2)).toEqual(["c1"]);
  expect(await separate.pass(3)).toEqual(["a1", "a2", "a3", "a4"]);
  expect(await Promise.all([all, ...queued, ...late])).toEqual([
    ["A1", "B1", "A2", "C1"],
    "A3",
    "D1",
    "A4",
    "E1",
  ]);
  const after = queue.submit("a5");
  expect(await pass(3)).toEqual(["a5"]);
  expect(await after).toBe("A5");
});

test("a group that is not blocked itself returns to the queue after one batch", async () => {
  const { queue, fail, pass, separate } = playedQueue({ batchMax: 2 });
  const all = Promise.all(["a1", "b1", "b2", "b3", "b4", "b5"].map((item) => queue.submit(item)));
  await fail(0, new Blocked());
  await separate.fail(0, new Blocked());
  expect(await separate.pass(1)).toEqual(["b1", "b2"]);
  expect(await pass(1)).toEqual(["b3", "b4"]);
  expect(await pass(2)).toEqual(["b5"]);
  expect(await separate.pass(2)).toEqual(["a1"]);
  expect(await all).toEqual(["A1", "B1", "B2", "B3", "B4", "B5"]);
});

test("an item that is blocked too long fails", async () => {
  const { queue, fail, separate } = playedQueue({ maxWaitMs: -1 });
  const waiting = queue.submit("a1");
  const failed = expect(waiting).rejects.toMatchObject({ reason: "billing_unavailable" });
  await fail(0, new Blocked());
  await separate.fail(0, new Blocked());
  await failed;
});

test("only failed items that may have been committed are reported as unconfirmed", async () => {
  const givenUp: string[] = [];
  const { queue, fail } = playedQueue({
    maxWaitMs: -1,
    queueMax: 3,
    onUnconfirmed: (item) => givenUp.push(item),
  });
  const all = Promise.allSettled(["a", "b", "c", "too many"].map((item) => queue.submit(item)));
  await fail(0, new Unsent());
  await all;
  expect(givenUp).toEqual([]);
  const more = Promise.allSettled(["d", "e"].map((item) => queue.submit(item)));
  await fail(1, new Unconfirmed());
  await more;
  expect(givenUp).toEqual(["d", "e"]);
});

test("an item without an outcome fails", async () => {
  const { queue, next } = playedQueue();
  const all = Promise.allSettled(["a", "b"].map((item) => queue.submit(item)));
  (await next(0)).answer.resolve(["A"]);
  expect(await all).toMatchObject([
    { value: "A" },
    { reason: { message: expect.stringContaining("fewer outcomes") } },
  ]);
});

test("a drain runs no batch for groups whose items have failed", async () => {
  const { queue, fail, separate } = playedQueue();
  const all = Promise.allSettled(["a1", "b1", "c1"].map((item) => queue.submit(item)));
  await fail(0, new Blocked());
  await vi.waitFor(() => expect(separate.batches).toHaveLength(1));
  const left = queue.drain(0);
  await separate.fail(0, new Blocked());
  expect([await left, separate.batches.length]).toEqual([3, 1]);
  await all;
});

test("a drain ends in time and returns the number of failed items", async () => {
  const { queue, batches, fail, separate } = playedQueue();
  const all = Promise.allSettled(["a1", "a2", "a3", "b1", "b2"].map((item) => queue.submit(item)));
  await fail(0, new Blocked());
  await fail(1, new Unconfirmed());
  await vi.waitFor(() => expect([batches.length, separate.batches.length]).toEqual([3, 1]));
  const left = queue.drain(0);
  await separate.fail(0, new Blocked());
  await fail(2, new Unconfirmed());
  expect(await left).toBe(5);
  expect((await all).map((one) => one.status)).toEqual(Array(5).fill("rejected"));
  await expect(queue.submit("c")).rejects.toMatchObject({ reason: "gateway_unavailable" });
});

test("a failure of the database is remembered until a batch or a trial succeeds", async () => {
  const { queue, fail, pass } = playedQueue({ maxWaitMs: 0 });
  const failing = queue.submit("a");
  expect(queue.needsTrial).toBe(false);
  await fail(0, new Unconfirmed());
  await expect(failing).rejects.toThrow();
  await vi.waitFor(() => expect(queue.needsTrial).toBe(true));
  expect(queue.stalledMs).toBeGreaterThan(0);
  queue.noteSuccess();
  expect([queue.needsTrial, queue.stalledMs]).toEqual([false, 0]);

  const failed = queue.submit("b");
  await fail(1, new Unconfirmed());
  await expect(failed).rejects.toThrow();
  const passing = queue.submit("c");
  await pass(2);
  await passing;
  expect([queue.needsTrial, queue.stalledMs]).toEqual([false, 0]);
});

test("a stall is reported once, after a second of failures, and so is its end", async () => {
  const clock = new ManualClock();
  clock.skip(10_000);
  const [onStalled, onResumed] = [vi.fn(), vi.fn()];
  const { queue, pass, fail } = playedQueue({ clock, pauseMs: 500, onStalled, onResumed });
  const done = queue.submit("a1");
  const full = new Unconfirmed("the disk is full");
  for (let failed = 0; failed < 5; failed++) {
    await fail(failed, full);
    await runPendingTasks();
    expect([onStalled.mock.calls.length, queue.needsTrial]).toEqual([failed < 2 ? 0 : 1, false]);
    await clock.advance(500);
  }
  expect(onStalled.mock.calls).toEqual([[full]]);
  expect(onResumed).not.toHaveBeenCalled();
  await pass(5);
  expect(await done).toBe("A1");
  const next = queue.submit("a2");
  await pass(6);
  await next;
  expect(onResumed).toHaveBeenCalledTimes(1);
});

test("a stall that nobody asked to hear of ends as well", async () => {
  const clock = new ManualClock();
  const { queue, pass, fail } = playedQueue({ clock, pauseMs: 1_000 });
  const done = queue.submit("a1");
  for (const failed of [0, 1]) {
    await fail(failed, new Unconfirmed());
    await runPendingTasks();
    await clock.advance(1_000);
  }
  await pass(2);
  expect(await done).toBe("A1");
});

test("a queue knows its items, for how long nothing succeeded, and if it was served lately", async () => {
  const clock = new ManualClock();
  clock.skip(10_000);
  const { queue, next, pass, fail, separate } = playedQueue({ clock });
  const state = () => [queue.size, queue.stalledMs, queue.servedLately];
  expect(state()).toEqual([0, 0, false]);
  const all = ["a1", "b1", "c1", "d1"].map((item) => queue.submit(item));
  expect(state()).toEqual([4, 0, false]);
  await next(0);
  clock.skip(700);
  expect(state()).toEqual([4, 700, false]);
  await pass(0);
  await next(1);
  expect(state()).toEqual([1, 0, true]);
  clock.skip(4_999);
  expect(state()).toEqual([1, 4_999, true]);
  clock.skip(1);
  expect(state()).toEqual([1, 5_000, false]);
  await fail(1, new Blocked());
  await separate.next(0);
  expect(state()).toEqual([1, 5_000, false]);
  await separate.pass(0);
  await Promise.all(all);
  expect(state()).toEqual([0, 0, true]);
});

test("batches are measured, and failed ones counted by their class", async () => {
  const clock = new ManualClock();
  clock.skip(10_000);
  const metrics = { onBatch: vi.fn(), onFailure: vi.fn() };
  const { queue, next, pass, fail } = playedQueue({ clock, metrics });
  const all = ["a1", "b1"].map((item) => queue.submit(item));
  await fail(0, new Error("rejected"));
  await next(1);
  clock.skip(30);
  await pass(1);
  await pass(2);
  await Promise.all(all);
  expect(metrics.onFailure.mock.calls).toEqual([["rejected"]]);
  expect(metrics.onBatch.mock.calls).toEqual([
    [30, 1],
    [0, 1],
  ]);
});

test("an item that the database rejects is no failure of the database, and is not tried again", async () => {
  const { queue, batches, fail, pass } = playedQueue();
  const failed = expect(queue.submit("a1")).rejects.toThrow("rejected");
  await fail(0, new Error("rejected"));
  await failed;
  expect([queue.needsTrial, queue.stalledMs, queue.size]).toEqual([false, 0, 0]);
  const after = queue.submit("a2");
  expect(await pass(1)).toEqual(["a2"]);
  expect([await after, batches.length]).toEqual(["A2", 2]);
});

test("items that turn out to be blocked when they run one by one wait on their own", async () => {
  const onBlocked = vi.fn();
  const { queue, fail, pass, separate } = playedQueue({ onBlocked });
  const all = ["a1", "b1"].map((item) => queue.submit(item));
  const blocked = new Blocked();
  await fail(0, new Error("rejected"));
  await fail(1, blocked);
  expect(await pass(2)).toEqual(["b1"]);
  expect(await separate.pass(0)).toEqual(["a1"]);
  expect(await Promise.all(all)).toEqual(["A1", "B1"]);
  expect(onBlocked.mock.calls).toEqual([[blocked]]);
});

test("a blocked group keeps its items, whatever becomes of each of them", async () => {
  const { queue, fail, separate } = playedQueue();
  const all = ["a1", "a2"].map((item) => queue.submit(item));
  await fail(0, new Blocked());
  await separate.fail(0, new Error("rejected"));
  await separate.fail(1, new Unconfirmed());
  await separate.fail(2, new Blocked());
  expect(await separate.pass(3)).toEqual(["a1", "a2"]);
  expect(await Promise.all(all)).toEqual(["A1", "A2"]);
});

test("an item waits as long as it may, and its error says when to come back", async () => {
  const clock = new ManualClock();
  const { queue, fail } = playedQueue({ clock, pauseMs: 100, maxWaitMs: 200, queueMax: 1 });
  const error = queue.submit("a1").catch((reason: unknown) => reason);
  const full = await queue.submit("a2").catch((reason: unknown) => reason);
  expect(full).toMatchObject({ reason: "gateway_unavailable", facts: { retryAfterMs: 1_000 } });
  let isOver = false;
  void error.then(() => {
    isOver = true;
  });
  for (const [failed, over] of [false, false, true].entries()) {
    await fail(failed, new Unconfirmed());
    await runPendingTasks();
    await clock.advance(100);
    expect(isOver).toBe(over);
  }
  const expected = { reason: "billing_unavailable", facts: { retryAfterMs: 1_000 } };
  expect(await error).toMatchObject(expected);
  // It failed before the drain.
  expect(await queue.drain(0)).toBe(0);
});

test("a drain counts the items of a batch that the database does not answer", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const clock = new ManualClock();
    const { run, batches } = playedBatches();
    const queue = new BatchQueue<string, string>(run, { ...usual, runBlocked: run, clock });
    const all = ["a1", "b1", "c1", "d1"].map((item) => queue.submit(item));
    const outcomes = Promise.allSettled(all);
    await runPendingTasks();
    expect(batches).toHaveLength(1);
    const left = queue.drain(50);
    await clock.advance(50);
    // The one that no batch has fails at once.
    await expect(all[3]).rejects.toMatchObject({ reason: "billing_unavailable" });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await left).toBe(4);
    batches[0]?.answer.resolve(["A1", "B1", "C1"]);
    expect((await outcomes).map(({ status }) => status)).toEqual([
      ...["fulfilled", "fulfilled", "fulfilled", "rejected"],
    ]);
  } finally {
    vi.useRealTimers();
  }
});
