// The contract of every method on every binding, generated from the protos: a new method is covered
// without a new test.

import {
  create,
  type DescField,
  type DescMethod,
  equals,
  fromBinary,
  fromJson,
  getOption,
  type Message,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { audited, callers, lenient, strong } from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  ApiError,
  type ErrorFacts,
  type ErrorReason,
  errorCatalog,
} from "../../src/base/errors.ts";
import { toErrorResponse } from "../../src/http/error-body.ts";
import {
  apiErrorOf,
  type Bindings,
  bindingNames,
  callAll,
  methods,
  startBindings,
} from "../support/bindings.ts";
import {
  anyMessage,
  enumPaths,
  leastRequest,
  nameOfPath,
  requiredFields,
  setEnum,
} from "../support/samples/messages.ts";
import {
  type CallerKind,
  callersByKind,
  emptyAnswers,
  type Script,
  scriptedServices,
} from "../support/scripted-services.ts";

const script: Script = emptyAnswers();
let bindings: Bindings;
beforeAll(async () => {
  bindings = await startBindings(scriptedServices(script));
});
beforeEach(() => {
  Object.assign(script, emptyAnswers());
});
afterAll(() => bindings.close());

let cases = 0;
function promise(name: string, run: () => Promise<void>): void {
  cases++;
  test(name, run);
}
const promised = methods.length;
afterAll(() =>
  console.log(
    `contract: ${cases} cases made from ${promised} methods on ${bindingNames.length} bindings`,
  ),
);

const callerKinds = Object.keys(callersByKind).filter(
  (kind): kind is CallerKind => kind in callersByKind,
);
const unlisted = 99;

/** A credential that may call this method. */
function goodCredential(desc: DescMethod): string {
  const kinds = ["key", "admin token", "owner", "operator"] as const;
  const kind = kinds.find((one) => expectedOf(desc, one) === "ok");
  return callersByKind[kind ?? "key"].credential;
}

function as(authorization: string): { headers: HeadersInit } {
  return { headers: { authorization } };
}

async function errorOf(call: Promise<unknown>): Promise<ApiError> {
  try {
    await call;
  } catch (error) {
    return apiErrorOf(error);
  }
  return expect.unreachable("the call was answered");
}

for (const desc of methods) {
  const path = `${desc.parent.name}.${desc.name}`;
  const streams = desc.methodKind !== "unary";

  for (const binding of bindingNames) {
    const call = (request: Message, options: Parameters<typeof callAll>[3]) =>
      callAll(bindings[binding], desc, request, options);

    describe(`${path} over ${binding}`, () => {
      promise("is served", async () => {
        const answers = await call(leastRequest(desc.input), as(goodCredential(desc)));
        expect(answers).toEqual(Array(streams ? 3 : 1).fill(create(desc.output)));
      });

      promise("refuses a call without a credential, unless it is for everybody", async () => {
        const answer = call(leastRequest(desc.input), {});
        if (getOption(desc, callers).anyone) await answer;
        else expect((await errorOf(answer)).reason).toBe("missing_key");
      });

      promise("refuses a wrong credential, unless it is for everybody", async () => {
        const answer = call(leastRequest(desc.input), as("Bearer sk-gw2-1wrong"));
        if (getOption(desc, callers).anyone) await answer;
        else expect((await errorOf(answer)).reason).toBe("invalid_key");
      });

      promise("admits the callers that its options name, and no other", async () => {
        const outcomes = await outcomesOf((headers) => call(leastRequest(desc.input), { headers }));
        expect(outcomes).toEqual(mapKinds((kind) => expectedOf(desc, kind)));
      });

      if (desc.input.field.accountId) {
        promise("finds no account in which its caller has no part", async () => {
          const request = leastRequest(desc.input);
          Reflect.set(request, "accountId", "acc_of_others");
          const outcomes = await outcomesOf((headers) => call(request, { headers }));
          expect(outcomes).toEqual(
            mapKinds((kind) => {
              const expected = expectedOf(desc, kind);
              return expected !== "not_permitted" && !seesAll(desc, kind) ? "not_found" : expected;
            }),
          );
        });

        const { allAccounts } = desc.input.field;
        if (allAccounts)
          promise("answers for all accounts to those who see each of them", async () => {
            const request = leastRequest(desc.input);
            reflect(desc.input, request, false).set(allAccounts, true);
            Reflect.set(request, "accountId", "");
            const outcomes = await outcomesOf((headers) => call(request, { headers }));
            expect(outcomes).toEqual(
              mapKinds((kind) =>
                seesAll(desc, kind) && expectedOf(desc, kind) === "ok" ? "ok" : "not_permitted",
              ),
            );
          });

        promise("takes no account to be the caller's own, which operators lack", async () => {
          const request = leastRequest(desc.input);
          reflect(desc.input, request, false).clear(desc.input.field.accountId as DescField);
          const outcomes = await outcomesOf((headers) => call(request, { headers }));
          expect(outcomes).toEqual(
            mapKinds((kind) => {
              const expected = expectedOf(desc, kind);
              const isHomeless =
                kind.endsWith(" token") || ["stranger", "support", "operator"].includes(kind);
              const isRequired = requiredFields(desc.input).includes(
                desc.input.field.accountId as DescField,
              );
              return expected !== "not_permitted" && (isHomeless || isRequired)
                ? "invalid_request"
                : expected;
            }),
          );
        });
      }

      promise("accepts fields that it does not know, unless it changes something", async () => {
        const request = leastRequest(desc.input);
        request.$unknown = [{ no: 50_000, wireType: 0, data: new Uint8Array([1]) }];
        const outcome = await call(request, as(goodCredential(desc))).then(
          () => "ok",
          (error: unknown) => apiErrorOf(error).reason,
        );
        // JSON carries no fields that its sender does not know.
        const isRefused = getOption(desc, audited) && binding !== "Connect with JSON";
        expect(outcome).toBe(isRefused ? "invalid_request" : "ok");
      });

      for (const field of requiredFields(desc.input)) {
        promise(`refuses a request without ${field.name}`, async () => {
          const request = leastRequest(desc.input);
          reflect(desc.input, request, false).clear(field);
          const { reason, facts } = await errorOf(call(request, as(goodCredential(desc))));
          expect([reason, facts.field]).toEqual(["invalid_request", field.name]);
        });
      }

      for (const field of enumPaths(desc.input)) {
        promise(`refuses an unlisted value of ${nameOfPath(field)}`, async () => {
          const request = leastRequest(desc.input);
          setEnum(desc.input, request, field, unlisted);
          const { reason, facts } = await errorOf(call(request, as(goodCredential(desc))));
          expect([reason, facts.field]).toEqual(["invalid_request", nameOfPath(field)]);
        });
      }

      promise("ends with its deadline", async () => {
        const { signals, stopped } = hang(desc);
        const { reason } = await errorOf(
          call(leastRequest(desc.input), { ...as(goodCredential(desc)), timeoutMs: 20 }),
        );
        expect(reason).toBe("timeout");
        // On a slow machine the deadline passes before the method is called, and then it does not
        // run.
        if (signals.length > 0) await stopped;
      });

      promise("ends when its caller cancels", async () => {
        const { started, stopped } = hang(desc);
        const controller = new AbortController();
        const answer = errorOf(
          call(leastRequest(desc.input), {
            ...as(goodCredential(desc)),
            signal: controller.signal,
          }),
        );
        await started;
        controller.abort();
        expect((await answer).reason).toBe("cancelled");
        await stopped;
      });

      promise("carries requests and answers unchanged", async () => {
        const [sent] = fc.sample(anyMessage(desc.input), { seed: 1, numRuns: 1 });
        const answers = fc.sample(anyMessage(desc.output), { seed: 2, numRuns: streams ? 3 : 1 });
        if (!sent) return;
        // Concatenated bytes are one message: the required fields come from the least request, the
        // others from the sample.
        const request = fromBinary(
          desc.input,
          join(toBinary(desc.input, sent), toBinary(desc.input, leastRequest(desc.input))),
        );
        const seen: Message[] = [];
        script.unary = async (called, received) => {
          // A listener that authenticates before reading calls Authenticate first.
          if (called !== desc) return create(called.output);
          seen.push(received);
          return answers[0] ?? create(desc.output);
        };
        script.stream = async function* (_desc, received) {
          seen.push(received);
          yield* answers;
        };
        const received = await call(request, as(goodCredential(desc)));
        expect(seen.at(-1)).toSatisfy((one: Message) => equals(desc.input, one, request));
        expect(received.map((one) => toJson(desc.output, one))).toEqual(
          answers.map((one) => toJson(desc.output, one)),
        );
      });
    });
  }
}

/** What each kind of caller gets: `ok`, or the reason of the error. */
async function outcomesOf(call: (headers: HeadersInit) => Promise<unknown>) {
  const outcomes = new Map<CallerKind, string>();
  for (const kind of callerKinds) {
    const headers = { authorization: callersByKind[kind].credential };
    const outcome = await call(headers).then(
      () => "ok",
      (error: unknown) => apiErrorOf(error).reason,
    );
    outcomes.set(kind, outcome);
  }
  return outcomes;
}

function mapKinds<T>(map: (kind: CallerKind) => T): Map<CallerKind, T> {
  return new Map(callerKinds.map((kind) => [kind, map(kind)]));
}

/** What a caller gets who names the account in which it has its part. */
function expectedOf(desc: DescMethod, kind: CallerKind): string {
  const { key, accountReader, admin, person, operator, anyone } = getOption(desc, callers);
  if (anyone) return "ok";
  const { VIEWER, MEMBER, OWNER } = AccountRole;
  const from = (role: AccountRole) => person !== 0 && role >= person;
  const forOperators = (role: OperatorRole) => operator !== 0 && role >= operator;
  const isAdmitted = {
    key,
    "account reader": key || accountReader,
    "admin token": admin !== 0,
    "read token": admin === AdminScope.READ,
    "keys token": admin === AdminScope.READ || admin === AdminScope.KEYS,
    "money token": admin === AdminScope.READ || admin === AdminScope.MONEY,
    stranger: person === VIEWER,
    viewer: from(VIEWER),
    member: from(MEMBER),
    owner: from(OWNER),
    "unconfirmed owner": from(OWNER),
    support: person === VIEWER || forOperators(OperatorRole.SUPPORT),
    operator: person === VIEWER || forOperators(OperatorRole.ADMIN),
  }[kind];
  if (!isAdmitted) return "not_permitted";
  if (kind === "unconfirmed owner" && getOption(desc, strong)) return "confirm_identity";
  // Who calls as any person would, and has no part in the account.
  const isStranger =
    kind === "stranger" || (kind === "support" && !forOperators(OperatorRole.SUPPORT));
  if (isStranger && desc.input.field.accountId) return "not_found";
  return "ok";
}

/** True if the caller may use the method for every account. */
function seesAll(desc: DescMethod, kind: CallerKind): boolean {
  const { operator } = getOption(desc, callers);
  return (
    kind.endsWith(" token") ||
    (kind === "support" && operator === OperatorRole.SUPPORT) ||
    (kind === "operator" && operator !== 0)
  );
}

/** Lets the method wait until its signal fires. */
function hang(desc: DescMethod) {
  const signals: AbortSignal[] = [];
  const started = Promise.withResolvers<void>();
  const stopped = Promise.withResolvers<void>();
  const wait = (signal: AbortSignal) =>
    new Promise<never>((_resolve, reject) => {
      signals.push(signal);
      signal.addEventListener("abort", () => {
        reject(signal.reason);
        stopped.resolve();
      });
      started.resolve();
    });
  script.unary = async (called, _request, call) =>
    called === desc ? wait(call.signal) : create(called.output);
  script.stream = async function* (_called, _request, call) {
    yield await wait(call.signal);
  };
  return { signals, started: started.promise, stopped: stopped.promise };
}

function join(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

const messageTypes = new Set(methods.flatMap((desc) => [desc.input, desc.output]));
for (const type of messageTypes) {
  promise(`${type.typeName} survives binary and JSON`, async () => {
    fc.assert(
      fc.property(anyMessage(type), (message) => {
        expect(equals(type, fromBinary(type, toBinary(type, message)), message)).toBe(true);
        expect(equals(type, fromJson(type, toJson(type, message)), message)).toBe(true);
      }),
      { numRuns: 25 },
    );
  });
}

const reasons = Object.keys(errorCatalog).filter(
  (name): name is ErrorReason => name in errorCatalog,
);
for (const name of reasons) {
  for (const envelope of ["native", "chat", "union"] as const) {
    promise(`${name} has an answer in the ${envelope} format of HTTP`, async () => {
      const { status, body } = toErrorResponse(new ApiError(name), envelope, "req_12345678");
      expect(status).toBeGreaterThanOrEqual(400);
      expect(body).toMatchObject({
        error: { type: expect.any(String), message: expect.any(String) },
      });
    });
  }
}

const unaryMethod = methods.find((desc) => desc.methodKind === "unary");
const streamMethod = methods.find((desc) => desc.methodKind !== "unary");
const allFacts: ErrorFacts = {
  message: "the message",
  field: "messages[0].content",
  allowed: ["one", "two"],
  retryAfterMs: 1500,
  limit: {
    name: "pool_microcredits",
    limit: 60n,
    used: 2n ** 62n,
    remaining: 0n,
    resetsAt: timestampFromMs(1_700_000_000_123),
    family: Family.V2,
  },
  providerAnswer: { status: 400, body: { error: { type: "x" } } },
};
for (const binding of bindingNames) {
  for (const name of reasons) {
    for (const [title, facts] of [
      ["code and message", {}],
      ["code, message and facts", allFacts],
    ] as const) {
      promise(`${name} keeps its ${title} over ${binding}`, async () => {
        const apiError = new ApiError(name, facts);
        script.unary = () => Promise.reject(apiError);
        script.stream = async function* (desc) {
          yield create(desc.output);
          throw apiError;
        };
        for (const desc of [unaryMethod, streamMethod]) {
          if (!desc) continue;
          const failure = callAll(
            bindings[binding],
            desc,
            leastRequest(desc.input),
            as(goodCredential(desc)),
          );
          const { reason, message, facts: received } = await errorOf(failure);
          expect([reason, message]).toEqual([name, apiError.message]);
          expect({ ...received, message }).toEqual({ ...facts, message });
        }
      });
    }
  }

  promise(`an unexpected error is internal over ${binding}, without details`, async () => {
    script.unary = () => Promise.reject(new Error("the password is wrong"));
    script.stream = async function* (desc) {
      yield create(desc.output);
      throw new Error("the password is wrong");
    };
    for (const desc of [unaryMethod, streamMethod]) {
      if (!desc) continue;
      const failure = await errorOf(
        callAll(bindings[binding], desc, leastRequest(desc.input), as(goodCredential(desc))),
      );
      expect([failure.reason, failure.message]).toEqual(["internal", "Internal error."]);
    }
  });
}

for (const desc of methods.filter((one) => one.methodKind === "unary")) {
  const post = (body: unknown) =>
    fetch(`${bindings.httpUrl}/${desc.parent.typeName}/${desc.name}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: goodCredential(desc) },
      body: JSON.stringify(body),
    });
  const least = () => Object(toJson(desc.input, leastRequest(desc.input)));

  describe(`${desc.parent.name}.${desc.name} with plain JSON`, () => {
    const isLenient = getOption(desc, lenient);
    promise(`${isLenient ? "ignores" : "refuses"} a member that is not known`, async () => {
      const response = await post({ ...least(), notYetInvented: [1, { a: null }] });
      const answer = await response.json();
      const refused = { code: "invalid_argument", details: expect.anything() };
      expect([response.status, answer]).toMatchObject(
        isLenient ? [200, toJson(desc.output, create(desc.output))] : [400, refused],
      );
    });

    for (const [field, ...deeper] of enumPaths(desc.input)) {
      if (!field || deeper.length > 0) continue;
      promise(`refuses an unlisted name for ${field.name}`, async () => {
        const response = await post({ ...least(), [field.jsonName]: "NO_SUCH_VALUE" });
        expect([response.status, await response.json()]).toMatchObject([
          400,
          {
            code: "invalid_argument",
            details: [
              { debug: { reason: "INVALID_REQUEST", domain: "model-gateway" } },
              { debug: { fieldViolations: [{ field: field.name }] } },
              {},
            ],
          },
        ]);
      });
    }
  });
}
