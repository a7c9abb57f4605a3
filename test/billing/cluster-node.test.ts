// How a process knows that another one has ended.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { requestKeyOf } from "../../src/billing/admission.ts";
import { hasEnded, identifyProcess } from "../../src/billing/local-process.ts";
import { freshLedger, heldFor, holdRequest, startNode } from "../support/ledger.ts";

const never = new AbortController().signal;
/** Arguments of `unshare`: process ids of their own, and `/proc` of outside. */
const newPids = ["--pid", "--fork"];

let ledger: Awaited<ReturnType<typeof freshLedger>>;
beforeAll(async () => {
  ledger = await freshLedger();
});
afterAll(() => ledger.close());

/** A hold of a node whose process nobody can look up. */
async function holdOfOther() {
  const other = await startNode(ledger.url);
  const hold = await other.holds.place(holdRequest(await ledger.payer(heldFor(100)), 100), never);
  const outcome = async () =>
    (await ledger.store.findCharge(requestKeyOf(hold))) === undefined ? "running" : "reaped";
  return { other, outcome };
}

test("the requests of a node are settled at the next poll after its parent saw its process end", async () => {
  const { other, outcome } = await holdOfOther();
  await ledger.node.poll(ledger.holds);
  expect(await outcome()).toBe("running");
  ledger.node.markEnded(other.node.id());
  await ledger.node.poll(ledger.holds);
  expect(await outcome()).toBe("reaped");
  await other.stop();
});

test("a node is dead at its twelfth silent poll, and a heartbeat ends the silence", async () => {
  const { other, outcome } = await holdOfOther();
  const observer = await startNode(ledger.url, { pollIntervalMs: 0 });
  for (let poll = 1; poll <= 11; poll++) await observer.node.poll(observer.holds);
  await ledger.store.recordHeartbeat(other.node.id());
  for (let poll = 1; poll <= 11; poll++) await observer.node.poll(observer.holds);
  expect(await outcome()).toBe("running");
  await observer.node.poll(observer.holds);
  expect(await outcome()).toBe("reaped");
  for (const node of [other, observer]) await node.stop();
});

test("polls of several nodes within one interval count once", async () => {
  const { other } = await holdOfOther();
  const observers = [await startNode(ledger.url), await startNode(ledger.url)];
  await ledger.run("update nodes set polled_at = now() - interval '1 hour'");
  await Promise.all(observers.flatMap(({ node, holds }) => [node.poll(holds), node.poll(holds)]));
  expect(
    await ledger.run("select silent_polls from nodes where node_id = $1", [other.node.id()]),
  ).toEqual([{ silent_polls: 1 }]);
  for (const node of [other, ...observers]) await node.stop();
});

test("a heartbeat does not wait for statements that wait for a lock on every other connection", async () => {
  const { accountId } = await ledger.payer(1n);
  const { node, store, stop } = await startNode(ledger.url);
  const blocker = new Client(ledger.url);
  await blocker.connect();
  await blocker.query("begin");
  await blocker.query("select from pools where account_id = $1 for update", [accountId]);
  const ended = vi.fn();
  const transfers = Promise.allSettled(
    Array.from({ length: 12 }, (_, index) =>
      store
        .createTransfer({
          accountId,
          family: "v1",
          kind: TransferKind.BONUS,
          amountMicro: 1n,
          idempotencyKey: `key-${index}`,
          reason: "",
          actor: "test",
        })
        .finally(ended),
    ),
  );
  const locked = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = $1";
  const name = new URL(ledger.url).pathname.slice(1);
  await vi.waitFor(async () => expect(await ledger.run(locked, [name])).toHaveLength(10));
  const isAlive = await store.recordHeartbeat(node.id()).catch(() => undefined);
  const waited = ended.mock.calls.length;
  await blocker.query("rollback");
  await blocker.end();
  await transfers;
  await stop();
  expect({ isAlive, waited }).toEqual({ isAlive: true, waited: 0 });
});

describe.skipIf(!existsSync("/proc/self/stat"))("a process of this machine", () => {
  const own = identifyProcess();
  const [pid = "", startedAt = ""] = own.split("/").slice(-2);
  const machine = own.slice(0, -`/${pid}/${startedAt}`.length);

  test("that runs has not ended", () => {
    expect(hasEnded(own)).toBe(false);
    expect(hasEnded(`${machine}/1/${startedAt}`)).toBe(pid !== "1");
  });

  test("has ended when no process has its id, or another one has it", async () => {
    const child = spawn("true");
    await once(child, "exit");
    expect(hasEnded(`${machine}/${child.pid}/${startedAt}`)).toBe(true);
    expect(hasEnded(`${machine}/${pid}/${Number(startedAt) - 1}`)).toBe(true);
  });

  test.skipIf(spawnSync("unshare", [...newPids, "true"]).status !== 0)(
    "has no name where /proc tells of other processes than its ids do",
    () => {
      const module = new URL("../../src/billing/local-process.ts", import.meta.url);
      const program = `import("${module}").then((one) => console.log(one.identifyProcess()))`;
      const run = (file: string, args: string[]) =>
        spawnSync(file, [...args, "--eval", program], { encoding: "utf8" }).stdout;
      expect(run(process.execPath, [])).toContain(machine);
      expect(run("unshare", [...newPids, process.execPath])).toBe("\n");
    },
  );

  test("of another boot or namespace is not looked up", () => {
    expect(hasEnded(`${machine}x/4000000/1`)).toBe(false);
    expect(hasEnded("")).toBe(false);
  });
});
