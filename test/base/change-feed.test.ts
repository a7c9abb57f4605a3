import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type ChangePage, createFeed } from "../../src/base/change-feed.ts";
import { createLog } from "../../src/base/log.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A feed whose reads the test answers. `reported`: the changes that it reported. */
function feedOf(answer: (since: Date | undefined) => Promise<ChangePage>) {
  const since: (Date | undefined)[] = [];
  const reported: string[] = [];
  let cleaned = 0;
  const feed = createFeed({
    source: {
      name: "keys",
      read: (from) => {
        since.push(from);
        return answer(from);
      },
      clean: async () => {
        cleaned += 1;
      },
    },
    onChange: (id) => reported.push(id),
    log: createLog("silent"),
  });
  return { feed, since, reported, cleaned: () => cleaned };
}

const page = (at: number, ...ids: string[]): Promise<ChangePage> =>
  Promise.resolve({
    at: new Date(at),
    changes: ids.map((id) => ({ changeId: id, id: `key_of_${id}` })),
  });

test("the feed is read twice a second from the last successful read, and reports a change once", async () => {
  const answers = [
    () => page(1_000, "a"),
    () => page(1_500, "a", "b"),
    () => Promise.reject(new Error("unreachable")),
    () => page(2_500, "a", "b", "c"),
  ];
  const { feed, since, reported } = feedOf(() => answers.shift()?.() ?? page(3_000));
  feed.start();
  await vi.advanceTimersByTimeAsync(1_600);
  expect(reported).toStrictEqual(["key_of_a", "key_of_b", "key_of_c"]);
  expect(since.map((one) => one?.getTime())).toStrictEqual([undefined, 1_000, 1_500, 1_500]);
  await feed.stop();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(since.length).toBe(4);
});

test("a hint causes a read at once; a hint during a read causes another read after it", async () => {
  const held: PromiseWithResolvers<ChangePage>[] = [];
  const { feed, since } = feedOf(() => {
    const one = Promise.withResolvers<ChangePage>();
    held.push(one);
    return one.promise;
  });
  feed.start();
  await vi.advanceTimersByTimeAsync(0);
  held[0]?.resolve(await page(1_000));
  await vi.advanceTimersByTimeAsync(10);
  expect(since.length).toBe(1);
  feed.pollSoon();
  feed.pollSoon();
  await vi.advanceTimersByTimeAsync(100);
  expect(since.length).toBe(2);
  feed.pollSoon();
  held[1]?.resolve(await page(1_010));
  await vi.advanceTimersByTimeAsync(100);
  expect(since.length).toBe(3);
  held[2]?.resolve(await page(1_020));
  await vi.advanceTimersByTimeAsync(400);
  expect(since.length).toBe(3);
  await feed.stop();
});

test("a flood of hints causes at most ten reads a second, one at a time", async () => {
  let reading = 0;
  const { feed, since } = feedOf(async () => {
    reading += 1;
    await new Promise((resolve) => setTimeout(resolve, 20));
    reading -= 1;
    expect(reading).toBe(0);
    return { at: new Date(), changes: [] };
  });
  feed.start();
  for (let ms = 0; ms < 1_150; ms++) {
    feed.pollSoon();
    await vi.advanceTimersByTimeAsync(1);
  }
  expect(since.length).toBe(10);
  // A hint after a pause causes a read at once.
  await vi.advanceTimersByTimeAsync(300);
  const before = since.length;
  feed.pollSoon();
  await vi.advanceTimersByTimeAsync(0);
  expect(since.length).toBe(before + 1);
  const stopped = feed.stop();
  await vi.advanceTimersByTimeAsync(20);
  await stopped;
});

test("old changes are removed every ten minutes", async () => {
  const { feed, cleaned } = feedOf(() => page(Date.now()));
  feed.start();
  await vi.advanceTimersByTimeAsync(21 * 60_000);
  expect(cleaned()).toBe(2);
  await feed.stop();
});

test("the feed is current while its reads succeed, and no longer a second after they fail", async () => {
  let isReachable = true;
  const { feed } = feedOf(() =>
    isReachable ? page(Date.now()) : Promise.reject(new Error("unreachable")),
  );
  expect(feed.isCurrent()).toBe(false);
  feed.start();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(feed.isCurrent()).toBe(true);
  isReachable = false;
  await vi.advanceTimersByTimeAsync(1_100);
  expect(feed.isCurrent()).toBe(false);
  isReachable = true;
  await vi.advanceTimersByTimeAsync(600);
  expect(feed.isCurrent()).toBe(true);
  await feed.stop();
});
