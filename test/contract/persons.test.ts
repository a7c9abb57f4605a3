// Persons and the interceptor: their streams, what they leave in the audit, and callers that no
// header can claim to be.

import { create, type Message } from "@bufbuild/protobuf";
import { pino } from "pino";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import {
  type AuthenticatedCall,
  boundMethod,
  type Call,
  type Caller,
  environmentToken,
  type Implementation,
  implement,
  type Person,
} from "../../src/contract/contract.ts";
import { type AuditEvent, intercept } from "../../src/contract/interceptor.ts";
import { answerType, innerType, testService } from "../support/test-service.ts";

const owner: Person = {
  kind: "person",
  personId: "per_owner",
  sessionId: "ses_1",
  memberships: [{ accountId: "acc_a", role: AccountRole.OWNER }],
  operator: OperatorRole.UNSPECIFIED,
  strongUntil: new Date("2100-01-01T00:00:00Z"),
};
const operator: Person = {
  ...owner,
  personId: "per_operator",
  memberships: [],
  operator: OperatorRole.ADMIN,
};
const keyCaller: Caller = {
  kind: "key",
  key: create(KeySchema, { keyId: "key_1", accountId: "acc_a" }),
  secret: create(SecretSchema),
};

/** The callers of this moment, by the text of the authorization header. */
let sessions: Map<string, Caller>;
beforeEach(() => {
  sessions = new Map<string, Caller>([
    ["owner", owner],
    ["operator", operator],
    ["key", keyCaller],
    ["admin", environmentToken],
  ]);
});

type Methods = Implementation<typeof testService, AuthenticatedCall>;
type Run = (request: Message, call: AuthenticatedCall) => Promise<Message>;
type Stream = (request: Message, call: AuthenticatedCall) => AsyncIterable<Message>;

/** The service behind its interceptor, with the methods of `own`. */
function open(own: { read?: Run; change?: Run; open?: Run; watch?: Stream } = {}) {
  const events: AuditEvent[] = [];
  const record = vi.fn(async (event: AuditEvent) => void events.push(event));
  const lines: string[] = [];
  const log = pino({ base: null, timestamp: false }, { write: (line) => void lines.push(line) });
  const listeners = new Set<(change: { subjectId: string }) => void>();
  const empty: Run = async () => create(answerType);
  const all = { read: empty, change: empty, open: empty, watch: async function* () {}, ...own };
  const byName = new Map<string, unknown>(Object.entries(all));
  const methods = implement<Methods>(testService, ({ localName }) => byName.get(localName));
  const service = intercept(testService, methods, {
    authenticate: async (headers) => {
      const credential = headers.get("authorization");
      const caller = sessions.get(credential ?? "");
      if (!caller) throw new ApiError(credential === null ? "missing_key" : "invalid_key");
      return caller;
    },
    log,
    audit: { record },
    onCallerChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  });
  const bound = (name: string, members: object) => {
    const desc = testService.methods.find(({ localName }) => localName === name);
    if (!desc) return expect.unreachable(`the test service lacks ${name}`);
    const request = Object.assign(create(desc.input), members);
    return { method: boundMethod(service, desc), request };
  };
  return {
    events,
    record,
    listeners,
    log: () => lines.join(""),
    changed: (subjectId: string) => {
      for (const listener of listeners) listener({ subjectId });
    },
    call(name: "read" | "change" | "open", call: Call, members: object = {}) {
      const { method, request } = bound(name, members);
      return method.kind === "unary" ? method.run(request, call) : expect.unreachable();
    },
    watch(call: Call, members: object = {}) {
      const { method, request } = bound("watch", members);
      return method.kind === "stream"
        ? method.run(request, call)[Symbol.asyncIterator]()
        : expect.unreachable();
    },
  };
}

function as(credential: string | undefined, more: Partial<Call> = {}): Call {
  const headers = credential === undefined ? {} : { authorization: credential };
  return { signal: new AbortController().signal, requestHeader: new Headers(headers), ...more };
}

async function errorOf(call: Promise<unknown>): Promise<string> {
  const failure = await call.then(
    () => undefined,
    (error: unknown) => toApiError(error).reason,
  );
  return failure ?? "no error";
}

describe("the stream of a person", () => {
  const endless: Stream = async function* (_request, call) {
    yield create(answerType);
    await new Promise((resolve) => call.signal.addEventListener("abort", resolve));
    throw call.signal.reason;
  };

  test.for<[string, () => void, string]>([
    ["the session ends", () => sessions.delete("owner"), "invalid_key"],
    [
      "the membership ends",
      () => sessions.set("owner", { ...owner, memberships: [] }),
      "not_permitted",
    ],
    [
      "another account is all that is left",
      () =>
        sessions.set("owner", {
          ...owner,
          memberships: [{ accountId: "acc_b", role: AccountRole.OWNER }],
        }),
      "not_found",
    ],
    [
      "the role no longer suffices",
      () =>
        sessions.set("owner", {
          ...owner,
          memberships: [{ accountId: "acc_a", role: AccountRole.VIEWER }],
        }),
      "not_permitted",
    ],
    [
      "the role is lower, although it suffices: it may show less",
      () =>
        sessions.set("owner", {
          ...owner,
          memberships: [{ accountId: "acc_a", role: AccountRole.MEMBER }],
        }),
      "not_permitted",
    ],
  ])("ends when %s", async ([, change, reason]) => {
    const { watch, changed, listeners } = open({ watch: endless });
    const messages = watch(as("owner"), { accountId: "acc_a" });
    expect((await messages.next()).done).toBe(false);
    const next = errorOf(messages.next());
    change();
    changed("per_owner");
    expect(await next).toBe(reason);
    expect(listeners.size).toBe(0);
  });

  test("ends although the method ignores its signal", async () => {
    const { watch, changed } = open({
      async *watch() {
        yield create(answerType);
        await new Promise(() => {});
      },
    });
    const messages = watch(as("owner"), { accountId: "acc_a" });
    await messages.next();
    const next = errorOf(messages.next());
    sessions.delete("owner");
    changed("per_owner");
    expect(await next).toBe("invalid_key");
  });

  test("ends at once if the change came before it was watched for", async () => {
    const { watch } = open({ watch: endless });
    const find = sessions.get.bind(sessions);
    vi.spyOn(sessions, "get").mockImplementationOnce((credential) => {
      const caller = find(credential);
      sessions.delete(credential);
      return caller;
    });
    expect(await errorOf(watch(as("owner"), { accountId: "acc_a" }).next())).toBe("invalid_key");
  });

  test("continues after a change that leaves its role, and after changes of others", async () => {
    const more = Promise.withResolvers<void>();
    const { watch, changed } = open({
      async *watch() {
        yield create(answerType);
        await more.promise;
        yield create(answerType);
      },
    });
    const messages = watch(as("owner"), { accountId: "acc_a" });
    await messages.next();
    changed("per_owner");
    sessions.delete("owner");
    changed("per_operator");
    more.resolve();
    expect((await messages.next()).done).toBe(false);
    expect((await messages.next()).done).toBe(true);
  });

  test("that its reader leaves is cleaned up", async () => {
    let cleaned = false;
    const { watch, listeners } = open({
      async *watch() {
        try {
          for (;;) yield create(answerType);
        } finally {
          cleaned = true;
        }
      },
    });
    const messages = watch(as("owner"), { accountId: "acc_a" });
    await messages.next();
    await messages.return?.();
    expect([cleaned, listeners.size]).toEqual([true, 0]);
  });
});

describe("an audit event", () => {
  const at = expect.any(Date);

  test("names who did what to which account, with what outcome, and from where", async () => {
    const service = open({
      change: async (_request, call) => {
        call.note?.({ oldRequestsPerMinute: "60" });
        return create(answerType);
      },
    });
    const client = { "x-client-address": "203.0.113.9" };
    const requestHeader = new Headers({ authorization: "owner", ...client });
    await service.call("change", as(undefined, { requestHeader, namesClient: true }));
    const answered = as("admin", { peer: "198.51.100.7" });
    await errorOf(service.call("change", answered, { accountId: "acc_b" }));
    const change = { at, method: "Change", outcome: "ok" };
    expect(service.events).toEqual([
      {
        ...change,
        actor: "person:per_owner",
        accountId: "acc_a",
        facts: { oldRequestsPerMinute: "60" },
        address: "203.0.113.9",
      },
      {
        ...change,
        actor: "token:ADMIN_TOKEN",
        accountId: "acc_b",
        facts: { accountId: "acc_b", oldRequestsPerMinute: "60" },
        address: "198.51.100.7",
      },
    ]);
  });

  test("is left by a rejected change of a person too", async () => {
    const service = open();
    await errorOf(service.call("change", as("owner"), { accountId: "acc_b" }));
    sessions.set("owner", { ...owner, strongUntil: undefined });
    await errorOf(service.call("change", as("owner")));
    expect(service.events.map(({ outcome }) => outcome)).toEqual(["not_found", "confirm_identity"]);
  });

  test("is not left by a key or by nobody, who could fill the table: the log has it", async () => {
    const service = open();
    await errorOf(service.call("change", as("key")));
    await errorOf(service.call("change", as(undefined)));
    expect(service.events).toEqual([]);
    expect(service.log()).toContain("not_permitted");
    expect(service.log()).toContain("missing_key");
  });

  test("is in the log alone if it cannot be stored, and the call is answered", async () => {
    const service = open();
    service.record.mockRejectedValue(new Error("the database is down"));
    await service.call("change", as("owner"));
    expect(service.log()).toContain('"actor":"person:per_owner"');
    expect(service.log()).toContain("an audit event could not be stored");
  });

  test("has no secret and no text of the caller", async () => {
    const secret = "sk-gw2-1the-secret";
    const answer = async () => Object.assign(create(answerType), { secret });
    const service = open({ change: answer });
    await service.call("change", as("admin"), { accountId: "acc_a", secret });
    await errorOf(service.call("change", as("admin"), { accountId: secret }));
    expect(JSON.stringify(service.events.map(({ facts }) => facts))).not.toContain("sk-gw2-");
    expect(service.log()).not.toContain("sk-gw2-");
  });

  test("has texts of the answer that the gateway has checked, and the same of no request", async () => {
    const sent = { texts: ["sk-gw2-1the-secret"] };
    const checked = { texts: ["model-a", "model-b"] };
    const inside = (texts: object) => ({ inner: Object.assign(create(innerType), texts) });
    for (const [request, answer] of [
      [sent, checked],
      [inside(sent), inside(checked)],
    ] as const) {
      const service = open({ change: async () => Object.assign(create(answerType), answer) });
      await service.call("change", as("owner"), request);
      expect(service.events.map(({ facts }) => facts)).toEqual([{ texts: "model-a model-b" }]);
      const rejected = open({ change: () => Promise.reject(new ApiError("not_found")) });
      await errorOf(rejected.call("change", as("owner"), request));
      expect(rejected.events.map(({ outcome, facts }) => [outcome, facts])).toEqual([
        ["not_found", {}],
      ]);
      expect(service.log() + rejected.log()).not.toContain("sk-gw2-");
    }
  });

  test("is left once by an operator who looks into an account, never by its members", async () => {
    const service = open();
    for (const accountId of ["acc_a", "acc_a", "acc_b"])
      await service.call("read", as("operator"), { accountId });
    await service.call("read", as("owner"), { accountId: "acc_a" });
    await service.call("read", as("key"));
    expect(
      service.events.map(({ actor, accountId, method }) => [actor, accountId, method]),
    ).toEqual([
      ["person:per_operator", "acc_a", "Read"],
      ["person:per_operator", "acc_b", "Read"],
    ]);
  });
});

describe("a method for everybody", () => {
  const kindOf: Run = async (_request, { caller }) =>
    Object.assign(create(answerType), { secret: caller.kind });

  test.for([
    ["without a credential", undefined, "anyone"],
    ["with one that is no longer good", "wrong", "anyone"],
    ["with a session", "owner", "person"],
    ["with a key", "key", "key"],
  ])("is called %s by the right caller", async ([, credential, kind]) => {
    const answer = await open({ open: kindOf }).call("open", as(credential));
    expect(Reflect.get(answer, "secret")).toBe(kind);
  });

  test("fails if the credential cannot be checked", async () => {
    sessions.get = () => {
      throw new ApiError("billing_unavailable");
    };
    expect(await errorOf(open().call("open", as("owner")))).toBe("billing_unavailable");
  });
});
