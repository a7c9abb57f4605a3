// The two gates of a paid answer, over HTTP: nothing happens before its hold is durable, and its
// end waits for the charge. A lock stops the database inside the commit.

import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { type CommitLock, lockCommits } from "../support/commit-lock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, Gate, startFakeProvider } from "../support/provider.ts";
import { nativeAnswer, nativeStream } from "../support/provider-answers.ts";

let provider: FakeProvider;
let gateway: TestGateway;
let lock: CommitLock;
beforeAll(async () => {
  provider = await startFakeProvider();
  gateway = await startTestGateway({
    catalog: readCatalogFile(catalogFor({ real: { kind: "anthropic", url: provider.url } })),
    // The strict order. `overlap.test.ts` tests the other one.
    env: { OVERLAP: "false" },
  });
  lock = await lockCommits(gateway.databaseUrl);
});
afterAll(async () => {
  await lock.stop();
  await gateway.stop();
  await provider.stop();
});
beforeEach(() => {
  provider.always(nativeStream({ text: ["Hi"] }));
});

const forms = [
  { name: "native stream", path: "/v1/messages", stream: true, end: "message_stop" },
  { name: "native answer", path: "/v1/messages", stream: false, end: '"stop_reason":"end_turn"' },
  {
    name: "chat stream",
    path: "/v1/chat/completions",
    stream: true,
    end: '"finish_reason":"stop"',
  },
  {
    name: "chat answer",
    path: "/v1/chat/completions",
    stream: false,
    end: '"finish_reason":"stop"',
  },
];

/** Sends a request and records the status and the text as they arrive. */
function send({ path, stream }: { path: string; stream: boolean }) {
  const seen = { status: 0, text: "" };
  const headers = {
    ...(path === "/v1/messages"
      ? { "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" }
      : { authorization: `Bearer ${gateway.v1}` }),
    "content-type": "application/json",
  };
  const body = JSON.stringify({
    model: "haiku",
    max_tokens: 50,
    stream,
    messages: [{ role: "user", content: "Hello" }],
  });
  const done = (async () => {
    const answer = await fetch(gateway.address + path, { method: "POST", headers, body });
    seen.status = answer.status;
    const decoder = new TextDecoder();
    for await (const piece of answer.body ?? [])
      seen.text += decoder.decode(piece, { stream: true });
  })();
  return { seen, done };
}

const rows = async (table: string) =>
  Number((await lock.database.query(`select count(*) from ${table}`)).rows[0].count);

describe("the first gate", () => {
  for (const form of forms) {
    test(`${form.name}: no status, no byte and no call to the provider before the hold is durable`, async () => {
      const called = provider.requests.length;
      await lock.stall();
      const { seen, done } = send(form);
      await lock.stalled();
      // The admission is retried after a second, so nothing changes until then.
      for (let look = 0; look < 3; look++) {
        expect(seen).toEqual({ status: 0, text: "" });
        expect(provider.requests).toHaveLength(called);
        expect(await rows("holds")).toBe(0);
      }
      await lock.release();
      await done;
      expect(seen).toMatchObject({ status: 200, text: expect.stringContaining(form.end) });
      expect(provider.requests).toHaveLength(called + 1);
    });
  }
});

describe("the end gate", () => {
  for (const form of forms) {
    test(`${form.name}: the end is not shown before the charge is durable`, async () => {
      const [shown, ended] = [new Gate(), new Gate()];
      const { writes = [], ...script } = nativeStream({ text: ["first"] });
      provider.play({
        ...script,
        writes: [...writes.slice(0, 3), shown, ...writes.slice(3, 4), ended, ...writes.slice(4)],
      });
      const charged = await rows("charges");
      const { seen, done } = send(form);
      await shown.reached;
      if (form.stream) await vi.waitFor(() => expect(seen.text).toContain("first"));
      await lock.stall();
      shown.open();
      ended.open();
      await lock.stalled();
      for (let look = 0; look < 3; look++) {
        expect(seen.text).not.toContain(form.end);
        expect(seen.text).not.toContain("[DONE]");
        expect(seen.status).toBe(form.stream ? 200 : 0);
        expect(await rows("charges")).toBe(charged);
      }
      await lock.release();
      await done;
      expect(seen.text).toContain(form.end);
      expect(await rows("charges")).toBe(charged + 1);
    });
  }

  test("the end of a stream made from a plain answer waits for the charge as well", async () => {
    const before = new Gate();
    provider.play(nativeAnswer({ text: ["first"] }, { before }));
    const { seen, done } = send({ path: "/v1/messages", stream: true });
    await before.reached;
    await lock.stall();
    before.open();
    await lock.stalled();
    expect(seen.text).not.toContain("message_delta");
    await lock.release();
    await done;
    expect(seen.text).toContain("message_stop");
  });
});
