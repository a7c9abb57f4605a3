// The contract once more, with the real services and a real ledger. The cases of each method are
// made from the protos.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type DescMethod, fromJson, getOption, type Message } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { callers, endless } from "../../gen/gateway/common/v1/options_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { KeyOrder } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { readConfig } from "../../src/config/environment.ts";
import { localCore } from "../../src/contract/contract.ts";
import { seed } from "../../src/server/bootstrap.ts";
import { startServices } from "../../src/server/services.ts";
import {
  apiErrorOf,
  type Bindings,
  bindingNames,
  callAll,
  methods,
  startBindings,
} from "../support/bindings.ts";
import { contentKey } from "../support/content-key.ts";
import {
  as,
  type CallMethod,
  errorOf,
  invalidRequests,
  outcomeOf,
  pathOf,
  wrongCells,
} from "../support/contract-cases.ts";
import { freshDatabase } from "../support/database.ts";
import { fastCatalog } from "../support/gateway.ts";
import { anyMessage, leastRequest } from "../support/samples/messages.ts";

const stack = new AsyncDisposableStack();
const adminToken = "the-admin-token-of-a-test";
const asAdmin = as(`Bearer ${adminToken}`);
let bindings: Bindings;
let asCustomer = as("");
/** Redeems a new owner link, and returns the session of the person that it makes. */
let signIn: () => Promise<string>;

beforeAll(async () => {
  const database = stack.adopt(await freshDatabase(), (one) => one.drop());
  const dataDir = stack.adopt(mkdtempSync(join(tmpdir(), "gateway-data-")), (path) =>
    rmSync(path, { recursive: true }),
  );
  const secrets = { ADMIN_TOKEN: adminToken, CONTENT_KEY: contentKey };
  const env = { DATABASE_URL: database.url, ...secrets, DATA_DIR: dataDir };
  const parts = { config: readConfig(env), catalog: fastCatalog(), env, log: createLog("silent") };
  const local = await startServices(parts, stack);
  const { services, authenticate } = local;
  const keys = await seed({ ...local, core: localCore(services), dataDir });
  asCustomer = as(`Bearer ${keys?.v1}`);
  bindings = stack.adopt(await startBindings(services, authenticate), (one) => one.close());
  let people = 0;
  signIn = async () => {
    const link = new URL(await local.installation.makeOwnerLink());
    const login = `owner-${++people}@example.com`;
    const { grant } = await bindings.local.people.redeemLink({
      token: link.hash.slice(1),
      login,
      name: "Owner",
      password: "a password of the owner",
    });
    return `Session ${grant?.token}`;
  };
});
afterAll(async () => {
  const { violations } = await bindings.local.billing.verifyLedger({}, asAdmin);
  await stack.disposeAsync();
  expect(violations).toEqual([]);
});

let session: string | undefined;

/** The options of a call by somebody who may call the method. A method may end his session. */
async function asGoodCaller(desc: DescMethod): Promise<CallOptions> {
  const { key: byKey, admin, anyone } = getOption(desc, callers);
  if (anyone) return {};
  if (byKey) return asCustomer;
  if (admin) return asAdmin;
  const isSignedIn =
    session !== undefined &&
    (await outcomeOf(bindings.local.people.getSession({}, as(session)))) === "ok";
  if (session === undefined || !isSignedIn) session = await signIn();
  return as(session);
}

describe.for(bindingNames)("a page token over %s", (binding) => {
  test("continues its own list, and no other", async () => {
    const { keys, billing } = bindings[binding];
    const { accounts } = await billing.listAccounts({ pageSize: 2 }, asAdmin);
    const { accountId = "" } = accounts[0] ?? {};
    const other = await billing.createAccount({ settings: { name: `over ${binding}` } }, asAdmin);
    const asked = { accountId, order: KeyOrder.NAME };
    const first = await keys.listKeys({ ...asked, pageSize: 1 }, asAdmin);
    const { nextPageToken: pageToken } = first;
    const next = await keys.listKeys({ ...asked, pageSize: 5, pageToken }, asAdmin);
    expect([...first.keys, ...next.keys].map(({ name }) => name)).toEqual(
      (await keys.listKeys(asked, asAdmin)).keys.map(({ name }) => name),
    );
    expect(next.keys.length).toBeGreaterThan(0);
    const elsewhere = { ...asked, accountId: other.account?.accountId ?? "" };
    const changed = Buffer.from(pageToken, "base64url");
    changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1;
    const list = (request: object) => keys.listKeys(request, asAdmin);
    for (const [what, ask] of [
      ["of another list", () => billing.listTransfers({ accountId, pageToken }, asAdmin)],
      ["of another account", () => list({ ...elsewhere, pageToken })],
      ["of another filter", () => list({ ...asked, query: "k", pageToken })],
      ["of another order", () => list({ ...asked, reversed: true, pageToken })],
      ["that was changed", () => list({ ...asked, pageToken: changed.toString("base64url") })],
    ] as const) {
      const { reason, facts } = await errorOf(ask());
      expect(`${reason} ${facts.field}`, what).toBe("invalid_request page_token");
    }
  });
});

// One call after the other: a method may end the session of the next one.
describe.for(bindingNames)("every method over %s", (binding) => {
  const call: CallMethod = (desc, request, options) =>
    callAll(bindings[binding], desc, request, options);

  test("refuses missing, wrong and foreign credentials", async () => {
    const cells = methods.flatMap((desc) => {
      const { key: byKey, admin, anyone } = getOption(desc, callers);
      const credentials: [string, CallOptions, string | false][] = [
        ["without a credential", {}, "missing_key"],
        ["by a wrong key", as("Bearer sk-gw2-1wrong"), "invalid_key"],
        ["by a key", asCustomer, !byKey && "not_permitted"],
        ["by an admin token", asAdmin, !admin && "not_permitted"],
      ];
      return credentials.flatMap(([name, options, expected]) =>
        expected && !anyone
          ? {
              name: `${pathOf(desc)} ${name}`,
              expected,
              outcome: () => outcomeOf(call(desc, leastRequest(desc.input), options)),
            }
          : [],
      );
    });
    expect(await wrongCells(cells)).toEqual([]);
  });

  test("is served with any values in its optional fields", async () => {
    const cells = methods.map((desc) => ({
      name: pathOf(desc),
      expected: "served",
      async outcome() {
        const request = leastRequest(desc.input);
        request.$unknown = [{ no: 50_000, wireType: 0, data: new Uint8Array([1]) }];
        const outcome = await outcomeOf(call(desc, request, await asGoodCaller(desc)));
        const isServed = !["internal", "unimplemented", "not_permitted"].includes(outcome);
        return isServed ? "served" : outcome;
      },
    }));
    expect(await wrongCells(cells, 1)).toEqual([]);
  });

  test("names missing fields, unlisted values and texts that cannot be stored", async () => {
    const cells = methods.flatMap((desc) =>
      Object.values(invalidRequests(desc))
        .flat()
        .map(({ field, request }) => ({
          name: pathOf(desc),
          expected: `invalid_request ${field}`,
          async outcome() {
            const answer = call(desc, request, await asGoodCaller(desc));
            const { reason, facts } = await errorOf(answer);
            return `${reason} ${facts.field}`;
          },
        })),
    );
    expect(await wrongCells(cells, 1)).toEqual([]);
  });

  test("does nothing for a caller that has left", async () => {
    const cells = methods.map((desc) => ({
      name: pathOf(desc),
      expected: "cancelled",
      async outcome() {
        const options = { ...(await asGoodCaller(desc)), signal: AbortSignal.abort() };
        return outcomeOf(call(desc, leastRequest(desc.input), options));
      },
    }));
    expect(await wrongCells(cells, 1)).toEqual([]);
  });
});

describe.for(methods.map((desc) => [pathOf(desc), desc] as const))("%s", ([, desc]) => {
  test("answers any request without an internal error", async () => {
    const deadline = getOption(desc, endless) ? { timeoutMs: 50 } : {};
    const run = fc.asyncProperty(anyMessage(desc.input), async (request) => {
      const options = { ...(await asGoodCaller(desc)), ...deadline };
      const outcome = await outcomeOf(callAll(bindings.local, desc, request, options));
      expect(outcome).not.toBe("internal");
    });
    await fc.assert(run, { numRuns: 30 });
  });
});

describe("another account", () => {
  // Every resource that a customer can name, by the fields of the methods that customers may call.
  const named = methods
    .filter((desc) => getOption(desc, callers).key)
    .flatMap((desc) =>
      ["account_id", "request_id", "key_id"].flatMap((name) =>
        desc.input.fields.filter((one) => one.name === name).map((field) => ({ desc, field })),
      ),
    );

  const foreign: Record<string, string> = {};
  beforeAll(async () => {
    const { billing, keys, inference } = bindings.local;
    const { account } = await billing.createAccount(
      { settings: { name: "another customer" } },
      asAdmin,
    );
    foreign.account_id = account?.accountId ?? "";
    const transfer = {
      family: 1,
      kind: 1,
      amountMicrocredits: 1_000_000_000n,
      idempotencyKey: "first",
    } as const;
    await billing.createTransfer({ accountId: foreign.account_id, ...transfer }, asAdmin);
    const created = await keys.createKey(
      { accountId: foreign.account_id, family: 1, settings: { name: "k" } },
      asAdmin,
    );
    foreign.key_id = created.key?.keyId ?? "";
    for await (const { kind } of inference.generate(hello("Hi"), as(`Bearer ${created.secret}`))) {
      if (kind.case === "admission") foreign.request_id = kind.value.requestId;
    }
  });

  for (const { desc, field } of named) {
    test(`looks absent to ${desc.name}, by its ${field.name}`, async () => {
      const outcomeFor = async (id: string) => {
        const request = fromJson(desc.input, { [field.jsonName]: id });
        return callAll(bindings.gRPC, desc, request, asCustomer).catch(apiErrorOf);
      };
      expect(foreign[field.name]).toBeTruthy();
      const theirs = await outcomeFor(foreign[field.name] ?? "");
      const unknown = await outcomeFor(`${foreign[field.name]?.slice(0, -4)}0000`);
      expect(describeOutcome(theirs)).toEqual(describeOutcome(unknown));
    });
  }

  function describeOutcome(outcome: ApiError | Message[]): unknown {
    return outcome instanceof ApiError
      ? { apiError: outcome.reason, message: outcome.message.replace(/[a-z]+_[0-9a-f]{8,}/g, "…") }
      : outcome;
  }
});

describe("a generation", () => {
  for (const binding of bindingNames) {
    test(`is admitted, answered and paid over ${binding}`, async () => {
      const kinds: string[] = [];
      let paid = 0n;
      for await (const { kind } of bindings[binding].inference.generate(
        hello("Say hello."),
        asCustomer,
      )) {
        if (kind.case !== kinds.at(-1)) kinds.push(kind.case ?? "nothing");
        if (kind.case === "receipt") paid = kind.value.chargedMicrocredits;
      }
      expect(kinds).toEqual(["admission", "events", "receipt"]);
      expect(paid).toBeGreaterThan(0n);
    });

    test(`that its caller cancels over ${binding} is charged for the usage so far`, async () => {
      const controller = new AbortController();
      const slow = hello("[[simulate tokens=500 first_token_ms=0 token_ms=20]]");
      const answers = bindings[binding].inference.generate(slow, {
        ...asCustomer,
        signal: controller.signal,
      });
      let requestId = "";
      const reading = (async () => {
        for await (const { kind } of answers) {
          if (kind.case === "admission") requestId = kind.value.requestId;
          if (
            kind.case === "events" &&
            kind.value.events.some((one) => one.kind.case === "blockDelta")
          )
            controller.abort();
        }
      })();
      expect(await outcomeOf(reading)).toBe("cancelled");
      await expect.poll(() => receiptOf(requestId)).toMatchObject({ outcome: Outcome.CLIENT_LEFT });
      const { usage, chargedMicrocredits: amountMicrocredits } = await receiptOf(requestId);
      expect(usage?.output).toBeLessThan(500);
      expect(amountMicrocredits).toBeGreaterThan(0n);
    });

    test(`whose deadline passes over ${binding} ends with timeout`, async () => {
      const slow = hello("[[simulate tokens=500 first_token_ms=10000]]");
      const answers = bindings[binding].inference.generate(slow, { ...asCustomer, timeoutMs: 300 });
      const reading = (async () => {
        for await (const _answer of answers);
      })();
      expect(await outcomeOf(reading)).toBe("timeout");
    });
  }

  async function receiptOf(requestId: string) {
    const { receipt } = await bindings.local.billing.getReceipt({ requestId }, asCustomer);
    if (!receipt) throw new Error("no receipt");
    return receipt;
  }
});

function hello(text: string) {
  const content = [{ kind: { case: "text" as const, value: { text } } }];
  return { model: "haiku", messages: [{ role: Role.USER, content }], maxTokens: 1_000 };
}
