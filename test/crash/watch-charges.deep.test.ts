// Streams of charges over gRPC and Connect, at real processes: what other processes settle, also
// late or for a dead one, and what ends a stream.

import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { UsageService } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { apiErrorOf } from "../support/bindings.ts";
import { ChargeReader } from "../support/charge-reader.ts";
import { writeCharges } from "../support/charges.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import {
  answerOf,
  type CrashCluster,
  numbered,
  startCrashCluster,
} from "../support/crash-cluster.ts";
import { freePort } from "../support/ports.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents } from "../support/provider-answers.ts";

/** A gateway whose gRPC listener can be found. */
type Node = { readonly gateway: ChildGateway; readonly grpcAddress: string };

const adminHeaders = { authorization: "Bearer the-admin-token-of-a-crash" };

let stage: CrashCluster;
let first: Node;
let second: Node;
const stack = new AsyncDisposableStack();

async function startNode(): Promise<Node> {
  const port = await freePort();
  const gateway = await stage.start({ GRPC_PORT: String(port), DRAIN_LIMIT_SECONDS: "3600" });
  return { gateway, grpcAddress: `127.0.0.1:${port}` };
}

beforeAll(async () => {
  stage = stack.adopt(await startCrashCluster(), (one) => one.stop());
  stage.provider.always(answerOf);
  first = await startNode();
  second = await startNode();
});
afterAll(() => stack.disposeAsync());

const overConnect = ({ gateway }: Node) =>
  createConnectTransport({ baseUrl: gateway.address, httpVersion: "1.1", useBinaryFormat: false });

/** One reader over each protocol, which have had their first message. */
async function watch(
  node: Node,
  request: { accountId?: string } = {},
  headers: Record<string, string> = adminHeaders,
): Promise<ChargeReader[]> {
  const grpc = grpcCore({ addresses: [node.grpcAddress] });
  stack.defer(() => grpc.close());
  const clients = [grpc.billing, createClient(UsageService, overConnect(node))];
  const readers = clients.map(
    (client) => new ChargeReader((signal) => client.watchCharges(request, { headers, signal })),
  );
  await Promise.all(readers.map((one) => one.until(({ messages }) => messages.length > 0)));
  return readers;
}

const stopAll = (readers: readonly ChargeReader[]) => Promise.all(readers.map((one) => one.stop()));

let sent = 0;
/** Sends a request with a key to a gateway and returns its id. */
async function ask(node: Node, secret: string): Promise<string> {
  const { requestId = "", complete } = await stage.send(node.gateway, secret, numbered(sent++));
  expect(complete).toBe(true);
  return requestId;
}

test("show what each process has settled, once and in the same form", async () => {
  const { payer, secret } = await stage.key(10n ** 12n);
  const readers = await watch(first, { accountId: payer.accountId });
  const ids: string[] = [];
  for (let round = 0; round < 6; round++) ids.push(await ask(round % 2 ? first : second, secret));
  for (const reader of readers) {
    await reader.until((one) => one.ids.length >= ids.length);
    expect(reader.ids.toSorted()).toEqual(ids.toSorted());
    for (const charge of reader.charges)
      expect(charge).toEqual(await stage.chargeOf(charge.requestId));
  }
  await stopAll(readers);
});

test("of a key show that key alone, and of an account reader the account", async () => {
  const { payer, secret } = await stage.key(10n ** 12n);
  const { payer: other, secret: otherSecret } = await keyBeside(payer);
  const { secret: readerSecret } = await keyBeside(payer, true);
  const own = await watch(first, {}, { authorization: `Bearer ${secret}` });
  const all = await watch(first, {}, { authorization: `Bearer ${readerSecret}` });
  const [ofOther, ofOwn] = [await ask(second, otherSecret), await ask(second, secret)];
  for (const reader of all) await reader.until(({ ids }) => ids.length >= 2);
  for (const reader of own) await reader.until(({ ids }) => ids.length >= 1);
  expect(all.map(({ ids }) => ids.toSorted())).toEqual(Array(2).fill([ofOther, ofOwn].toSorted()));
  expect(own.map(({ ids }) => ids)).toEqual(Array(2).fill([ofOwn]));
  expect(other.keyId).not.toBe(payer.keyId);
  await stopAll([...own, ...all]);
});

test("show a charge whose commit was held open for five seconds", async () => {
  const { payer, secret } = await stage.key(10n ** 12n);
  const readers = await watch(first, { accountId: payer.accountId });
  const held = new Client({ connectionString: stage.ledger.url });
  await held.connect();
  await held.query("begin");
  const run = async (text: string, values: unknown[] = []) => void (await held.query(text, values));
  const late = { ...payer, keyId: `${payer.keyId}_late` };
  await writeCharges(run, { payer: late, count: 1, from: new Date(), stepMs: 1 });
  const over = performance.now() + 5_000;
  while (performance.now() < over) {
    // The reads of the first process go on.
    const requestId = await ask(second, secret);
    await Promise.all(readers.map((one) => one.until(({ ids }) => ids.includes(requestId))));
  }
  await held.query("commit");
  await held.end();
  for (const reader of readers) {
    await reader.until(({ ids }) => ids.includes(`req_${late.keyId}_0000000`));
    expect(new Set(reader.ids).size).toBe(reader.ids.length);
  }
  await stopAll(readers);
});

test("of a key end with its reason when another process revokes it", async () => {
  const { payer, secret } = await stage.key(10n ** 12n);
  const readers = await watch(first, {}, { authorization: `Bearer ${secret}` });
  const requestId = await ask(second, secret);
  for (const reader of readers) await reader.until(({ ids }) => ids.includes(requestId));
  const keys = createClient(KeysService, overConnect(second));
  await keys.revokeKey({ keyId: payer.keyId }, { headers: adminHeaders });
  for (const reader of readers) expect(apiErrorOf(await reader.ended).reason).toBe("revoked_key");
});

test("show the request of a killed process when another one has settled it", async () => {
  const { payer, secret } = await stage.key(10n ** 12n);
  const victim = await startNode();
  const readers = await watch(first, { accountId: payer.accountId });
  const [start = "", open = "", delta = ""] = nativeEvents({ text: ["x"] });
  const gate = new Gate();
  const headers = { "content-type": "text/event-stream" };
  stage.provider.always({ headers, writes: [start, open, delta, gate] });
  const streaming = Promise.withResolvers<void>();
  const seen = stage.send(victim.gateway, secret, numbered(sent++), () => streaming.resolve());
  await streaming.promise;
  await victim.gateway.end("SIGKILL");
  const { requestId = "" } = await seen;
  stage.provider.always(answerOf);
  for (const reader of readers) {
    await reader.until(({ ids }) => ids.includes(requestId));
    expect(reader.charges.map(({ outcome }) => outcome)).toEqual([Outcome.REAPED]);
  }
  await stopAll(readers);
});

// Last: it ends a process.
test("do not hold up a drain, and end with the reason to come again", async () => {
  const { payer } = await stage.key(10n ** 12n);
  const readers = await watch(second, { accountId: payer.accountId });
  // The limit of the drain is an hour.
  const { code } = await second.gateway.end("SIGTERM");
  expect(code).toBe(0);
  for (const reader of readers)
    expect(apiErrorOf(await reader.ended).reason).toBe("gateway_unavailable");
});

/** Another key of the same account. */
async function keyBeside(
  { accountId }: Payer,
  accountReader = false,
): Promise<{ payer: Payer; secret: string }> {
  const keys = createClient(KeysService, overConnect(first));
  const request = { accountId, family: Family.V1, name: newRequestId(), accountReader };
  const { key, secret } = await keys.createKey(request, { headers: adminHeaders });
  return { payer: { accountId, family: "v1", keyId: key?.keyId ?? "" }, secret };
}
