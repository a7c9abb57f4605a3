// A lease ends by itself, in real time, when its holder is silent.

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { Lease } from "../../src/postgres/lease.ts";
import { freshDatabase } from "../support/database.ts";

test("a lease is its holder's until its time is over, and then whoever takes it has it", async () => {
  const { postgres, drop } = await freshDatabase();
  const leaseOf = (holder: string) => new Lease(postgres, { task: "test", holder, ms: 1_500 });
  const [one, other] = [leaseOf("one"), leaseOf("other")];
  expect(await one.take()).toBe(true);
  expect(await other.take()).toBe(false);
  await delay(1_000);
  // It is taken again, and lasts from then on.
  expect(await one.take()).toBe(true);
  await delay(1_000);
  expect(await other.take()).toBe(false);
  await delay(1_000);
  expect(await other.take()).toBe(true);
  expect(await one.take()).toBe(false);
  // A task that rests is nobody's.
  await other.release(60_000);
  expect([await one.take(), await other.take()]).toEqual([false, false]);
  await drop();
});
