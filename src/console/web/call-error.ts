// Why a call failed.

/** The size of a limit, in the unit at the end of its name. */
export type CallLimit = {
  readonly name: string;
  readonly size: bigint;
  readonly used: bigint | undefined;
  readonly resetsAt: Date | undefined;
};

/** The facts of an error. Absent: not known. */
export type CallFacts = {
  readonly reason?: string | undefined;
  readonly field?: string | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly limit?: CallLimit | undefined;
  readonly requestId?: string | undefined;
};

/** Why a call failed. Its message is a sentence for people. */
export class CallError extends Error {
  /** As `error.proto` lists them, in lower case; `offline` if there was no answer at all. */
  readonly reason: string;
  /** The field that caused it, as in the request: `monthly_cap_microcredits`. */
  readonly field: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly limit: CallLimit | undefined;
  /** To copy. May be empty. */
  readonly requestId: string;

  constructor(message: string, facts: CallFacts = {}) {
    super(message);
    this.reason = facts.reason ?? "internal";
    this.field = facts.field;
    this.retryAfterMs = facts.retryAfterMs;
    this.limit = facts.limit;
    this.requestId = facts.requestId ?? "";
  }

  /** True: the same call may succeed in a moment. */
  get isPassing(): boolean {
    return passingReasons.has(this.reason);
  }
}

const passingReasons = new Set([
  "offline",
  "gateway_unavailable",
  "database_unavailable",
  "billing_unavailable",
  "overloaded",
  "timeout",
]);

/** An error at one field, which the page found by itself. */
export function fieldError(field: string, message: string): CallError {
  return new CallError(message, { reason: "invalid_request", field });
}

/** The failure, whatever was thrown. */
export function toCallError(thrown: unknown): CallError {
  if (thrown instanceof CallError) return thrown;
  return new CallError(thrown instanceof Error ? thrown.message : String(thrown));
}
