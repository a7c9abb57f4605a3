// A request that an owner of its account ends, on the process that runs it and from another one.

import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { callBy } from "../support/calls.ts";
import { events, freshInference, silence, type TestInference } from "../support/inference.ts";

let gateway: TestInference;
beforeAll(async () => {
  gateway = await freshInference();
});
afterAll(() => gateway.close());

/** A request that has sent some text, and waits for more. */
async function startRequest() {
  const payer = await gateway.payer(10_000_000_000n);
  gateway.plays(async function* (request) {
    request.onAccepted?.(true);
    yield [events.start({ inputTokens: 10 }), events.open(), events.text("Hello")];
    await silence(request);
  });
  const stream = gateway.generate(payer)[Symbol.asyncIterator]();
  const first = await stream.next();
  const { kind } = first.value ?? expect.unreachable();
  const requestId = kind.case === "admission" ? kind.value.requestId : expect.unreachable();
  await stream.next();
  return {
    accountId: payer.accountId,
    requestId,
    rest: gateway.collect({ [Symbol.asyncIterator]: () => stream }),
  };
}

const end = (accountId: string, requestId: string) =>
  gateway.inference.service.endRequest(
    { $typeName: "gateway.inference.v1.EndRequestRequest", accountId, requestId },
    { ...callBy({ kind: "internal", service: "reconcile" }), accountId },
  );

test("a request that is ended pays for what it got, and its client learns why", async () => {
  const { accountId, requestId, rest } = await startRequest();
  await end(accountId, requestId);
  const { failure } = await rest;
  expect(failure).toMatchObject({ reason: "cancelled", message: /owner of the account ended/ });
  const charge = await gateway.charged(requestId);
  expect(charge).toMatchObject({ outcome: Outcome.REVOKED });
  expect(charge.chargedMicrocredits).toBeGreaterThan(0n);
  // Once it has ended, there is nothing to end.
  await expect(end(accountId, requestId)).rejects.toMatchObject({ reason: "not_found" });
});

test("a request that runs elsewhere is left to the node that runs it, which takes it once", async () => {
  const { accountId, requestId, rest } = await startRequest();
  const { store, node, inference } = gateway;
  expect(await store.askToEnd({ accountId, requestId })).toBe(true);
  expect(await store.askToEnd({ accountId, requestId })).toBe(true);
  expect(await store.takeEnded("node_other")).toEqual([]);
  const taken = await store.takeEnded(node.id());
  expect(taken).toEqual([{ accountId, requestId }]);
  expect(await store.takeEnded(node.id())).toEqual([]);
  inference.end(taken);
  expect((await rest).failure).toMatchObject({ reason: "cancelled" });
  expect(await gateway.charged(requestId)).toMatchObject({ outcome: Outcome.REVOKED });
});

test("another account's request is not there, and a hold of a service is not ended", async () => {
  const { accountId, requestId, rest } = await startRequest();
  const other = await gateway.payer(0n);
  await expect(end(other.accountId, requestId)).rejects.toMatchObject({ reason: "not_found" });
  await expect(end(accountId, newRequestId())).rejects.toMatchObject({ reason: "not_found" });
  await gateway.run("update holds set node_id = null where request_id = $1", [requestId]);
  await expect(end(accountId, requestId)).rejects.toMatchObject({ reason: "wrong_state" });
  await gateway.run("update holds set node_id = $2 where request_id = $1", [
    requestId,
    gateway.node.id(),
  ]);
  await end(accountId, requestId);
  await rest;
});
