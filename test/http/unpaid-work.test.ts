// Large requests that pay for nothing: how long their key waits, and that nobody else does.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { type KeyLoad, smallBodyBytes, type Turn } from "../../src/http/key-load.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";
import {
  chatHeaders,
  nativeBody,
  nativeHeaders,
  post,
  postNative,
  startHttpServer,
} from "../support/http-server.ts";
import { keyLoad } from "../support/limits.ts";

const large = 1_000_000;

/** Milliseconds of work for each byte of a body that is not parsed. */
const msPerByte = 35 / (1024 * 1024);

/** Begins a request of a key. `turn` is undefined while it waits. */
function begin(
  load: KeyLoad,
  keyId: string,
  { bytes }: { bytes: number | undefined } = { bytes: large },
) {
  const request: { turn?: Turn; error?: unknown } = {};
  const turn = load.open({ keyId, address: "192.0.2.1" });
  Promise.resolve(turn.take(bytes)).then(
    () => {
      request.turn = turn;
    },
    (error: unknown) => {
      request.error = error;
    },
  );
  return request;
}

/** Ends a request that made `ms` of work and paid for nothing. */
function endUnpaid({ turn }: { readonly turn?: Turn | undefined }, ms: number): void {
  turn?.read(ms / msPerByte);
  turn?.end(false);
}

/** The requests that have begun. */
async function begun(requests: readonly { turn?: Turn }[]): Promise<number> {
  await runPendingTasks();
  return requests.filter(({ turn }) => turn !== undefined).length;
}

describe("a key", () => {
  test("whose requests are paid for never waits", async () => {
    const load = keyLoad({ clock: new ManualClock() });
    for (let index = 0; index < 100; index++) {
      const request = begin(load, "a");
      expect(await begun([request])).toBe(1);
      request.turn?.end(true);
    }
  });

  test("waits until its unpaid work is forgotten, ten seconds at most, and others do not", async () => {
    const clock = new ManualClock();
    const load = keyLoad({ clock });
    const first = begin(load, "a");
    await begun([first]);
    endUnpaid(first, 5_000);
    const [second, other] = [begin(load, "a"), begin(load, "b")];
    await clock.advance(9_999);
    expect(await begun([second, other])).toBe(1);
    await clock.advance(1);
    expect(await begun([second])).toBe(1);
  });

  test("that waits runs its requests one by one", async () => {
    const clock = new ManualClock();
    const load = keyLoad({ clock });
    const first = begin(load, "a");
    await begun([first]);
    endUnpaid(first, 27);
    const requests = [begin(load, "a"), begin(load, "a"), begin(load, "a")];
    await clock.advance(1_000);
    expect(await begun(requests)).toBe(1);
    await clock.advance(60_000);
    expect(await begun(requests)).toBe(1);
    requests[0]?.turn?.end(true);
    expect(await begun(requests)).toBe(2);
    // Each counts once, and after the first call too.
    requests[1]?.turn?.end(true);
    endUnpaid({ turn: requests[1]?.turn }, 60);
    endUnpaid({ turn: requests[1]?.turn }, 60);
    expect(await begun(requests)).toBe(3);
  });

  test("that waits still gets answers to its small requests", async () => {
    const load = keyLoad({ clock: new ManualClock() });
    const first = begin(load, "a");
    await begun([first]);
    endUnpaid(first, 1_000);
    const sizes = [smallBodyBytes, smallBodyBytes + 1, undefined];
    const requests = sizes.map((bytes) => begin(load, "a", { bytes }));
    expect(await begun(requests)).toBe(1);
  });

  test("of which a hundred requests wait gets 429 for the next", async () => {
    const load = keyLoad({ clock: new ManualClock() });
    const first = begin(load, "a");
    await begun([first]);
    endUnpaid(first, 1_000);
    const requests = Array.from({ length: 101 }, () => begin(load, "a"));
    expect(await begun(requests)).toBe(0);
    expect(requests.filter(({ error }) => error instanceof ApiError)).toHaveLength(1);
    expect(requests.at(-1)?.error).toMatchObject({ reason: "too_many_bodies" });
  });
});

test("in any order of calls, memory and turns come back, and only a key that owes waits", async () => {
  const step = fc.record({
    keyId: fc.constantFrom("a", "b"),
    bytes: fc.constantFrom(smallBodyBytes, smallBodyBytes + 1, 1_000_000, undefined),
    act: fc.constantFrom("begin", "accept", "fail", "leave", "pay", "wait", "give up"),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const clock = new ManualClock();
      const load = keyLoad({ clock });
      const running: Turn[] = [];
      const waiting = new Set<Turn>();
      const owed = { a: false, b: false };
      const end = (turn: Turn, act: string) => {
        if (act === "accept") turn.accepted();
        else if (act === "fail") turn.fail(new ApiError("invalid_request"), 400);
        else turn.end(act === "pay");
      };
      for (const { keyId, bytes, act } of steps) {
        if (act === "wait") await clock.advance(5_000);
        else if (act === "give up") for (const turn of waiting) turn.end(false);
        else if (act === "begin") {
          const turn = load.open({ keyId, address: "192.0.2.1" });
          const taking = turn.take(bytes);
          if (taking) {
            expect(owed[keyId]).toBe(true);
            expect(bytes === undefined || bytes > smallBodyBytes).toBe(true);
            waiting.add(turn);
            void taking.then(() => {
              waiting.delete(turn);
              running.push(turn);
            });
          } else running.push(turn);
        } else {
          const turn = running.shift();
          turn?.grow(1_000);
          turn?.read(2_000_000);
          if (turn) end(turn, act);
          // Of which key it was does not matter: either may owe from now on.
          if (turn && act !== "pay" && act !== "accept") owed.a = owed.b = true;
        }
        await runPendingTasks();
      }
      while (running.length + waiting.size > 0) {
        for (const turn of running.splice(0)) end(turn, "pay");
        await clock.advance(10_000);
        await runPendingTasks();
      }
      expect(load.usedBytes).toBe(0);
      await clock.advance(60_000);
      expect(clock.pending).toBe(0);
      for (const keyId of ["a", "b"])
        expect(load.open({ keyId, address: "" }).take(undefined)).toBeUndefined();
    }),
  );
});

describe("a listener makes a key wait", () => {
  const padded = (body: unknown) => JSON.stringify(body).padEnd(2 * 1024 * 1024);
  // The number of such requests in 25 ms of work.
  const cases: [name: string, path: string, body: string, free: number][] = [
    ["after a malformed body", "/v1/messages", padded(nativeBody).slice(0, -1).concat("x"), 1],
    ["after invalid requests", "/v1/chat/completions", padded({ messages: 1 }), 11],
    ["after requests without credits", "/v1/messages", padded(nativeBody), 11],
  ];
  test.each(cases)("%s", async (_, path, body, free) => {
    const clock = new ManualClock();
    const { url, script } = await startHttpServer({ clock });
    script.generate = () => {
      throw new ApiError("credits_exhausted");
    };
    const send = () => post(url, path, path.includes("chat") ? chatHeaders : nativeHeaders, body);
    for (let index = 0; index < free; index++) await (await send()).text();
    let isAnswered = false;
    const next = send().then(() => {
      isAnswered = true;
    });
    await expect.poll(() => clock.pending, { interval: 1 }).toBe(1);
    for (let index = 0; index < 20; index++) expect((await postNative(url)).status).toBe(402);
    expect([isAnswered, clock.pending]).toEqual([false, 1]);
    await clock.advance(10_000);
    await next;
  });

  test("never after requests that a provider has taken", async () => {
    const clock = new ManualClock();
    const { url } = await startHttpServer({ clock });
    for (let index = 0; index < 40; index++)
      expect((await postNative(url, padded(nativeBody))).status).toBe(200);
  });
});
