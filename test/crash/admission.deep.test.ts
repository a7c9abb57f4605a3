import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sizeHold } from "../../src/billing/hold-size.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { decodeRequest } from "../../src/formats/native/native.ts";
import { createCatalog } from "../../src/inference/inference.ts";
import { prepare } from "../../src/inference/prepare.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";
import { Gate } from "../support/provider.ts";
import { nativeStream } from "../support/provider-answers.ts";

const processes = 4;
const requests = 500;
const admitted = 10;

let stage: CrashCluster;
let gateways: ChildGateway[];
beforeAll(async () => {
  stage = await startCrashCluster();
  gateways = await Promise.all(Array.from({ length: processes }, () => stage.start()));
});
afterAll(() => stage.stop());

/** The hold of one of the requests, by the gateway's own rules. */
async function holdMicro(body: Parameters<typeof decodeRequest>[0]): Promise<bigint> {
  const catalog = createCatalog(readCatalogFile(await readFile(stage.catalogPath, "utf8")));
  const { bounds, price } = prepare(catalog, decodeRequest(body, { version: "", beta: "" }), []);
  const grant = sizeHold(price, bounds, { posted: 10n ** 15n, poolHeld: 0n });
  if (grant.kind === "short") throw new Error("the request does not fit");
  return grant.amountMicro;
}

/** Peak memory of a process, in MiB. */
async function peakMemoryMib({ process }: ChildGateway): Promise<number> {
  const status = await readFile(`/proc/${process.pid}/status`, "utf8");
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

test("a cap of ten holds admits exactly ten of five hundred requests over four processes", async () => {
  const body = { model: "haiku", max_tokens: 100, messages: [{ role: "user", content: "Hello" }] };
  const cap = (await holdMicro(body)) * BigInt(admitted);
  const { payer, secret } = await stage.key(10n ** 12n, { cap });
  const paused = new Gate();
  stage.provider.always(
    nativeStream({ text: ["Hi"], usage: { input: 10, output: 100 } }, { before: paused }),
  );

  let refused = 0;
  const allDecided = Promise.withResolvers<void>();
  const sent = Array.from({ length: requests }, async (_, index) => {
    const gateway = gateways[index % processes];
    if (!gateway) throw new Error("no gateway runs");
    const seen = await stage.send(gateway, secret, { ...body, stream: index % 2 === 0 });
    if (seen.status !== 200 && ++refused === requests - admitted) allDecided.resolve();
    return seen;
  });
  await stage.provider.received(admitted);
  await allDecided.promise;

  const [budget] = await stage.ledger.run<{ taken: bigint }>(
    "select spent + held as taken from budgets where payer = $1",
    [payer.keyId],
  );
  expect(budget?.taken).toBe(cap);
  const [holds] = await stage.ledger.run<{ count: bigint }>("select count(*) from holds");
  expect(holds?.count).toBe(BigInt(admitted));
  paused.open();

  const seen = await Promise.all(sent);
  expect(seen.filter(({ complete }) => complete)).toHaveLength(admitted);
  expect(new Set(seen.filter(({ complete }) => !complete).map(({ status }) => status))).toEqual(
    new Set([429]),
  );
  expect(stage.provider.requests).toHaveLength(admitted);
  expect(await stage.ledger.store.verifyLedger()).toEqual([]);
  if (process.platform === "linux") {
    for (const gateway of gateways) expect(await peakMemoryMib(gateway)).toBeLessThan(512);
  }
});
