// The endings that an account and the time limit bring about, over every format and gRPC, with
// answers that a provider is asked for in one piece and as a stream.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock } from "../support/clock.ts";
import { askAll, type Moment, moments, type Waiting } from "../support/ended.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, type Gate, startFakeProvider } from "../support/provider.ts";

const input = 140n;
const output = 700n;
/** "Hello" and its framing in each format, by our count: nobody has reported it yet. */
const counted = { native: 4n, chat: 12n, Responses: 13n, gRPC: 4n };
const reported = 11n * input;
const seen = reported + 2n * output;

const clock = new ManualClock({ creeps: true });
let provider: FakeProvider;
let gateway: TestGateway;
let core: ReturnType<typeof grpcCore>;
beforeAll(async () => {
  provider = await startFakeProvider();
  const more = "first_byte_ms: 3600000, idle_ms: 3600000";
  const catalog = catalogFor({ native: { kind: "anthropic", url: provider.url, more } });
  gateway = await startTestGateway({ catalog: readCatalogFile(catalog), clock });
  core = grpcCore({ addresses: [gateway.grpcAddress] });
});
afterAll(async () => {
  core.close();
  await gateway.stop();
  await provider.stop();
});

/** Undefined: it still runs. */
async function chargeOf({ requestId }: Waiting): Promise<Receipt | undefined> {
  const { core, call } = gateway.admin;
  const request = { requestId, accountId: gateway.accountId };
  const { receipt } = await core.billing.getReceipt(request, call);
  return receipt?.settledAt ? receipt : undefined;
}

async function charged(waiting: Waiting): Promise<Receipt> {
  return vi.waitFor(
    async () => (await chargeOf(waiting)) ?? expect.unreachable(`${waiting.name} still runs`),
    { timeout: 20_000 },
  );
}

type Running = {
  readonly requests: readonly Waiting[];
  readonly gate: Gate;
  readonly keyId: string;
};

/** Ends all of them. */
const acts = {
  async leave({ requests, gate }: Running) {
    // A provider that is asked in one piece has ten seconds for its status.
    const patient = requests.filter(({ kind }) => kind === "in one piece");
    const others = requests.filter(({ kind }) => kind !== "in one piece");
    for (const one of [...patient, ...others]) one.leave();
    for (const one of others) await charged(one);
    for (const one of patient) expect(await chargeOf(one), one.name).toBeUndefined();
    gate.open();
  },
  async revoke({ keyId }: Running) {
    await gateway.admin.core.keys.revokeKey({ keyId }, gateway.admin.call);
  },
  async end({ keyId }: Running) {
    const { accountId, admin } = gateway;
    const { core, call } = admin;
    const { requests: running } = await core.billing.listRunningRequests({ accountId }, call);
    const own = running.filter((one) => one.keyId === keyId);
    expect(own.map(({ holdMicrocredits }) => holdMicrocredits > 0n)).not.toContain(false);
    for (const { requestId } of own)
      await core.inference.endRequest({ accountId, requestId }, call);
  },
  async "time limit"() {
    await clock.advance(30 * 60_000);
  },
};

type Expected = { readonly outcome: Outcome; readonly micro: bigint | "counted" };
const left = (micro: bigint) => ({ outcome: Outcome.CLIENT_LEFT, micro });
const leftBefore = { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, micro: reported };
const revoked = (micro: Expected["micro"]) => ({ outcome: Outcome.REVOKED, micro });
type Expectations = Record<Moment, Record<Waiting["kind"], Expected>>;
const late = (micro: bigint) => ({ outcome: Outcome.TIME_LIMIT, micro });

const ofRevoked: Expectations = {
  "before content": {
    "in one piece": revoked("counted"),
    "plain, as a stream": revoked(reported),
    streamed: revoked(reported),
  },
  "during content": {
    "in one piece": revoked("counted"),
    "plain, as a stream": revoked(seen),
    streamed: revoked(seen),
  },
};

const rows: Readonly<Record<keyof typeof acts, Expectations>> = {
  leave: {
    "before content": {
      "in one piece": leftBefore,
      "plain, as a stream": leftBefore,
      streamed: leftBefore,
    },
    "during content": {
      "in one piece": leftBefore,
      "plain, as a stream": left(seen),
      streamed: left(seen),
    },
  },
  revoke: ofRevoked,
  end: ofRevoked,
  "time limit": {
    "before content": {
      "in one piece": late(0n),
      "plain, as a stream": late(0n),
      streamed: late(0n),
    },
    "during content": {
      "in one piece": late(0n),
      "plain, as a stream": late(0n),
      streamed: late(seen),
    },
  },
};

for (const act of ["leave", "revoke", "end", "time limit"] as const)
  for (const moment of moments)
    test(`${act} ${moment}: the charge is that of the table, in every format`, async () => {
      const { key, secret } = await gateway.admin.core.keys.createKey(
        { accountId: gateway.accountId, family: Family.V1, settings: { name: `${act} ${moment}` } },
        gateway.admin.call,
      );
      const asker = { address: gateway.address, core, secret };
      const { requests, gate } = await askAll(asker, provider, moment);
      await acts[act]({ requests, gate, keyId: key?.keyId ?? "" });
      // But for those that left, all are charged while their provider still waits.
      for (const one of requests) {
        const receipt = await charged(one);
        const { outcome, micro } = rows[act][moment][one.kind];
        const amountMicrocredits = micro === "counted" ? counted[one.format] * input : micro;
        expect(receipt, one.name).toMatchObject({
          outcome,
          chargedMicrocredits: amountMicrocredits,
        });
        const status = await one.ended;
        if (act !== "leave" && one.kind !== "streamed")
          expect(status, one.name).toBeGreaterThan(399);
      }
      gate.open();
    });
