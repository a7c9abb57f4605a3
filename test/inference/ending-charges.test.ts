// The endings that providers and clients bring about, over every format and gRPC, with answers that
// a provider is asked for in one piece (4,096 tokens) and as a stream (4,097): how it was asked
// decides no charge, and an error status costs nothing.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { ask, formats, wishes } from "../support/asks.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, type Script, startFakeProvider } from "../support/provider.ts";
import {
  errorAnswer,
  nativeAnswer,
  nativeEvents,
  nativeStream,
  sseEvent,
} from "../support/provider-answers.ts";

const input = 140n;
const output = 700n;

let provider: FakeProvider;
let gateway: TestGateway;
let core: ReturnType<typeof grpcCore>;
beforeAll(async () => {
  provider = await startFakeProvider();
  gateway = await startTestGateway({ catalog: freshCatalog() });
  core = grpcCore({ addresses: [gateway.grpcAddress] });
});
afterAll(async () => {
  core.close();
  await gateway.stop();
  await provider.stop();
});

let queue = 100;
/** The provider with other settings: what it did before is forgotten. */
function freshCatalog() {
  const more = `queue: ${queue++}`;
  return readCatalogFile(catalogFor({ native: { kind: "anthropic", url: provider.url, more } }));
}

async function charged(requestId: string): Promise<Receipt> {
  const { core, call } = gateway.admin;
  for (;;) {
    const request = { requestId, accountId: gateway.accountId };
    const { receipt } = await core.billing.getReceipt(request, call);
    if (receipt?.settledAt) return receipt;
  }
}

const usage = { input: 11, output: 9 };
const text = ["12345678"];
const whole = 11n * input + 9n * output;
/** Five bytes and the framing of one message. */
const countedInput = expect.any(BigInt);

/** What the provider answers, by how it is asked, and what each kind of answer costs. */
type Case = {
  readonly plain: Script;
  readonly stream: Script;
  readonly costs: { readonly plain: unknown; readonly streamed: unknown };
  readonly isError?: boolean;
  readonly outcomes: readonly Outcome[];
};

const both = (amount: unknown) => ({ plain: amount, streamed: amount });
const failing = (script: Script): Case => ({
  plain: script,
  stream: script,
  costs: both(0n),
  isError: true,
  outcomes: [Outcome.PROVIDER_FAILED],
});
const events = nativeEvents({ text, usage });
const hidden = { text, usage: { ...usage, output: 0 } };
const cut = nativeAnswer({ text, usage }).writes?.map((one) => String(one).slice(0, 40)) ?? [];

const cases: Readonly<Record<string, Case>> = {
  "a complete answer": {
    plain: nativeAnswer({ text, usage }),
    stream: nativeStream({ text, usage }),
    costs: both(whole),
    outcomes: [Outcome.COMPLETED],
  },
  "an answer without a report": {
    plain: nativeAnswer({ text, noUsage: true }),
    stream: nativeStream({ text, noUsage: true }),
    costs: both(countedInput),
    outcomes: [Outcome.COMPLETED],
  },
  "an answer without content": {
    plain: nativeAnswer({ text: [], usage }),
    stream: nativeStream({ text: [], usage }),
    costs: both(whole),
    outcomes: [Outcome.COMPLETED],
  },
  "an answer whose native provider reports an output of 0": {
    plain: nativeAnswer(hidden),
    stream: nativeStream(hidden),
    costs: both(11n * input),
    outcomes: [Outcome.COMPLETED],
  },
  "a refused request": failing(errorAnswer(400, "invalid_request_error", "no")),
  "an overloaded provider": failing(errorAnswer(529, "overloaded_error", "later")),
  "a provider without our account": failing(errorAnswer(401, "authentication_error", "who")),
  "a provider that fails": failing(errorAnswer(500, "api_error", "broken")),
  "a provider that breaks off": {
    plain: { ...nativeAnswer(), writes: cut, end: "reset" },
    stream: nativeStream({}, { writes: events.slice(0, 3), end: "reset" }),
    costs: { plain: 0n, streamed: 11n * input + 2n * output },
    isError: true,
    outcomes: [Outcome.PROVIDER_FAILED, Outcome.PROVIDER_BROKE],
  },
  "a provider that reports an error after content": {
    plain: errorAnswer(500, "api_error", "broken"),
    stream: nativeStream(
      {},
      {
        writes: [
          ...events.slice(0, 3),
          sseEvent("error", { error: { type: "api_error", message: "broken" } }),
        ],
      },
    ),
    costs: { plain: 0n, streamed: 11n * input + 2n * output },
    isError: true,
    outcomes: [Outcome.PROVIDER_FAILED, Outcome.PROVIDER_BROKE],
  },
};

describe.each(formats)("over %s", (format) => {
  test.each(Object.keys(cases))("%s", async (name) => {
    const { plain, stream, costs, isError, outcomes } = cases[name] ?? fail();
    provider.always(({ body }) => (body.stream === true ? stream : plain));
    gateway.reload(freshCatalog());
    const asker = { address: gateway.address, core, secret: gateway.v1 };
    const asked = wishes.map((wish) => ({ wish, ...ask(asker, format, wish) }));
    const seen: (bigint | undefined)[] = [];
    for (const { wish, requestId, ended } of asked) {
      const status = (await ended) ?? fail();
      const receipt = await charged(requestId);
      expect(outcomes).toContain(receipt.outcome);
      expect(receipt.chargedMicrocredits).toEqual(wish.stream ? costs.streamed : costs.plain);
      // The status of a stream that has begun, over gRPC its end.
      if (format !== "gRPC" || !wish.stream) {
        if (status >= 400) expect(receipt.chargedMicrocredits).toBe(0n);
        if (!wish.stream) expect(status >= 400).toBe(isError === true);
      }
      seen.push(receipt.chargedMicrocredits);
    }
    // How the provider was asked decides nothing.
    expect(seen[0]).toBe(seen[1]);
    expect(seen[2]).toBe(seen[3]);
    if (isError !== true) expect(seen[0]).toBe(seen[2]);
  });
});

function fail(): never {
  throw new Error("no such case");
}
