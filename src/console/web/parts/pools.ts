// The two pools, and what people call them.

import { BillingService } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../../../gen/gateway/common/v1/family_pb.ts";
import type { Forecast } from "../../../../gen/gateway/common/v1/forecast_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { invalidate } from "../api.ts";
import { words } from "../words.ts";

export type PoolName = keyof typeof words.credits.pools;

/** As addresses and CSV files name it. */
export function poolNameOf(family: Family): PoolName {
  return family === Family.V2 ? "v2" : "v1";
}

/** What people call it, alone and in a sentence, and which keys it pays for. */
export function poolOf(family: Family): (typeof words.credits.pools)[PoolName] {
  return words.credits.pools[poolNameOf(family)];
}

export const familyOf: Readonly<Record<PoolName, Family>> = { v1: Family.V1, v2: Family.V2 };

/** Nothing is left, or less, of what somebody counts on: nobody does if it was never filled. */
export function isSpent({ freeMicrocredits: free, filledToMicrocredits }: Forecast): boolean {
  return free < 0n || (free === 0n && filledToMicrocredits !== undefined);
}

/** The parts that show credits ask again. */
export function poolsChanged(): void {
  const { getPools, listTransfers } = BillingService.method;
  const { getForecast } = UsageService.method;
  invalidate(getPools, getForecast, listTransfers);
}
