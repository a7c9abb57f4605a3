// The interceptor in front of every service, for all bindings.

import { create, type DescMethod, fromJson, getOption, type JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError, createContextValues } from "@connectrpc/connect";
import { pino } from "pino";
import { describe, expect, test, vi } from "vitest";
import {
  BillingService,
  CreateTransferResponseSchema,
  GetPoolsResponseSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { audited, callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type GenerateResponse,
  GenerateResponseSchema,
  InferenceService,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import {
  AuthenticateResponseSchema,
  CreateKeyResponseSchema,
  KeySchema,
  KeysService,
  RevokeKeyResponseSchema,
  SecretSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { Bucket, QueryUsageResponseSchema } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { ApiError, type ErrorReason, toApiError } from "../../src/base/errors.ts";
import { createLog, type Log } from "../../src/base/log.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  allServices,
  type Caller,
  type Core,
  environmentToken,
  type Implementation,
  implement,
  knownCaller,
  localCore,
  type Services,
  serviceTypes,
  withFacts,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { checkRequest } from "../../src/contract/validate.ts";
import { noAlerts, noOperations, noPayments, noPeople } from "../support/no-service.ts";
import { isScripted } from "../support/observe-errors.ts";

const customer = {
  kind: "key" as const,
  key: create(KeySchema, { keyId: "key_1", accountId: "acc_1" }),
  secret: create(SecretSchema, { secretId: "sec_1" }),
};
const authenticate: Authenticate = async (headers) => {
  const credential = headers.get("authorization");
  if (credential === null) throw new ApiError("missing_key");
  if (credential === "Bearer admin") return environmentToken;
  if (credential === "Bearer customer") return customer;
  throw new ApiError("invalid_key");
};
const asCustomer = { headers: { authorization: "Bearer customer" } };
const asAdmin = { headers: { authorization: "Bearer admin" } };

const silent = createLog("silent");

/** A Core with these methods. All other methods fail. */
function coreWith(methods: {
  billing?: Partial<Implementation<typeof serviceTypes.billing, AuthenticatedCall>>;
  keys?: Partial<Implementation<typeof serviceTypes.keys, AuthenticatedCall>>;
  inference?: Partial<Implementation<typeof InferenceService, AuthenticatedCall>>;
  log?: Log;
}): Core {
  const { log = silent } = methods;
  const unimplemented = () => {
    throw new ApiError("unimplemented");
  };
  const rest = <
    S extends typeof serviceTypes.billing | typeof serviceTypes.keys | typeof InferenceService,
  >(
    service: S,
  ) => implement<Implementation<S, AuthenticatedCall>>(service, () => async () => unimplemented());
  const services: Services = {
    billing: intercept(
      serviceTypes.billing,
      isScripted({ ...rest(serviceTypes.billing), ...methods.billing }),
      { authenticate, log },
    ),
    keys: intercept(
      serviceTypes.keys,
      isScripted({ ...rest(serviceTypes.keys), ...methods.keys }),
      { authenticate, log },
    ),
    inference: intercept(
      InferenceService,
      isScripted({ ...rest(InferenceService), ...methods.inference }),
      { authenticate, log },
    ),
    people: noPeople,
    payments: noPayments,
    alerts: noAlerts,
    operations: noOperations,
  };
  return localCore(services);
}

async function errorOf(call: PromiseLike<unknown>): Promise<ApiError> {
  try {
    await call;
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    return toApiError(error);
  }
  return expect.unreachable("the call was answered");
}

async function all<T>(answers: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const answer of answers) list.push(answer);
  return list;
}

const hello = { model: "sonnet", messages: [{ role: Role.USER }] };

describe("identity", () => {
  test("a method receives its caller and the request itself, not a copy", async () => {
    const getPools = vi.fn(async (_request: unknown, _call: AuthenticatedCall) =>
      create(GetPoolsResponseSchema),
    );
    const core = coreWith({ billing: { getPools } });
    await core.billing.getPools({ accountId: "acc_1" }, asCustomer);
    expect(getPools.mock.calls[0]?.[0]).toMatchObject({ accountId: "acc_1" });
    expect(getPools.mock.calls[0]?.[1].caller).toBe(customer);
  });

  test.for<[string, HeadersInit | undefined, ErrorReason]>([
    ["no credential", undefined, "missing_key"],
    ["a wrong credential", { authorization: "Bearer somebody" }, "invalid_key"],
    [
      "a credential that the method does not name",
      { authorization: "Bearer admin" },
      "not_permitted",
    ],
  ])("with %s neither kind of method runs", async ([, headers, apiError]) => {
    const generate = vi.fn();
    const countTokens = vi.fn();
    const core = coreWith({ inference: { generate, countTokens } });
    const options = headers === undefined ? {} : { headers };
    expect((await errorOf(core.inference.countTokens({ request: hello }, options))).reason).toBe(
      apiError,
    );
    expect((await errorOf(all(core.inference.generate(hello, options)))).reason).toBe(apiError);
    expect(generate).not.toHaveBeenCalled();
    expect(countTokens).not.toHaveBeenCalled();
  });

  test("a caller without permission does not learn whether the request is valid", async () => {
    expect((await errorOf(coreWith({}).keys.getKey({}, asCustomer))).reason).toBe("not_permitted");
  });
});

describe("declared fields", () => {
  const { generate, countTokens } = InferenceService.method;
  const { getKey, createKey, updateKey } = KeysService.method;
  const { createTransfer } = BillingService.method;
  const message = { role: "ROLE_USER" };
  const check = async (method: DescMethod, json: JsonObject) =>
    checkRequest(method.input, fromJson(method.input, json));

  test.for<[string, DescMethod, JsonObject, string]>([
    ["a missing text", getKey, {}, "key_id"],
    ["an enum left at zero", createKey, { accountId: "acc_1" }, "family"],
    ["a missing message", updateKey, { keyId: "key_1" }, "update_mask"],
    ["an empty list", generate, { model: "sonnet", messages: [] }, "messages"],
    [
      "an amount of zero",
      createTransfer,
      { accountId: "a", family: 1, kind: 1, idempotencyKey: "i" },
      "amount_microcredits",
    ],
    [
      "a missing field inside a message",
      countTokens,
      { request: { model: "sonnet" } },
      "request.messages",
    ],
    ["a text that no database can hold", getKey, { keyId: "key_\0" }, "key_id"],
    [
      "such a text inside a message",
      updateKey,
      { keyId: "k", settings: { name: "\0" }, updateMask: "name" },
      "settings.name",
    ],
    [
      "such a text in a list",
      createKey,
      { accountId: "a", family: 1, settings: { name: "n", allowedModels: ["opus", "\0"] } },
      "settings.allowed_models[1]",
    ],
    ["an unlisted value", createKey, { accountId: "acc_1", family: 7 }, "family"],
    [
      "an unlisted value in a list",
      generate,
      { model: "sonnet", messages: [message, { role: 9 }] },
      "messages[1].role",
    ],
    [
      "an unlisted value deep inside",
      generate,
      {
        model: "sonnet",
        messages: [{ ...message, content: [{ toolResult: { content: [{}], form: 9 } }] }],
      },
      "messages[0].content[0].tool_result.form",
    ],
  ])("%s is refused by name", async ([, method, json, field]) => {
    const { reason, facts, message } = await errorOf(check(method, json));
    expect([reason, facts.field]).toEqual(["invalid_request", field]);
    expect(message).toContain(field);
  });

  test("the content of conversations may hold any character", () => {
    const messages = [{ ...message, content: [{ text: { text: "\0" } }] }];
    expect(() =>
      checkRequest(generate.input, fromJson(generate.input, { model: "sonnet", messages })),
    ).not.toThrow();
  });

  test("the error lists the accepted values", async () => {
    const request = fromJson(createKey.input, { accountId: "acc_1", family: 7 });
    const { facts } = await errorOf(coreWith({}).keys.createKey(request, asAdmin));
    expect(facts.allowed).toEqual(["FAMILY_V1", "FAMILY_V2"]);
  });

  test("a request with a fault does not reach its method", async () => {
    const methods = { generate: vi.fn(), countTokens: vi.fn() };
    const core = coreWith({ inference: methods });
    await errorOf(core.inference.countTokens({}, asCustomer));
    await errorOf(all(core.inference.generate({}, asCustomer)));
    expect(methods.generate).not.toHaveBeenCalled();
    expect(methods.countTokens).not.toHaveBeenCalled();
  });

  test("listed values pass, absent optional ones too", async () => {
    const queryUsage = vi.fn(async () => create(QueryUsageResponseSchema));
    const core = coreWith({ billing: { queryUsage } });
    await core.billing.queryUsage({ bucket: Bucket.DAY }, asCustomer);
    await core.billing.queryUsage({}, asCustomer);
    expect(queryUsage).toHaveBeenCalledTimes(2);
  });
});

describe("abort", () => {
  test("a caller that hangs up leaves a method that ignores its signal", async () => {
    const controller = new AbortController();
    const started = Promise.withResolvers<void>();
    const core = coreWith({
      billing: {
        getPools: () => {
          started.resolve();
          return new Promise(() => {});
        },
      },
    });
    const call = errorOf(core.billing.getPools({}, { ...asCustomer, signal: controller.signal }));
    await started.promise;
    controller.abort();
    expect((await call).reason).toBe("cancelled");
  });

  test("a passed deadline fails as timeout", async () => {
    const core = coreWith({ billing: { getPools: () => new Promise(() => {}) } });
    expect((await errorOf(core.billing.getPools({}, { ...asCustomer, timeoutMs: 1 }))).reason).toBe(
      "timeout",
    );
  });

  test.for<[string, unknown, ErrorReason]>([
    ["by the caller", undefined, "cancelled"],
    ["by a deadline", new DOMException("late", "TimeoutError"), "timeout"],
    ["by a deadline of Connect", new ConnectError("late", Code.DeadlineExceeded), "timeout"],
  ])("a call that was ended %s before it began does not run", async ([, reason, apiError]) => {
    const getPools = vi.fn();
    const generate = vi.fn();
    const core = coreWith({ billing: { getPools }, inference: { generate } });
    const options = { ...asCustomer, signal: AbortSignal.abort(reason) };
    expect((await errorOf(core.billing.getPools({}, options))).reason).toBe(apiError);
    expect((await errorOf(all(core.inference.generate(hello, options)))).reason).toBe(apiError);
    expect(getPools).not.toHaveBeenCalled();
    expect(generate).not.toHaveBeenCalled();
  });

  test("a stream that throws after its signal fired fails with the reason of the abort", async () => {
    const controller = new AbortController();
    const core = coreWith({
      inference: {
        async *generate() {
          yield create(GenerateResponseSchema);
          controller.abort(new DOMException("late", "TimeoutError"));
          throw new Error("socket hang up");
        },
      },
    });
    const call = all(core.inference.generate(hello, { ...asCustomer, signal: controller.signal }));
    expect((await errorOf(call)).reason).toBe("timeout");
  });
});

describe("a caller that the listener of this process has authenticated", () => {
  const named = (ageMs: number, members = {}) =>
    withFacts(createContextValues(), {
      known: knownCaller(
        create(AuthenticateResponseSchema, {
          key: customer.key,
          secret: customer.secret,
          ...members,
        }),
        performance.now() - ageMs,
      ),
    });
  const poolsOf = coreWith({
    billing: { getPools: async (_, { caller }) => poolsNamed(caller) },
  });
  const poolsNamed = (caller: Caller) =>
    create(GetPoolsResponseSchema, {
      pools: [{ heldMicrocredits: caller.kind === "admin" ? 2n : 1n }],
    });
  const heldBy = async (ageMs: number, members = {}) => {
    const request = { accountId: "acc_1" };
    const options = { contextValues: named(ageMs, members) };
    const { pools } = await poolsOf.billing.getPools(request, options);
    return pools[0]?.heldMicrocredits;
  };

  test("is not authenticated again for 0.4 seconds", async () => {
    expect(await heldBy(350)).toBe(1n);
    expect(await heldBy(350, { admin: true, key: undefined, secret: undefined })).toBe(2n);
  });

  test("is authenticated again after that", async () => {
    expect((await errorOf(heldBy(400))).reason).toBe("missing_key");
  });

  test("is authenticated again if the listener's answer names no caller", async () => {
    const unnamed = heldBy(0, { key: undefined, secret: undefined });
    expect((await errorOf(unnamed)).reason).toBe("missing_key");
  });
});

describe("failures", () => {
  test("an ApiError passes unchanged, from both kinds of method", async () => {
    const apiError = new ApiError("credits_exhausted", { retryAfterMs: 5 });
    const core = coreWith({
      billing: { getPools: () => Promise.reject(apiError) },
      inference: {
        // biome-ignore lint/correctness/useYield: it fails before its first message.
        async *generate() {
          throw apiError;
        },
      },
    });
    expect(await errorOf(core.billing.getPools({}, asCustomer))).toBe(apiError);
    expect(await errorOf(all(core.inference.generate(hello, asCustomer)))).toBe(apiError);
  });

  test("an unexpected error is logged, and the caller sees no details", async () => {
    const cause = new Error("the password is wrong");
    const failed = vi.spyOn(silent, "error");
    const core = coreWith({ billing: { getPools: () => Promise.reject(cause) } });
    const failure = await errorOf(core.billing.getPools({}, asCustomer));
    expect([failure.reason, failure.message]).toEqual(["internal", "Internal error."]);
    const fields = { code: "internal_error", method: "GetPools", err: cause };
    expect(failed).toHaveBeenCalledWith(fields, "call failed");
    failed.mockRestore();
  });

  test("an abort reason of Connect becomes the matching error", () => {
    expect(toApiError(new ConnectError("late", Code.DeadlineExceeded)).reason).toBe("timeout");
    expect(toApiError(new ConnectError("gone", Code.Canceled)).reason).toBe("cancelled");
    expect(toApiError(new ConnectError("socket hang up", Code.Aborted)).reason).toBe("cancelled");
  });

  test("a method that throws before it returns a promise fails like any other", async () => {
    const core = coreWith({
      billing: {
        getPools: () => {
          throw new Error("at once");
        },
      },
    });
    expect((await errorOf(core.billing.getPools({}, asCustomer))).reason).toBe("internal");
  });
});

describe("the audit log", () => {
  /** A log, and the lines that were written to it. */
  function listen(): { log: Log; lines: () => unknown[]; text: () => string } {
    const written: string[] = [];
    const log = pino(
      { base: null, timestamp: false },
      { write: (line: string) => void written.push(line) },
    );
    return {
      log,
      lines: () => written.map((line) => JSON.parse(line)),
      text: () => written.join(""),
    };
  }
  const line = { level: 30, msg: "audit" };
  const made = { ...line, actor: "token:ADMIN_TOKEN" };
  const transfer = {
    accountId: "acc_1",
    family: Family.V2,
    kind: TransferKind.PURCHASE,
    amountMicrocredits: 1_000_000_000n,
    idempotencyKey: "invoice-7",
    reason: "by card",
  };

  test("a change writes one line with its object and its outcome", async () => {
    const { log, lines } = listen();
    const createTransfer = vi.fn(async () =>
      create(CreateTransferResponseSchema, { transfer: { ...transfer, transferId: "tra_1" } }),
    );
    const core = coreWith({ billing: { createTransfer }, log });
    await core.billing.createTransfer(transfer, asAdmin);
    createTransfer.mockRejectedValueOnce(new ApiError("insufficient_funds"));
    await errorOf(core.billing.createTransfer(transfer, asAdmin));
    const fields = {
      accountId: "acc_1",
      family: "V2",
      kind: "PURCHASE",
      amountMicrocredits: "1000000000",
    };
    expect(lines()).toEqual([
      { ...made, method: "CreateTransfer", outcome: "ok", ...fields, transferId: "tra_1" },
      { ...made, method: "CreateTransfer", outcome: "insufficient_funds", ...fields },
    ]);
  });

  test("it never holds a secret, neither a new one nor one that was sent in place of an id", async () => {
    const { log, lines, text } = listen();
    const secret = "sk-gw2-1the-secret";
    const key = {
      keyId: "key_1",
      accountId: "acc_1",
      family: Family.V1,
      name: secret,
      secrets: [{ hint: secret }],
    };
    const core = coreWith({
      keys: {
        createKey: async () => create(CreateKeyResponseSchema, { key, secret }),
        revokeKey: () => Promise.reject(new ApiError("not_found")),
      },
      log,
    });
    await core.keys.createKey(
      { accountId: "acc_1", family: Family.V1, settings: { name: secret } },
      asAdmin,
    );
    await errorOf(core.keys.revokeKey({ keyId: secret }, asAdmin));
    expect(lines()).toEqual([
      {
        ...made,
        method: "CreateKey",
        outcome: "ok",
        accountId: "acc_1",
        family: "V1",
        keyId: "key_1",
      },
      { ...made, method: "RevokeKey", outcome: "not_found" },
    ]);
    expect(text()).not.toContain("sk-gw2-");
  });

  test("it records the outcome of a change whose caller disconnected", async () => {
    const { log, lines } = listen();
    const begun = Promise.withResolvers<void>();
    const committed = Promise.withResolvers<void>();
    const core = coreWith({
      keys: {
        revokeKey: async () => {
          begun.resolve();
          await committed.promise;
          return create(RevokeKeyResponseSchema);
        },
      },
      log,
    });
    const controller = new AbortController();
    const call = errorOf(
      core.keys.revokeKey({ keyId: "key_1" }, { ...asAdmin, signal: controller.signal }),
    );
    await begun.promise;
    controller.abort();
    expect((await call).reason).toBe("cancelled");
    committed.resolve();
    await vi.waitFor(() =>
      expect(lines()).toEqual([{ ...made, method: "RevokeKey", outcome: "ok", keyId: "key_1" }]),
    );
  });

  test("it records rejected changes, and no reads", async () => {
    const { log, lines } = listen();
    const core = coreWith({ log });
    await errorOf(core.keys.revokeKey({ keyId: "key_1" }, asCustomer));
    await errorOf(core.keys.getKey({ keyId: "key_1" }, asAdmin));
    const rejected = { method: "RevokeKey", outcome: "not_permitted", keyId: "key_1" };
    expect(lines()).toEqual([{ ...line, actor: "key:key_1", ...rejected }]);
  });

  test("it covers every method that changes something, except the holds of other services", () => {
    const methods = allServices.flatMap((service) => service.methods);
    const isRead = (name: string) =>
      /^(Watch|Export|Get|List|Find|Search|Query|Count|Preview|Authenticate)/.test(name);
    const silent = methods.filter((desc) => !getOption(desc, audited) && !isRead(desc.name));
    expect(new Set(silent.map((desc) => desc.name))).toEqual(
      new Set([
        ...["Generate", "PlaceHold", "CheckpointHold", "VerifyLedger"],
        // Everybody may call these. The last three store their events with what they change.
        ...["BeginSignIn", "BeginPasskey", "BeginOidc", "SignUp"],
        ...["SignInWithPasskey", "SignInWithPassword"],
        ...["RedeemLink", "ConfirmEmail", "FinishOidc"],
        // Its signature is the credential, and its inbox the record.
        "ReceiveWebhook",
        // They concern the session of the caller alone. Those of operators store their events.
        ...["ConfirmIdentity", "SignOut"],
      ]),
    );
    const administered = methods.filter((desc) => getOption(desc, audited));
    const byKeys = administered.filter((desc) => getOption(desc, callers).key);
    expect(byKeys.map((desc) => desc.name)).toEqual([]);
  });
});

describe("streams", () => {
  test("messages pass by reference, and authentication happens once", async () => {
    const messages = Array.from({ length: 100 }, () => create(GenerateResponseSchema));
    const counted = vi.fn(authenticate);
    const implementation = {
      ...implement<Implementation<typeof InferenceService, AuthenticatedCall>>(
        InferenceService,
        () => async () => undefined,
      ),
      async *generate() {
        yield* messages;
      },
    };
    const services = intercept(InferenceService, implementation, {
      authenticate: counted,
      log: silent,
    });
    const seen: GenerateResponse[] = [];
    const call = {
      signal: new AbortController().signal,
      requestHeader: new Headers(asCustomer.headers),
    };
    for await (const message of services.generate(
      create(InferenceService.method.generate.input, hello),
      call,
    ))
      seen.push(message);
    expect(seen.every((message, index) => message === messages[index])).toBe(true);
    expect(counted).toHaveBeenCalledTimes(1);
  });

  test("a stream adds at most one listener to the signal, not one for each message", async () => {
    const controller = new AbortController();
    const listening = vi.spyOn(controller.signal, "addEventListener");
    const core = coreWith({
      inference: {
        async *generate() {
          for (let index = 0; index < 100; index++) yield create(GenerateResponseSchema);
        },
      },
    });
    await all(core.inference.generate(hello, { ...asCustomer, signal: controller.signal }));
    expect(listening.mock.calls.length).toBeLessThanOrEqual(1);
  });

  test("a reader that stops continues after the method has cleaned up", async () => {
    let cleaned = false;
    const core = coreWith({
      inference: {
        async *generate() {
          try {
            for (;;) yield create(GenerateResponseSchema);
          } finally {
            cleaned = true;
          }
        },
      },
    });
    for await (const _message of core.inference.generate(hello, asCustomer)) break;
    expect(cleaned).toBe(true);
  });

  test("a stream without a reader is never opened", async () => {
    const generate = vi.fn();
    const core = coreWith({ inference: { generate } });
    const iterator = core.inference.generate(hello, asCustomer)[Symbol.asyncIterator]();
    await iterator.return?.();
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
    expect(generate).not.toHaveBeenCalled();
  });
});
