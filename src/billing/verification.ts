// Checks of the whole ledger, and what the last one found.

import { create } from "@bufbuild/protobuf";
import {
  type VerifyLedgerResponse,
  VerifyLedgerResponseSchema,
  type Violation,
  ViolationSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { statement } from "../postgres/postgres.ts";
import type { LedgerStore } from "./store.ts";

const statements = {
  insertVerification: statement(import.meta.url, "insert-verification"),
  readVerification: statement(import.meta.url, "read-verification"),
};

/** So many violations are kept. All of them are counted. */
const violationsKept = 100;

/** One check of the ledger. */
export type Verification = {
  readonly verificationId: string;
  readonly startedAt: Date;
  readonly endedAt: Date;
  /** As `actorOf` names the caller. */
  readonly startedBy: string;
  readonly violationCount: number;
  /** The first ones. */
  readonly violations: readonly Violation[];
};

export type VerificationParts = {
  readonly store: Pick<LedgerStore, "query">;
  readonly reports: Pick<LedgerStore, "verifyLedger">;
  readonly log: Log;
};

/** Checks every invariant, and stores what it found. */
export async function verifyLedger(
  { store, reports, log }: VerificationParts,
  { caller, signal }: Pick<AuthenticatedCall, "caller" | "signal">,
): Promise<VerifyLedgerResponse> {
  const startedAt = new Date();
  const violations = await reports.verifyLedger(signal);
  const kept = violations
    .slice(0, violationsKept)
    .map(({ invariant, subject, detail }) => ({ invariant, subject, detail }));
  const values = [startedAt, new Date(), actorOf(caller), violations.length, JSON.stringify(kept)];
  // The caller gets the answer all the same.
  await store
    .query(statements.insertVerification, [timeOrderedId("ver_"), ...values])
    .catch((err: unknown) =>
      log.warn(
        { code: "verification_not_stored", err, violations: violations.length },
        "the ledger was checked, and the result could not be stored",
      ),
    );
  return create(VerifyLedgerResponseSchema, { violations });
}

type Row = {
  verification_id: string;
  started_at: Date;
  ended_at: Date;
  started_by: string;
  violation_count: number;
  violations: unknown;
  clean_at: Date | null;
};

/**
 * The last check, and the end of the last one that found nothing. Undefined: there was none.
 * `query`: of a store.
 */
export async function latestVerification(
  query: LedgerStore["query"],
): Promise<{ latest: Verification | undefined; cleanAt: Date | undefined }> {
  const [row] = await query<Row>(statements.readVerification, []);
  if (!row) return { latest: undefined, cleanAt: undefined };
  const violations = Array.isArray(row.violations) ? row.violations : [];
  return {
    latest: {
      verificationId: row.verification_id,
      startedAt: row.started_at,
      endedAt: row.ended_at,
      startedBy: row.started_by,
      violationCount: row.violation_count,
      violations: violations.map(toViolation),
    },
    cleanAt: row.clean_at ?? undefined,
  };
}

function toViolation(stored: unknown): Violation {
  const { invariant, subject, detail } = Object(stored);
  return create(ViolationSchema, {
    invariant: String(invariant),
    subject: String(subject),
    detail: String(detail),
  });
}
