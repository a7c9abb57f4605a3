// The contract of every method on every binding, made from the protos: a new method is covered
// without a new test.
//
// Every method is tested over the local binding, and one of each kind over the others, which pass
// any message alike. Who may call what is decided for each method on each binding.

import {
  clone,
  create,
  createFileRegistry,
  type DescMethod,
  type DescService,
  equals,
  fromBinary,
  fromJson,
  getOption,
  type MessageInitShape,
  setExtension,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import {
  FileDescriptorProtoSchema,
  MethodDescriptorProtoSchema,
  timestampFromMs,
} from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "@connectrpc/connect";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { CallersSchema, callers, lenient } from "../../gen/gateway/common/v1/options_pb.ts";
import { AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  ApiError,
  type ErrorFacts,
  type ErrorReason,
  errorCatalog,
} from "../../src/base/errors.ts";
import type { HttpAdmin } from "../../src/config/environment.ts";
import {
  boundMethod,
  type Core,
  type Implementation,
  implement,
  localClient,
} from "../../src/contract/contract.ts";
import { toErrorResponse } from "../../src/http/error-body.ts";
import {
  answersOf,
  type Bindings,
  bindingNames,
  callAll,
  type HttpBindings,
  httpBindingNames,
  methods,
  startBindings,
  startHttpBindings,
} from "../support/bindings.ts";
import {
  as,
  type CallMethod,
  callerTable,
  contractCases,
  errorOf,
  goodCredential,
  pathOf,
  representatives,
  sampleAnswers,
  wrongCells,
  wrongEdges,
} from "../support/contract-cases.ts";
import { anyMessage, leastRequest, limitEdges } from "../support/samples/messages.ts";
import {
  emptyAnswers,
  type Script,
  scriptedService,
  scriptedServices,
} from "../support/scripted-services.ts";

const script: Script = emptyAnswers();
const services = scriptedServices(script);
let bindings: Bindings;
/** The HTTP port with HTTP_ADMIN at each value. */
let ports: Record<HttpAdmin, HttpBindings>;
beforeAll(async () => {
  bindings = await startBindings(services);
  ports = {
    true: bindings,
    persons: await startHttpBindings(services, "persons"),
    false: await startHttpBindings(services, "false"),
  };
});
beforeEach(() => {
  Object.assign(script, emptyAnswers());
});
afterAll(() => Promise.all(Object.values(ports).map((port) => port.close())));

const chosen = representatives(methods);
const over =
  (core: () => Core): CallMethod =>
  (desc, request, options) =>
    callAll(core(), desc, request, options);

for (const binding of bindingNames)
  for (const desc of binding === "local" ? methods : chosen)
    describe(`${pathOf(desc)} over ${binding}`, () => {
      const cases = contractCases(
        desc,
        script,
        over(() => bindings[binding]),
        binding !== "Connect with JSON",
      );
      for (const { name, run } of cases) test(name, run);
    });

describe("each caller may call what the options say", () => {
  for (const binding of ["local", "gRPC"] as const)
    test(`over ${binding}`, async () => {
      Object.assign(script, sampleAnswers);
      const table = callerTable(
        methods,
        over(() => bindings[binding]),
      );
      expect(await wrongCells(table)).toEqual([]);
    });

  for (const binding of httpBindingNames)
    test.for(["true", "persons", "false"] as const)(
      `over ${binding}, with HTTP_ADMIN=%s`,
      async (httpAdmin) => {
        Object.assign(script, sampleAnswers);
        const call = over(() => ports[httpAdmin][binding]);
        expect(await wrongCells(callerTable(methods, call, httpAdmin))).toEqual([]);
      },
    );
});

for (const desc of methods)
  test(`the messages of ${pathOf(desc)} survive binary and JSON`, () => {
    for (const type of [desc.input, desc.output])
      fc.assert(
        fc.property(anyMessage(type), (message) => {
          expect(equals(type, fromBinary(type, toBinary(type, message)), message)).toBe(true);
          expect(equals(type, fromJson(type, toJson(type, message)), message)).toBe(true);
        }),
        { numRuns: 25 },
      );
  });

describe("one limit of each kind", () => {
  const all = methods.flatMap((desc) =>
    limitEdges(desc.input).map((edge) => ({
      desc,
      ...edge,
      place: `${pathOf(desc)} ${edge.field}`,
    })),
  );
  // The first field with each kind of limit stands for the others.
  const places = new Map(all.toReversed().map(({ kind, place }) => [kind, place]));
  const first = all.filter(({ kind, place }) => places.get(kind) === place);

  test("stands for those of all methods", () => {
    expect([...places.keys()].toSorted()).toEqual([
      ...["isFuture", "isUnique", "itemsMax", "least", "lengthMax"],
      ...["lengthMin", "most", "notIn", "pattern", "skipsZero"],
    ]);
  });

  for (const binding of bindingNames)
    test(`holds over ${binding}, one below, at and above`, async () => {
      const call = over(() => bindings[binding]);
      for (const edge of first) expect(await wrongEdges(edge.desc, [edge], call)).toEqual([]);
    });
});

const reasons = Object.keys(errorCatalog).filter(
  (name): name is ErrorReason => name in errorCatalog,
);
test.for(reasons)("%s has an answer in each format of HTTP", (name) => {
  for (const envelope of ["native", "chat", "union"] as const) {
    const { status, body } = toErrorResponse(new ApiError(name), envelope, "req_12345678");
    expect(status).toBeGreaterThanOrEqual(400);
    expect(body).toMatchObject({
      error: { type: expect.any(String), message: expect.any(String) },
    });
  }
});

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
/** Lets every method fail, streams after their first message. */
function fail(error: Error): void {
  script.unary = () => Promise.reject(error);
  script.stream = async function* (desc) {
    yield create(desc.output);
    throw error;
  };
}

describe.for(bindingNames)("an error over %s", (binding) => {
  const failures = async () => {
    const failed = [];
    for (const desc of chosen) {
      const request = leastRequest(desc.input);
      const { reason, message, facts } = await errorOf(
        callAll(bindings[binding], desc, request, as(goodCredential(desc))),
      );
      failed.push({ reason, message, facts: { ...facts, message } });
    }
    return failed;
  };

  test.for(reasons)("%s keeps its code, its message and its facts", async (reason) => {
    for (const facts of [{}, allFacts]) {
      const error = new ApiError(reason, facts);
      fail(error);
      const { message } = error;
      const expected = { reason, message, facts: { ...facts, message } };
      expect(await failures()).toEqual(Array(4).fill(expected));
    }
  });

  test("that is unexpected is internal, without details", async () => {
    fail(new Error("the password is wrong"));
    expect(await failures()).toMatchObject(
      Array(4).fill({ reason: "internal", message: "Internal error." }),
    );
  });
});

describe("plain JSON", () => {
  const unary = methods.filter((desc) => desc.methodKind === "unary");
  const post = async (desc: DescMethod, more: object) => {
    const least = Object(toJson(desc.input, leastRequest(desc.input)));
    const response = await fetch(`${bindings.httpUrl}/${desc.parent.typeName}/${desc.name}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: goodCredential(desc) },
      body: JSON.stringify({ ...least, ...more }),
    });
    const body: unknown = await response.json();
    return { status: response.status, body };
  };

  test("with a member that is not known is refused by every method that is not lenient", async () => {
    const cells = unary.map((desc) => ({
      name: pathOf(desc),
      expected: getOption(desc, lenient)
        ? JSON.stringify({ status: 200, body: toJson(desc.output, create(desc.output)) })
        : "400 invalid_argument",
      outcome: async () => {
        const { status, body } = await post(desc, { notYetInvented: [1, { a: null }] });
        return status === 200 ? JSON.stringify({ status, body }) : `${status} ${Object(body).code}`;
      },
    }));
    expect(await wrongCells(cells)).toEqual([]);
  });

  test("with an unlisted name gets an error that names its field, from every method", async () => {
    const cells = unary.flatMap((desc) =>
      desc.input.fields
        .filter((field) => field.enum)
        .map((field) => ({
          name: `${pathOf(desc)} ${field.name}`,
          expected: `400 invalid_argument INVALID_REQUEST model-gateway ${field.name}`,
          outcome: async () => {
            const { status, body } = await post(desc, { [field.jsonName]: "NO_SUCH_VALUE" });
            const { code, details } = Object(body);
            const [info, request, detail] = details;
            expect(detail).toBeDefined();
            const { reason, domain } = info.debug;
            return [status, code, reason, domain, request.debug.fieldViolations[0].field].join(" ");
          },
        })),
    );
    expect(await wrongCells(cells)).toEqual([]);
  });
});

describe("a method that is added to a service", () => {
  /** The method `Added` of a copy of BillingService: as CreateTransfer, for these callers. */
  function added(allowed: MessageInitShape<typeof CallersSchema>): DescMethod {
    const { createTransfer } = BillingService.method;
    const file = clone(FileDescriptorProtoSchema, BillingService.file.proto);
    const method = clone(MethodDescriptorProtoSchema, createTransfer.proto);
    method.name = "Added";
    if (method.options) setExtension(method.options, callers, create(CallersSchema, allowed));
    file.service[0]?.method.push(method);
    const registry = createFileRegistry(file, (path) =>
      BillingService.file.dependencies.find((one) => one.proto.name === path),
    );
    const desc = registry.getService(BillingService.typeName)?.methods.at(-1);
    return desc ?? expect.unreachable("nothing was added");
  }
  const forMoney = { admin: AdminScope.MONEY, operatorRole: OperatorRole.ADMIN };

  /** Calls the methods of this service over the local binding. */
  function localCall(
    implementation: Implementation<DescService>,
    service: DescService,
  ): CallMethod {
    const client: Implementation<DescService, CallOptions> = localClient(service, implementation);
    return ({ localName }, request, options) => {
      const desc = service.methods.find((one) => one.localName === localName);
      if (!desc) return expect.unreachable(`${service.name} lacks ${localName}`);
      return answersOf(boundMethod(client, desc), request, options);
    };
  }

  test("gets its cases and its part of the table, and passes them", async () => {
    const desc = added(forMoney);
    const call = localCall(scriptedService(desc.parent, script), desc.parent);
    const cases = contractCases(desc, script, call);
    expect(cases.map(({ name }) => name)).toEqual([
      "is served, also with fields that it does not know, unless it changes something",
      "refuses a request without a required field, and names it",
      "refuses an unlisted value of an enum, and names its field",
      "refuses a character that no database stores, and names its field",
      "takes values at the edge of each limit, and refuses those beyond with their fields",
      "ends with its deadline",
      "ends when its caller cancels",
      "carries requests and answers unchanged",
    ]);
    for (const { run } of cases) await run();
    Object.assign(script, sampleAnswers);
    const table = callerTable([desc], call);
    expect(table.length).toBe(3 * 15);
    expect(await wrongCells(table)).toEqual([]);
  });

  test("fails the cases of its fields if nothing checks its requests", async () => {
    const desc = added(forMoney);
    const unchecked = implement<Implementation<typeof desc.parent>>(
      desc.parent,
      (called) => async () => create(called.output),
    );
    const cases = contractCases(desc, script, localCall(unchecked, desc.parent));
    const failing: string[] = [];
    for (const { name, run } of cases.filter(({ name }) => name.startsWith("refuses")))
      await run().catch(() => failing.push(name));
    expect(failing).toHaveLength(3);
  });

  test("fails the table with the cells alone in which its rights are not those of its options", async () => {
    const { parent } = added({ ...forMoney, admin: AdminScope.READ });
    Object.assign(script, sampleAnswers);
    const call = localCall(scriptedService(parent, script), parent);
    expect(await wrongCells(callerTable([added(forMoney)], call))).toEqual([
      "BillingService.Added for their account by read token: ok, not not_permitted",
      "BillingService.Added for their account by keys token: ok, not not_permitted",
      "BillingService.Added for another account by read token: ok, not not_permitted",
      "BillingService.Added for another account by keys token: ok, not not_permitted",
      "BillingService.Added for no account by read token: invalid_request, not not_permitted",
      "BillingService.Added for no account by keys token: invalid_request, not not_permitted",
    ]);
  });
});
