// The audit of administrative acts: each call of a method with the proto option `audited` writes a
// line to the log, and an event that its account's owners and the operators can read. So does a
// look of an operator into an account.

import {
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  getOption,
  isFieldSet,
  isMessage,
  type Message,
} from "@bufbuild/protobuf";
import { Recorded, recorded } from "../../gen/gateway/common/v1/options_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { actorOf, clientOf, isOutsider, isStranger } from "./callers.ts";
import type { AuditFacts, AuthenticatedCall, Call, Caller, ManagementCaller } from "./contract.ts";

/** One administrative act, or an operator's look into an account. */
export type AuditEvent = {
  readonly at: Date;
  /** As `actorOf` names the caller. */
  readonly actor: string;
  /** Empty: the act concerns no account, or failed before its account was known. */
  readonly accountId: string;
  /** The name of the method, such as `CreateKey`. Unique among all services. */
  readonly method: string;
  /** `ok`, or the reason of the error. */
  readonly outcome: string;
  /** Ids, amounts, limits; an earlier limit has the prefix `old`. */
  readonly facts: AuditFacts;
  /** IP address of the client. Empty: the gateway itself, or unknown. */
  readonly address: string;
};

/**
 * Stores events. The call waits for it and is answered in any case. A rejection is logged, and the
 * line of the log remains the only record.
 */
export type AuditSink = { record(event: AuditEvent): Promise<void> };

/** Authenticates a call and checks it; `identified` learns the caller as soon as it is known. */
type Admit = (
  request: Message,
  call: Call,
  identified: (caller: Caller) => void,
) => AuthenticatedCall | Promise<AuthenticatedCall>;
type Run = (request: Message, call: AuthenticatedCall) => Promise<Message>;

type Parts = {
  readonly admit: Admit;
  readonly run: Run;
  readonly log: Log;
  readonly sink: AuditSink | undefined;
};

/**
 * The same method, audited. Records the outcome of the work itself, even if the caller disconnected
 * before it ended.
 */
export function withAudit(desc: DescMethodUnary, { admit, run, log, sink }: Parts) {
  return async (request: Message, call: Call): Promise<Message> => {
    const act = new Act(desc, request, call, { log, sink });
    try {
      const admitted = await admit(request, call, act.identified);
      act.accountId = admitted.accountId;
      const answer = await run(request, { ...admitted, note: act.note });
      await act.record("ok", answer);
      return answer;
    } catch (error) {
      await act.record(toApiError(error).reason);
      throw error;
    }
  };
}

/** The same for a stream. One that its caller left, or that was aborted, is `cancelled`. */
export function streamWithAudit(
  desc: DescMethodServerStreaming,
  {
    log,
    sink,
    run,
  }: Omit<Parts, "admit" | "run"> & {
    run: (request: Message, call: Call, act: Act) => AsyncIterable<Message>;
  },
) {
  return async function* (request: Message, call: Call): AsyncGenerator<Message, void> {
    const act = new Act(desc, request, call, { log, sink });
    let outcome = "cancelled";
    try {
      yield* run(request, call, act);
      outcome = "ok";
    } catch (error) {
      outcome = toApiError(error).reason;
      throw error;
    } finally {
      await act.record(outcome);
    }
  };
}

/** One call of an audited method. */
export class Act {
  readonly #desc: DescMethod;
  readonly #request: Message;
  readonly #call: Call;
  readonly #log: Log;
  readonly #sink: AuditSink | undefined;
  #caller: Caller | undefined;
  #noted: AuditFacts = {};
  /** As `decideAccount` decided it. */
  accountId = "";

  constructor(
    desc: DescMethod,
    request: Message,
    call: Call,
    { log, sink }: Pick<Parts, "log" | "sink">,
  ) {
    this.#desc = desc;
    this.#request = request;
    this.#call = call;
    this.#log = log;
    this.#sink = sink;
  }

  readonly identified = (caller: Caller): void => {
    this.#caller = caller;
  };

  readonly note = (facts: AuditFacts): void => {
    this.#noted = { ...this.#noted, ...facts };
  };

  /** `answer`: of a unary method that succeeded. */
  async record(outcome: string, answer?: Message): Promise<void> {
    const { input, output, name: method } = this.#desc;
    const caller = this.#caller;
    const facts = {
      ...fieldsOf(input, this.#request, false),
      ...(answer && fieldsOf(output, answer, true)),
      ...this.#noted,
      ...(caller?.kind === "management" && callerFacts(caller)),
    };
    const actor = caller && actorOf(caller);
    this.#log.info({ method, outcome, ...(actor && { actor }), ...facts }, "audit");
    // Of others, only the log knows: else anybody could fill the table with rejected calls.
    if (!this.#sink || !actor || caller.kind === "key" || caller.kind === "anyone") return;
    const { address } = clientOf(this.#call);
    const named = facts.accountId ?? this.accountId;
    // Else anybody could write into the events of an account whose id he knows.
    const accountId = isStranger(caller, named) ? "" : named;
    const event = { actor, accountId, method, outcome, facts, address };
    await record(this.#sink, { at: new Date(), ...event }, this.#log);
  }
}

/** The name of a program: its id alone tells people nothing. */
const callerFacts = ({ name }: ManagementCaller): AuditFacts => ({ managementKey: name });

async function record(sink: AuditSink, event: AuditEvent, log: Log): Promise<void> {
  await sink.record(event).catch((err: unknown) => {
    log.error(
      { code: "audit_not_stored", err, method: event.method },
      "an audit event could not be stored",
    );
  });
}

/** How long further looks of an operator into the same account add no event. */
const looksMs = 10 * 60_000;
const looksMax = 10_000;

/** Records when operators look into accounts of which they are no members. */
export class OperatorLooks {
  readonly #sink: AuditSink;
  readonly #log: Log;
  readonly #recent = new BoundedMap<string, number>(looksMax);

  constructor(sink: AuditSink, log: Log) {
    this.#sink = sink;
    this.#log = log;
  }

  /** Call for a call that changes nothing. `answer`: it may name the account. */
  async record(desc: DescMethod, call: AuthenticatedCall, answer?: Message): Promise<void> {
    const { caller } = call;
    if (caller.kind !== "person") return;
    const facts = answer ? fieldsOf(desc.output, answer, true) : {};
    const accountId = call.accountId === "" ? facts.accountId : call.accountId;
    if (accountId === undefined || !isOutsider(caller, accountId)) return;
    const look = `${caller.personId} ${accountId} ${desc.name}`;
    const at = new Date();
    if (at.getTime() - (this.#recent.get(look) ?? 0) < looksMs) return;
    this.#recent.set(look, at.getTime());
    const { address } = clientOf(call);
    const event = { at, actor: actorOf(caller), accountId, method: desc.name, outcome: "ok" };
    await record(this.#sink, { ...event, facts: { accountId }, address }, this.#log);
  }
}

/** A field that the audit looks at. */
type RecordedField = {
  readonly field: DescField;
  readonly recorded: Recorded;
  /** Of a field that is a message. */
  readonly inner: DescMessage | undefined;
};
const recordedByType = new WeakMap<DescMessage, readonly RecordedField[]>();

/** Read once for each type: other fields hold secrets and free text, so each one says it. */
function recordedOf(type: DescMessage): readonly RecordedField[] {
  const known = recordedByType.get(type);
  if (known) return known;
  const fields = type.fields
    .filter((field) => !field.oneof && !isRedacted(field))
    .map((field) => ({ field, recorded: getOption(field, recorded), inner: field.message }))
    .filter(({ recorded: when, inner }) => when !== Recorded.UNSPECIFIED || inner);
  recordedByType.set(type, fields);
  return fields;
}

/** True for secrets, passwords, tokens and links. */
function isRedacted({ proto }: DescField): boolean {
  return proto.options?.debugRedact === true;
}

// Keeps a secret out of the record that was sent in place of an id.
const idForm = /^[a-z]{3}_[0-9A-Za-z]{1,64}$/;

/** The recorded fields of a message and of the messages in it. */
function fieldsOf(type: DescMessage, message: Message, isAnswer: boolean): Record<string, string> {
  const fields: Record<string, string> = {};
  for (const { field, recorded: when, inner } of recordedOf(type)) {
    if (!isFieldSet(message, field)) continue;
    const value: unknown = Reflect.get(message, field.localName);
    if (inner && isMessage(value)) Object.assign(fields, fieldsOf(inner, value, isAnswer));
    const text =
      when === Recorded.ALWAYS
        ? textOf(field, value)
        : isAnswer && when === Recorded.IN_ANSWERS && Array.isArray(value)
          ? value.join(" ")
          : undefined;
    if (text !== undefined) fields[field.localName] = text;
  }
  return fields;
}

function textOf(field: DescField, value: unknown): string | undefined {
  if (typeof value === "bigint" || typeof value === "boolean") return String(value);
  if (typeof value === "number")
    return field.enum ? field.enum.value[value]?.localName : String(value);
  return typeof value === "string" && idForm.test(value) ? value : undefined;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * the row of an administrative act is missing in `audit_events`, and the line `audit` has it;
     * look at the database
     */
    audit_not_stored: true;
  }
}
