// How a process knows that another one has ended.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requestKeyOf } from "../../src/billing/admission.ts";
import { hasEnded, identifyProcess } from "../../src/billing/local-process.ts";
import { freshLedger, heldFor, holdRequest, startNode } from "../support/ledger.ts";

const never = new AbortController().signal;

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

  test("of another boot or namespace is not looked up", () => {
    expect(hasEnded(`${machine}x/4000000/1`)).toBe(false);
    expect(hasEnded("")).toBe(false);
  });
});
