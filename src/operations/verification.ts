// The last check of the ledger.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type GetVerificationResponse,
  GetVerificationResponseSchema,
  type Violation,
} from "../../gen/gateway/verification/v1/verification_pb.ts";

export type VerificationParts = {
  readonly ledger: {
    /** Undefined: there was none. */
    latestVerification(): Promise<{
      readonly latest:
        | {
            readonly startedAt: Date;
            readonly endedAt: Date;
            readonly startedBy: string;
            readonly violationCount: number;
            readonly violations: readonly Violation[];
          }
        | undefined;
      /** The end of the last one that found nothing. */
      readonly cleanAt: Date | undefined;
    }>;
  };
};

export async function getVerification({
  ledger,
}: VerificationParts): Promise<GetVerificationResponse> {
  const { latest, cleanAt } = await ledger.latestVerification();
  return create(GetVerificationResponseSchema, {
    ...(latest && {
      latest: {
        startedAt: timestampFromDate(latest.startedAt),
        endedAt: timestampFromDate(latest.endedAt),
        startedBy: latest.startedBy,
        violationCount: latest.violationCount,
        violations: [...latest.violations],
      },
    }),
    ...(cleanAt && { latestCleanAt: timestampFromDate(cleanAt) }),
  });
}
