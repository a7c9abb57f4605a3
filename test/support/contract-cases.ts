// What every method promises, made from its descriptor: a new method gets its cases by itself.

import {
  create,
  type DescMethod,
  equals,
  getOption,
  type Message,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { CallOptions } from "@connectrpc/connect";
import fc from "fast-check";
import { expect } from "vitest";
import {
  audited,
  type Callers,
  callers,
  endless,
  strong,
} from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { ApiError } from "../../src/base/errors.ts";
import type { HttpAdmin } from "../../src/config/environment.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { limitsOf } from "../../src/contract/limits.ts";
import { apiErrorOf } from "./bindings.ts";
import {
  anyMessage,
  anyRequest,
  type Edge,
  enumPaths,
  leastRequest,
  limitEdges,
  nameOfPath,
  requiredFields,
  setEnum,
} from "./samples/messages.ts";
import { type CallerKind, callersByKind, type Script } from "./scripted-services.ts";

/** Calls a method over some binding, and returns all its answers. */
export type CallMethod = (
  desc: DescMethod,
  request: Message,
  options: CallOptions,
) => Promise<Message[]>;

/** `Service.Method`. */
export const pathOf = (desc: DescMethod) => `${desc.parent.name}.${desc.name}`;

export function as(authorization: string): { headers: Record<string, string> } {
  return { headers: { authorization } };
}

export async function errorOf(call: Promise<unknown>): Promise<ApiError> {
  try {
    await call;
  } catch (error) {
    return apiErrorOf(error);
  }
  return expect.unreachable("the call was answered");
}

/**
 * One method of each kind, chosen by its descriptor. Of several, the one with the most fields that
 * are checked.
 */
export function representatives(methods: readonly DescMethod[]): DescMethod[] {
  const isUnary = (desc: DescMethod) => desc.methodKind === "unary";
  const isEndless = (desc: DescMethod) => getOption(desc, endless);
  const hasAccount = (desc: DescMethod) => desc.input.field.accountId !== undefined;
  const checks = ({ input }: DescMethod) => requiredFields(input).length + enumPaths(input).length;
  return [
    (desc: DescMethod) => isUnary(desc) && !hasAccount(desc),
    (desc: DescMethod) => isUnary(desc) && hasAccount(desc),
    (desc: DescMethod) => isEndless(desc),
    (desc: DescMethod) => !isUnary(desc) && !isEndless(desc),
  ].flatMap(
    (isOne) => methods.filter(isOne).sort((one, other) => checks(other) - checks(one))[0] ?? [],
  );
}

/** The requests that lack a required field or hold an unlisted value, by the name of the field. */
export function invalidRequests({ input }: DescMethod) {
  const missing = requiredFields(input).map((field) => {
    const request = leastRequest(input);
    reflect(input, request, false).clear(field);
    return { field: field.name, request };
  });
  const unlisted = enumPaths(input).map((path) => {
    const request = leastRequest(input);
    setEnum(input, request, path, 99);
    return { field: nameOfPath(path), request };
  });
  const unstorable = input.fields
    .filter(({ scalar }) => scalar === ScalarType.STRING && input !== GenerateRequestSchema)
    .map((field) => {
      const request = leastRequest(input);
      const text = "a\0b";
      const reflected = reflect(input, request, false);
      reflected.clear(field);
      if (field.fieldKind === "list") reflected.get(field).add(text);
      else if (field.fieldKind === "map") reflected.get(field).set("a", text);
      else reflected.set(field, text);
      return { field: nameOfPath([field]), request };
    });
  return { missing, unlisted, unstorable };
}

/** The edges that a binding answers in another way than the limits say. */
export async function wrongEdges(
  desc: DescMethod,
  edges: readonly Edge[],
  call: CallMethod,
): Promise<string[]> {
  const wrong: string[] = [];
  for (const { field, kind, isValid, request } of edges) {
    const answer = call(desc, request, as(goodCredential(desc)));
    const found = await answer.then(
      () => "valid",
      (error: unknown) => {
        const { reason, facts } = apiErrorOf(error);
        return `${reason} ${facts.field}`;
      },
    );
    const expected = isValid ? "valid" : `invalid_request ${field}`;
    if (found !== expected)
      wrong.push(`${pathOf(desc)} ${field} ${kind}: ${found}, not ${expected}`);
  }
  return wrong;
}

export type Case = { readonly name: string; readonly run: () => Promise<void> };

/** The cases of one method over one binding of the scripted services. */
export function contractCases(
  desc: DescMethod,
  script: Script,
  call: CallMethod,
  /** False: the binding carries no fields that its sender does not know. */
  carriesUnknown = true,
): Case[] {
  const good = as(goodCredential(desc));
  const count = desc.methodKind === "unary" ? 1 : 3;
  const { missing, unlisted, unstorable } = invalidRequests(desc);
  const edges = limitEdges(desc.input);
  const rejects = async (requests: typeof missing) => {
    const rejected = [];
    for (const { request } of requests) {
      const { reason, facts } = await errorOf(call(desc, request, good));
      rejected.push([reason, facts.field]);
    }
    expect(rejected).toEqual(requests.map(({ field }) => ["invalid_request", field]));
  };
  const cases: (Case | false)[] = [
    {
      name: "is served, also with fields that it does not know, unless it changes something",
      async run() {
        const request = leastRequest(desc.input);
        const expected = Array(count).fill(create(desc.output));
        expect(await call(desc, request, good)).toEqual(expected);
        request.$unknown = [{ no: 50_000, wireType: 0, data: new Uint8Array([1]) }];
        if (getOption(desc, audited) && carriesUnknown)
          expect((await errorOf(call(desc, request, good))).reason).toBe("invalid_request");
        else expect(await call(desc, request, good)).toEqual(expected);
      },
    },
    missing.length > 0 && {
      name: "refuses a request without a required field, and names it",
      run: () => rejects(missing),
    },
    unlisted.length > 0 && {
      name: "refuses an unlisted value of an enum, and names its field",
      run: () => rejects(unlisted),
    },
    unstorable.length > 0 && {
      name: "refuses a character that no database stores, and names its field",
      run: () => rejects(unstorable),
    },
    edges.length > 0 && {
      name: "takes values at the edge of each limit, and refuses those beyond with their fields",
      run: async () => expect(await wrongEdges(desc, edges, call)).toEqual([]),
    },
    {
      name: "ends with its deadline",
      async run() {
        const { signals, stopped } = hang(desc, script);
        const late = call(desc, leastRequest(desc.input), { ...good, timeoutMs: 20 });
        expect((await errorOf(late)).reason).toBe("timeout");
        // On a slow machine the deadline passes before the method is called, and then it does not
        // run.
        if (signals.length > 0) await stopped;
      },
    },
    {
      name: "ends when its caller cancels",
      async run() {
        const { started, stopped } = hang(desc, script);
        const controller = new AbortController();
        const { signal } = controller;
        const answer = errorOf(call(desc, leastRequest(desc.input), { ...good, signal }));
        await started;
        controller.abort();
        expect((await answer).reason).toBe("cancelled");
        await stopped;
      },
    },
    {
      name: "carries requests and answers unchanged",
      async run() {
        const anyAnswers = fc.array(anyMessage(desc.output), {
          minLength: count,
          maxLength: count,
        });
        const carried = fc.asyncProperty(anyRequest(desc.input), anyAnswers, async (sent, all) => {
          const seen: Message[] = [];
          script.unary = async (called, received) => {
            // A listener that authenticates before reading calls Authenticate first.
            if (called !== desc) return create(called.output);
            seen.push(received);
            return all[0] ?? create(desc.output);
          };
          script.stream = async function* (_desc, received) {
            seen.push(received);
            yield* all;
          };
          const received = await call(desc, sent, good);
          expect(seen.at(-1)).toSatisfy((one: Message) => equals(desc.input, one, sent));
          expect(received.map((one) => toJson(desc.output, one))).toEqual(
            all.map((one) => toJson(desc.output, one)),
          );
        });
        await fc.assert(carried, { numRuns: 20 });
      },
    },
  ];
  return cases.filter((one) => one !== false);
}

/** Lets the method wait until its signal fires. */
function hang(desc: DescMethod, script: Script) {
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

/** One call of a table, and its expected outcome. */
export type Cell = {
  readonly name: string;
  readonly expected: string;
  readonly outcome: () => Promise<string>;
};

/** Makes the calls, `atOnce` at a time, and returns those with another outcome. */
export async function wrongCells(cells: readonly Cell[], atOnce = 16): Promise<string[]> {
  expect(cells.length).toBeGreaterThan(0);
  const wrong: string[] = [];
  for (let start = 0; start < cells.length; start += atOnce) {
    const next = cells.slice(start, start + atOnce).map(async ({ name, expected, outcome }) => {
      const actual = await outcome();
      return actual === expected ? [] : [`${name}: ${actual}, not ${expected}`];
    });
    wrong.push(...(await Promise.all(next)).flat());
  }
  return wrong;
}

/** The reason of the error of a call, or `ok`. */
export function outcomeOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "ok",
    (error: unknown) => apiErrorOf(error).reason,
  );
}

const kinds = Object.keys(callersByKind).filter(
  (kind): kind is CallerKind => kind in callersByKind,
);
type Credential = CallerKind | "no credential" | "a wrong credential";
const credentials: readonly Credential[] = [...kinds, "no credential", "a wrong credential"];

function headersOf(credential: Credential): CallOptions {
  if (credential === "no credential") return {};
  if (credential === "a wrong credential") return as("Bearer sk-gw2-1wrong");
  return as(callersByKind[credential].credential);
}

/** The account that a request asks for. */
type Account = "their account" | "another account" | "no account" | "all accounts";

function requestFor({ input }: DescMethod, account: Account): Message {
  const request = leastRequest(input);
  const { accountId, allAccounts } = input.field;
  const reflected = reflect(input, request, false);
  if (accountId && account === "another account") reflected.set(accountId, "acc_of_others");
  if (accountId && account === "no account") reflected.clear(accountId);
  if (accountId && allAccounts && account === "all accounts") {
    reflected.clear(accountId);
    reflected.set(allAccounts, true);
  }
  return request;
}

/**
 * Who may call what: every method with every credential, for every account that a request can ask
 * for. The script must be `sampleAnswers` meanwhile. With an `httpAdmin` other than true, requests
 * ask for the callers' account only: HTTP_ADMIN takes rights away, and knows no accounts.
 */
export function callerTable(
  methods: readonly DescMethod[],
  call: CallMethod,
  httpAdmin: HttpAdmin = "true",
): Cell[] {
  return methods.flatMap((desc) => {
    const rights = rightsOf(desc);
    const { accountId, allAccounts } = desc.input.field;
    const accounts: Account[] = [
      "their account",
      ...(accountId && httpAdmin === "true" ? (["another account", "no account"] as const) : []),
      ...(allAccounts && httpAdmin === "true" ? (["all accounts"] as const) : []),
    ];
    return accounts.flatMap((account) => {
      const request = requestFor(desc, account);
      return credentials.map((credential) => ({
        name: `${pathOf(desc)} for ${account} by ${credential}`,
        expected: expectedOf(rights, account, credential, httpAdmin),
        outcome: async () => {
          const answers = await call(desc, request, headersOf(credential)).catch(apiErrorOf);
          if (!Array.isArray(answers)) return answers.reason;
          const expected = answersFor(desc, isToken(credential));
          const isWhole =
            answers.length === expected.length &&
            expected.every((one, index) => equals(desc.output, one, answers[index] ?? one));
          return isWhole ? "ok" : "another answer";
        },
      }));
    });
  });
}

/** Answers each method with a sample of its own. */
export const sampleAnswers: Script = {
  unary: async (desc, _request, { caller }) =>
    answersFor(desc, caller.kind === "admin")[0] ?? create(desc.output),
  async *stream(desc, _request, { caller }) {
    yield* answersFor(desc, caller.kind === "admin");
  },
};

const samples = new Map<string, Message[]>();

function answersFor(desc: DescMethod, toAdmin: boolean): Message[] {
  // The HTTP listener knows admin tokens by it.
  if (desc === serviceTypes.keys.method.authenticate)
    return [create(desc.output, toAdmin ? { admin: {} } : {})];
  const known = samples.get(pathOf(desc));
  if (known) return known;
  const numRuns = desc.methodKind === "unary" ? 1 : 3;
  const made = fc.sample(anyMessage(desc.output, 1), { seed: samples.size, numRuns });
  samples.set(pathOf(desc), made);
  return made;
}

/** A credential that may call this method. */
export function goodCredential(desc: DescMethod): string {
  const rights = rightsOf(desc);
  const kind = kinds.find((one) => expectedOf(rights, "their account", one, "true") === "ok");
  return callersByKind[kind ?? "key"].credential;
}

/** The options of a method. Read once for many cells: protobuf takes its time. */
function rightsOf(desc: DescMethod) {
  const { accountId } = desc.input.field;
  return {
    allowed: getOption(desc, callers),
    isStrong: getOption(desc, strong),
    hasAccount: accountId !== undefined,
    /** True if every caller has to name an account. */
    needsAccount: accountId !== undefined && limitsOf(accountId)?.isRequired === true,
  };
}

/** The outcome by the options of the method, as options.proto explains them. */
function expectedOf(
  rights: ReturnType<typeof rightsOf>,
  account: Account,
  credential: Credential,
  httpAdmin: HttpAdmin,
): string {
  const { allowed, isStrong, hasAccount, needsAccount } = rights;
  const { key, accountReader, person, operatorRole: operator, anyone } = allowed;
  const isOperator = credential === "support" || credential === "operator";
  if (httpAdmin === "false") {
    if (!key && !accountReader && !person && !anyone) return "unimplemented";
    if (isOperator) return expectedOf(rights, account, "stranger", "true");
  }
  if (httpAdmin !== "true" && isToken(credential)) return "not_permitted";
  if (anyone) return "ok";
  if (credential === "no credential") return "missing_key";
  if (credential === "a wrong credential") return "invalid_key";
  if (!isAdmitted(allowed, credential)) return "not_permitted";
  const isOpenToOperator =
    operator !== 0 && (credential === "operator" || operator === OperatorRole.SUPPORT);
  const seesAll = isToken(credential) || (isOperator && isOpenToOperator);
  // Who has no account of their own.
  const isHomeless = isToken(credential) || isOperator || credential === "stranger";
  if (account === "all accounts" && !seesAll) return "not_permitted";
  if (account === "another account" && !seesAll) return "not_found";
  if (account === "their account" && hasAccount && isHomeless && !seesAll) return "not_found";
  if (account === "no account" && (isHomeless || needsAccount)) return "invalid_request";
  return credential === "unconfirmed owner" && isStrong ? "confirm_identity" : "ok";
}

function isAdmitted(allowed: Callers, kind: CallerKind): boolean {
  const { key, accountReader, admin, person, operatorRole: operator } = allowed;
  const { VIEWER, MEMBER, OWNER } = AccountRole;
  const from = (role: AccountRole) => person !== 0 && role >= person;
  return {
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
    support: person === VIEWER || operator === OperatorRole.SUPPORT,
    operator: person === VIEWER || operator !== 0,
  }[kind];
}

function isToken(credential: Credential): boolean {
  return credential.endsWith(" token");
}
