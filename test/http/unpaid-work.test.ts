// Large requests that pay for nothing: how long their key waits, and that nobody else does.

import { describe, expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { smallBodyBytes, UnpaidWork, type Work } from "../../src/http/unpaid-work.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";
import {
  chatHeaders,
  nativeBody,
  nativeHeaders,
  post,
  postNative,
  startHttpServer,
} from "../support/http-server.ts";

const large = 1_000_000;

/** Begins a request of a key. `work` is undefined while it waits. */
function begin(unpaidWork: UnpaidWork, keyId: string, bytes: number | undefined = large) {
  const request: { work?: Work; error?: unknown } = {};
  Promise.resolve(unpaidWork.begin(keyId, bytes)).then(
    (work) => {
      request.work = work;
    },
    (error: unknown) => {
      request.error = error;
    },
  );
  return request;
}

/** The requests that have begun. */
async function begun(requests: readonly { work?: Work }[]): Promise<number> {
  await runPendingTasks();
  return requests.filter(({ work }) => work !== undefined).length;
}

describe("a key", () => {
  test("whose requests are paid for never waits", async () => {
    const unpaidWork = new UnpaidWork(new ManualClock());
    for (let index = 0; index < 100; index++) {
      const request = begin(unpaidWork, "a");
      expect(await begun([request])).toBe(1);
      request.work?.end();
    }
  });

  test("waits until its unpaid work is forgotten, ten seconds at most, and others do not", async () => {
    const clock = new ManualClock();
    const unpaidWork = new UnpaidWork(clock);
    const first = begin(unpaidWork, "a");
    await begun([first]);
    first.work?.end(5_000);
    const [second, other] = [begin(unpaidWork, "a"), begin(unpaidWork, "b")];
    await clock.advance(9_999);
    expect(await begun([second, other])).toBe(1);
    await clock.advance(1);
    expect(await begun([second])).toBe(1);
  });

  test("that waits runs its requests one by one", async () => {
    const clock = new ManualClock();
    const unpaidWork = new UnpaidWork(clock);
    const first = begin(unpaidWork, "a");
    await begun([first]);
    first.work?.end(27);
    const requests = [begin(unpaidWork, "a"), begin(unpaidWork, "a"), begin(unpaidWork, "a")];
    await clock.advance(1_000);
    expect(await begun(requests)).toBe(1);
    await clock.advance(60_000);
    expect(await begun(requests)).toBe(1);
    requests[0]?.work?.end();
    expect(await begun(requests)).toBe(2);
    // Each counts once, and after the first call too.
    requests[1]?.work?.end();
    requests[1]?.work?.end(60);
    requests[1]?.work?.end(60);
    expect(await begun(requests)).toBe(3);
  });

  test("that waits still gets answers to its small requests", async () => {
    const unpaidWork = new UnpaidWork(new ManualClock());
    const first = begin(unpaidWork, "a");
    await begun([first]);
    first.work?.end(1_000);
    const requests = [smallBodyBytes, smallBodyBytes + 1, undefined].map((bytes) => {
      const request: { work?: Work } = {};
      void Promise.resolve(unpaidWork.begin("a", bytes)).then((work) =>
        Object.assign(request, { work }),
      );
      return request;
    });
    expect(await begun(requests)).toBe(1);
  });

  test("of which a hundred requests wait gets 429 for the next", async () => {
    const unpaidWork = new UnpaidWork(new ManualClock());
    const first = begin(unpaidWork, "a");
    await begun([first]);
    first.work?.end(1_000);
    const requests = Array.from({ length: 101 }, () => begin(unpaidWork, "a"));
    expect(await begun(requests)).toBe(0);
    expect(requests.filter(({ error }) => error instanceof ApiError)).toHaveLength(1);
    expect(requests.at(-1)?.error).toMatchObject({ reason: "too_many_bodies" });
  });
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
