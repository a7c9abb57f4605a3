import { expect, test } from "vitest";
import { WaitGroup } from "../../src/base/wait-group.ts";

test("waiters are released when the last unit of work is done, again after each restart", async () => {
  const group = new WaitGroup();
  await group.wait();
  for (let round = 0; round < 2; round++) {
    const events: string[] = [];
    group.add();
    group.add();
    const waits = ["first", "second"].map((name) => group.wait().then(() => events.push(name)));
    group.done();
    await Promise.resolve();
    expect([group.count, events]).toStrictEqual([1, []]);
    group.done();
    await Promise.all(waits);
    expect([group.count, events]).toStrictEqual([0, ["first", "second"]]);
  }
});
