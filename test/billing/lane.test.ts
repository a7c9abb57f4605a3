import { expect, test, vi } from "vitest";
import { BatchQueue, type BatchQueueSettings } from "../../src/billing/batch-queue.ts";

class Passing extends Error {}
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
    return error instanceof Passing ? "unconfirmed" : "rejected";
  },
  // Items are letters and then a number.
  groupOf: (item) => item.replace(/\d+$/, ""),
};

/** Batches that the test answers. */
function playedBatches() {
  const batches: { items: readonly string[]; answer: PromiseWithResolvers<readonly string[]> }[] =
    [];
  const run = (items: readonly string[]) => {
    const answer = Promise.withResolvers<readonly string[]>();
    batches.push({ items, answer });
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
    /** Answers the batch of this number, in upper case. */
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

/** A lane over a database that the test plays: each batch waits for its answer. */
function playedLane(more: Partial<BatchQueueSettings<string, string>> = {}) {
  const { run, ...played } = playedBatches();
  const { run: runBlocked, ...apart } = playedBatches();
  return {
    lane: new BatchQueue<string, string>(run, { ...usual, runBlocked, ...more }),
    ...played,
    apart,
  };
}

test("one item alone waits for nobody, and what comes meanwhile shares the next batch", async () => {
  const { lane, batches, pass } = playedLane();
  const first = lane.submit("a");
  await pass(0);
  expect(await first).toBe("A");
  const more = ["b", "c", "d", "e", "f"].map((item) => lane.submit(item));
  expect(await pass(1)).toEqual(["b", "c", "d"]);
  expect(await pass(2)).toEqual(["e", "f"]);
  expect(await Promise.all(more)).toEqual(["B", "C", "D", "E", "F"]);
  expect(batches).toHaveLength(3);
});

test("one batch is in flight at a time", async () => {
  const { lane, batches, next, pass } = playedLane();
  const all = ["a", "b", "c", "d"].map((item) => lane.submit(item));
  await next(0);
  await new Promise((resolve) => setImmediate(resolve));
  expect(batches).toHaveLength(1);
  await pass(0);
  await pass(1);
  await Promise.all(all);
});

test("a failure that passes is tried again with the same items in the same order, before any other", async () => {
  const { lane, fail, pass } = playedLane();
  const all = ["a", "b"].map((item) => lane.submit(item));
  await fail(0, new Passing());
  const late = lane.submit("c");
  expect(await pass(1)).toEqual(["a", "b", "c"]);
  expect(await Promise.all([...all, late])).toEqual(["A", "B", "C"]);
});

test("one item that the database refuses does not take its neighbours along", async () => {
  const { lane, fail, pass } = playedLane();
  const all = Promise.allSettled(["a", "bad", "c"].map((item) => lane.submit(item)));
  await fail(0, new Error("refused"));
  expect(await pass(1)).toEqual(["a"]);
  await fail(2, new Error("refused"));
  expect(await pass(3)).toEqual(["c"]);
  expect(await all).toMatchObject([
    { value: "A" },
    { reason: { message: "refused" } },
    { value: "C" },
  ]);
});

test("neighbours whose own try met a failure that passes are tried again", async () => {
  const { lane, fail, pass } = playedLane();
  const all = Promise.all(["a", "b"].map((item) => lane.submit(item)));
  await fail(0, new Error("refused"));
  await fail(1, new Passing());
  expect(await pass(2)).toEqual(["b"]);
  expect(await pass(3)).toEqual(["a"]);
  expect(await all).toEqual(["A", "B"]);
});

test("beyond its bound the queue refuses before any work, and nobody is lost", async () => {
  const { lane, pass } = playedLane({ queueMax: 4, batchMax: 4 });
  const all = Promise.allSettled(["a", "b", "c", "d", "e"].map((item) => lane.submit(item)));
  await pass(0);
  expect(await all).toMatchObject([
    { value: "A" },
    { value: "B" },
    { value: "C" },
    { value: "D" },
    { reason: { reason: "gateway_unavailable" } },
  ]);
});

test("whoever has waited too long for the database is told so", async () => {
  const { lane, fail } = playedLane({ maxWaitMs: -1 });
  const waiting = lane.submit("a");
  const failed = expect(waiting).rejects.toMatchObject({ reason: "billing_unavailable" });
  await fail(0, new Passing());
  await failed;
});

test("a drained lane has answered everybody, and takes nothing more", async () => {
  const { lane, fail, pass } = playedLane();
  const all = Promise.all(["a", "b", "c", "d"].map((item) => lane.submit(item)));
  const drained = lane.drain(20_000);
  await fail(0, new Passing());
  await pass(1);
  await pass(2);
  await drained;
  expect(await all).toEqual(["A", "B", "C", "D"]);
  await expect(lane.submit("e")).rejects.toMatchObject({ reason: "gateway_unavailable" });
});

test("what is blocked runs apart, group by group, and nobody else waits for it", async () => {
  const { lane, fail, pass, apart } = playedLane({ batchMax: 4 });
  const all = Promise.all(["a1", "b1", "a2", "c1"].map((item) => lane.submit(item)));
  const queued = ["a3", "d1"].map((item) => lane.submit(item));
  await fail(0, new Blocked());
  expect(await pass(1)).toEqual(["d1"]);
  // What comes later of a blocked group goes where the others of it are.
  const late = ["a4", "e1"].map((item) => lane.submit(item));
  expect(await pass(2)).toEqual(["e1"]);
  await apart.fail(0, new Blocked());
  expect(await apart.pass(1)).toEqual(["b1"]);
  expect(await apart.pass(2)).toEqual(["c1"]);
  expect(await apart.pass(3)).toEqual(["a1", "a2", "a3", "a4"]);
  expect(await Promise.all([all, ...queued, ...late])).toEqual([
    ["A1", "B1", "A2", "C1"],
    "A3",
    "D1",
    "A4",
    "E1",
  ]);
  const after = lane.submit("a5");
  expect(await pass(3)).toEqual(["a5"]);
  expect(await after).toBe("A5");
});

test("a group that has nothing in its way is back among the others after one batch", async () => {
  const { lane, fail, pass, apart } = playedLane({ batchMax: 2 });
  const all = Promise.all(["a1", "b1", "b2", "b3", "b4", "b5"].map((item) => lane.submit(item)));
  await fail(0, new Blocked());
  await apart.fail(0, new Blocked());
  expect(await apart.pass(1)).toEqual(["b1", "b2"]);
  expect(await pass(1)).toEqual(["b3", "b4"]);
  expect(await pass(2)).toEqual(["b5"]);
  expect(await apart.pass(2)).toEqual(["a1"]);
  expect(await all).toEqual(["A1", "B1", "B2", "B3", "B4", "B5"]);
});

test("whoever is blocked too long is told so", async () => {
  const { lane, fail, apart } = playedLane({ maxWaitMs: -1 });
  const waiting = lane.submit("a1");
  const failed = expect(waiting).rejects.toMatchObject({ reason: "billing_unavailable" });
  await fail(0, new Blocked());
  await apart.fail(0, new Blocked());
  await failed;
});

test("only those whose batch may have been committed are given up as unsure", async () => {
  const givenUp: string[] = [];
  const { lane, fail } = playedLane({
    maxWaitMs: -1,
    queueMax: 3,
    onUnconfirmed: (item) => givenUp.push(item),
  });
  const all = Promise.allSettled(["a", "b", "c", "too many"].map((item) => lane.submit(item)));
  await fail(0, new Unsent());
  await all;
  expect(givenUp).toEqual([]);
  const more = Promise.allSettled(["d", "e"].map((item) => lane.submit(item)));
  await fail(1, new Passing());
  await more;
  expect(givenUp).toEqual(["d", "e"]);
});

test("an item without an outcome is refused, not forgotten", async () => {
  const { lane, next } = playedLane();
  const all = Promise.allSettled(["a", "b"].map((item) => lane.submit(item)));
  (await next(0)).answer.resolve(["A"]);
  expect(await all).toMatchObject([
    { value: "A" },
    { reason: { message: expect.stringContaining("fewer outcomes") } },
  ]);
});

test("a drain asks nothing for groups that nobody waits for any more", async () => {
  const { lane, fail, apart } = playedLane();
  const all = Promise.allSettled(["a1", "b1", "c1"].map((item) => lane.submit(item)));
  await fail(0, new Blocked());
  await vi.waitFor(() => expect(apart.batches).toHaveLength(1));
  const left = lane.drain(0);
  await apart.fail(0, new Blocked());
  expect([await left, apart.batches.length]).toEqual([3, 1]);
  await all;
});

test("a drain ends in time, and says how many it leaves", async () => {
  const { lane, batches, fail, apart } = playedLane();
  const all = Promise.allSettled(["a1", "a2", "a3", "b1", "b2"].map((item) => lane.submit(item)));
  await fail(0, new Blocked());
  await fail(1, new Passing());
  await vi.waitFor(() => expect([batches.length, apart.batches.length]).toEqual([3, 1]));
  const left = lane.drain(0);
  await apart.fail(0, new Blocked());
  await fail(2, new Passing());
  expect(await left).toBe(5);
  expect((await all).map((one) => one.status)).toEqual(Array(5).fill("rejected"));
  await expect(lane.submit("c")).rejects.toMatchObject({ reason: "gateway_unavailable" });
});
