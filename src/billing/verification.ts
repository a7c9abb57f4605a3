// Checks of the whole ledger, and what the last one found.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type GetLastVerificationResponse,
  GetLastVerificationResponseSchema,
  type VerifyLedgerResponse,
  VerifyLedgerResponseSchema,
  type Violation,
  ViolationSchema,
} from "../../gen/gateway/verification/v1/verification_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { toActor } from "../base/actors.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Json, Runner } from "../postgres/statement.ts";
import type { LedgerStore } from "./store.ts";

/** So many violations are kept. All of them are counted. */
const violationsKept = 100;

/** One check of the ledger. `startedBy`: as `actorOf` names the caller. */
export type Verification = Omit<sql.ReadVerificationRow, "violations" | "cleanAt"> & {
  /** The first ones. */
  readonly violations: readonly Violation[];
};

export type VerificationParts = {
  readonly store: Pick<LedgerStore, "run">;
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
  // The caller gets the answer all the same.
  await store
    .run(sql.insertVerification, {
      verificationId: timeOrderedId("ver_"),
      startedAt,
      endedAt: new Date(),
      startedBy: actorOf(caller),
      violationCount: violations.length,
      violations: JSON.stringify(kept),
    })
    .catch((err: unknown) =>
      log.warn(
        { code: "verification_not_stored", err, violations: violations.length },
        "the ledger was checked, and the result could not be stored",
      ),
    );
  return create(VerifyLedgerResponseSchema, { violations });
}

/** The last check, and the end of the last one that found nothing. Undefined: there was none. */
export async function latestVerification(
  db: Runner,
): Promise<{ latest: Verification | undefined; cleanAt: Date | undefined }> {
  const row = await db.run(sql.readVerification);
  if (!row) return { latest: undefined, cleanAt: undefined };
  const { cleanAt, ...latest } = row;
  const violations = readViolations(row.violations);
  return { latest: { ...latest, violations }, cleanAt: cleanAt ?? undefined };
}

/** The same as an answer. */
export async function getLastVerification(db: Runner): Promise<GetLastVerificationResponse> {
  const { latest, cleanAt } = await latestVerification(db);
  return create(GetLastVerificationResponseSchema, {
    ...(latest && {
      latest: {
        startedAt: timestampFromDate(latest.startedAt),
        endedAt: timestampFromDate(latest.endedAt),
        startedBy: toActor(latest.startedBy),
        violationCount: latest.violationCount,
        violations: [...latest.violations],
      },
    }),
    ...(cleanAt && { latestCleanAt: timestampFromDate(cleanAt) }),
  });
}

function readViolations(json: Json): Violation[] {
  if (!Array.isArray(json)) return [];
  return json.map((stored: unknown) => {
    const { invariant, subject, detail } = Object(stored);
    return create(ViolationSchema, {
      invariant: String(invariant),
      subject: String(subject),
      detail: String(detail),
    });
  });
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** the ledger was checked, and operators do not see the result; look at the database */
    verification_not_stored: true;
  }
}
