// The order in which passwords are hashed: nobody keeps the others from signing in.

import { describe, expect, test } from "vitest";
import { type HashJob, HashLanes } from "../../src/people/hash-lanes.ts";
import { errorOf } from "../support/keys.ts";

/** Jobs whose work ends when a test says so. */
function start() {
  const lanes = new HashLanes();
  const began: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (name: string, job: Partial<HashJob> = {}) =>
    lanes.run({ lane: "sign_in", owner: name, address: "192.0.2.1", ...job }, async () => {
      began.push(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      ends.set(name, resolve);
      await promise;
      return name;
    });
  const end = async (name: string) => {
    await new Promise(setImmediate);
    ends.get(name)?.();
    await new Promise(setImmediate);
  };
  return { lanes, began, run, end };
}
const settled = () => new Promise(setImmediate);

test("two sign-ins run at once, and the next when one has ended", async () => {
  const { began, run, end } = start();
  const all = ["a", "b", "c"].map((name) => run(name));
  await settled();
  expect(began).toEqual(["a", "b"]);
  await end("a");
  expect(began).toEqual(["a", "b", "c"]);
  await end("b");
  await end("c");
  expect(await Promise.all(all)).toEqual(["a", "b", "c"]);
});

test("one change runs at a time, and a sign-in beside it", async () => {
  const { began, run, end } = start();
  const all = ["one", "two"].map((name) => run(name, { lane: "change" }));
  await settled();
  expect(began).toEqual(["one"]);
  all.push(run("a"), run("b"));
  await settled();
  expect(began).toEqual(["one", "a"]);
  // Both lanes wait: they take turns.
  await end("one");
  expect(began).toEqual(["one", "a", "two"]);
  await end("two");
  expect(began).toEqual(["one", "a", "two", "b"]);
  for (const name of ["a", "b"]) await end(name);
  expect(await Promise.all(all)).toEqual(["one", "two", "a", "b"]);
});

test("networks take turns", async () => {
  const { began, run, end } = start();
  const flood = Array.from({ length: 20 }, (_, index) => run(`f${index}`));
  const other = run("other", { address: "198.51.100.7" });
  // The same network: the last 64 bits of an address of IPv6 are the client's own.
  const six = ["2001:db8::1", "2001:db8::2"].map((address) => run(address, { address }));
  await settled();
  await end("f0");
  await end("f1");
  expect(began).toEqual(["f0", "f1", "f2", "other"]);
  await end("f2");
  await end("other");
  expect(began.slice(4)).toEqual(["2001:db8::1", "f3"]);
  await end("2001:db8::1");
  expect(began.at(-1)).toBe("2001:db8::2");
  while (began.length < 23) await end(began.at(-1) ?? "");
  for (const name of began) await end(name);
  expect(await Promise.all([...flood, other, ...six])).toHaveLength(23);
});

describe("refused is", () => {
  test("a second job of its owner, until the first has ended", async () => {
    const { run, end } = start();
    const first = run("ada");
    expect(await errorOf(run("ada"))).toBe("auth_rate_limited");
    expect(await errorOf(run("ada", { lane: "change" }))).toBe("auth_rate_limited");
    await end("ada");
    await first;
    const second = run("ada");
    await end("ada");
    expect(await second).toBe("ada");
  });

  test.for([
    ["sign_in", 2, 100],
    ["change", 1, 20],
  ] as const)("what comes when %s is full", async ([lane, running, waiting]) => {
    const { began, run, end } = start();
    const all = Array.from({ length: running + waiting }, (_, index) => run(`${index}`, { lane }));
    expect(await errorOf(run("late", { lane }))).toBe("gateway_unavailable");
    // The other lane has room.
    const other = run("other", { lane: lane === "change" ? "sign_in" : "change" });
    for (let index = 0; index < running; index++) await end(`${index}`);
    const next = run("next", { lane });
    for (let ended = 0; ended < began.length; ended++) await end(began[ended] ?? "");
    expect(await Promise.all([...all, other, next])).toHaveLength(running + waiting + 2);
  });
});

test("what fails gives its place away", async () => {
  const lanes = new HashLanes();
  const job = { lane: "change", owner: "ada", address: "" } as const;
  const failing = lanes.run(job, () => Promise.reject(new Error("no memory")));
  await expect(failing).rejects.toThrow("no memory");
  expect(await lanes.run(job, async () => "done")).toBe("done");
});
